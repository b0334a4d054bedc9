/* Hash map and interning table. Load factor at most 3/4; removal shifts
 * back, so there are no tombstones and a table never degrades. */
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

#include "base/huge_alloc.h"

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

/* Another thread may add strings meanwhile: it writes the bytes of a string, its end and the count
 * before its slot. */
static inline uint64_t slot_at(const intern *t, size_t i) {
  return __atomic_load_n(&t->table[i], __ATOMIC_ACQUIRE);
}

static size_t intern_start(const intern *t, uint32_t number) {
  return (size_t)((uint64_t)t->offsets_hi[number] << 32 | t->offsets_lo[number]);
}

const char *intern_get(const intern *t, uint32_t number, size_t *count) {
  if (number >= __atomic_load_n(&t->count, __ATOMIC_RELAXED)) {
    if (count != NULL) *count = 0;
    return "";
  }
  size_t start = intern_start(t, number);
  if (count != NULL) *count = intern_start(t, number + 1) - start - 1;
  return t->bytes + start;
}

/* Reads `count` (4 to 7) bytes, some of them twice. */
static inline uint64_t word_of_few(const char *at, size_t count) {
  uint32_t first, last;
  memcpy(&first, at, 4);
  memcpy(&last, at + count - 4, 4);
  return (uint64_t)last << 32 | first;
}

/* Reads up to 3 bytes. */
static inline uint64_t word_of_three(const char *at, size_t count) {
  if (count == 0) return 0;
  return (uint64_t)(unsigned char)at[0] | (uint64_t)(unsigned char)at[count / 2] << 8 |
         (uint64_t)(unsigned char)at[count - 1] << 16;
}

/* Unlike hash_bytes, which is stored in files, this hash may change: it reads the last bytes as one
 * word, which overlaps the word before it. */
static inline uint64_t intern_hash(const char *at, size_t count, uint64_t seed) {
  uint64_t h = seed ^ count * UINT64_C(0x9e3779b97f4a7c15), word;
  if (count < 8) {
    word = count >= 4 ? word_of_few(at, count) : word_of_three(at, count);
    return hash_u64(word, h);
  }
  const char *last = at + count - 8;
  for (; at < last; at += 8) {
    memcpy(&word, at, 8);
    h = hash_u64(word, h);
  }
  memcpy(&word, last, 8);
  return hash_u64(word, h);
}

/* Compares strings of equal length. Most are short: a call of memcmp would cost more. */
static inline bool same_bytes(const char *a, const char *b, size_t count) {
  if (count < 8) {
    if (count >= 4) return word_of_few(a, count) == word_of_few(b, count);
    return word_of_three(a, count) == word_of_three(b, count);
  }
  if (count > 32) return memcmp(a, b, count) == 0;
  uint64_t x, y, unlike = 0;
  for (size_t i = 0; i + 8 < count; i += 8) {
    memcpy(&x, a + i, 8);
    memcpy(&y, b + i, 8);
    unlike |= x ^ y;
  }
  memcpy(&x, a + count - 8, 8);
  memcpy(&y, b + count - 8, 8);
  return (unlike | (x ^ y)) == 0;
}

/* Strings whose memory is fetched together. */
enum { GROUP = 32, PROBED = 4, PREFETCH_LEAST = 8192 };

/* A slot holds the string's number + 1 in its lower half and the upper half of its hash in its
 * upper half, so that most other strings differ without a look at their bytes. */
static inline uint64_t slot_of(uint64_t hash, uint32_t number) {
  return (hash & ~(uint64_t)UINT32_MAX) | (number + 1);
}

static inline uint32_t slot_number(uint64_t slot) {
  return (uint32_t)slot - 1;
}

/* Returns the slot of the string, 0 if it has none; *at is where it is, or belongs. */
static inline uint64_t intern_slot(const intern *t, const char *bytes, size_t count, uint64_t hash,
                                   size_t *at) {
  size_t mask = t->table_capacity - 1, i = hash & mask;
  uint64_t slot;
  for (; (slot = slot_at(t, i)) != 0; i = (i + 1) & mask) {
    if ((slot ^ hash) >> 32 != 0) continue;
    size_t length;
    const char *have = intern_get(t, slot_number(slot), &length);
    if (length == count && same_bytes(have, bytes, count)) break;
  }
  *at = i;
  return slot;
}

bool intern_find(const intern *t, uint32_t *number, const char *bytes, size_t count) {
  if (t->table_capacity == 0) return false;
  size_t at;
  uint64_t slot = intern_slot(t, bytes, count, intern_hash(bytes, count, t->seed), &at);
  if (slot != 0) *number = slot_number(slot);
  return slot != 0;
}

static stow_status intern_no_memory(void) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a table of names");
}

/* Puts strings into the new, larger table. Their slots are fetched together: the bytes lie side by
 * side, the slots do not. */
static void intern_renumber(intern *t, uint32_t first, uint32_t count) {
  uint64_t hashes[GROUP];
  size_t length, mask = t->table_capacity - 1;
  for (uint32_t i = 0; i < count; i++) {
    const char *bytes = intern_get(t, first + i, &length);
    hashes[i] = intern_hash(bytes, length, t->seed);
    __builtin_prefetch(&t->table[hashes[i] & mask], 1);
  }
  for (uint32_t i = 0; i < count; i++) {
    size_t slot = hashes[i] & mask;
    while (t->table[slot] != 0) slot = (slot + 1) & mask;
    t->table[slot] = slot_of(hashes[i], first + i);
  }
}

/* Returns zeroed memory for the slots, which are used at random: in huge pages if they are many. */
static uint64_t *make_slots(size_t capacity) {
  size_t bytes = capacity * sizeof(uint64_t);
  if (bytes < HUGE_PAGE_BYTES) return calloc(capacity, sizeof(uint64_t));
  uint64_t *slots = huge_alloc(bytes);
  return slots != NULL ? memset(slots, 0, bytes) : NULL;
}

/* Makes the table large enough for `count` more strings at a load of 3/4. Frees the old table
 * first, so that the two are never in memory together, and numbers the strings again. */
static stow_status reserve_slots(intern *t, size_t count) {
  size_t needed = (size_t)t->count + count, capacity = t->table_capacity;
  if (needed <= capacity / 4 * 3) return STOW_OK;
  if (capacity == 0) capacity = 64;
  while (needed > capacity / 4 * 3) capacity *= 2;
  free(t->table);
  t->table_capacity = 0;
  t->table = make_slots(capacity);
  if (t->table == NULL) return intern_no_memory();
  if (t->seed == 0) t->seed = (uint64_t)(uintptr_t)t | 1;
  t->table_capacity = capacity;
  for (uint32_t n = 0; n < t->count; n += GROUP)
    intern_renumber(t, n, t->count - n < GROUP ? t->count - n : GROUP);
  return STOW_OK;
}

static stow_status reserve_bytes(intern *t, size_t bytes) {
  size_t capacity = t->capacity == 0 ? 256 : t->capacity;
  if (bytes <= t->capacity - t->length) return STOW_OK;
  while (bytes > capacity - t->length) capacity *= 2;
  char *more = realloc(t->bytes, capacity);
  if (more == NULL) return intern_no_memory();
  t->bytes = more;
  t->capacity = capacity;
  return STOW_OK;
}

static stow_status reserve_offsets(intern *t, size_t count) {
  size_t needed = (size_t)t->count + count + 1, capacity = t->offsets_capacity;
  if (needed <= capacity) return STOW_OK;
  if (capacity == 0) capacity = 32;
  while (needed > capacity) capacity *= 2;
  if (capacity > UINT32_MAX) return intern_no_memory();
  uint32_t *lo = realloc(t->offsets_lo, capacity * sizeof *lo);
  if (lo != NULL) t->offsets_lo = lo;
  uint16_t *hi = realloc(t->offsets_hi, capacity * sizeof *hi);
  if (hi != NULL) t->offsets_hi = hi;
  if (lo == NULL || hi == NULL) return intern_no_memory();
  t->offsets_capacity = (uint32_t)capacity;
  t->offsets_lo[0] = t->offsets_hi[0] = 0;
  return STOW_OK;
}

stow_status intern_reserve(intern *t, size_t count, size_t bytes) {
  STOW_TRY(reserve_slots(t, count));
  STOW_TRY(reserve_offsets(t, count));
  return reserve_bytes(t, bytes + count);
}

bool intern_has_room(const intern *t, size_t count, size_t bytes) {
  return (size_t)t->count + count <= t->table_capacity / 4 * 3 &&
         (size_t)t->count + count < t->offsets_capacity && bytes + count <= t->capacity - t->length;
}

/* Adds the string, which is not in the table, at its empty slot. */
static stow_status intern_put(intern *t, size_t slot, uint64_t hash, const char *bytes,
                              size_t count) {
  if (t->max_bytes != 0 && count + 1 > t->max_bytes - t->length)
    return stow_fail(STOW_ERR_BUDGET, "names: limit of %llu bytes exceeded",
                     (unsigned long long)t->max_bytes);
  STOW_TRY(reserve_bytes(t, count + 1));
  STOW_TRY(reserve_offsets(t, 1));
  uint32_t number = t->count;
  if (count > 0) memcpy(t->bytes + t->length, bytes, count);
  t->bytes[t->length + count] = '\0';
  t->length += count + 1;
  t->offsets_lo[number + 1] = (uint32_t)t->length;
  t->offsets_hi[number + 1] = (uint16_t)(t->length >> 32);
  __atomic_store_n(&t->count, number + 1, __ATOMIC_RELAXED);
  __atomic_store_n(&t->table[slot], slot_of(hash, number), __ATOMIC_RELEASE);
  return STOW_OK;
}

stow_status intern_add(intern *t, uint32_t *number, const char *bytes, size_t count) {
  STOW_TRY(reserve_slots(t, 1));
  uint64_t hash = intern_hash(bytes, count, t->seed);
  size_t at;
  uint64_t slot = intern_slot(t, bytes, count, hash, &at);
  if (slot == 0) STOW_TRY(intern_put(t, at, hash, bytes, count));
  *number = slot != 0 ? slot_number(slot) : t->count - 1;
  return STOW_OK;
}

/* ---- many strings at once ---- */

/* Hashes a group and prefetches the slots, then the offsets, then the bytes of the strings that are
 * probably equal: one wait for memory per group instead of three per string. */
static void prefetch_group(const intern *t, const char *const *texts, const uint32_t *lengths,
                           size_t count, uint64_t *hashes) {
  size_t mask = t->table_capacity - 1;
  for (size_t i = 0; i < count; i++) {
    hashes[i] = intern_hash(texts[i], lengths[i], t->seed);
    __builtin_prefetch(&t->table[hashes[i] & mask]);
  }
  if (t->table_capacity < PREFETCH_LEAST) return;
  uint64_t equal[GROUP]; /* the slot whose half of the hash is the string's; 0: none near */
  for (size_t i = 0; i < count; i++) {
    size_t at = hashes[i] & mask, end = at + PROBED;
    uint64_t slot;
    while ((slot = slot_at(t, at & mask)) != 0 && (slot ^ hashes[i]) >> 32 != 0 && at < end) at++;
    equal[i] = (slot ^ hashes[i]) >> 32 == 0 ? slot : 0;
    if (equal[i] == 0) continue;
    __builtin_prefetch(&t->offsets_lo[slot_number(slot)]);
    __builtin_prefetch(&t->offsets_hi[slot_number(slot)]);
  }
  for (size_t i = 0; i < count; i++)
    if (equal[i] != 0) __builtin_prefetch(t->bytes + intern_start(t, slot_number(equal[i])));
}

stow_status intern_add_many(intern *t, const char *const *texts, const uint32_t *lengths,
                            size_t count, uint64_t *numbers) {
  for (size_t at = 0; at < count; at += GROUP) {
    uint64_t hashes[GROUP];
    size_t some = count - at < GROUP ? count - at : GROUP;
    STOW_TRY(reserve_slots(t, some));
    prefetch_group(t, texts + at, lengths + at, some, hashes);
    for (size_t i = 0; i < some; i++) {
      const char *text = texts[at + i];
      size_t length = lengths[at + i], place;
      uint64_t slot = intern_slot(t, text, length, hashes[i], &place);
      if (slot == 0) STOW_TRY(intern_put(t, place, hashes[i], text, length));
      numbers[at + i] = slot != 0 ? slot_number(slot) : t->count - 1;
    }
  }
  return STOW_OK;
}

size_t intern_find_many(const intern *t, const char *const *texts, const uint32_t *lengths,
                        size_t count, uint64_t *numbers) {
  size_t found = 0;
  for (size_t at = 0; at < count; at += GROUP) {
    uint64_t hashes[GROUP];
    size_t some = count - at < GROUP ? count - at : GROUP;
    if (t->table_capacity > 0) prefetch_group(t, texts + at, lengths + at, some, hashes);
    for (size_t i = 0; i < some; i++) {
      uint64_t slot = 0;
      size_t place;
      if (t->table_capacity > 0)
        slot = intern_slot(t, texts[at + i], lengths[at + i], hashes[i], &place);
      numbers[at + i] = slot != 0 ? slot_number(slot) : INTERN_NONE;
      found += slot != 0;
    }
  }
  return found;
}
