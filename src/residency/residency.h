/* Residency: decides which pages are in vram before each launch, for a program that is larger than
 * the device's memory.
 *
 * The engine needs no device: it decides, and a driver (the shim, the heap, the simulated device of
 * replay) acts. The driver serialises all calls. The engine takes no lock, and after warm-up a
 * launch allocates nothing. It never reads memory or calls the device.
 *
 * What the driver reports:
 *   units       address ranges that can move, each in vram or on the host (residency_unit_add)
 *   blocks      allocations of the program's allocator (residency_block_add)
 *   launches    function, parameter words and times, before each is started (residency_launch)
 *   copies that have finished (residency_copied)
 * What the engine answers:
 *   residency_launch   GO, or EXCHANGE: first close the gate and wait until the device is idle,
 *                      report the copies that have finished, call residency_plan, carry the plan
 *                      out, call residency_exchanged
 *   residency_copy_next   the next page to copy ahead beside kernels, in either direction
 *
 * Life of a unit:
 *
 *      HOST --copy in ahead--> ARRIVING --> STAGED --exchange--> VRAM
 *      HOST --exchange, copied with the gate closed or empty---> VRAM
 *      VRAM --copy out ahead--> LEAVING --> VRAM, host copy valid --exchange--> HOST
 *      VRAM, no live block --exchange--> PARKED --exchange--> VRAM
 *
 * A parked unit holds nothing. Its address maps a spare vram page that all parked units share:
 * mapping vram costs an eighth of mapping host pages, and an access to freed memory still hits a
 * page. If a block is allocated in a parked unit, the next residency_launch always returns
 * EXCHANGE, and the driver must exchange before it starts the launch.
 *
 * A staged unit's address still maps the host page; at the exchange, its copy in a free vram page
 * becomes its page. The driver ensures safety: before it drops a vram page, it compares the page
 * with its host copy on the device (`check`), so a write that no launch named is never lost. Units
 * that hold live blocks and were never named, and units in which a check found a write that no
 * launch named, are not copied ahead. */
#ifndef RESIDENCY_RESIDENCY_H
#define RESIDENCY_RESIDENCY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "residency/cost.h"

typedef struct residency residency;

typedef struct residency_options {
  uint64_t capacity_bytes;      /* vram for units, including the stage */
  uint64_t stage_bytes;         /* vram kept free for copies ahead; 0: 256 MiB or an eighth of the
                                 * capacity */
  uint32_t log_launches;        /* launches kept in the history; 0: 65536 */
  uint32_t log_touches;         /* named units kept in the history; 0: 16 per launch */
  const residency_costs *costs; /* NULL: residency_costs_h200 */
  bool stay;                    /* never move pages: measures the program without moving */
} residency_options;

stow_status residency_open(residency **out, const residency_options *options);
void residency_close(residency *r);
/* Sets the capacity. A smaller capacity is reached over the next exchanges. */
void residency_set_capacity(residency *r, uint64_t capacity_bytes);

/* ---- units and blocks ---- */

/* Adds a range. STOW_ERR_INVALID: not a multiple of 2 MiB, or overlapping; STOW_ERR_HOST_MEMORY. */
stow_status residency_unit_add(residency *r, uint64_t addr, uint64_t bytes, bool in_vram,
                               uint32_t *unit);
/* Removes a unit. Its copies must have ended. Its number may be reused. */
void residency_unit_remove(residency *r, uint64_t addr);
stow_status residency_block_add(residency *r, uint64_t addr, uint64_t bytes);
void residency_block_remove(residency *r, uint64_t addr);

/* ---- launches ---- */

typedef enum residency_answer { RESIDENCY_GO = 0, RESIDENCY_EXCHANGE } residency_answer;

typedef struct residency_launch_info {
  uint64_t function; /* any number that identifies the function and the layout of its parameters */
  uint64_t size;     /* of a kernel: its blocks; 0: not known */
  const uint64_t *words;
  size_t word_count;
  uint64_t device_ns; /* duration on the device with everything in vram; 0: use the sampled time, if
                       * any */
  uint64_t host_ns;   /* host time since the previous launch, without waits for the engine */
  bool once;          /* a copy or fill, which touches each byte once */
  uint64_t to, to_bytes; /* what it writes; 0 bytes: not known */
  uint64_t now_ns;       /* host clock including all waits; used to measure rounds */
} residency_launch_info;

/* Call before each launch. A unit on the host can be read in place, so the launch may start even if
 * an exchange fails, unless residency_must_exchange returns true. */
residency_answer residency_launch(residency *r, const residency_launch_info *launch);
/* Reports that the next launch may write anywhere: units copied in ahead are copied again. */
void residency_opaque(residency *r);

/* A launch that the driver times on the device. */
typedef struct residency_timing {
  uint64_t id, function, shape, trial;
  uint64_t far_bytes;    /* bytes on the host when it ran */
  uint64_t beyond_bytes; /* bytes that it may use too, although it does not name them, if some of
                          * them are on the host */
  bool wide;             /* it names these */
  bool urgent;           /* its time is not known yet */
  bool wait; /* the next launch should wait for the time: it decides how the function is treated */
} residency_timing;
/* Returns whether the last launch, which is about to start, should be timed. */
bool residency_sample(const residency *r, residency_timing *t);
void residency_sampled(residency *r, const residency_timing *t, uint64_t device_ns);
/* Called if a launch waited for the time and gave up. `began`: the launch that is timed runs, for
 * so long that it must be reading the host. Its time can still follow. */
void residency_sample_late(residency *r, const residency_timing *t, bool began);
/* Returns true while a live block is in a parked unit: no launch may start. */
bool residency_must_exchange(const residency *r);
/* Returns the units that the last launch named. */
const uint32_t *residency_named(const residency *r, uint32_t *count);
/* Returns the units that the last launch touches too little to move them, with the bytes. A unit
 * may appear twice. */
const struct space_small *residency_named_small(const residency *r, uint32_t *count);
bool residency_in_vram(const residency *r, uint32_t unit);
/* Returns the last launch that may have written to what the block at `addr` has in the unit, or
 * UINT64_MAX if that is not known because launches may write there without naming it. If no block
 * begins at `addr`, the answer is for all of the unit. After the first call every launch notes the
 * blocks of its words; before it, each may have written to all blocks. */
uint64_t residency_written(residency *r, uint32_t unit, uint64_t addr);
/* Reports that a range is about to be copied to vram, where kernels use the copy: if it is on the
 * host it costs the bus, but kernels do not wait for it. */
void residency_passed(residency *r, uint64_t addr, uint64_t bytes);
/* Returns the unit that contains an address, or UINT32_MAX. */
uint32_t residency_find(const residency *r, uint64_t addr);

/* ---- exchanges ---- */

typedef struct residency_move {
  uint32_t unit;
  uint64_t addr, bytes;
  bool copy;   /* in: its contents are not in vram yet; out: its host copy is not valid */
  bool wait;   /* a copy ahead is running: wait for it */
  bool check;  /* out: first compare the page with the host copy; in: always false */
  bool park;   /* out: map the spare page instead of the host page; in: it maps the spare page
                * now */
  bool ground; /* out: replace the spare page with its host page; frees no vram page */
  /* For copies ahead: the last launch that named the unit (launches count from 1). The copy must
   * not start before that launch has ended, because it may write to the unit. */
  uint64_t after;
} residency_move;

/* Both lists are in address order, parked units first, so that neighbours can share calls. All
 * copies must pause while units are parked and unparked: those calls take 18 times as long beside
 * copies in both directions. */
typedef struct residency_plan_list {
  const residency_move *out; /* do these first: they free the pages for `in` */
  uint32_t out_count;
  const residency_move *in;
  uint32_t in_count;
  /* Start no copies while host pages are mapped either. Copies are hidden behind kernels, and each
   * slows the other down by about a factor of two. */
  bool hold;
} residency_plan_list;

/* Returns what to exchange now; empty if nothing helps. Valid until residency_exchanged. */
residency_plan_list residency_plan(residency *r);
/* Reports that the plan was carried out up to `outs` and `ins` of its lists, in order (a driver
 * call that fails ends it early). */
void residency_exchanged(residency *r, uint32_t outs, uint32_t ins);
/* Reports how long the exchange took, without the wait for the device. The engine weighs the cost
 * of moving with it. */
void residency_exchange_took(residency *r, uint64_t moved_bytes, uint64_t ns);
/* Reports that a parked unit got its host page outside of a plan. */
void residency_grounded(residency *r, uint32_t unit);
/* Reports that the host copy of a unit differs from its page although no launch named the unit
 * since it was copied: something writes there unseen. */
void residency_hidden_write(residency *r, uint32_t unit);
/* Reports, before residency_exchanged, that a unit which leaves needed no copy although a launch
 * named it: its host copy is still right. */
void residency_unwritten(residency *r, uint32_t unit);

/* Returns whether the host page of a unit in vram has its contents, or will: a copy out is running.
 */
bool residency_host_valid(const residency *r, uint32_t unit);
/* Reports that a unit in vram has no host page any more. No copy out may be running. */
void residency_host_lost(residency *r, uint32_t unit);

/* ---- copies ahead ---- */

typedef enum residency_direction { RESIDENCY_IN = 0, RESIDENCY_OUT } residency_direction;

/* Returns the next copy to start; false if no copy is worthwhile now. In: from the unit's host page
 * into a free vram page, which stays the unit's. Out: into the unit's host page, after the launches
 * that named it have ended. The driver keeps one or two running in each direction. */
bool residency_copy_next(residency *r, residency_direction direction, residency_move *copy);
/* Reports that a copy has ended. `done` false: it failed, and the unit stays where it was. */
void residency_copied(residency *r, uint32_t unit, residency_direction direction, bool done);

/* ---- figures ---- */

typedef struct residency_stats {
  uint64_t launches, forecast_hits, exchanges, demand_exchanges;
  uint64_t far_launches; /* launches that named a unit on the host */
  uint64_t read_bytes;   /* of units on the host that kernels named and ran without an exchange */
  uint64_t in_bytes, out_bytes, in_copied_bytes, out_copied_bytes;
  uint64_t needed_bytes; /* of units that launches named; not if one names more than fits, or words
                          * of an arena are missing: then it uses only a part of that */
  uint64_t vram_bytes, staged_bytes; /* now */
  uint64_t held_bytes;               /* host memory that the engine uses */
  uint64_t in_place_bytes;           /* units left on the host on purpose, to be read in place */
  bool moving;                       /* false: units on the host are read in place */
  /* Over the last few thousand launches, in nanoseconds: kernels with all in vram, what reading in
   * place adds, between launches, page calls if all missing units are exchanged. */
  double near_ns, far_ns, host_ns, calls_ns;
} residency_stats;
void residency_get_stats(const residency *r, residency_stats *stats);

/* Returns whether the internal tables agree with each other; for tests. */
bool residency_valid(const residency *r);

#endif
