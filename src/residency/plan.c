/* Plan: decides what to exchange and what to copy ahead. */
#include <stdlib.h>

#include "base/assert.h"
#include "residency/engine.h"

/* Copies pause during page calls if kernels take at least this fraction of the time of copies. */
#define HOLD_PART 1.0
/* What an exchange contributes to the sums over the last ones, at the next. */
#define LEFT_KEPT 0.9
/* The part of what does not fit that is kept free in arenas. */
#define MISSING_PART 8

/* How many launches the list of victims stays valid for: a part of a round, so that what a round of
 * few long launches no longer needs is found in time. */
enum { VICTIMS_LEAST = 8, VICTIMS_MOST = 256, VICTIMS_PART = 16 };

static uint64_t bytes_of(const residency *r, uint32_t unit) {
  ASSERT(unit < r->space.count);
  return r->space.units[unit].bytes;
}

static uint64_t between(uint64_t low, uint64_t value, uint64_t high) {
  value = value > high ? high : value;
  return value < low ? low : value;
}

static uint64_t stage_of(const residency *r) {
  uint64_t stage = r->stage_bytes != 0 ? r->stage_bytes : UINT64_C(256) << 20;
  uint64_t most = r->capacity_bytes / 8;
  return stage < most ? stage : most;
}

/* Returns how much vram to keep free for units of arenas. Nothing is copied ahead there, but the
 * next exchange can copy in while it copies out, if what leaves has to be copied. If little is
 * missing, keeping more free would cost more than that. */
static uint64_t closed_stage_of(const residency *r) {
  uint64_t needed = r->stats.needed_bytes;
  if (2 * r->written_bytes < r->left_bytes || needed <= r->capacity_bytes) return 0;
  return between(0, stage_of(r), (needed - r->capacity_bytes) / MISSING_PART);
}

/* Returns how many bytes the bus can carry before a unit that is not being copied yet is needed;
 * HISTORY_NEVER if none is forecast. */
static uint64_t reach_bytes(const residency *r) {
  for (uint32_t i = 0; i < r->wanted_count; i++) {
    uint32_t at = (r->wanted_first + i) % WANTED_MAX;
    const unit_state *u = &r->units[r->wanted[at].unit];
    if (u->place != PLACE_HOST || r->space.units[r->wanted[at].unit].live == 0) continue;
    return (uint64_t)((double)history_time_to(&r->history, r->wanted[at].position) /
                      r->cost.copy_ns_per_byte);
  }
  return HISTORY_NEVER;
}

static uint64_t free_bytes(const residency *r) {
  uint64_t used = r->vram_bytes + r->staged_bytes;
  return used < r->capacity_bytes ? r->capacity_bytes - used : 0;
}

/* ---- units that are missing next ---- */

void forecast_reset(residency *r) {
  for (uint32_t i = 0; i < r->wanted_count; i++)
    r->units[r->wanted[(r->wanted_first + i) % WANTED_MAX].unit].wanted = false;
  r->wanted_count = r->wanted_first = 0;
  r->ahead = r->history.cursor;
  r->victim_count = 0;
}

static void drop_wanted(residency *r) {
  ASSERT(r->wanted_count > 0);
  r->units[r->wanted[r->wanted_first].unit].wanted = false;
  r->wanted_first = (r->wanted_first + 1) % WANTED_MAX;
  r->wanted_count--;
}

/* Looks further ahead, a few launches per call. */
static void look_ahead(residency *r, uint32_t launches) {
  ASSERT(r->wanted_count <= WANTED_MAX);
  const history *h = &r->history;
  if (h->cursor == HISTORY_NEVER) return;
  if (r->ahead < h->cursor || r->ahead == HISTORY_NEVER) r->ahead = h->cursor;
  for (; launches > 0 && r->ahead < h->end; launches--, r->ahead++) {
    const history_launch *l = history_at(h, r->ahead);
    if (r->wanted_count + l->count > WANTED_MAX) {
      if (r->wanted_count > 0) return;
    }
    for (uint32_t i = 0; i < l->count && r->wanted_count < WANTED_MAX; i++) {
      uint32_t unit = history_entry_at(h, l->first + i)->unit;
      unit_state *u = &r->units[unit];
      if (u->wanted || u->in_place || u->place == PLACE_VRAM || bytes_of(r, unit) == 0) continue;
      u->wanted = true;
      uint32_t at = (r->wanted_first + r->wanted_count++) % WANTED_MAX;
      r->wanted[at].unit = unit;
      r->wanted[at].position = r->ahead;
    }
  }
}

/* Removes entries whose launch has passed or whose unit has arrived. */
static void tidy_wanted(residency *r) {
  while (r->wanted_count > 0) {
    uint32_t unit = r->wanted[r->wanted_first].unit;
    if (r->units[unit].place != PLACE_VRAM &&
        r->wanted[r->wanted_first].position >= r->history.cursor)
      return;
    drop_wanted(r);
  }
}

/* ---- units that leave ---- */

static int farthest_first(const void *a, const void *b) {
  const victim *x = a, *y = b;
  if (x->next_use != y->next_use) return x->next_use > y->next_use ? -1 : 1;
  return x->unit < y->unit ? -1 : x->unit > y->unit;
}

static void find_victims(residency *r) {
  r->victim_count = 0;
  r->victims_seq = r->seq;
  for (uint32_t i = 0; i < r->space.count; i++) {
    if (r->units[i].place != PLACE_VRAM || bytes_of(r, i) == 0) continue;
    if (r->units[i].touched == r->seq) continue; /* named by this launch */
    uint64_t next = r->units[i].in_place ? HISTORY_NEVER : history_next_use(&r->history, i);
    if (r->units[i].kept && next == HISTORY_NEVER) next = HISTORY_NEVER - 1;
    /* Without a forecast, the least recently used unit leaves first. What is only copied stays on
     * the host. */
    if (r->history.cursor == HISTORY_NEVER) next = HISTORY_NEVER - 1 - r->units[i].used;
    r->victims[r->victim_count++] = (victim){next, i};
  }
  qsort(r->victims, r->victim_count, sizeof *r->victims, farthest_first);
}

/* ---- the plan ---- */

static bool leaves_free(const residency *r, uint32_t unit) {
  return r->units[unit].host_valid || unit_is_empty(r, unit);
}

typedef struct planner {
  residency *r;
  int64_t free;  /* vram after the plan so far */
  uint32_t next; /* index of the next victim */
} planner;

static void add_out(planner *p, uint32_t unit) {
  ASSERT(p->r->units[unit].place == PLACE_VRAM);
  ASSERT(p->r->out_count < p->r->unit_capacity);
  residency *r = p->r;
  const unit_state *u = &r->units[unit];
  bool empty = unit_is_empty(r, unit);
  r->out[r->out_count++] = (residency_move){.unit = unit,
                                            .addr = r->space.units[unit].addr,
                                            .bytes = bytes_of(r, unit),
                                            .copy = !empty && !u->host_valid && !u->leaving,
                                            .wait = u->leaving,
                                            .check = !empty,
                                            .park = r->space.units[unit].live == 0};
  p->free += (int64_t)bytes_of(r, unit);
}

/* Returns whether an earlier launch may have written to the host page since the copy in began. In
 * a block that became an arena meanwhile, any may have. */
static bool is_stale(const residency *r, uint32_t unit) {
  const unit_state *u = &r->units[unit];
  return (u->stale != 0 && u->stale < r->seq) || space_in_arena(&r->space, unit);
}

static void add_in(planner *p, uint32_t unit) {
  ASSERT(p->r->units[unit].place != PLACE_VRAM);
  ASSERT(p->r->in_count < p->r->unit_capacity);
  residency *r = p->r;
  const unit_state *u = &r->units[unit];
  bool staged = u->place == PLACE_STAGED || u->place == PLACE_ARRIVING;
  r->in[r->in_count++] = (residency_move){
      .unit = unit,
      .addr = r->space.units[unit].addr,
      .bytes = bytes_of(r, unit),
      .copy = (u->place == PLACE_HOST || (staged && is_stale(r, unit))) && !unit_is_empty(r, unit),
      .park = u->place == PLACE_PARKED,
      .wait = u->place == PLACE_ARRIVING};
  if (!staged) p->free -= (int64_t)bytes_of(r, unit);
}

/* Evicts the victim whose next use is farthest after `position`. `ready`: only one that needs no
 * copy. Returns false if there is none. */
static bool evict(planner *p, uint64_t position, bool ready) {
  ASSERT(p->next <= p->r->victim_count);
  residency *r = p->r;
  for (uint32_t i = p->next; i < r->victim_count; i++) {
    victim *v = &r->victims[i];
    if (v->unit == SPACE_NO_UNIT) continue;
    if (position != 0 && v->next_use <= position) return false;
    if (ready && !leaves_free(r, v->unit)) continue;
    add_out(p, v->unit);
    v->unit = SPACE_NO_UNIT;
    while (p->next < r->victim_count && r->victims[p->next].unit == SPACE_NO_UNIT) p->next++;
    return true;
  }
  return false;
}

/* Evicts until `bytes` are free; prefers ready units if they are used no earlier. */
static bool make_free(planner *p, uint64_t bytes, uint64_t position, bool ready_only) {
  while (p->free < (int64_t)bytes)
    if (!evict(p, position, true) && (ready_only || !evict(p, position, false))) return false;
  return true;
}

/* Brings in parked units that contain a live block, or gives them their host page if vram is
 * full. */
static void plan_parked(planner *p) {
  ASSERT(p->r->parked_live > 0);
  residency *r = p->r;
  for (uint32_t unit = 0; unit < r->space.count; unit++) {
    if (r->units[unit].place != PLACE_PARKED || r->space.units[unit].live == 0) continue;
    bool planned = false; /* already planned above, as a named unit */
    for (uint32_t i = 0; i < r->in_count; i++) planned |= r->in[i].unit == unit;
    if (planned) continue;
    if (r->history.cursor != HISTORY_NEVER &&
        make_free(p, bytes_of(r, unit), history_next_use(&r->history, unit), true))
      add_in(p, unit);
    else
      r->out[r->out_count++] = (residency_move){.unit = unit,
                                                .addr = r->space.units[unit].addr,
                                                .bytes = bytes_of(r, unit),
                                                .ground = true};
  }
}

/* Brings in what belongs in vram, in place of what does not. */
static void plan_kept(planner *p) {
  residency *r = p->r;
  ASSERT(r->spread_left > 0);
  for (uint32_t unit = 0; unit < r->space.count; unit++) {
    if (!r->units[unit].kept || r->units[unit].place != PLACE_HOST) continue;
    bool planned = false; /* already, because the launch names it */
    for (uint32_t i = 0; i < r->in_count; i++) planned |= r->in[i].unit == unit;
    if (planned) continue;
    if (!make_free(p, bytes_of(r, unit), HISTORY_NEVER - 1, false)) return;
    add_in(p, unit);
  }
}

static int by_address(const void *a, const void *b) {
  const residency_move *x = a, *y = b;
  if (x->park != y->park) return x->park ? -1 : 1;
  return x->addr < y->addr ? -1 : x->addr > y->addr;
}

residency_plan_list residency_plan(residency *r) {
  r->out_count = r->in_count = 0;
  planner p = {.r = r,
               .free =
                   (int64_t)r->capacity_bytes - (int64_t)r->vram_bytes - (int64_t)r->staged_bytes};
  find_victims(r);
  make_free(&p, 0, 0, false); /* after vram was taken away */
  look_ahead(r, 4096);
  tidy_wanted(r);
  /* Units that the launch names. */
  for (uint32_t i = 0; i < r->named_count; i++) {
    uint32_t unit = r->named[i];
    const unit_state *u = &r->units[unit];
    if (u->place == PLACE_VRAM || (u->in_place && u->place == PLACE_HOST)) continue;
    if (r->once && u->place == PLACE_HOST && !unit_is_empty(r, unit)) continue;
    if (u->place != PLACE_STAGED && u->place != PLACE_ARRIVING &&
        !make_free(&p, bytes_of(r, unit), 0, false))
      continue;
    add_in(&p, unit);
  }
  if (r->parked_live > 0) plan_parked(&p);
  if (r->spread_left > 0) plan_kept(&p);
  /* Units that are needed next and are staged or empty, or that cannot be staged: those of arenas
   * are copied now. */
  uint64_t batch = stage_of(r), taken = 0;
  for (uint32_t i = 0; i < r->wanted_count; i++) {
    uint32_t at = (r->wanted_first + i) % WANTED_MAX, unit = r->wanted[at].unit;
    const unit_state *u = &r->units[unit];
    if (r->units[unit].touched == r->seq || u->place == PLACE_VRAM) continue;
    if (u->place == PLACE_ARRIVING || (u->place == PLACE_PARKED && r->space.units[unit].live > 0))
      continue;
    if (u->place == PLACE_HOST || u->place == PLACE_PARKED) {
      bool closed = u->place == PLACE_HOST && space_in_arena(&r->space, unit);
      if ((!unit_is_empty(r, unit) && !closed) || taken >= batch) continue;
      if (!make_free(&p, bytes_of(r, unit), r->wanted[at].position, !closed)) continue;
      taken += bytes_of(r, unit);
    }
    add_in(&p, unit);
  }
  /* vram for copies ahead */
  int64_t stage = (int64_t)between(stage_of(r), reach_bytes(r), r->capacity_bytes / 25);
  int64_t closed_stage = (int64_t)closed_stage_of(r);
  for (uint32_t i = 0; i < r->wanted_count && p.free < stage; i++) {
    uint32_t at = (r->wanted_first + i) % WANTED_MAX;
    uint32_t unit = r->wanted[at].unit;
    bool closed = space_in_arena(&r->space, unit);
    if (r->units[unit].place != PLACE_HOST || (closed && p.free >= closed_stage)) continue;
    if (!evict(&p, r->wanted[at].position, !closed)) break;
  }
  qsort(r->out, r->out_count, sizeof *r->out, by_address);
  qsort(r->in, r->in_count, sizeof *r->in, by_address);
  bool hold = r->sums.near > HOLD_PART * r->sums.bus;
  return (residency_plan_list){r->out, r->out_count, r->in, r->in_count, hold};
}

void residency_exchanged(residency *r, uint32_t outs, uint32_t ins) {
  ASSERT(outs <= r->out_count);
  ASSERT(ins <= r->in_count);
  bool again = false;
  r->left_bytes *= LEFT_KEPT;
  r->written_bytes = r->written_bytes * LEFT_KEPT - (double)r->unwritten_bytes;
  r->unwritten_bytes = 0;
  for (uint32_t i = 0; i < outs; i++) {
    uint32_t unit = r->out[i].unit;
    unit_state *u = &r->units[unit];
    if (r->out[i].ground) {
      ASSERT(u->place == PLACE_PARKED);
      u->place = PLACE_HOST;
      r->parked_live--;
      continue;
    }
    ASSERT(u->place == PLACE_VRAM && r->vram_bytes >= r->out[i].bytes);
    u->place = r->out[i].park ? PLACE_PARKED : PLACE_HOST;
    u->leaving = u->host_valid = false;
    u->host_once = true;
    r->vram_bytes -= r->out[i].bytes;
    r->stats.out_bytes += r->out[i].bytes;
    r->left_bytes += (double)r->out[i].bytes;
    if (r->out[i].copy) r->written_bytes += (double)r->out[i].bytes;
    again |= history_next_use(&r->history, unit) < r->ahead;
  }
  for (uint32_t i = 0; i < ins; i++) {
    uint32_t unit = r->in[i].unit;
    unit_state *u = &r->units[unit];
    if (u->place == PLACE_ARRIVING || u->place == PLACE_STAGED)
      r->staged_bytes -= r->in[i].bytes;
    else if (u->place == PLACE_PARKED && r->space.units[unit].live > 0)
      r->parked_live--;
    else if (r->in[i].copy) {
      r->stats.in_copied_bytes += r->in[i].bytes;
      r->sums.bus += (double)r->in[i].bytes * r->cost.copy_ns_per_byte;
    }
    u->host_valid = !unit_is_empty(r, unit) && u->touched != r->seq;
    u->place = PLACE_VRAM;
    r->vram_bytes += r->in[i].bytes;
    r->stats.in_bytes += r->in[i].bytes;
  }
  if (outs + ins > 0) {
    r->stats.exchanges++;
    r->stats.demand_exchanges += r->demand;
  }
  r->out_count = r->in_count = 0;
  if (again) forecast_reset(r);
  tidy_wanted(r);
  find_victims(r);
}

/* ---- copies ahead ---- */

/* Returns how many bytes should be able to leave without a copy: about four exchanges, plus space
 * for a forward pass that writes faster than the bus copies. */
static uint64_t clean_target(const residency *r) {
  return between(0, UINT64_C(1) << 30, r->capacity_bytes / 8);
}

static bool next_in(residency *r, residency_move *copy) {
  look_ahead(r, 256);
  tidy_wanted(r);
  uint64_t free = free_bytes(r);
  for (uint32_t i = 0; i < r->wanted_count; i++) {
    uint32_t unit = r->wanted[(r->wanted_first + i) % WANTED_MAX].unit;
    unit_state *u = &r->units[unit];
    if (u->place != PLACE_HOST || !u->seen || u->hidden || r->space.units[unit].live == 0) continue;
    if (space_in_arena(&r->space, unit)) continue;
    if (u->touched == r->seq) continue; /* named by the launch that starts now */
    if (bytes_of(r, unit) > free) return false;
    u->place = PLACE_ARRIVING;
    u->stale = 0;
    r->staged_bytes += bytes_of(r, unit);
    *copy = (residency_move){.unit = unit,
                             .addr = r->space.units[unit].addr,
                             .bytes = bytes_of(r, unit),
                             .copy = true,
                             .after = u->touched};
    return true;
  }
  return false;
}

/* Copies out as many of the units with the farthest next use as the next exchanges will need, but
 * no more: an unnecessary copy slows page calls and may be overwritten. */
static bool next_out(residency *r, residency_move *copy) {
  if (r->wanted_count == 0) return false;
  uint64_t round = r->history.end - r->history.cursor;
  if (r->victims_seq + between(VICTIMS_LEAST, round / VICTIMS_PART, VICTIMS_MOST) < r->seq)
    find_victims(r);
  uint64_t ready = 0;
  for (uint32_t i = 0; i < r->victim_count && ready < clean_target(r); i++) {
    uint32_t unit = r->victims[i].unit;
    if (unit == SPACE_NO_UNIT) continue;
    unit_state *u = &r->units[unit];
    if (u->place != PLACE_VRAM || !u->seen || u->hidden) continue;
    if (u->touched > r->victims_seq)
      continue; /* named since the list was made, so its next use has changed */
    if (u->leaving || leaves_free(r, unit)) {
      ready += bytes_of(r, unit);
      continue;
    }
    if (history_next_use(&r->history, unit) <= r->wanted[r->wanted_first].position) return false;
    u->leaving = true;
    u->left = r->seq;
    *copy = (residency_move){.unit = unit,
                             .addr = r->space.units[unit].addr,
                             .bytes = bytes_of(r, unit),
                             .copy = true,
                             .check = u->host_once,
                             .after = u->touched};
    return true;
  }
  return false;
}

bool residency_copy_next(residency *r, residency_direction direction, residency_move *copy) {
  ASSERT(copy != NULL);
  if (r->stay || !r->moving || r->history.cursor == HISTORY_NEVER) return false;
  return direction == RESIDENCY_IN ? next_in(r, copy) : next_out(r, copy);
}

void residency_copied(residency *r, uint32_t unit, residency_direction direction, bool done) {
  ASSERT(unit < r->space.count);
  unit_state *u = &r->units[unit];
  if (direction == RESIDENCY_IN && u->place == PLACE_ARRIVING) {
    u->place = done ? PLACE_STAGED : PLACE_HOST;
    if (done) {
      r->stats.in_copied_bytes += bytes_of(r, unit);
      r->sums.bus += (double)bytes_of(r, unit) * r->cost.copy_ns_per_byte;
    } else
      r->staged_bytes -= bytes_of(r, unit);
  }
  if (direction == RESIDENCY_OUT && u->leaving) {
    u->leaving = false;
    r->stats.out_copied_bytes += bytes_of(r, unit);
    /* A launch that named the unit since then may have written to it. */
    u->host_valid = done && u->touched <= u->left;
    u->host_once |= done;
  }
}
