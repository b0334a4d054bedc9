/* Residency: which pages of a program larger than the card are in vram before each launch.
 *
 * Device-free: the engine decides, a driver (the shim, the heap, the simulated device of replay)
 * acts. The driver serialises all calls; the engine has no lock and after warm-up no allocation on
 * the path of a launch. It never reads memory or calls the device.
 *
 * What the driver reports:
 *   units       address ranges that can move, each in vram or on the host (residency_unit_add)
 *   blocks      what the program's allocator gave out and took back (residency_block_add)
 *   launches    function, parameter words and times, before each is started (residency_launch)
 *   copies      that finished (residency_copied)
 * What the engine answers:
 *   residency_launch   GO, or EXCHANGE: first close the gate and let the device come to rest,
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
 * page. A block that begins to live in a parked unit makes the next residency_launch answer
 * EXCHANGE whatever else holds; the driver must then exchange before the launch goes.
 *
 * A staged unit's address still maps the host page; its copy in a free vram page becomes its page
 * at the exchange. Safety is the driver's: it compares a page with its host copy on the device
 * before it drops the vram page (`check`), so a write that no launch named is never lost. Units
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
  uint64_t capacity_bytes;    /* vram for units, the stage included */
  uint64_t stage_bytes;       /* vram kept free to copy into ahead; 0: 256 MiB or an eighth */
  uint32_t log_launches;      /* history kept; 0: 65536 */
  uint32_t log_touches;       /* units named in it; 0: 16 per launch */
  const residency_card *card; /* NULL: residency_card_h200 */
  bool stay;                  /* never move: to measure the program without moving */
} residency_options;

stow_status residency_open(residency **out, const residency_options *options);
void residency_close(residency *r);
/* A smaller capacity is reached at the next exchanges. */
void residency_set_capacity(residency *r, uint64_t capacity_bytes);

/* ---- units and blocks ---- */

/* Adds a range. STOW_ERR_INVALID: not a multiple of 2 MiB, or overlapping; STOW_ERR_HOST_MEMORY. */
stow_status residency_unit_add(residency *r, uint64_t addr, uint64_t bytes, bool in_vram,
                               uint32_t *unit);
/* Copies of it must have ended. Its number may be given to another unit. */
void residency_unit_remove(residency *r, uint64_t addr);
stow_status residency_block_add(residency *r, uint64_t addr, uint64_t bytes);
void residency_block_remove(residency *r, uint64_t addr);

/* ---- launches ---- */

typedef enum residency_answer { RESIDENCY_GO = 0, RESIDENCY_EXCHANGE } residency_answer;

typedef struct residency_launch_info {
  uint64_t function; /* any number that names the function and the layout of its parameters */
  const uint64_t *words;
  size_t word_count;
  uint64_t device_ns; /* its time on the device in vram; 0: as sampled, if it was */
  uint64_t host_ns;   /* host time since the launch before, waits for the engine left out */
  bool once;          /* a copy or fill: it touches each byte once */
  uint64_t now_ns;    /* the host's clock, all waits in it: what rounds are measured by */
} residency_launch_info;

/* Call before each launch. A unit on the host is read in place, so the launch may go even where an
 * exchange fails, unless residency_must_exchange says otherwise. */
residency_answer residency_launch(residency *r, const residency_launch_info *launch);
/* The launch that is about to go may write anywhere: what was copied in ahead is copied again. */
void residency_opaque(residency *r);

/* A launch that the driver times on the device. */
typedef struct residency_timing {
  uint64_t id, function;
  uint64_t far_bytes; /* on the host when it ran */
} residency_timing;
/* Returns whether the last launch, as it is about to go, should be timed. */
bool residency_sample(const residency *r, residency_timing *t);
void residency_sampled(residency *r, const residency_timing *t, uint64_t device_ns);
/* True while a live block is in a parked unit: no launch may go. */
bool residency_must_exchange(const residency *r);
/* The units the last launch named. */
const uint32_t *residency_named(const residency *r, uint32_t *count);
/* Units of which it touches too little to move them, with the bytes; the same unit may come twice.
 */
const struct space_small *residency_named_small(const residency *r, uint32_t *count);
bool residency_in_vram(const residency *r, uint32_t unit);
/* The unit an address lies in; UINT32_MAX: none. */
uint32_t residency_find(const residency *r, uint64_t addr);

/* ---- exchanges ---- */

typedef struct residency_move {
  uint32_t unit;
  uint64_t addr, bytes;
  bool copy;   /* in: its bytes are not in vram yet; out: its host copy is not valid */
  bool wait;   /* a copy ahead is under way: wait for it */
  bool check;  /* out: compare with the host copy first; in: always false */
  bool park;   /* out: map the spare page instead of the host page; in: that is what it maps now */
  bool ground; /* out: it maps the spare page and gets its host page; no vram page is freed */
  /* Copies ahead: the last launch that named the unit (launches count from 1). The copy must not
   * begin before that launch has ended: it may write to what is copied. */
  uint64_t after;
} residency_move;

/* Both lists are in order of addresses, parks first, so that neighbours can share calls. All copies
 * must pause while units are parked and unparked: those calls take 18 times as long beside copies
 * in both directions. */
typedef struct residency_plan_list {
  const residency_move *out; /* do these first: the pages of the ins come from them */
  uint32_t out_count;
  const residency_move *in;
  uint32_t in_count;
  /* Start no copies while host pages are mapped either: they hide behind the kernels, and each
   * slows the other by about two. */
  bool hold;
} residency_plan_list;

/* What to exchange now; empty where nothing helps. Good until residency_exchanged. */
residency_plan_list residency_plan(residency *r);
/* The plan was carried out as far as `outs` and `ins` of its lists, in order (a driver call that
 * fails ends it early). */
void residency_exchanged(residency *r, uint32_t outs, uint32_t ins);
/* How long the exchange took, the wait for the device left out: what moving is weighed by. */
void residency_exchange_took(residency *r, uint64_t moved_bytes, uint64_t ns);
/* A parked unit got its host page outside of a plan. */
void residency_grounded(residency *r, uint32_t unit);
/* A check found that the host copy of a unit did not equal its page although no launch named the
 * unit since it was copied: somebody writes there unseen. */
void residency_hidden_write(residency *r, uint32_t unit);

/* ---- copies ahead ---- */

typedef enum residency_direction { RESIDENCY_IN = 0, RESIDENCY_OUT } residency_direction;

/* The next copy to start, false if none pays now. In: from the unit's host page into a free vram
 * page, which stays the unit's. Out: into the unit's host page, after the launches that named it
 * have ended. The driver keeps one or two per direction under way. */
bool residency_copy_next(residency *r, residency_direction direction, residency_move *copy);
/* It ended. `done` false: it failed, the unit stays where it was. */
void residency_copied(residency *r, uint32_t unit, residency_direction direction, bool done);

/* ---- figures ---- */

typedef struct residency_stats {
  uint64_t launches, forecast_hits, exchanges, demand_exchanges;
  uint64_t in_bytes, out_bytes, in_copied_bytes, out_copied_bytes;
  uint64_t vram_bytes, staged_bytes; /* now */
  uint64_t held_bytes;               /* host memory of the engine */
  uint64_t in_place_bytes;           /* left on the host on purpose, to be read in place */
  bool moving;                       /* false: units on the host are read in place */
} residency_stats;
void residency_get_stats(const residency *r, residency_stats *stats);

/* True if the books agree with each other: for tests. */
bool residency_valid(const residency *r);

#endif
