/* Spill: the policy for saved tensors (spill_saved.h), in simulated time. */
#include "replay/spill_saved.h"

#include <stdlib.h>

/* As in activations.py. */
enum {
  NEWEST_KEPT = 4,
  MARK_EVERY = 8,
  PLAN_STEPS = 4,
  COMING_PART = 8,
  NEXT_PART = 32,
  SWING_PART = 64,
  HELD_CHECKED = 4,
  USED_CHECKED = 4,
  SPACE_PART = 4,
};

typedef enum entry_state { HERE, LEAVING, AWAY, COMING, DEAD } entry_state;
/* The lists of the policy. An entry is in one of them at most. */
typedef enum entry_list {
  LIST_NONE,
  LIST_HERE,
  LIST_HELD,
  LIST_LEAVING,
  LIST_BACK,
  LIST_COMING,
  LIST_COUNT
} entry_list;

#define NO_ENTRY UINT32_MAX

typedef struct entry {
  int64_t bytes;
  uint32_t free_after, next, previous;
  uint8_t state, list;
  double ready_ns, gone_ns, came_ns;
} entry;

typedef struct list {
  uint32_t first, last, count;
} list;

/* What a step needed, per event. */
typedef struct reference {
  int64_t *sums, *needs; /* bytes saved so far; other memory needed from here on */
  size_t count;
} reference;

struct saved_policy {
  spill_clock *clock;
  entry *entries;
  uint32_t count, capacity, marked;
  list lists[LIST_COUNT];
  int64_t target, level, leaving_bytes, coming_bytes, swing, alive, near, last_near;
  int64_t out_bytes, in_bytes, issued, saved, base, plan;
  int64_t plans[PLAN_STEPS];
  size_t steps;
  uint64_t uses;
  bool has_level, gone;
  reference before;
  int64_t *sums, *alives, *others; /* of this step, per event */
  size_t event_count, event_capacity;
  double wait_out_ns, wait_in_ns;
};

/* ---- lists ---- */

static void take(saved_policy *p, uint32_t n) {
  entry *e = &p->entries[n];
  list *l = &p->lists[e->list];
  if (e->list == LIST_NONE) return;
  *(e->previous == NO_ENTRY ? &l->first : &p->entries[e->previous].next) = e->next;
  *(e->next == NO_ENTRY ? &l->last : &p->entries[e->next].previous) = e->previous;
  l->count--;
  e->list = LIST_NONE;
}

/* Moves an entry to the end of a list. */
static void put(saved_policy *p, uint32_t n, entry_list to) {
  entry *e = &p->entries[n];
  take(p, n);
  list *l = &p->lists[to];
  e->list = (uint8_t)to;
  e->next = NO_ENTRY;
  e->previous = l->last;
  *(l->last == NO_ENTRY ? &l->first : &p->entries[l->last].next) = n;
  l->last = n;
  l->count++;
}

static bool is_busy(const saved_policy *p, const entry *e) {
  return p->clock->launch < e->free_after;
}

/* ---- levels ---- */

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static void measure(saved_policy *p, int64_t expected) {
  int64_t now = p->clock->live_bytes, high = p->clock->most_bytes;
  p->clock->most_bytes = now;
  if (p->base < 0) p->base = most(0, now - expected), high = now;
  int64_t rise = p->has_level ? high - p->level - expected : 0;
  p->swing = most(rise, p->swing - p->swing / SWING_PART);
  p->level = now;
  p->has_level = true;
  if (p->event_count == p->event_capacity) return;
  int64_t other = most(high - p->base - most(p->last_near, p->near), now - p->base - p->near);
  p->sums[p->event_count] = p->saved;
  p->alives[p->event_count] = p->alive;
  p->others[p->event_count++] = most(0, other) + expected;
}

/* Ends an event of the program. */
static void settle(saved_policy *p) {
  p->last_near = p->near;
  if (p->gone) p->clock->most_bytes = p->clock->live_bytes;
  p->gone = false;
}

static int64_t ceiling(const saved_policy *p) {
  size_t at = p->event_count;
  if (at == 0 || at >= p->before.count) return p->target;
  int64_t sum = p->before.sums[at - 1];
  double scale = sum > 0 ? (double)p->saved / (double)sum : 1;
  int64_t ahead =
      (int64_t)((double)p->before.needs[at] * scale) - most(0, p->level - p->base - p->near);
  return p->target - least(most(0, ahead), most(0, p->target - p->base) / 2);
}

/* Returns how much this step will still save; -1: not known. */
static int64_t expected_bytes(const saved_policy *p) {
  size_t at = p->event_count;
  if (at == 0 || at > p->before.count || p->before.sums[at - 1] == 0) return -1;
  double scale = (double)p->saved / (double)p->before.sums[at - 1];
  return (int64_t)((double)(p->before.sums[p->before.count - 1] - p->before.sums[at - 1]) * scale);
}

/* ---- out ---- */

static void mark_saved(saved_policy *p) {
  for (; p->marked < p->count; p->marked++) p->entries[p->marked].ready_ns = clock_mark(p->clock);
}

static void start_out(saved_policy *p, uint32_t n) {
  entry *e = &p->entries[n];
  if (is_busy(p, e)) {
    put(p, n, LIST_HELD);
    return;
  }
  if (n >= p->marked) mark_saved(p);
  e->gone_ns = clock_copy(p->clock, CLOCK_OUT, (uint64_t)e->bytes, e->ready_ns);
  e->state = LEAVING;
  put(p, n, LIST_LEAVING);
  p->leaving_bytes += e->bytes;
  p->issued += e->bytes;
}

static bool is_enough(const saved_policy *p, int64_t wanted, int64_t plan) {
  return p->leaving_bytes >= wanted && p->issued >= plan;
}

static void copy_ahead(saved_policy *p, int64_t wanted, int64_t plan) {
  uint32_t checked = p->lists[LIST_HELD].count;
  if (checked > HELD_CHECKED) checked = HELD_CHECKED;
  for (uint32_t i = 0; i < checked; i++) {
    if (is_enough(p, wanted, plan)) return;
    start_out(p, p->lists[LIST_HELD].first);
  }
  while (p->lists[LIST_HERE].count > NEWEST_KEPT && !is_enough(p, wanted, plan))
    start_out(p, p->lists[LIST_HERE].first);
}

static void put_away(saved_policy *p, uint32_t n) {
  entry *e = &p->entries[n];
  take(p, n);
  e->state = AWAY;
  p->gone = true;
  p->level -= e->bytes;
  p->near -= e->bytes;
  clock_allocate(p->clock, -e->bytes);
}

static void drop(saved_policy *p, uint32_t n) {
  if (p->entries[n].list == LIST_COMING) p->coming_bytes -= p->entries[n].bytes;
  clock_wait(p->clock, p->entries[n].came_ns, &p->wait_in_ns);
  put_away(p, n);
}

static void make_room(saved_policy *p, int64_t bytes, uint32_t needed) {
  int64_t high = ceiling(p) - bytes;
  while (p->level > high && p->lists[LIST_BACK].count > NEWEST_KEPT)
    drop(p, p->lists[LIST_BACK].first);
  while (p->level > high && p->lists[LIST_COMING].count > 0) {
    uint32_t last = p->lists[LIST_COMING].last;
    if (p->lists[LIST_COMING].count == 1 && p->entries[last].bytes <= p->target / NEXT_PART) break;
    drop(p, last);
  }
  if (p->level > high) copy_ahead(p, p->level - high, 0);
  for (uint32_t n = p->lists[LIST_LEAVING].first, next; p->level > high && n != NO_ENTRY;
       n = next) {
    entry *e = &p->entries[n];
    next = e->next;
    if (n == needed || is_busy(p, e)) continue;
    clock_wait(p->clock, e->gone_ns, &p->wait_out_ns);
    p->leaving_bytes -= e->bytes;
    p->out_bytes += e->bytes;
    put_away(p, n);
  }
}

/* ---- in ---- */

static void fetch(saved_policy *p, uint32_t n) {
  entry *e = &p->entries[n];
  double from = clock_mark(p->clock); /* the memory may be in use until then */
  clock_allocate(p->clock, e->bytes);
  if (e->gone_ns > from) from = e->gone_ns;
  e->came_ns = clock_copy(p->clock, CLOCK_IN, (uint64_t)e->bytes, from);
  e->state = COMING;
  p->level += e->bytes;
  p->near += e->bytes;
  p->coming_bytes += e->bytes;
  p->in_bytes += e->bytes;
  put(p, n, LIST_COMING);
}

/* Starts copying in what was saved before `n`, the newest first, as far as there is space. */
static void pull_in(saved_policy *p, uint32_t n) {
  int64_t high = ceiling(p);
  while (n-- > 0) {
    const entry *e = &p->entries[n];
    if (e->state != AWAY) continue;
    int64_t after = p->level + e->bytes;
    bool part = p->coming_bytes + e->bytes > p->target / COMING_PART;
    if (p->lists[LIST_COMING].count > 0 &&
        (after > high - p->swing || (after > high - high / SPACE_PART && part)))
      return;
    if (after > high && e->bytes > p->target / NEXT_PART) return;
    fetch(p, n);
  }
}

/* ---- the program ---- */

uint32_t saved_add(saved_policy *p, uint64_t bytes, uint32_t free_after) {
  uint32_t n = p->count++;
  p->entries[n] = (entry){.bytes = (int64_t)bytes, .free_after = free_after};
  put(p, n, LIST_HERE);
  if (p->count - p->marked >= MARK_EVERY) mark_saved(p);
  p->saved += (int64_t)bytes;
  p->alive += (int64_t)bytes;
  p->near += (int64_t)bytes;
  measure(p, (int64_t)bytes);
  int64_t high = ceiling(p), more = expected_bytes(p);
  int64_t plan = more < 0 ? p->plan : p->out_bytes + most(0, p->level + more - high);
  copy_ahead(p, p->level - high + p->target / 8, plan);
  if (p->level > high) make_room(p, 0, NO_ENTRY);
  settle(p);
  return n;
}

void saved_use(saved_policy *p, uint32_t n) {
  entry *e = &p->entries[n];
  int64_t away = p->alive - p->near;
  p->uses++;
  if (e->state == HERE && away == 0 && p->uses % USED_CHECKED != 0) return;
  measure(p, 0);
  if (e->state == AWAY) {
    make_room(p, e->bytes, NO_ENTRY);
    fetch(p, n);
  }
  if (e->state == COMING) {
    clock_wait(p->clock, e->came_ns, &p->wait_in_ns);
    if (e->list == LIST_COMING) p->coming_bytes -= e->bytes;
    put(p, n, LIST_BACK);
  }
  if (p->level > ceiling(p)) make_room(p, 0, n);
  if (p->alive > p->near) pull_in(p, n);
  settle(p);
}

void saved_remove(saved_policy *p, uint32_t n) {
  entry *e = &p->entries[n];
  if (e->state == DEAD) return;
  if (e->state != AWAY) {
    p->near -= e->bytes;
    p->level -= e->bytes;
    clock_allocate(p->clock, -e->bytes);
    if (e->state != HERE)
      clock_wait(p->clock, e->state == COMING ? e->came_ns : e->gone_ns,
                 e->state == COMING ? &p->wait_in_ns : &p->wait_out_ns);
  }
  if (e->state == LEAVING) p->leaving_bytes -= e->bytes;
  if (e->list == LIST_COMING) p->coming_bytes -= e->bytes;
  p->alive -= e->bytes;
  take(p, n);
  e->state = DEAD;
}

/* ---- steps ---- */

/* Keeps what this step needed, to predict the next one. Other memory counts while at least half of
 * what was saved is alive: gradients fill the device later, when there is space. */
static void keep_reference(saved_policy *p) {
  int64_t half = 0, high = 0;
  for (size_t i = 0; i < p->event_count; i++) half = most(half, p->alives[i]);
  half /= 2;
  p->before.count = p->event_count;
  for (size_t i = p->event_count; i-- > 0;) {
    if (p->alives[i] >= half) high = most(high, p->others[i]);
    p->before.needs[i] = high;
    p->before.sums[i] = p->sums[i];
  }
}

void saved_begin_step(saved_policy *p) {
  p->count = p->marked = 0;
  p->event_count = 0;
  p->alive = p->near = p->last_near = p->leaving_bytes = p->coming_bytes = 0;
  p->out_bytes = p->in_bytes = p->issued = p->saved = 0;
  p->wait_out_ns = p->wait_in_ns = 0;
  p->base = -1;
  p->has_level = p->gone = false;
  p->plan = 0;
  for (size_t i = 0; i < PLAN_STEPS; i++) p->plan = most(p->plan, p->plans[i]);
  for (int i = 0; i < LIST_COUNT; i++) p->lists[i] = (list){NO_ENTRY, NO_ENTRY, 0};
}

void saved_end_step(saved_policy *p) {
  p->plans[p->steps++ % PLAN_STEPS] = p->out_bytes;
  if (p->event_count > 0) keep_reference(p);
}

stow_status saved_open(saved_policy **out, spill_clock *clock, uint32_t count) {
  saved_policy *p = calloc(1, sizeof *p);
  *out = p;
  size_t events = (size_t)count * 8 + 64;
  if (p != NULL) {
    p->clock = clock;
    p->capacity = count;
    p->event_capacity = events;
    p->entries = calloc((size_t)count + 1, sizeof *p->entries);
    p->before.sums = calloc(events, sizeof *p->before.sums);
    p->before.needs = calloc(events, sizeof *p->before.needs);
    p->sums = calloc(events, sizeof *p->sums);
    p->alives = calloc(events, sizeof *p->alives);
    p->others = calloc(events, sizeof *p->others);
  }
  if (p == NULL || p->entries == NULL || p->before.sums == NULL || p->before.needs == NULL ||
      p->sums == NULL || p->alives == NULL || p->others == NULL) {
    saved_close(p);
    *out = NULL;
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %u saved tensors", count);
  }
  return STOW_OK;
}

void saved_close(saved_policy *p) {
  if (p == NULL) return;
  free(p->entries);
  free(p->before.sums);
  free(p->before.needs);
  free(p->sums);
  free(p->alives);
  free(p->others);
  free(p);
}

void saved_set_target(saved_policy *p, int64_t bytes) {
  p->target = bytes;
}

int64_t saved_base_bytes(const saved_policy *p) {
  return p->base;
}

int64_t saved_other_bytes(const saved_policy *p) {
  return p->before.count > 0 ? p->before.needs[0] : 0;
}

saved_figures saved_get_figures(const saved_policy *p) {
  return (saved_figures){(uint64_t)p->out_bytes, (uint64_t)p->in_bytes, p->wait_out_ns,
                         p->wait_in_ns};
}
