/* Rounds: which mode is fastest, by measuring rounds of each.
 *
 * A round is as many launches as the forecast reaches. After the first two rounds that went as
 * forecast, each mode runs two rounds to settle and two that are measured; then the fastest stays.
 * A mode that is already slower than the fastest one is left at once. Whatever is chosen, reading
 * in place is among what was tried, so moving is kept only where it is faster. When the round's
 * length changes (another phase of the program), the modes are tried again. */
#include <stdlib.h>

#include "residency/engine.h"

enum { SETTLE = 2, MEASURED = 2 }; /* rounds */

/* ---- what stays on the host ---- */

static void drop_in_place(residency *r) {
  for (uint32_t i = 0; i < r->space.count; i++) r->units[i].in_place = false;
  r->in_place_bytes = 0;
  forecast_reset(r);
}

/* What each unit costs per round if it is read in place. */
static void price(residency *r) {
  history *h = &r->history;
  for (uint32_t i = 0; i < r->space.count; i++) r->costs[i] = 0;
  for (uint64_t at = h->cursor; at < h->end; at++) {
    const history_launch *l = history_at(h, at);
    uint64_t all = 0;
    for (uint32_t i = 0; i < l->count; i++)
      all += r->space.units[history_entry_at(h, l->first + i)->unit].bytes;
    for (uint32_t i = 0; i < l->count; i++) {
      uint32_t unit = history_entry_at(h, l->first + i)->unit;
      r->costs[unit] +=
          residency_in_place_ns(&r->card, r->space.units[unit].bytes, all, l->device_ns);
    }
  }
}

static int cheapest_first(const void *a, const void *b) {
  const victim *x = a, *y = b;
  if (x->next_use != y->next_use) return x->next_use < y->next_use ? -1 : 1;
  return x->unit < y->unit ? -1 : x->unit > y->unit;
}

/* Chooses the units that are cheapest in place until the rest fits. Of units that cost the same,
 * the chosen ones are spread over the round, so that they hide behind the host's work between
 * launches. Returns what they cost per round. */
static double choose_in_place(residency *r) {
  price(r);
  uint64_t used = 0, n = 0;
  for (uint32_t i = 0; i < r->space.count; i++) {
    if (r->space.units[i].bytes == 0 || r->costs[i] == 0) continue;
    used += r->space.units[i].bytes;
    r->victims[n++] = (victim){(uint64_t)(r->costs[i] / (double)r->space.units[i].bytes * 64), i};
  }
  r->victim_count = 0; /* the list was borrowed */
  qsort(r->victims, n, sizeof *r->victims, cheapest_first);
  double cost = 0;
  for (uint64_t first = 0; first < n && used > r->capacity_bytes;) {
    uint64_t end = first, bytes = 0;
    for (; end < n && r->victims[end].next_use == r->victims[first].next_use; end++)
      bytes += r->space.units[r->victims[end].unit].bytes;
    double part = (double)(used - r->capacity_bytes) / (double)bytes, sum = 0;
    for (uint64_t i = first; i < end && used > r->capacity_bytes; i++) {
      sum += part < 1 ? part : 1;
      if (sum < 0.999 && part < 1) continue;
      sum -= 1;
      uint32_t unit = r->victims[i].unit;
      r->units[unit].in_place = true;
      used -= r->space.units[unit].bytes;
      r->in_place_bytes += r->space.units[unit].bytes;
      cost += r->costs[unit];
    }
    first = end;
  }
  return cost;
}

/* ---- rounds ---- */

static void set_mode(residency *r, residency_mode mode, uint32_t settle) {
  if (r->mode == RESIDENCY_IN_PLACE && mode != RESIDENCY_IN_PLACE) drop_in_place(r);
  if (mode == RESIDENCY_IN_PLACE && r->mode != RESIDENCY_IN_PLACE) {
    choose_in_place(r);
    forecast_reset(r);
  }
  r->mode = mode;
  r->round.settle = settle;
}

static residency_mode fastest(const residency *r) {
  residency_mode best = RESIDENCY_MOVE_BESIDE;
  for (int m = 0; m < RESIDENCY_MODES; m++)
    if (r->round.took_ns[m] < r->round.took_ns[best]) best = (residency_mode)m;
  return best;
}

static void start_round(residency *r, uint64_t now_ns) {
  uint64_t rounds = r->round.settle > 0 ? 1 : MEASURED;
  r->round.end_seq = r->seq + rounds * r->round.length;
  r->round.start_ns = now_ns;
}

void round_reset(residency *r) {
  r->round.length = 0;
  r->round.trying = true;
  for (int m = 0; m < RESIDENCY_MODES; m++) r->round.took_ns[m] = UINT64_MAX;
}

/* True if reading in place cannot be the fastest: more than twice the best, by the figures. */
static bool hopeless(residency *r) {
  const history *h = &r->history;
  double kernels = 0;
  for (uint64_t at = h->cursor; at < h->end; at++) kernels += history_at(h, at)->device_ns;
  double cost = choose_in_place(r);
  drop_in_place(r);
  return kernels + cost > 2 * (double)r->round.took_ns[fastest(r)];
}

static void next_trial(residency *r) {
  if (r->mode == RESIDENCY_MOVE_BESIDE) {
    set_mode(r, RESIDENCY_MOVE_HOLD, SETTLE);
  } else if (r->mode == RESIDENCY_MOVE_HOLD && !hopeless(r)) {
    set_mode(r, RESIDENCY_IN_PLACE, SETTLE);
  } else {
    r->round.trying = false;
    r->stats.trials++;
    set_mode(r, fastest(r), 0);
  }
}

void round_launch(residency *r, uint64_t now_ns) {
  const history *h = &r->history;
  uint64_t reach = h->cursor == HISTORY_NEVER ? 0 : h->end - h->cursor;
  if (h->matched < 16 || reach < 16) return;
  if (r->round.length != reach) { /* another phase, or the first */
    round_reset(r);
    r->round.length = reach;
    set_mode(r, RESIDENCY_MOVE_BESIDE, SETTLE);
    start_round(r, now_ns);
    return;
  }
  if (!r->round.trying) return;
  if (r->seq < r->round.end_seq) {
    uint64_t best = r->round.took_ns[fastest(r)];
    if (r->mode != RESIDENCY_MOVE_BESIDE && now_ns - r->round.start_ns > 2 * MEASURED * best)
      next_trial(r), start_round(r, now_ns);
    return;
  }
  if (r->round.settle > 0)
    r->round.settle--;
  else {
    r->round.took_ns[r->mode] = (now_ns - r->round.start_ns) / MEASURED;
    next_trial(r);
  }
  start_round(r, now_ns);
}
