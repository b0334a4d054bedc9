/* Residency: units and their states, launches, and whether to move. plan.c decides exchanges and
 * copies ahead. */
#include "residency/engine.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

stow_status residency_open(residency **out, const residency_options *o) {
  ASSERT(out != NULL);
  ASSERT(o != NULL);
  *out = NULL;
  residency *r = calloc(1, sizeof *r);
  if (r == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "residency: no host memory");
  r->cost = o->costs != NULL ? *o->costs : residency_costs_h200;
  r->capacity_bytes = o->capacity_bytes;
  r->stage_bytes = o->stage_bytes;
  r->stay = o->stay;
  size_t launches = o->log_launches > 0 ? o->log_launches : 65536;
  r->moving = true;
  r->times = calloc(TIMES, sizeof *r->times);
  r->functions = calloc(FUNCTIONS, sizeof *r->functions);
  r->trials = calloc(WIDE_TRIALS, sizeof *r->trials);
  if (r->times == NULL || r->functions == NULL || r->trials == NULL) {
    residency_close(r);
    return stow_fail(STOW_ERR_HOST_MEMORY, "residency: no host memory");
  }
  stow_status status =
      history_open(&r->history, launches, o->log_touches > 0 ? o->log_touches : 16 * launches);
  if (status != STOW_OK) {
    residency_close(r);
    return status;
  }
  *out = r;
  return STOW_OK;
}

void residency_close(residency *r) {
  if (r == NULL) return;
  history_close(&r->history);
  space_free(&r->space);
  free(r->units);
  free(r->named);
  free(r->out);
  free(r->in);
  free(r->victims);
  free(r->costs);
  free(r->times);
  free(r->functions);
  free(r->trials);
  free(r);
}

void residency_set_capacity(residency *r, uint64_t capacity_bytes) {
  r->capacity_bytes = capacity_bytes;
}

/* ---- units ---- */

static stow_status grow(void *list, size_t count, size_t item) {
  void *bigger = realloc(*(void **)list, count * item);
  if (bigger == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "residency: no host memory for %zu units", count);
  *(void **)list = bigger;
  return STOW_OK;
}

/* Gives every list that a launch or a plan fills space for all units. */
static stow_status reserve(residency *r, uint32_t count) {
  ASSERT(count > 0);
  if (count <= r->unit_capacity) return STOW_OK;
  uint32_t capacity = r->unit_capacity < 256 ? 256 : r->unit_capacity;
  while (capacity < count) capacity *= 2;
  STOW_TRY(history_reserve(&r->history, capacity));
  STOW_TRY(grow(&r->units, capacity, sizeof *r->units));
  STOW_TRY(grow(&r->named, capacity, sizeof *r->named));
  STOW_TRY(grow(&r->out, capacity, sizeof *r->out));
  STOW_TRY(grow(&r->in, capacity, sizeof *r->in));
  STOW_TRY(grow(&r->victims, capacity, sizeof *r->victims));
  STOW_TRY(grow(&r->costs, capacity, sizeof *r->costs));
  memset(r->units + r->unit_capacity, 0, (capacity - r->unit_capacity) * sizeof *r->units);
  r->unit_capacity = capacity;
  return STOW_OK;
}

void residency_unit_remove(residency *r, uint64_t addr) {
  uint32_t unit = space_find(&r->space, addr);
  if (unit == SPACE_NO_UNIT || r->space.units[unit].addr != addr) return;
  uint64_t bytes = r->space.units[unit].bytes;
  if (r->units[unit].place == PLACE_VRAM) r->vram_bytes -= bytes;
  if (r->units[unit].place == PLACE_ARRIVING || r->units[unit].place == PLACE_STAGED)
    r->staged_bytes -= bytes;
  if (r->units[unit].place == PLACE_PARKED && r->space.units[unit].live > 0) r->parked_live--;
  if (r->units[unit].in_place) r->in_place_bytes -= bytes;
  if (r->units[unit].needed) r->stats.needed_bytes -= bytes;
  r->units[unit] = (unit_state){0};
  history_forget(&r->history, unit);
  space_remove(&r->space, addr);
  r->units_changed = r->history.end;
  forecast_reset(r);
}

/* Called when a unit becomes live or dead. The contents of a dead unit are lost. */
static void changed(void *context, uint32_t unit) {
  ASSERT(unit < ((residency *)context)->unit_capacity);
  residency *r = context;
  r->units[unit].born = r->seq;
  if (r->units[unit].place == PLACE_PARKED)
    r->parked_live += r->space.units[unit].live > 0 ? 1 : UINT32_MAX;
}

stow_status residency_unit_add(residency *r, uint64_t addr, uint64_t bytes, bool in_vram,
                               uint32_t *unit) {
  STOW_TRY(reserve(r, r->space.count + 1));
  STOW_TRY(space_add(&r->space, addr, bytes, unit));
  r->units[*unit] =
      (unit_state){.place = in_vram ? PLACE_VRAM : PLACE_HOST, .written = r->seq, .copied = r->seq};
  if (in_vram) r->vram_bytes += bytes;
  if (bytes > r->unit_bytes) r->unit_bytes = bytes;
  r->units_changed = r->history.end;
  space_count_blocks(&r->space, *unit, changed, r);
  /* The unit may hold the contents of those blocks. */
  if (r->space.units[*unit].live > 0) r->units[*unit].born = BORN_LONG_AGO;
  return STOW_OK;
}

stow_status residency_block_add(residency *r, uint64_t addr, uint64_t bytes) {
  return space_block_add(&r->space, addr, bytes, changed, r);
}

void residency_block_remove(residency *r, uint64_t addr) {
  space_block_remove(&r->space, addr, changed, r);
}

/* ---- launches ---- */

/* Notes that a launch may read the unit. */
static inline void touch_read(residency *r, unit_state *u) {
  u->seen = true;
  u->touched = r->seq;
}

/* Notes that a launch may read and write the unit. */
static inline void touch(residency *r, unit_state *u) {
  touch_read(r, u);
  u->host_valid = false;
  if (u->stale == 0) u->stale = r->seq;
}

/* Returns whether the launch is a copy that only reads the unit, if it uses it at all. */
static inline bool only_reads(const residency *r, const residency_launch_info *l, uint32_t unit) {
  const space_unit *u = &r->space.units[unit];
  return l->once && l->to_bytes > 0 &&
         (u->addr + u->bytes <= l->to || u->addr >= l->to + l->to_bytes);
}

/* Returns a hash of the launch's words, never 0. */
static uint64_t hash_words(const residency_launch_info *l) {
  ASSERT(l->word_count == 0 || l->words != NULL);
  uint64_t a = l->function * UINT64_C(0x9e3779b97f4a7c15) + l->word_count, b = a >> 29;
  size_t i = 0;
  for (; i + 2 <= l->word_count; i += 2) {
    a = (a ^ l->words[i]) * UINT64_C(0xff51afd7ed558ccd);
    b = (b ^ l->words[i + 1]) * UINT64_C(0xd6e8feb86659fd93);
    a ^= a >> 32;
    b ^= b >> 32;
  }
  if (i < l->word_count) a = (a ^ l->words[i]) * UINT64_C(0xff51afd7ed558ccd);
  return (a ^ b ^ b >> 31) | 1;
}

/* Makes another id of a launch that also names what is beyond its words. */
#define WIDE_ID UINT64_C(0x5bf03635f0935ad2)

/* Returns whether the launch is a copy or fill into a block that no launch has used yet. The block
 * may begin in a unit with older blocks; then the unit after it shows that. */
static bool fills_new(const residency *r, const residency_launch_info *l) {
  if (!l->once || l->to_bytes == 0) return false;
  uint32_t unit;
  uint64_t at = l->to;
  for (int i = 0; i < 2; i++) {
    at = space_step(&r->space, at, &unit);
    if (unit != SPACE_NO_UNIT && r->space.units[unit].live > 0 && unit_is_empty(r, unit))
      return true;
  }
  return false;
}

/* Resolves the launch to its units and its key. A launch with the same words as the forecast one
 * names the same units; from time to time they are looked up anyway, in case blocks have changed.
 * While a unit is staged they are always looked up, because a launch that names it must be
 * noticed. */
static uint64_t resolve(residency *r, const residency_launch_info *l, uint64_t *words) {
  const history *h = &r->history;
  r->function = l->function;
  r->shape = l->function ^ l->size * UINT64_C(0x9e3779b97f4a7c15);
  *words = r->id = hash_words(l);
  r->space.beyond_count = 0;
  if (h->cursor != HISTORY_NEVER && h->cursor >= h->base && h->cursor < h->end &&
      h->cursor >= r->units_changed && r->staged_bytes == 0 && r->seq % 64 != 0) {
    const history_launch *expected = history_at(h, h->cursor);
    if (expected->words == *words && expected->count <= r->unit_capacity) {
      r->named_count = expected->count;
      r->space.small_count = 0;
      r->space.small_lost = false;
      for (uint32_t i = 0; i < expected->count; i++)
        r->named[i] = history_entry_at(h, expected->first + i)->unit;
      return expected->key;
    }
  }
  space_launch launch = {.stamp = r->seq,
                         .function = l->function,
                         .shape = r->shape,
                         .wide = worth_width(r, r->shape),
                         .copied = l->once,
                         .fills = fills_new(r, l),
                         .copied_bytes = l->to_bytes,
                         .words = l->words,
                         .count = l->word_count};
  r->named_count = space_resolve(&r->space, &launch, r->named, r->unit_capacity);
  if (r->space.beyond_count > 0) r->id ^= launch.wide * WIDE_ID; /* each is timed on its own */
  ASSERT(r->named_count <= r->unit_capacity);
  if (r->space.arena_new) r->units_changed = h->end;
  r->space.arena_new = false;
  /* The history contains neither small touches nor those of copies. */
  if (r->space.small_count > 0 || r->space.arena_named || l->once) *words = 0;
  return (l->function * UINT64_C(0x9e3779b97f4a7c15)) ^ r->space.key;
}

/* Notes what the launch may write to. The source of a copy is only read. */
static void note_writes(residency *r, const residency_launch_info *l) {
  if (l->once && l->to_bytes > 0) {
    uint32_t unit;
    for (uint64_t at = l->to; at < l->to + l->to_bytes;) {
      at = space_step(&r->space, at, &unit);
      if (unit != SPACE_NO_UNIT) r->units[unit].written = r->units[unit].copied = r->seq;
    }
    return;
  }
  if (r->writes_since > 0) space_write(&r->space, l->words, l->word_count, r->seq);
  for (uint32_t i = 0; i < r->named_count; i++) r->units[r->named[i]].written = r->seq;
  for (uint32_t i = 0; i < r->space.small_count; i++)
    r->units[r->space.small[i].unit].written = r->seq;
}

uint64_t residency_written(residency *r, uint32_t unit, uint64_t addr) {
  ASSERT(unit < r->unit_capacity);
  const unit_state *u = &r->units[unit];
  if (u->hidden || space_in_arena(&r->space, unit)) return UINT64_MAX;
  if (r->writes_since == 0) r->writes_since = r->seq > 0 ? r->seq : 1;
  bool known;
  uint64_t last = space_written(&r->space, unit, addr, &known);
  if (!known) return u->written;
  if (last < r->writes_since) last = r->writes_since;
  return last < u->copied ? u->copied : last;
}

void residency_passed(residency *r, uint64_t addr, uint64_t bytes) {
  uint32_t unit;
  for (uint64_t at = addr, next; at < addr + bytes; at = next) {
    next = space_step(&r->space, at, &unit);
    if (next > addr + bytes) next = addr + bytes;
    if (unit == SPACE_NO_UNIT) continue;
    unit_state *u = &r->units[unit];
    u->passed += next - at;
    if (bytes > u->whole) u->whole = bytes;
  }
}

static void count_needed(residency *r) {
  for (uint32_t i = 0; i < r->named_count; i++) {
    unit_state *u = &r->units[r->named[i]];
    if (!u->needed) r->stats.needed_bytes += r->space.units[r->named[i]].bytes;
    u->needed = true;
  }
}

residency_answer residency_launch(residency *r, const residency_launch_info *l) {
  ASSERT(l != NULL);
  r->seq++;
  uint64_t words, key = resolve(r, l, &words);
  bool missing = false, staged = false, fresh = false, uncounted = false;
  r->far_bytes = r->all_bytes = r->visits = 0;
  for (uint32_t i = 0; i < r->named_count; i++) {
    unit_state *u = &r->units[r->named[i]];
    if (only_reads(r, l, r->named[i]))
      touch_read(r, u);
    else
      touch(r, u);
    if (!l->once) {
      r->visits += r->space.arena_named && (u->used == 0 || r->seq - u->used > VISIT_LAUNCHES);
      u->used = r->seq;
    }
    uncounted |= !u->needed;
    uint64_t bytes = r->space.units[r->named[i]].bytes;
    r->all_bytes += bytes;
    if (u->place != PLACE_VRAM && !unit_is_empty(r, r->named[i])) r->far_bytes += bytes;
    staged |= u->place == PLACE_ARRIVING || u->place == PLACE_STAGED;
    bool far = u->place != PLACE_VRAM && !u->in_place;
    missing |= far;
    fresh |= far && l->once && unit_is_empty(r, r->named[i]) &&
             history_next_use(&r->history, r->named[i]) != HISTORY_NEVER;
    fresh |= far && u->kept && r->spread_left > 0;
  }
  r->stats.far_launches += r->far_bytes > 0;
  if (uncounted && r->all_bytes <= r->capacity_bytes && !r->space.arena_learning) count_needed(r);
  /* Copies and fills run over the bus as fast as an exchange would, so they need none, except for
   * what they fill for a kernel, and once for what belongs in vram. */
  r->once = l->once;
  if (l->once) missing = fresh;
  for (uint32_t i = 0; i < r->space.small_count; i++) touch(r, &r->units[r->space.small[i].unit]);
  if (r->space.small_lost) residency_opaque(r);
  note_writes(r, l);
  uint64_t device_ns = l->device_ns > 0 ? l->device_ns : worth_near_ns(r);
  uint64_t time_ns = device_ns > l->host_ns ? device_ns : l->host_ns;
  history_add(&r->history, &(history_new){.key = key,
                                          .function = l->function,
                                          .words = words,
                                          .units = r->named,
                                          .count = l->once ? 0 : r->named_count,
                                          .time_ns = time_ns,
                                          .device_ns = device_ns});
  if (r->history.jumps != r->jumps_seen) {
    r->jumps_seen = r->history.jumps;
    forecast_reset(r);
  }
  bool worth = !r->stay && worth_launch(r, l, missing);
  r->demand = missing;
  /* A staged unit's copy in vram is valid only until this launch runs. */
  if (r->parked_live > 0 || staged || worth) return RESIDENCY_EXCHANGE;
  if (!l->once) r->stats.read_bytes += r->far_bytes;
  return RESIDENCY_GO;
}

bool residency_must_exchange(const residency *r) {
  return r->parked_live > 0;
}

const uint32_t *residency_named(const residency *r, uint32_t *count) {
  *count = r->named_count;
  return r->named;
}

const space_small *residency_named_small(const residency *r, uint32_t *count) {
  *count = r->space.small_count;
  return r->space.small;
}

bool residency_in_vram(const residency *r, uint32_t unit) {
  ASSERT(unit < r->unit_capacity);
  return r->units[unit].place == PLACE_VRAM;
}

uint32_t residency_find(const residency *r, uint64_t addr) {
  return space_find(&r->space, addr);
}

void residency_opaque(residency *r) {
  if (r->staged_bytes == 0) return;
  for (uint32_t i = 0; i < r->space.count; i++) {
    unit_state *u = &r->units[i];
    if ((u->place == PLACE_ARRIVING || u->place == PLACE_STAGED) && u->stale == 0)
      u->stale = r->seq;
  }
}

void residency_grounded(residency *r, uint32_t unit) {
  ASSERT(unit < r->unit_capacity);
  if (r->units[unit].place != PLACE_PARKED) return;
  r->units[unit].place = PLACE_HOST;
  if (r->space.units[unit].live > 0) r->parked_live--;
}

void residency_hidden_write(residency *r, uint32_t unit) {
  ASSERT(unit < r->unit_capacity);
  /* In an arena that is no surprise; nothing is copied in ahead there anyway. */
  r->units[unit].hidden |= !space_in_arena(&r->space, unit);
  r->units[unit].host_valid = false;
}

void residency_unwritten(residency *r, uint32_t unit) {
  ASSERT(unit < r->unit_capacity);
  r->unwritten_bytes += r->space.units[unit].bytes;
}

bool residency_host_valid(const residency *r, uint32_t unit) {
  ASSERT(unit < r->unit_capacity);
  return r->units[unit].host_valid || r->units[unit].leaving;
}

void residency_host_lost(residency *r, uint32_t unit) {
  ASSERT(!r->units[unit].leaving);
  r->units[unit].host_valid = r->units[unit].host_once = false;
}

/* ---- figures ---- */

void residency_get_stats(const residency *r, residency_stats *s) {
  ASSERT(s != NULL);
  const history *h = &r->history;
  *s = r->stats;
  s->launches = r->seq;
  s->forecast_hits = h->hits;
  s->vram_bytes = r->vram_bytes;
  s->staged_bytes = r->staged_bytes;
  s->in_place_bytes = r->in_place_bytes;
  s->moving = r->moving;
  s->near_ns = r->sums.near;
  s->far_ns = r->sums.far;
  s->host_ns = r->sums.host;
  s->calls_ns = r->sums.calls;
  s->held_bytes =
      sizeof *r + (h->launch_mask + 1) * sizeof *h->launches +
      (h->entry_mask + 1) * sizeof *h->entries + (h->index_mask + 1) * sizeof *h->index +
      h->unit_capacity * sizeof *h->units + r->space.capacity * sizeof *r->space.units +
      (r->space.table != NULL ? (r->space.table_mask + 1) * sizeof *r->space.table : 0) +
      r->unit_capacity * (sizeof *r->units + sizeof *r->named + sizeof *r->out + sizeof *r->in +
                          sizeof *r->victims + sizeof *r->costs);
}

bool residency_valid(const residency *r) {
  uint64_t vram = 0, staged = 0;
  for (uint32_t i = 0; i < r->space.count; i++) {
    if (r->space.units[i].bytes == 0) continue;
    const unit_state *u = &r->units[i];
    if (u->place == PLACE_VRAM) vram += r->space.units[i].bytes;
    if (u->place == PLACE_ARRIVING || u->place == PLACE_STAGED) staged += r->space.units[i].bytes;
    if (u->leaving && u->place != PLACE_VRAM) return false;
  }
  return vram == r->vram_bytes && staged == r->staged_bytes;
}
