/* Columns: dictionaries, sizes by stack, predicted addresses. */
#include "report/columns.h"

#include <stdlib.h>

#include "base/list.h"

typedef struct entry {
  uint64_t key, count;
  uint32_t number;
} entry;

static int by_count(const void *a, const void *b) {
  const entry *x = a, *y = b;
  if (x->count != y->count) return x->count < y->count ? 1 : -1;
  return x->key < y->key ? -1 : x->key > y->key;
}

static int by_key(const void *a, const void *b) {
  const entry *x = a, *y = b;
  return x->key < y->key ? -1 : x->key > y->key;
}

static stow_status no_memory(uint64_t count) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to pack %llu allocations",
                   (unsigned long long)count);
}

void columns_put(buffer *b, uint64_t value) {
  uint8_t bytes[10];
  size_t n = 0;
  while (value >= 128) {
    bytes[n++] = (uint8_t)(value | 128);
    value >>= 7;
  }
  bytes[n++] = (uint8_t)value;
  buffer_append(b, bytes, n);
}

static uint64_t value_of(const lifetime *l, column which) {
  switch (which) {
  case COLUMN_SIZE: return l->bytes;
  case COLUMN_ADDR: return l->addr;
  case COLUMN_STACK: return l->stack_id;
  case COLUMN_TAG: return l->tag_id;
  case COLUMN_STREAM: return l->stream;
  case COLUMN_COUNT: break;
  }
  return 0;
}

/* Counts the distinct keys of all lifetimes. first[i] is the order in which the key of lifetime i
 * first occurred; entries are in that order, each with its count. */
static stow_status count_keys(entry **entries, uint32_t *count, uint32_t *first, const timeline *t,
                              uint64_t (*key)(const void *, uint32_t), const void *user) {
  map index = {0};
  size_t capacity = 0;
  stow_status status = STOW_OK;
  for (uint32_t i = 0; i < t->lifetime_count && status == STOW_OK; i++) {
    uint64_t value = key(user, i), *have = map_get(&index, value);
    if (have != NULL) {
      /* Every key of the map is in the list. NOLINTNEXTLINE(clang-analyzer-core.NullDereference) */
      (*entries)[*have].count++;
      first[i] = (uint32_t)*have;
      continue;
    }
    status = LIST_ROOM(*entries, *count, capacity, 256, "values of a column");
    if (status != STOW_OK) break;
    (*entries)[*count] = (entry){.key = value, .count = 1, .number = *count};
    first[i] = *count;
    status = map_put(&index, value, (*count)++);
  }
  map_free(&index);
  return status;
}

typedef struct field {
  const timeline *t;
  column which;
} field;

static uint64_t field_key(const void *user, uint32_t life) {
  const field *f = user;
  return value_of(&f->t->lifetimes[life], f->which);
}

/* Converts first[] to numbers by the current order of the entries. */
static stow_status renumber(uint32_t *of, uint32_t lives, const entry *entries, uint32_t count) {
  uint32_t *number = malloc((count + 1u) * sizeof *number);
  if (number == NULL) return no_memory(count);
  for (uint32_t i = 0; i < count; i++) number[entries[i].number] = i;
  for (uint32_t i = 0; i < lives; i++) of[i] = number[of[i]];
  free(number);
  return STOW_OK;
}

static stow_status dictionary_build(dictionary *d, const timeline *t, column which) {
  field f = {t, which};
  entry *entries = NULL;
  d->of = malloc((t->lifetime_count + 1u) * sizeof *d->of);
  if (d->of == NULL) return no_memory(t->lifetime_count);
  stow_status status = count_keys(&entries, &d->count, d->of, t, field_key, &f);
  if (status == STOW_OK && d->count > 0)
    qsort(entries, d->count, sizeof *entries, which == COLUMN_ADDR ? by_key : by_count);
  if (status == STOW_OK) status = renumber(d->of, t->lifetime_count, entries, d->count);
  d->values = malloc((d->count + 1u) * sizeof *d->values);
  if (status == STOW_OK && d->values == NULL) status = no_memory(d->count);
  for (uint32_t i = 0; i < d->count && status == STOW_OK; i++) d->values[i] = entries[i].key;
  free(entries);
  return status;
}

stow_status columns_build(columns *c, const timeline *t) {
  *c = (columns){.t = t};
  for (int i = 0; i < COLUMN_COUNT; i++) STOW_TRY(dictionary_build(&c->all[i], t, (column)i));
  return STOW_OK;
}

void columns_free(columns *c) {
  for (int i = 0; i < COLUMN_COUNT; i++) {
    free(c->all[i].values);
    free(c->all[i].of);
  }
  *c = (columns){0};
}

/* ---- sizes by stack ---- */

static uint64_t pair_key(const void *user, uint32_t life) {
  const columns *c = user;
  return (uint64_t)c->all[COLUMN_STACK].of[life] << 32 | c->all[COLUMN_SIZE].of[life];
}

static int by_stack_and_count(const void *a, const void *b) {
  const entry *x = a, *y = b;
  uint64_t sx = x->key >> 32, sy = y->key >> 32;
  return sx != sy ? (sx < sy ? -1 : 1) : by_count(a, b);
}

/* Sorts entries by stack; `start` becomes the start of each stack's list. */
static void put_lists(buffer *lists, const entry *pairs, uint32_t count, uint32_t *start,
                      uint32_t stacks) {
  for (uint32_t s = 0, at = 0; s < stacks; s++) {
    uint32_t end = at;
    while (end < count && pairs[end].key >> 32 == s) end++;
    start[s] = at;
    columns_put(lists, end - at);
    for (; at < end; at++) columns_put(lists, pairs[at].key & UINT32_MAX);
  }
}

stow_status columns_put_sizes(buffer *lists, buffer *indexes, const columns *c) {
  uint32_t lives = c->t->lifetime_count, count = 0, stacks = c->all[COLUMN_STACK].count;
  entry *pairs = NULL;
  uint32_t *of = malloc((lives + 1u) * sizeof *of), *start = malloc((stacks + 1u) * sizeof *start);
  stow_status status = of != NULL && start != NULL ? STOW_OK : no_memory(lives);
  if (status == STOW_OK) status = count_keys(&pairs, &count, of, c->t, pair_key, c);
  if (status == STOW_OK && count > 0) {
    qsort(pairs, count, sizeof *pairs, by_stack_and_count);
    status = renumber(of, lives, pairs, count);
  }
  if (status == STOW_OK) {
    put_lists(lists, pairs, count, start, stacks);
    for (uint32_t i = 0; i < lives; i++)
      columns_put(indexes, of[i] - start[c->all[COLUMN_STACK].of[i]]);
  }
  free(pairs);
  free(of);
  free(start);
  return status;
}

/* ---- addresses ---- */

typedef struct predictor {
  const dictionary *addrs, *sizes;
  uint8_t *live;                   /* by address number */
  uint32_t *head;                  /* by size number: 1 + the node freed last, 0 none */
  uint32_t *node_addr, *node_next; /* freed addresses, newest first */
  uint32_t nodes, unused;          /* the lowest address number never used so far */
} predictor;

static void predict_free(predictor *p, uint32_t life) {
  uint32_t addr = p->addrs->of[life], size = p->sizes->of[life];
  p->live[addr] = 0;
  p->node_addr[p->nodes] = addr;
  p->node_next[p->nodes] = p->head[size];
  p->head[size] = ++p->nodes;
}

static void predict_alloc(predictor *p, buffer *b, uint32_t life) {
  uint32_t addr = p->addrs->of[life], *head = &p->head[p->sizes->of[life]];
  while (*head != 0 && p->live[p->node_addr[*head - 1]]) *head = p->node_next[*head - 1];
  if (*head != 0 && p->node_addr[*head - 1] == addr) {
    *head = p->node_next[*head - 1];
    columns_put(b, 0);
  } else {
    columns_put(b, addr == p->unused ? 1 : (uint64_t)addr + 2);
  }
  p->live[addr] = 1;
  if (addr >= p->unused) p->unused = addr + 1;
}

static void walk(predictor *p, buffer *b, const timeline *t) {
  for (uint32_t i = 0; i < t->before_count; i++) predict_alloc(p, b, i);
  for (uint32_t tick = 0; tick < t->tick_count; tick++) {
    const uint64_t *old = t->superseded.count > 0 ? map_get(&t->superseded, tick) : NULL;
    if (old != NULL) predict_free(p, (uint32_t)*old);
    uint32_t life = t->lifetime[tick];
    if (life == TIMELINE_NONE) continue;
    if (timeline_event(t, tick)->kind == EVENT_ALLOC)
      predict_alloc(p, b, life);
    else
      predict_free(p, life);
  }
}

stow_status columns_put_addresses(buffer *b, const columns *c) {
  const dictionary *addrs = &c->all[COLUMN_ADDR], *sizes = &c->all[COLUMN_SIZE];
  size_t lives = c->t->lifetime_count; /* each ends at most once */
  predictor p = {.addrs = addrs, .sizes = sizes};
  p.live = calloc(addrs->count + 1u, 1);
  p.head = calloc(sizes->count + 1u, sizeof *p.head);
  p.node_addr = malloc((lives + 1) * sizeof *p.node_addr);
  p.node_next = malloc((lives + 1) * sizeof *p.node_next);
  bool have = p.live != NULL && p.head != NULL && p.node_addr != NULL && p.node_next != NULL;
  if (have) walk(&p, b, c->t);
  free(p.live);
  free(p.head);
  free(p.node_addr);
  free(p.node_next);
  return have ? STOW_OK : no_memory(lives);
}
