/* Hash: a map from 64-bit keys to 64-bit values, and an interning table that numbers byte strings.
 *
 * Both use open addressing with linear probing in one array. Keys are mixed with a per-table seed,
 * so that a hostile file cannot easily choose colliding keys. Not thread-safe. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* A good 64-bit hash of bytes (not cryptographic). */
uint64_t hash_bytes(const void *bytes, size_t count, uint64_t seed);

static inline uint64_t hash_u64(uint64_t key, uint64_t seed) {
  unsigned __int128 m =
      (unsigned __int128)(key ^ seed ^ UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xd6e8feb86659fd93);
  uint64_t x = (uint64_t)m ^ (uint64_t)(m >> 64);
  return x ^ (x >> 29);
}

typedef struct map_slot {
  uint64_t key, value;
} map_slot;

/* Zero-initialise: (map){0}. Any key and value may be stored. */
typedef struct map {
  map_slot *slots;
  uint8_t *used;   /* 0 empty, 1 full */
  size_t capacity; /* a power of two, or 0 */
  size_t count;
  uint64_t seed;
} map;

void map_free(map *m);
/* Returns NULL if the key is absent. The pointer is valid until the next put or remove. */
uint64_t *map_get(const map *m, uint64_t key);
stow_status map_put(map *m, uint64_t key, uint64_t value);
/* Returns true, and stores the old value (if `value` is not NULL), if the key was present. */
bool map_remove(map *m, uint64_t key, uint64_t *value);
/* Iterates: start with *at = 0; returns false at the end. Do not put or remove during the
 * iteration. */
bool map_next(const map *m, size_t *at, uint64_t *key, uint64_t *value);

/* Numbers distinct byte strings 0, 1, 2, … in order of first occurrence. One thread may add strings
 * that intern_reserve made room for while others find and get strings; anything else needs a lock.
 */
typedef struct intern {
  char *bytes; /* all strings, each followed by '\0' */
  size_t length, capacity;
  uint32_t *offsets_lo; /* start of string i, and the end of the last; low and high half in separate
                         * arrays to save memory */
  uint16_t *offsets_hi;
  uint32_t count, offsets_capacity;
  uint64_t *table; /* number + 1 and half of the hash; 0: empty */
  size_t table_capacity;
  uint64_t max_bytes; /* limit for `bytes`; 0: none */
  uint64_t seed;
} intern;

void intern_free(intern *t);
/* Makes room for `count` more strings of `bytes` in all, not counting the '\0' behind each.
 * intern_has_room returns whether there already is. */
stow_status intern_reserve(intern *t, size_t count, size_t bytes);
bool intern_has_room(const intern *t, size_t count, size_t bytes);
stow_status intern_add(intern *t, uint32_t *number, const char *bytes, size_t count);
/* Returns the string with that number, terminated by '\0', and its length if wanted. Valid until
 * the next add. */
const char *intern_get(const intern *t, uint32_t number, size_t *count);
/* Returns true if the string is in the table. */
bool intern_find(const intern *t, uint32_t *number, const char *bytes, size_t count);

/* intern_add for many strings: faster, because the memory of several is fetched together. */
stow_status intern_add_many(intern *t, const char *const *texts, const uint32_t *lengths,
                            size_t count, uint64_t *numbers);
/* intern_find for many strings; returns how many were found. The number of any other string is
 * INTERN_NONE. */
#define INTERN_NONE UINT64_MAX
size_t intern_find_many(const intern *t, const char *const *texts, const uint32_t *lengths,
                        size_t count, uint64_t *numbers);

#endif
