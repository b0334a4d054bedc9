/* Hash map and interning table. Load factor at most 3/4 (map) and 1/2 (intern); removal shifts
 * back, so there are no tombstones and a table never degrades. */
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

uint64_t hash_bytes(const void *bytes, size_t count, uint64_t seed) {
  const unsigned char *at = bytes;
  uint64_t h = hash_u64(count, seed);
  for (; count >= 8; count -= 8, at += 8) {
    uint64_t word;
    memcpy(&word, at, 8);
    h = hash_u64(word, h);
  }
  if (count > 0) {
    uint64_t word = 0;
    memcpy(&word, at, count);
    h = hash_u64(word, h);
  }
  return h;
}

void map_free(map *m) {
  free(m->slots);
  free(m->used);
  *m = (map){0};
}

static size_t map_index(const map *m, uint64_t key) {
  size_t mask = m->capacity - 1, i = hash_u64(key, m->seed) & mask;
  while (m->used[i] && m->slots[i].key != key) i = (i + 1) & mask;
  return i;
}

uint64_t *map_get(const map *m, uint64_t key) {
  if (m->capacity == 0) return NULL;
  size_t i = map_index(m, key);
  return m->used[i] ? &m->slots[i].value : NULL;
}

static stow_status map_grow(map *m) {
  map bigger = {.capacity = m->capacity == 0 ? 16 : m->capacity * 2, .count = m->count};
  bigger.seed = m->seed != 0 ? m->seed : (uint64_t)(uintptr_t)m;
  bigger.slots = malloc(bigger.capacity * sizeof *bigger.slots);
  bigger.used = calloc(bigger.capacity, 1);
  if (bigger.slots == NULL || bigger.used == NULL) {
    free(bigger.slots);
    free(bigger.used);
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a table of %zu entries",
                     bigger.capacity);
  }
  for (size_t i = 0; i < m->capacity; i++) {
    if (!m->used[i]) continue;
    size_t to = map_index(&bigger, m->slots[i].key);
    bigger.slots[to] = m->slots[i];
    bigger.used[to] = 1;
  }
  map old = *m;
  *m = bigger;
  free(old.slots);
  free(old.used);
  return STOW_OK;
}

stow_status map_put(map *m, uint64_t key, uint64_t value) {
  if (m->count >= m->capacity / 4 * 3) STOW_TRY(map_grow(m));
  size_t i = map_index(m, key);
  if (!m->used[i]) m->count++;
  m->used[i] = 1;
  m->slots[i] = (map_slot){key, value};
  return STOW_OK;
}

bool map_remove(map *m, uint64_t key, uint64_t *value) {
  if (m->capacity == 0) return false;
  size_t mask = m->capacity - 1, hole = map_index(m, key);
  if (!m->used[hole]) return false;
  if (value != NULL) *value = m->slots[hole].value;
  /* Shift back every later entry of the run that may live at the hole. */
  for (size_t i = (hole + 1) & mask; m->used[i]; i = (i + 1) & mask) {
    size_t home = hash_u64(m->slots[i].key, m->seed) & mask;
    if (((i - home) & mask) < ((i - hole) & mask)) continue;
    m->slots[hole] = m->slots[i];
    hole = i;
  }
  m->used[hole] = 0;
  m->count--;
  return true;
}

bool map_next(const map *m, size_t *at, uint64_t *key, uint64_t *value) {
  for (; *at < m->capacity; (*at)++) {
    if (!m->used[*at]) continue;
    *key = m->slots[*at].key;
    *value = m->slots[*at].value;
    (*at)++;
    return true;
  }
  return false;
}

/* ---- intern ---- */

void intern_free(intern *t) {
  free(t->bytes);
  free(t->offsets_lo);
  free(t->offsets_hi);
  free(t->table);
  *t = (intern){.max_bytes = t->max_bytes};
}

static size_t intern_start(const intern *t, uint32_t number) {
  return (size_t)((uint64_t)t->offsets_hi[number] << 32 | t->offsets_lo[number]);
}

const char *intern_get(const intern *t, uint32_t number, size_t *count) {
  if (number >= t->count) {
    if (count != NULL) *count = 0;
    return "";
  }
  size_t start = intern_start(t, number);
  size_t end = number + 1 < t->count ? intern_start(t, number + 1) : t->length;
  if (count != NULL) *count = end - start - 1;
  return t->bytes + start;
}

static size_t intern_slot(const intern *t, const char *bytes, size_t count) {
  size_t mask = t->table_capacity - 1, i = hash_bytes(bytes, count, t->seed) & mask;
  for (; t->table[i] != 0; i = (i + 1) & mask) {
    size_t length;
    const char *have = intern_get(t, t->table[i] - 1, &length);
    if (length == count && (count == 0 || memcmp(have, bytes, count) == 0)) break;
  }
  return i;
}

bool intern_find(const intern *t, uint32_t *number, const char *bytes, size_t count) {
  if (t->table_capacity == 0) return false;
  size_t i = intern_slot(t, bytes, count);
  if (t->table[i] == 0) return false;
  *number = t->table[i] - 1;
  return true;
}

static stow_status intern_no_memory(void) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a table of names");
}

static stow_status intern_grow_table(intern *t) {
  size_t capacity = t->table_capacity == 0 ? 64 : t->table_capacity * 2;
  uint32_t *table = calloc(capacity, sizeof *table);
  if (table == NULL) return intern_no_memory();
  if (t->seed == 0) t->seed = (uint64_t)(uintptr_t)t | 1;
  free(t->table);
  t->table = table;
  t->table_capacity = capacity;
  for (uint32_t n = 0; n < t->count; n++) {
    size_t length;
    const char *bytes = intern_get(t, n, &length);
    t->table[intern_slot(t, bytes, length)] = n + 1;
  }
  return STOW_OK;
}

static stow_status intern_make_room(intern *t, size_t count) {
  if (t->max_bytes != 0 && count + 1 > t->max_bytes - t->length)
    return stow_fail(STOW_ERR_BUDGET, "names: limit of %llu bytes exceeded",
                     (unsigned long long)t->max_bytes);
  if (t->length + count + 1 > t->capacity) {
    size_t capacity = t->capacity == 0 ? 256 : t->capacity;
    while (capacity < t->length + count + 1) capacity *= 2;
    char *bytes = realloc(t->bytes, capacity);
    if (bytes == NULL) return intern_no_memory();
    t->bytes = bytes;
    t->capacity = capacity;
  }
  if (t->count == t->offsets_capacity) {
    uint32_t capacity = t->offsets_capacity == 0 ? 32 : t->offsets_capacity * 2;
    uint32_t *lo = realloc(t->offsets_lo, capacity * sizeof *lo);
    if (lo != NULL) t->offsets_lo = lo;
    uint16_t *hi = realloc(t->offsets_hi, capacity * sizeof *hi);
    if (hi != NULL) t->offsets_hi = hi;
    if (lo == NULL || hi == NULL) return intern_no_memory();
    t->offsets_capacity = capacity;
  }
  return STOW_OK;
}

stow_status intern_add(intern *t, uint32_t *number, const char *bytes, size_t count) {
  if (t->count >= t->table_capacity / 2) STOW_TRY(intern_grow_table(t));
  size_t slot = intern_slot(t, bytes, count);
  if (t->table[slot] == 0) {
    STOW_TRY(intern_make_room(t, count));
    t->offsets_lo[t->count] = (uint32_t)t->length;
    t->offsets_hi[t->count] = (uint16_t)(t->length >> 32);
    if (count > 0) memcpy(t->bytes + t->length, bytes, count);
    t->bytes[t->length + count] = '\0';
    t->length += count + 1;
    t->table[slot] = ++t->count;
  }
  *number = t->table[slot] - 1;
  return STOW_OK;
}
