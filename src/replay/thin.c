/* Thin: sorts to find the least important lifetimes, and sums the rest in one pass over the
 * ticks. */
#include "replay/thin.h"

#include <stdlib.h>
#include <string.h>

static stow_status no_memory(uint64_t count) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to choose among %llu allocations",
                   (unsigned long long)count);
}

static int descending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? 1 : x > y ? -1 : 0;
}

/* Sets kept[i] = 1 for the `most` largest areas. `copy` is scratch space for sorting. */
static void keep_largest(uint8_t *kept, const double *areas, double *copy, uint32_t count,
                         uint32_t most) {
  memcpy(copy, areas, count * sizeof *copy);
  qsort(copy, count, sizeof *copy, descending);
  double least = copy[most];
  uint32_t have = 0;
  for (uint32_t i = 0; i < count; i++) have += kept[i] = areas[i] > least;
  for (uint32_t i = 0; i < count && have < most; i++) /* among equals the earlier */
    if (!kept[i] && areas[i] == least) have += kept[i] = 1;
}

static stow_status choose(uint8_t **kept, const double *areas, uint32_t count, uint32_t most) {
  *kept = calloc(count + 1u, 1);
  double *copy = malloc((count + 1u) * sizeof *copy);
  if (*kept == NULL || copy == NULL) {
    free(*kept);
    free(copy);
    *kept = NULL;
    return no_memory(count);
  }
  if (count <= most)
    memset(*kept, 1, count);
  else
    keep_largest(*kept, areas, copy, count, most);
  free(copy);
  return STOW_OK;
}

static double area(uint64_t bytes, uint32_t start, uint32_t end, uint32_t ticks) {
  return (double)bytes * ((end == TIMELINE_OPEN ? ticks : end) - start + 1.0);
}

static stow_status choose_lives(uint8_t **kept, const timeline *t, uint32_t most) {
  double *areas = malloc((t->lifetime_count + 1u) * sizeof *areas);
  if (areas == NULL) return no_memory(t->lifetime_count);
  for (uint32_t i = 0; i < t->lifetime_count; i++) {
    const lifetime *l = &t->lifetimes[i];
    areas[i] = area(l->bytes, l->start, l->end, t->tick_count);
  }
  stow_status status = choose(kept, areas, t->lifetime_count, most);
  free(areas);
  return status;
}

static stow_status thin_extents(thinned *out, const timeline *t, uint32_t most) {
  timeline *to = &out->time;
  to->extents = malloc((t->extent_count + 1u) * sizeof *to->extents);
  double *areas = malloc((t->extent_count + 1u) * sizeof *areas);
  uint8_t *kept = NULL;
  stow_status status = STOW_OK;
  if (to->extents == NULL || areas == NULL) status = no_memory(t->extent_count);
  for (uint32_t i = 0; i < t->extent_count && status == STOW_OK; i++) {
    const extent *e = &t->extents[i];
    areas[i] = area(e->bytes, e->start, e->end, t->tick_count);
  }
  if (status == STOW_OK) status = choose(&kept, areas, t->extent_count, most);
  for (uint32_t i = 0; i < t->extent_count && status == STOW_OK; i++)
    if (kept[i]) to->extents[to->extent_count++] = t->extents[i];
  out->left_out_extents = t->extent_count - to->extent_count;
  free(areas);
  free(kept);
  return status;
}

/* One pass over the source. Lifetimes get their new numbers as they begin. */
typedef struct walk {
  thinned *out;
  const timeline *from;
  const uint8_t *kept;
  uint32_t *number;       /* lifetime of the source → its new number */
  uint32_t every, passed; /* omitted allocations per stretch; since the current one began */
  uint64_t now;           /* live bytes of omitted allocations */
  bool resting;           /* a rest lifetime is open: the last of out->rests */
} walk;

static uint32_t add_life(walk *w, const lifetime *l) {
  timeline *t = &w->out->time;
  t->lifetimes[t->lifetime_count] = *l;
  return t->lifetime_count++;
}

static void raise_rest(walk *w) {
  if (!w->resting) return;
  lifetime *rest = &w->out->time.lifetimes[w->out->rests[w->out->rest_count - 1]];
  if (w->now > rest->bytes) rest->bytes = w->now;
}

static uint32_t begin_rest(walk *w, uint32_t tick, bool before) {
  lifetime rest = {.bytes = w->now, .start = tick, .end = TIMELINE_OPEN, .before = before};
  uint32_t number = add_life(w, &rest);
  w->out->rests[w->out->rest_count++] = number;
  w->resting = true;
  w->passed = 0;
  return number;
}

static void take_before(walk *w) {
  const timeline *t = w->from;
  for (uint32_t i = 0; i < t->before_count; i++) {
    if (w->kept[i])
      w->number[i] = add_life(w, &t->lifetimes[i]);
    else
      w->now += t->lifetimes[i].bytes;
  }
  if (w->now > 0) begin_rest(w, 0, true);
  w->out->time.before_count = w->out->time.lifetime_count;
}

/* Ends the lifetime whose address is allocated a second time here, if any. */
static stow_status take_over(walk *w, uint32_t tick, bool *taken) {
  const timeline *t = w->from;
  const uint64_t *old = t->superseded.count > 0 ? map_get(&t->superseded, tick) : NULL;
  *taken = old != NULL && w->kept[*old];
  if (old == NULL) return STOW_OK;
  if (!*taken) {
    w->now -= t->lifetimes[*old].bytes;
    return STOW_OK;
  }
  return map_put(&w->out->time.superseded, tick, w->number[*old]);
}

/* Omits an allocation. The first one of each stretch begins a new rest lifetime and ends the
 * last. */
static stow_status pass_over(walk *w, uint32_t tick, const lifetime *l, bool taken) {
  timeline *t = &w->out->time;
  w->now += l->bytes;
  if (!taken && (!w->resting || ++w->passed >= w->every) &&
      w->out->rest_count < THIN_STRETCHES_MAX + 1) {
    if (w->resting) {
      uint32_t last = w->out->rests[w->out->rest_count - 1];
      t->lifetimes[last].end = tick;
      STOW_TRY(map_put(&t->superseded, tick, last));
    }
    t->lifetime[tick] = begin_rest(w, tick, false);
  }
  raise_rest(w);
  return STOW_OK;
}

static stow_status walk_ticks(walk *w) {
  const timeline *t = w->from;
  uint32_t *lifetime_at = w->out->time.lifetime;
  take_before(w);
  for (uint32_t tick = 0; tick < t->tick_count; tick++) {
    bool taken;
    STOW_TRY(take_over(w, tick, &taken));
    uint32_t n = t->lifetime[tick];
    if (n == TIMELINE_NONE) continue;
    const lifetime *l = &t->lifetimes[n];
    bool begins = timeline_event(t, tick)->kind == EVENT_ALLOC;
    if (w->kept[n])
      lifetime_at[tick] = begins ? (w->number[n] = add_life(w, l)) : w->number[n];
    else if (begins)
      STOW_TRY(pass_over(w, tick, l, taken));
    else
      w->now -= l->bytes;
  }
  return STOW_OK;
}

static stow_status thin_lives(thinned *out, const timeline *t, uint32_t most) {
  uint8_t *kept = NULL;
  uint32_t dropped = 0;
  STOW_TRY(choose_lives(&kept, t, most));
  for (uint32_t i = 0; i < t->lifetime_count; i++) dropped += !kept[i];
  out->left_out = dropped;
  walk w = {.out = out, .from = t, .kept = kept, .every = dropped / THIN_STRETCHES_MAX + 1};
  size_t room = (size_t)t->lifetime_count - dropped + THIN_STRETCHES_MAX + 2;
  timeline *to = &out->time;
  to->lifetimes = malloc(room * sizeof *to->lifetimes);
  to->lifetime = malloc((t->tick_count + 1u) * sizeof *to->lifetime);
  to->events = malloc((t->tick_count + 1u) * sizeof *to->events);
  out->rests = malloc((THIN_STRETCHES_MAX + 2) * sizeof *out->rests);
  w.number = malloc((t->lifetime_count + 1u) * sizeof *w.number);
  stow_status status = STOW_OK;
  if (to->lifetimes == NULL || to->lifetime == NULL || to->events == NULL || out->rests == NULL ||
      w.number == NULL) {
    status = no_memory(t->lifetime_count);
  } else {
    memset(to->lifetime, 0xff, (t->tick_count + 1u) * sizeof *to->lifetime);
    if (t->tick_count > 0) memcpy(to->events, t->events, t->tick_count * sizeof *to->events);
    status = walk_ticks(&w);
  }
  free(w.number);
  free(kept);
  return status;
}

stow_status timeline_thin(thinned *out, const timeline *t, uint32_t lives_max,
                          uint32_t extents_max) {
  *out = (thinned){.time = {.source = t->source,
                            .device = t->device,
                            .tick_count = t->tick_count,
                            .reserved_known = t->reserved_known,
                            .unknown_frees = t->unknown_frees,
                            .doubled_allocs = t->doubled_allocs,
                            .bad_sizes = t->bad_sizes,
                            .bad_extents = t->bad_extents}};
  STOW_TRY(thin_lives(out, t, lives_max));
  return thin_extents(out, t, extents_max);
}

void thinned_free(thinned *t) {
  timeline_free(&t->time);
  free(t->rests);
  *t = (thinned){0};
}
