/* Ledger: how many bytes each process of a run holds, and how many they may hold together.
 *
 * A small file that all processes of a run map. `stowage run` creates it; the shim in each process
 * has a slot in it. There is no lock. A process writes only to its own slot, each word with a
 * single store. A process that dies at any instruction leaves at worst a slot whose owner is dead,
 * and the next reader ignores its bytes. The owner is a process ID with its start time, so a reused
 * ID is not mistaken for it.
 *
 * A limit is exact. A process first announces a request in its own slot and then sums all slots.
 * Only if all announced bytes fit, its request becomes held bytes. Two processes that announce at
 * once may both see too little space; both withdraw and retry, for a bounded time. */
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
#define LEDGER_TAKING         (UINT64_C(1) << 63) /* no process ID is that high */

enum {
  LEDGER_PATH_UNKNOWN = 0,
  LEDGER_PATH_NONE = 1,
  LEDGER_PATH_PAGES = 2,
  LEDGER_PATH_PINNED = 3
};

/* Kinds of memory. The first kinds are vram and count against its limit; LEDGER_SPILLED counts
 * against the spill budget; the rest are only reported. */
typedef enum ledger_kind {
  LEDGER_PLAIN = 0, /* cuMemAlloc and its pitched form */
  LEDGER_PAGES,     /* cuMemCreate on the device */
  LEDGER_POOLS,     /* reserved by the stream-ordered pools */
  LEDGER_ARRAYS,
  LEDGER_MANAGED,
  LEDGER_GRAPHS,  /* reserved for memory nodes of graphs */
  LEDGER_CONTEXT, /* the driver's own memory (contexts, code): total minus the kinds above */
  LEDGER_VRAM_KINDS,
  LEDGER_SPILLED = LEDGER_VRAM_KINDS, /* host pages behind device addresses */
  LEDGER_PINNED,                      /* host memory the program pinned itself */
  LEDGER_IPC,                         /* opened from another process, which counts it */
  LEDGER_KIND_COUNT
} ledger_kind;

/* Returns "plain", "pages", … */
const char *ledger_kind_name(ledger_kind kind);

typedef struct ledger_device {
  _Atomic uint64_t bytes[LEDGER_KIND_COUNT];
  _Atomic uint64_t wanted_vram, wanted_spill; /* announced, but not yet held */
  _Atomic uint64_t idle_vram, idle_spill;     /* held, but released on request */
  _Atomic uint64_t unused_spill;              /* host pages that back no address of the program:
                                               * idle ones, and copies of pages in vram */
  _Atomic uint64_t begun;                     /* 1: a context is being created, or is not measured
                                               * yet */
} ledger_device;

typedef struct ledger_slot {
  _Atomic uint64_t owner; /* pid << 32 | low half of its start time; 0: free. LEDGER_TAKING is set
                           * while the new owner clears the slot */
  /* Incremented before and after each change of a `bytes` below, so that a sum over all slots can
   * detect concurrent changes. Never reset. */
  _Atomic uint64_t changes;
  uint64_t unused[6];
  ledger_device devices[LEDGER_DEVICES_MAX];
} ledger_slot;

/* A refused request. */
typedef struct ledger_refusal {
  uint64_t pid;
  uint64_t device;
  uint64_t asked_bytes;
  uint64_t limit_bytes, held_bytes; /* the run's vram limit and use at that moment */
  uint64_t spill_limit_bytes, spilled_bytes;
  uint64_t time_ns;       /* wall clock */
  uint64_t context_bytes; /* part of held_bytes: the driver's own memory */
  uint64_t fixed_bytes;   /* part of held_bytes: graphs and exported pools of the process */
} ledger_refusal;

typedef struct ledger_header {
  uint64_t magic;
  uint32_t version, slot_count;
  uint64_t total_bytes;
  _Atomic uint64_t vram_limit_bytes[LEDGER_DEVICES_MAX]; /* LEDGER_UNLIMITED: no limit */
  _Atomic uint64_t spill_limit_bytes;                    /* for all devices together; 0: no spill */
  _Atomic uint64_t others_bytes[LEDGER_DEVICES_MAX];     /* vram in use by programs outside the run,
                                                          * as last read; LEDGER_UNLIMITED:
                                                          * unknown */
  _Atomic uint64_t card_bytes[LEDGER_DEVICES_MAX];       /* the device's memory; 0: unknown */
  _Atomic uint64_t peak_vram_bytes[LEDGER_DEVICES_MAX];  /* highest use of the whole run */
  _Atomic uint64_t peak_spilled_bytes[LEDGER_DEVICES_MAX];
  _Atomic uint64_t peak_excess_bytes[LEDGER_DEVICES_MAX]; /* of those, what did not fit in vram */
  _Atomic uint64_t peak_other_bytes[LEDGER_DEVICES_MAX];  /* vram other than pages */
  /* What PyTorch had allocated at once, and its saved tensors that were on the host; 0: unknown. */
  _Atomic uint64_t peak_need_bytes[LEDGER_DEVICES_MAX];
  _Atomic uint64_t lasting_bytes; /* of those, between the steps of a training loop; 0: unknown */
  _Atomic uint64_t copies_bytes;  /* pinned host memory for saved tensors */
  _Atomic uint64_t spilled_total_bytes;   /* all bytes ever spilled */
  _Atomic uint64_t moved_out_bytes;       /* moved from vram to the host, at the same addresses */
  _Atomic uint64_t moved_home_bytes;      /* moved from the host back to vram */
  _Atomic uint64_t steps[2], steps_ns[2]; /* training steps and their time: [0] in vram only, [1]
                                           * with spilled memory */
  _Atomic uint64_t steps_best_ns;         /* fastest step with spilled memory; 0: none */
  _Atomic uint64_t exchanges, moving_ns;  /* number of page exchanges, and how long programs waited
                                           * for them */
  /* For a PyTorch training loop: its weights, gradients and optimizer state on devices. */
  _Atomic uint64_t weight_bytes, gradient_bytes, state_bytes;
  char optimizer[32];             /* type of the optimizer; the largest if there are several */
  _Atomic uint64_t refused_count; /* includes refusals after which a framework retried */
  _Atomic uint64_t retried_count; /* refusals after which the same thread succeeded */
  _Atomic uint64_t host_path;   /* LEDGER_PATH_…: whether this driver can put pages on the host */
  _Atomic uint64_t torch_whole; /* 1: a PyTorch of the run does not have the expandable segments
                                 * that the run requested */
  _Atomic uint64_t xla_graphs_off; /* 1: a JAX of the run has no command buffers */
  _Atomic uint64_t xla_part;       /* the percentage given to XLA (RUN_XLA_PART); 0: none */
  _Atomic uint64_t devices_known;  /* 1: others_bytes, card_bytes and uuids are written, or never
                                    * will be */
  _Atomic uint64_t slots_high;     /* slots from here on were never used */
  _Atomic uint64_t processes;      /* number of processes that joined */
  _Atomic uint64_t turned_away;    /* processes that found no free slot */
  /* Processes whose trace could not be opened although the run records: their number, the first
   * PIDs, and why the first one failed. */
  _Atomic uint64_t unrecorded;
  _Atomic uint64_t unrecorded_pids[LEDGER_UNRECORDED_MAX];
  char unrecorded_reason[160];
  struct {
    _Atomic uint64_t serial; /* 0: never written; odd: being written */
    ledger_refusal what;
  } refusals[LEDGER_REFUSALS_MAX];
  char host_reason[256];              /* the reason for host_path; written before it */
  char uuids[LEDGER_DEVICES_MAX][48]; /* UUIDs of the devices as NVML reports them; "": unknown */
  char visible_devices[256];          /* CUDA_VISIBLE_DEVICES when the run began; "" if unset */
  char machine[96];                   /* identifies the machine on which the process IDs are
                                       * valid */
} ledger_header;

typedef struct ledger {
  ledger_header *header; /* NULL: not open */
  ledger_slot *slots;
  size_t mapped_bytes;
  _Atomic uint32_t own; /* slot + 1; 0: not joined */
} ledger;

/* Creates the file (which must not exist) without limits. With path NULL, uses private memory. */
stow_status ledger_create(ledger *l, const char *path);
/* Maps a ledger file. STOW_ERR_FORMAT if it is not a ledger. */
stow_status ledger_open(ledger *l, const char *path);
/* Reads a copy of the file, which later changes do not affect. STOW_ERR_FORMAT if it is not a
 * ledger. */
stow_status ledger_copy(ledger *l, const char *path);
void ledger_close(ledger *l);
/* Replaces `l` by a private ledger with the run's limits if the run was started on another machine.
 * A launcher may start processes of one run on several machines that share its folder: they have
 * other devices and cannot see each other's processes. Otherwise changes nothing. */
stow_status ledger_part_elsewhere(ledger *l);

/* Lets `stowage run` survive a ledger file that is truncated while it is mapped; an access would
 * otherwise raise SIGBUS. The mapping then reads as zeros, and ledger_lost returns true. Other bus
 * errors go to the previous handler. Guards one ledger at a time; ledger_close removes the
 * guard. */
void ledger_guard(ledger *l);
/* Does the same for a process of the run. If the file is lost, a device with a limit gets the limit
 * 0, because bytes that cannot be counted cannot be limited. A device without a limit keeps
 * none. */
void ledger_guard_process(ledger *l);
/* Removes the guard; called by ledger_close. */
void ledger_unguard(const ledger *l);
/* Returns true if the guarded ledger's file was cut short. Checks the file `path` too. */
bool ledger_lost(const ledger *l, const char *path);

/* Takes a slot for the calling process. STOW_ERR_BUDGET: live processes hold all slots. Without a
 * slot, ledger_charge refuses every request that has a limit. */
stow_status ledger_join(ledger *l);

/* Adds `bytes` of a kind to the caller's slot if the limit allows it, and returns true if so. A
 * kind without a limit always fits. Does not update the peak: the driver may still refuse. */
bool ledger_charge(ledger *l, unsigned device, ledger_kind kind, uint64_t bytes);
/* For a request that the driver serves in several parts: announces `bytes` that were charged, so
 * that no other request gets them although they are not held yet. Each part then moves from
 * announced to charged. ledger_withdraw ends the announcement of parts that are not needed. */
void ledger_announce(ledger *l, unsigned device, ledger_kind kind, uint64_t bytes);
void ledger_charge_announced(ledger *l, unsigned device, ledger_kind kind, uint64_t bytes);
void ledger_withdraw(ledger *l, unsigned device, ledger_kind kind, uint64_t bytes);
/* Updates the peak after the driver served the request. Bytes granted within the limit never raise
 * the peak above it. */
void ledger_note_peak(ledger *l, unsigned device);
/* Adds bytes that the driver has already allocated, without checking the limit. */
void ledger_add(ledger *l, unsigned device, ledger_kind kind, uint64_t bytes);
void ledger_uncharge(ledger *l, unsigned device, ledger_kind kind, uint64_t bytes);
/* Sets the caller's bytes of a kind that is measured rather than counted. */
void ledger_set(ledger *l, unsigned device, ledger_kind kind, uint64_t bytes);
uint64_t ledger_own(const ledger *l, unsigned device, ledger_kind kind);
/* Notes that the caller starts to create a context on the device (true), or has measured it. */
void ledger_set_begun(ledger *l, unsigned device, bool begun);

/* What all processes hold. Cheap enough for every request. Includes processes that died since the
 * last ledger_reap; call that first for a figure that is reported or stored. */
typedef struct ledger_totals {
  uint64_t bytes[LEDGER_KIND_COUNT];
  uint64_t vram_bytes;   /* bytes of the kinds that count against the limit */
  uint64_t wanted_bytes; /* announced vram */
  uint64_t idle_vram_bytes, idle_spill_bytes, unused_spill_bytes;
  uint64_t begun; /* number of processes that are creating a context */
  uint32_t processes;
} ledger_totals;
void ledger_sum(const ledger *l, unsigned device, ledger_totals *totals);
/* Returns the bytes in use on the host for all devices, which share one budget. Excludes pages that
 * are cached there for reuse. */
uint64_t ledger_spilled(const ledger *l);
/* Frees the slots of dead processes. Returns their number. */
unsigned ledger_reap(ledger *l);

/* Sets how many of the caller's held bytes are idle. */
void ledger_set_idle(ledger *l, unsigned device, uint64_t vram_bytes, uint64_t spill_bytes);
/* Stores how many spilled bytes of this process back no address of the program. Call it before such
 * bytes are taken: the peak of what did not fit must not include them. */
void ledger_set_unused(ledger *l, unsigned device, uint64_t spill_bytes);
/* Counts saved tensors that one step moved from vram to pinned memory and back. */
void ledger_count_saved(ledger *l, uint64_t out_bytes, uint64_t home_bytes);
/* Counts pinned memory for them. */
void ledger_count_copies(ledger *l, uint64_t bytes);
/* Notes what the program needs at once; `lasting_bytes`: between two steps, or 0. */
void ledger_note_need(ledger *l, unsigned device, uint64_t bytes, uint64_t lasting_bytes);

/* Converts the device's own figures to those that a program sees: at most the limit, plus the
 * `spill_bytes` that may go to the host. Reaps dead processes first. */
void ledger_report_memory(ledger *l, unsigned device, uint64_t spill_bytes, uint64_t *free_bytes,
                          uint64_t *total_bytes);

uint64_t ledger_limit(const ledger *l, unsigned device);
uint64_t ledger_spill_limit(const ledger *l);

/* Record a refusal, and return the latest one of the run (false: there was none). */
void ledger_refuse(ledger *l, const ledger_refusal *refusal);
bool ledger_last_refusal(const ledger *l, ledger_refusal *refusal);
/* Returns whether a request was refused for good. With spilling, a caller that retries is first
 * refused and then served. */
bool ledger_ran_out(const ledger *l);

#endif
