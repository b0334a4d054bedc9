/* Iterations: boundaries from marks, or from a repeating allocation. */
#include "replay/iteration.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/list.h"

/* Boundaries: the tick after which a new iteration begins. */
typedef struct boundaries {
  uint32_t *ticks;
  uint32_t count;
  size_t capacity;
} boundaries;

static stow_status boundary_add(boundaries *b, uint32_t tick) {
  if (b->count > 0 && b->ticks[b->count - 1] >= tick) return STOW_OK;
  STOW_TRY(LIST_ROOM(b->ticks, b->count, b->capacity, 64, "iterations"));
  b->ticks[b->count++] = tick;
  return STOW_OK;
}

/* Strips the digits from a name: "ProfilerStep#12" and "ProfilerStep#13" are one mark. */
static size_t mark_stem(char *stem, size_t size, const char *name) {
  size_t length = 0;
  for (; *name != '\0' && length + 1 < size; name++)
    if (!isdigit((unsigned char)*name)) stem[length++] = *name;
  stem[length] = '\0';
  return length;
}

/* Rates how likely a mark means an iteration of the loop; 0: not at all. */
static int mark_rank(const char *name) {
  if (strstr(name, "ProfilerStep") != NULL) return 6;
  if (strcasestr(name, "iteration") != NULL || strcasestr(name, "train_step") != NULL) return 5;
  if (strcasestr(name, "optimizer") != NULL) return strstr(name, ".step") != NULL ? 3 : 0;
  if (strncasecmp(name, "step", 4) == 0 || strncasecmp(name, "iter", 4) == 0) return 4;
  if (strcasestr(name, "batch") != NULL || strcasestr(name, "epoch") != NULL) return 2;
  return 1;
}

typedef struct mark_group {
  uint32_t name_id, begins, ends;
  int rank;
} mark_group;

#define MARK_GROUPS_MAX 4096 /* kinds of mark examined; the rest is ignored */

/* Numbers the stems of all marks and counts each; group_of[tick] is only valid at marks. */
static stow_status group_marks(const timeline *t, intern *stems, mark_group *groups,
                               uint32_t *count) {
  for (uint32_t tick = 0; tick < t->tick_count; tick++) {
    const event *e = timeline_event(t, tick);
    if (e->kind != EVENT_MARK_BEGIN && e->kind != EVENT_MARK_END) continue;
    char stem[256];
    uint32_t name_id = timeline_origin(t, e)->tag_id;
    const char *name = recording_text(t->source, name_id);
    size_t length = mark_stem(stem, sizeof stem, name);
    uint32_t number;
    if (stems->count >= MARK_GROUPS_MAX && !intern_find(stems, &number, stem, length)) continue;
    STOW_TRY(intern_add(stems, &number, stem, length));
    if (number >= *count) {
      groups[number] = (mark_group){.name_id = name_id, .rank = mark_rank(name)};
      *count = number + 1;
    }
    if (e->kind == EVENT_MARK_BEGIN)
      groups[number].begins++;
    else
      groups[number].ends++;
  }
  return STOW_OK;
}

/* Finds boundaries from marks. An optimizer step ends an iteration; every other mark begins one. */
static stow_status boundaries_from_marks(iterations *all, boundaries *b, const timeline *t) {
  intern stems = {0};
  uint32_t count = 0;
  mark_group *groups = malloc(MARK_GROUPS_MAX * sizeof *groups);
  if (groups == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to count marks");
  stow_status status = group_marks(t, &stems, groups, &count);
  uint32_t best = UINT32_MAX;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t n = groups[i].begins > groups[i].ends ? groups[i].begins : groups[i].ends;
    if (n < 2 || groups[i].rank == 0) continue;
    if (best == UINT32_MAX || groups[i].rank > groups[best].rank) best = i;
  }
  if (status == STOW_OK && best != UINT32_MAX) {
    bool at_end = groups[best].rank == 3 && groups[best].ends >= 2;
    uint8_t kind = at_end ? EVENT_MARK_END : EVENT_MARK_BEGIN;
    all->how = ITERATION_MARKS;
    all->name_id = groups[best].name_id;
    all->first_is_setup = !at_end;
    all->last_is_partial = true;
    uint32_t closed = 0; /* where the last iteration ended by itself; 0: it did not */
    for (uint32_t tick = 0; tick < t->tick_count && status == STOW_OK; tick++) {
      const event *e = timeline_event(t, tick);
      if (e->kind != EVENT_MARK_BEGIN && e->kind != EVENT_MARK_END) continue;
      char stem[256];
      uint32_t number;
      const char *name = recording_text(t->source, timeline_origin(t, e)->tag_id);
      size_t length = mark_stem(stem, sizeof stem, name);
      if (!intern_find(&stems, &number, stem, length) || number != best) continue;
      closed = e->kind == EVENT_MARK_END ? tick + 1 : 0;
      if (e->kind == kind) status = boundary_add(b, at_end ? tick + 1 : tick);
    }
    if (status == STOW_OK && closed > 0) status = boundary_add(b, closed);
  }
  intern_free(&stems);
  free(groups);
  return status;
}

/* ---- guessing ---- */

/* One kind of allocation (stack and size) and the sums of its distances. */
typedef struct repeat {
  uint64_t bytes;
  uint32_t stack_id, count, first, last;
  double sum, squares;
} repeat;

#define REPEAT_LEAST  4    /* iterations needed for a guess */
#define REPEAT_SPREAD 0.25 /* standard deviation of the distances over their mean */
#define REPEAT_COVER  0.6  /* part of the recording that the iterations must span */

static uint64_t repeat_key(const lifetime *l) {
  return hash_u64(l->bytes, l->stack_id);
}

static void repeat_seen(repeat *r, uint32_t tick) {
  /* NOLINTNEXTLINE(clang-analyzer-*): a key found has its entry in the list */
  if (r->count > 0) {
    double d = (double)tick - r->last;
    r->sum += d;
    r->squares += d * d;
  } else {
    r->first = tick;
  }
  r->last = tick;
  r->count++;
}

/* Chooses the longest regular distance: what occurs once per iteration, not once per layer. */
static const repeat *best_repeat(const repeat *all, uint32_t count, uint32_t ticks) {
  const repeat *best = NULL;
  for (uint32_t i = 0; i < count; i++) {
    const repeat *r = &all[i];
    if (r->count < REPEAT_LEAST || r->last - r->first < REPEAT_COVER * ticks) continue;
    double n = r->count - 1, mean = r->sum / n, variance = r->squares / n - mean * mean;
    if (variance > mean * mean * REPEAT_SPREAD * REPEAT_SPREAD || mean < 8) continue;
    if (best == NULL || r->count < best->count ||
        (r->count == best->count && r->bytes > best->bytes))
      best = r;
  }
  return best;
}

static stow_status boundaries_from_repeats(iterations *all, boundaries *b, const timeline *t) {
  map index = {0};
  repeat *repeats = NULL;
  uint32_t count = 0;
  size_t capacity = 0;
  stow_status status = STOW_OK;
  for (uint32_t i = t->before_count; i < t->lifetime_count && status == STOW_OK; i++) {
    const lifetime *l = &t->lifetimes[i];
    uint64_t *have = map_get(&index, repeat_key(l));
    if (have == NULL) {
      status = LIST_ROOM(repeats, count, capacity, 1024, "sites of an iteration");
      if (status != STOW_OK) break;
      repeats[count] = (repeat){.bytes = l->bytes, .stack_id = l->stack_id};
      status = map_put(&index, repeat_key(l), count++);
      have = NULL;
      repeat_seen(&repeats[count - 1], l->start);
    } else {
      repeat_seen(&repeats[*have], l->start);
    }
  }
  const repeat *best = status == STOW_OK ? best_repeat(repeats, count, t->tick_count) : NULL;
  if (best != NULL) {
    all->how = ITERATION_GUESSED;
    all->guess_bytes = best->bytes;
    all->guess_stack_id = best->stack_id;
    all->first_is_setup = all->last_is_partial = true;
    for (uint32_t i = t->before_count; i < t->lifetime_count && status == STOW_OK; i++) {
      const lifetime *l = &t->lifetimes[i];
      if (l->bytes == best->bytes && l->stack_id == best->stack_id)
        status = boundary_add(b, l->start);
    }
  }
  map_free(&index);
  free(repeats);
  return status;
}

/* ---- the iterations ---- */

static void measure(iterations *all, const timeline *t) {
  uint64_t live = 0;
  for (uint32_t i = 0; i < t->before_count; i++) live += t->lifetimes[i].bytes;
  uint32_t at = 0;
  all->list[0].peak_bytes = live;
  for (uint32_t tick = 0; tick < t->tick_count; tick++) {
    while (at + 1 < all->count && tick >= all->list[at].end) {
      all->list[at].end_bytes = live;
      all->list[++at].peak_bytes = live;
    }
    live += (uint64_t)timeline_change(t, tick);
    if (t->lifetime[tick] != TIMELINE_NONE && timeline_event(t, tick)->kind == EVENT_ALLOC)
      all->list[at].allocs++;
    if (live > all->list[at].peak_bytes) all->list[at].peak_bytes = live;
  }
  all->list[at].end_bytes = live;
}

static int by_value(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? -1 : x > y;
}

static stow_status find_growth(iterations *all) {
  uint32_t first = all->first_is_setup, last = all->count - all->last_is_partial;
  if (all->count == 0 || last < first + 3) return STOW_OK;
  uint32_t n = last - first - 1;
  int64_t *steps = malloc(n * sizeof *steps);
  if (steps == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to compare %u iterations", n);
  for (uint32_t i = 0; i < n; i++)
    steps[i] = (int64_t)(all->list[first + i + 1].end_bytes - all->list[first + i].end_bytes);
  qsort(steps, n, sizeof *steps, by_value);
  all->growth_bytes = steps[n / 2];
  free(steps);
  return STOW_OK;
}

stow_status iterations_find(iterations *all, const timeline *t) {
  *all = (iterations){0};
  boundaries b = {0};
  stow_status status = boundaries_from_marks(all, &b, t);
  if (status == STOW_OK && b.count < 2) {
    *all = (iterations){0};
    b.count = 0;
    status = boundaries_from_repeats(all, &b, t);
  }
  if (status == STOW_OK && b.count >= 2) {
    all->list = calloc(b.count + 1u, sizeof *all->list);
    if (all->list == NULL) {
      status = stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %u iterations", b.count);
    } else {
      uint32_t from = 0;
      for (uint32_t i = 0; i <= b.count; i++) {
        uint32_t to = i < b.count ? b.ticks[i] : t->tick_count;
        if (to > from)
          all->list[all->count++] = (iteration){.start = from, .end = to};
        else if (i == 0)
          all->first_is_setup = false; /* a mark at the very start */
        else
          all->last_is_partial = false; /* a mark at the very end */
        from = to;
      }
      measure(all, t);
      status = find_growth(all);
    }
  } else {
    all->how = ITERATION_NONE;
  }
  free(b.ticks);
  return status;
}

void iterations_free(iterations *all) {
  free(all->list);
  *all = (iterations){0};
}
