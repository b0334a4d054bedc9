/* Resident parts: internal definitions that resident.c, resident_copy.c and resident_exchange.c
 * share. */
#ifndef SHIM_RESIDENT_PARTS_H
#define SHIM_RESIDENT_PARTS_H

#include "residency/residency.h"
#include "shim/fingerprint.h"
#include "shim/page_table.h"
#include "shim/sampler.h"

/* What is known about a page that can move, by the engine's number. */
typedef struct resident_unit {
  token *token; /* NULL: the number is unused */
  page *host;   /* its host page, once it has one; the token's own page while it is on the host */
  page *frame;  /* arriving or staged: the vram page that receives its contents */
  page *spare;  /* once parked: a page object that represents the shared page */
  fingerprint print;
  bool printed; /* `print` belongs to the host page */
  bool fetched; /* fetched by the exchange in progress */
  bool leaving; /* leaves in the exchange in progress: its host page is needed */
} resident_unit;

typedef enum copy_state { COPY_NONE = 0, COPY_WAITS, COPY_CHECKS, COPY_RUNS } copy_state;

/* A copy ahead. WAITS: for launches that named the unit. CHECKS: whether a copy is needed. RUNS: it
 * is submitted in pieces, so that all copies can stop within a fraction of a millisecond. */
typedef struct resident_copy {
  copy_state state;
  uint64_t sent; /* bytes submitted so far */
  bool ending;   /* everything was submitted, and `done` is recorded after it */
  residency_direction direction;
  bool check;
  uint32_t unit;
  uint64_t after; /* number of the launch to wait for */
  uint64_t order; /* order in which copies started */
  int snapshot;   /* out: index of the snapshot page */
  cu_event done;
} resident_copy;

#define PIECE_BYTES ((uint64_t)8 << 20)
enum {
  PIECES = 2, /* pieces in flight per direction */
  COPIES_IN = 4,
  COPIES_OUT = 2,
  COPIES_MAX = COPIES_IN + COPIES_OUT,
  SNAPSHOTS = COPIES_OUT,
  BATCH_MAX = FINGERPRINT_PAGES_MAX - COPIES_MAX, /* pages of one batch of fingerprints */
  RESIDENT_MARKS = 64,                            /* marks that are pending */
  MARK_EVERY = 16, /* launches. A copy that waits for a launch begins after the next mark */
};

/* Parts of an exchange, timed for the log. */
enum {
  PHASE_WAIT_OUT, /* waiting for copies ahead of pages that leave */
  PHASE_PRINT,
  PHASE_SAVE,   /* copies out with the gate closed */
  PHASE_HOSTS,  /* creating host pages */
  PHASE_OUT,    /* page calls for pages that leave */
  PHASE_PARK,   /* of these, calls that park */
  PHASE_FETCH,  /* pages and copies for what comes in */
  PHASE_IN,     /* page calls for what comes in */
  PHASE_ARRIVE, /* waiting for those copies */
  RESIDENT_PHASES
};

typedef struct resident {
  residency *engine; /* NULL: not started */
  page_class *class;
  cu_context context;
  unsigned device;
  cu_stream own, copy_in, copy_out;
  cu_event own_done;
  fingerprinter prints; /* pages 0 to COPIES_MAX-1: one for each copy */
  resident_unit *units;
  uint32_t unit_capacity;
  resident_copy copies[COPIES_MAX];
  struct {
    cu_event done[PIECES];
    uint64_t first, end; /* pieces that have ended, and pieces that were submitted */
  } pieces[2];           /* indexed by direction */
  uint64_t copy_order;
  page *snapshots[SNAPSHOTS];
  bool snapshot_taken[SNAPSHOTS];
  page *spare;                           /* the vram page that parked addresses share */
  sampler samples;                       /* launches that are timed on the device … */
  residency_timing timings[SAMPLES_MAX]; /* … and what the engine wants their times for */
  int awaited;                           /* the next launch waits for this one; -1: none */
  bool hold;                             /* no copy begins during page calls */
  bool host_full;                        /* the exchange in progress found no host page */
  uint32_t reserved;                     /* free vram pages that an exchange needs */
  uint64_t number;                       /* launches so far */
  uint64_t passed;                       /* this launch and all before it have ended */
  struct {
    uint64_t mark, number; /* the launches up to `number` were submitted before this mark */
  } marks[RESIDENT_MARKS];
  uint64_t mark_first, mark_end; /* marks that were reached, and all marks */
  uint64_t opaque;               /* the last launch that may have written anywhere */
  uint64_t low, high;            /* all units are in this range */
  uint64_t lend;                 /* bytes of vram to give up at the next launch */
  uint64_t small_bytes;          /* of pages that are too small to move and are on the host … */
  uint64_t small_at;             /* … and the launch from which on to bring them back */
  bool small_now;                /* the exchange in progress brings them back */
  uint64_t last_ns, waited_ns;
  uint64_t given_up_ns;
  /* For the log. */
  uint64_t exchanges, exchange_ns, rest_ns, copied_in, copied_out, unneeded;
  uint64_t early;   /* of what was copied in: beside copies out of the same exchange */
  uint64_t sampled; /* launches that were timed */
  uint64_t asked;   /* launches for which the engine asked for an exchange */
  uint64_t phase_ns[RESIDENT_PHASES];
  uint32_t runs, remaps;
} resident;

/* ---- resident_copy.c: copies while kernels run ---- */

/* Marks the end of the launches submitted so far, if there are any that are not marked. */
void resident_mark(resident *r);

/* Reports copies that have ended and starts others. */
void resident_pump(resident *r);
/* Does the same without starting any. */
void resident_finish(resident *r);
/* Waits until no piece is in flight. The copies continue with the next resident_pump. */
void resident_pause(resident *r);
/* Waits for the copy of a unit in one direction, if there is one, and reports it. */
void resident_finish_unit(resident *r, uint32_t unit);
/* Returns an unused page, unmapped but for an address of our own; NULL if there is none. */
page *resident_unused(page_class *class, int tier);
/* The same in vram, of the class that moves. */
page *resident_frame(resident *r);
/* Returns the unit's host page, and creates it if needed. NULL: the host is full. */
page *resident_host_page(resident *r, resident_unit *u);
/* Returns whether a unit in vram has a host page that it can do without. */
bool resident_keeps_host(const resident *r, uint32_t unit);
/* Makes such pages free, those without contents first. Returns how many bytes. */
uint64_t resident_give(resident *r, uint64_t bytes);

/* ---- resident_exchange.c ---- */

/* Carries out a plan. The gate is closed and the device idle. */
void resident_carry_out(resident *r, const residency_plan_list *plan);
/* Called if an address of the program has no page and none can be mapped there: the next work would
 * fault. Ends the process. */
void resident_lose(cu_addr addr, cu_result code);
/* Takes the vram pages that snapshots and parked addresses need, as far as some are free. */
void resident_take_frames(resident *r);

/* ---- resident_small.c ---- */

/* Returns the bytes of pages that are too small to move and are on the host. */
uint64_t resident_small_bytes(const resident *r);
/* Brings them to vram, as far as there is room. The gate is closed and the device idle. */
void resident_small_home(resident *r);

#endif
