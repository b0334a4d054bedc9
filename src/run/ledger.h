/* Ledger: who of a run holds how many bytes, and how many they may hold together.
 *
 * One small file, mapped by the processes of a run: `stowage run` makes it, the shim in each
 * process has a slot in it. There is no lock. A process only writes words of its own slot, each one
 * with a single store, so one that dies at any instruction leaves at worst a slot whose owner is
 * dead: its bytes stop counting as soon as anybody looks (the owner is a process id and its start
 * time, so a reused id is not taken for it).
 *
 * A limit is kept exactly: a process first announces what it wants in its own slot, then sums all
 * slots, and only if everything announced fits does the announcement become a holding. Two that
 * announce at once may both see no room; they then draw back and try again, for a bounded while. */
#ifndef RUN_LEDGER_H
#define RUN_LEDGER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define LEDGER_DEVICES_MAX    16
#define LEDGER_SLOTS_MAX      1024
#define LEDGER_REFUSALS_MAX   64
#define LEDGER_UNRECORDED_MAX 16
#define LEDGER_UNLIMITED      UINT64_MAX
#define LEDGER_TAKING         (UINT64_C(1) << 63) /* no process has a number that high */

enum {
  LEDGER_PATH_UNKNOWN = 0,
  LEDGER_PATH_NONE = 1,
  LEDGER_PATH_PAGES = 2,
  LEDGER_PATH_PINNED = 3
};

/* What bytes are. The first kinds are vram and count against its limit; LEDGER_SPILLED counts
 * against the spill budget; the rest are only reported. */
typedef enum ledger_kind {
  LEDGER_PLAIN = 0, /* cuMemAlloc and its pitched form */
  LEDGER_PAGES,     /* cuMemCreate on the device */
  LEDGER_POOLS,     /* reserve of the stream-ordered pools */
  LEDGER_ARRAYS,
  LEDGER_MANAGED,
  LEDGER_GRAPHS,  /* reserve of graphs' memory nodes */
  LEDGER_CONTEXT, /* what the driver holds beyond all that: contexts, code; by difference */
  LEDGER_VRAM_KINDS,
  LEDGER_SPILLED = LEDGER_VRAM_KINDS, /* host pages behind device addresses */
  LEDGER_PINNED,                      /* host memory the program pinned itself */
  LEDGER_IPC,                         /* opened from another process, which counts it */
  LEDGER_KIND_COUNT
} ledger_kind;

/* "plain", "pages", … */
const char *ledger_kind_name(ledger_kind kind);

typedef struct ledger_device {
  _Atomic uint64_t bytes[LEDGER_KIND_COUNT];
  _Atomic uint64_t wanted_vram, wanted_spill; /* announced, not yet held */
  _Atomic uint64_t idle_vram, idle_spill;     /* held, and given up as soon as they are asked for */
  _Atomic uint64_t begun;                     /* 1: a context is being made, or not measured yet */
} ledger_device;

typedef struct ledger_slot {
  _Atomic uint64_t owner; /* pid << 32 | low half of its start time; 0: nobody; LEDGER_TAKING
                             besides while what the last owner left is cleared away */
  /* Counts up before and after each change of a `bytes` below, so that a sum over all slots can
   * detect changes made while it was taken. Never reset. */
  _Atomic uint64_t changes;
  uint64_t unused[6];
  ledger_device devices[LEDGER_DEVICES_MAX];
} ledger_slot;

/* A request that was turned down. */
typedef struct ledger_refusal {
  uint64_t pid;
  uint64_t device;
  uint64_t asked_bytes;
  uint64_t limit_bytes, held_bytes; /* of vram at that moment, the whole run */
  uint64_t spill_limit_bytes, spilled_bytes;
  uint64_t time_ns;       /* wall clock */
  uint64_t context_bytes; /* of held_bytes, what the driver holds for itself */
  uint64_t fixed_bytes;   /* and what the process holds in graphs and exported pools */
} ledger_refusal;

typedef struct ledger_header {
  uint64_t magic;
  uint32_t version, slot_count;
  uint64_t total_bytes;
  _Atomic uint64_t vram_limit_bytes[LEDGER_DEVICES_MAX]; /* LEDGER_UNLIMITED: none */
  _Atomic uint64_t spill_limit_bytes;                    /* of all devices; 0: no spill */
  _Atomic uint64_t others_bytes[LEDGER_DEVICES_MAX];     /* in use by programs that are not of the
                                                            run, as last seen; LEDGER_UNLIMITED:
                                                            not known */
  _Atomic uint64_t peak_vram_bytes[LEDGER_DEVICES_MAX];  /* of the whole run */
  _Atomic uint64_t peak_spilled_bytes[LEDGER_DEVICES_MAX];
  _Atomic uint64_t spilled_total_bytes;   /* ever made */
  _Atomic uint64_t moved_out_bytes;       /* from vram to the host, under their addresses */
  _Atomic uint64_t moved_home_bytes;      /* and the other way */
  _Atomic uint64_t steps[2], steps_ns[2]; /* of training, and their time: in vram alone, spilled */
  _Atomic uint64_t steps_best_ns;         /* the fastest of those that spilled; 0: none */
  _Atomic uint64_t exchanges, moving_ns;  /* times that pages were exchanged, and what programs
                                             waited for it */
  /* Of a PyTorch training loop: its weights, gradients and optimizer state on devices. */
  _Atomic uint64_t weight_bytes, gradient_bytes, state_bytes;
  char optimizer[32];              /* its type; the largest of several */
  _Atomic uint64_t refused_count;  /* final or not: a framework may retry */
  _Atomic uint64_t retried_count;  /* refusals after which the same thread was served */
  _Atomic uint64_t host_path;      /* LEDGER_PATH_…: can this driver put pages on the host? */
  _Atomic uint64_t torch_whole;    /* 1: a PyTorch of the run does not have the expandable segments
                                      that were asked of it */
  _Atomic uint64_t xla_graphs_off; /* 1: a JAX of the run spilled without command buffers */
  _Atomic uint64_t devices_known;  /* others_bytes and uuids are written, or will not be */
  _Atomic uint64_t slots_high;     /* no slot from here on was ever used */
  _Atomic uint64_t processes;      /* that joined */
  _Atomic uint64_t turned_away;    /* processes that found no free slot */
  /* Processes whose trace could not be opened although the run records: how many, the first of
   * them, and why the first one failed. */
  _Atomic uint64_t unrecorded;
  _Atomic uint64_t unrecorded_pids[LEDGER_UNRECORDED_MAX];
  char unrecorded_reason[160];
  struct {
    _Atomic uint64_t serial; /* 0: never written; odd: being written */
    ledger_refusal what;
  } refusals[LEDGER_REFUSALS_MAX];
  char host_reason[256];              /* why host_path is what it is; written before it */
  char uuids[LEDGER_DEVICES_MAX][48]; /* of the devices, as NVML has them; "" where not known */
  char visible_devices[256];          /* CUDA_VISIBLE_DEVICES when the run began; "" if unset */
  char machine[96];                   /* where its processes' numbers mean something */
} ledger_header;

typedef struct ledger {
  ledger_header *header; /* NULL: not open */
  ledger_slot *slots;
  size_t mapped_bytes;
  _Atomic uint32_t own; /* slot + 1; 0: not joined */
} ledger;

/* Makes the file (which must not exist) without limits; NULL: memory of this process alone. */
stow_status ledger_create(ledger *l, const char *path);
/* Maps a ledger file. STOW_ERR_FORMAT if it is not a ledger. */
stow_status ledger_open(ledger *l, const char *path);
/* Reads a copy of the file; later changes of the file do not matter. STOW_ERR_FORMAT if it is not a
 * ledger. */
stow_status ledger_copy(ledger *l, const char *path);
void ledger_close(ledger *l);
/* Replaces `l` by a private ledger with the run's limits if the run was started on another machine.
 * A launcher may start processes of one run on several machines that share its folder: they have
 * other devices and cannot see each other's processes. Otherwise changes nothing. */
stow_status ledger_part_elsewhere(ledger *l);

/* Survives a ledger whose file is cut short while it is mapped, for `stowage run` and its
 * processes: an access to what is gone would otherwise end them with SIGBUS. The mapping becomes
 * zeros then, and ledger_lost is true. Other bus errors go to the handler that was there before.
 * One ledger at a time; ledger_close undoes it. */
void ledger_guard(ledger *l);
/* The same for a process of a run. A device with a limit then has a limit of 0, and nothing more is
 * served: what cannot be counted cannot be kept within it. A device without a limit stays so. */
void ledger_guard_process(ledger *l);
/* Called by ledger_close. */
void ledger_unguard(const ledger *l);
/* Returns true if the guarded ledger's file was cut short. Checks the file `path` too. */
bool ledger_lost(const ledger *l, const char *path);

/* Takes a slot for the calling process. STOW_ERR_BUDGET: all are taken by processes that live.
 * Without a slot ledger_take refuses whatever has a limit: what cannot be counted cannot be kept
 * within it. */
stow_status ledger_join(ledger *l);

/* Adds `bytes` of a kind to the caller's slot if the limit allows it, and returns true if so. A
 * kind without a limit always fits. Does not update the peak: the driver may still refuse. */
bool ledger_take(ledger *l, unsigned device, ledger_kind kind, uint64_t bytes);
/* Updates the peak after the driver served the request. Bytes taken within the limit never count as
 * a peak above it. */
void ledger_note_peak(ledger *l, unsigned device);
/* Adds bytes that the driver has taken already, without checking the limit. */
void ledger_add(ledger *l, unsigned device, ledger_kind kind, uint64_t bytes);
void ledger_give(ledger *l, unsigned device, ledger_kind kind, uint64_t bytes);
/* Sets the caller's bytes of a kind that is measured, not counted. */
void ledger_set(ledger *l, unsigned device, ledger_kind kind, uint64_t bytes);
uint64_t ledger_own(const ledger *l, unsigned device, ledger_kind kind);
/* The caller begins to make a context on the device, or has measured what it took. */
void ledger_set_begun(ledger *l, unsigned device, bool begun);

/* What all processes hold. Cheap enough for every request. Includes processes that died since the
 * last ledger_reap, so call that first for a figure that is reported or stored. */
typedef struct ledger_totals {
  uint64_t bytes[LEDGER_KIND_COUNT];
  uint64_t vram_bytes;   /* the kinds that count against the limit */
  uint64_t wanted_bytes; /* announced vram */
  uint64_t idle_vram_bytes, idle_spill_bytes;
  uint64_t begun; /* processes that are making a context */
  uint32_t processes;
} ledger_totals;
void ledger_sum(const ledger *l, unsigned device, ledger_totals *totals);
/* Returns the bytes in use on the host for all devices, which share one budget. Excludes pages that
 * are cached there for reuse. */
uint64_t ledger_spilled(const ledger *l);
/* Frees the slots of processes that are gone. Returns their number. */
unsigned ledger_reap(ledger *l);

/* Sets how much of what the caller holds is idle. */
void ledger_set_idle(ledger *l, unsigned device, uint64_t vram_bytes, uint64_t spill_bytes);

/* Converts the device's own figures to those that a program sees: at most the limit, plus
 * `spill_bytes` that may go to the host. Reaps dead processes first. */
void ledger_report_memory(ledger *l, unsigned device, uint64_t spill_bytes, uint64_t *free_bytes,
                          uint64_t *total_bytes);

uint64_t ledger_limit(const ledger *l, unsigned device);
uint64_t ledger_spill_limit(const ledger *l);

/* Notes a refusal; the latest of the run, false if there was none. */
void ledger_refuse(ledger *l, const ledger_refusal *refusal);
bool ledger_last_refusal(const ledger *l, ledger_refusal *refusal);
/* Was one turned down for good? With a spill, whoever asks again is refused first and then served.
 */
bool ledger_ran_out(const ledger *l);

#endif
