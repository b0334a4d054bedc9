/* History: the last launches with the units they named, and a cursor at the point that the present
 * repeats. What followed the cursor then is the forecast.
 *
 *   position   base ...... cursor ............ end
 *              the past    what follows now    the launch being added
 *
 * There is no step detection. A launch whose key equals the one at the cursor advances the cursor.
 * So does one with the same function and other units: temporary blocks have moved. A launch that is
 * new counts as an insertion: the cursor stays. The cursor jumps to where the last 8 keys were seen
 * before. If blocks move in every step, no 8 keys repeat; then units that are used rarely (weights)
 * show where the present is: the last time that the same function named them is as far back for all
 * of them (the votes). Because the log grows by one and the cursor moves by one, [cursor, end) is
 * always one period of the program, whatever its shape: a training step, two networks in turn, a
 * prompt with its tokens.
 *
 * All memory is allocated when the history is opened. Every operation takes amortised O(1) time per
 * named unit. Not thread-safe. */
#ifndef RESIDENCY_HISTORY_H
#define RESIDENCY_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define HISTORY_NEVER UINT64_MAX /* a position: no use is forecast */

typedef struct history_launch {
  uint64_t key;
  uint64_t pair;  /* hash of the last two keys */
  uint64_t four;  /* hash of the last four keys */
  uint64_t names; /* hash of the last two functions */
  uint64_t names_four;
  uint64_t words;   /* hash of function and words; 0: do not compare */
  uint64_t time_ns; /* total time of the launches before this one */
  uint64_t first;   /* index of its first entry */
  uint32_t count;   /* number of entries */
  uint32_t device_ns;
  uint64_t function;
} history_launch;

/* 16 bytes, so that the entries of a step stay in cache. */
typedef struct history_entry {
  uint32_t unit;
  uint32_t position;   /* position of its launch, low 32 bits */
  uint32_t next, prev; /* distances to the next and previous entry of the same unit; 0: none */
} history_entry;

typedef struct history_unit {
  uint64_t last; /* latest entry of the unit */
  uint64_t hint; /* an entry near the cursor */
} history_unit;

/* How often units said lately that the present is `distance` launches after what it repeats. */
typedef struct history_vote {
  uint64_t distance;
  uint32_t count;
} history_vote;

enum { HISTORY_VOTES = 4 };

typedef struct history {
  history_launch *launches; /* rings */
  history_entry *entries;
  uint64_t launch_mask, entry_mask;
  uint64_t base, end;             /* range of positions kept */
  uint64_t entry_base, entry_end; /* range of entries kept */
  uint32_t *index;                /* hash of keys → position, low 32 bits */
  uint64_t index_mask;
  history_unit *units;
  size_t unit_capacity;
  uint64_t cursor;     /* HISTORY_NEVER: the present resembles nothing in the log */
  uint64_t jumps;      /* how often the cursor jumped; users of old positions must look them up
                        * again */
  uint64_t matched;    /* launches in a row that matched the forecast */
  uint32_t mismatches; /* launches in a row that did not match */
  history_vote votes[HISTORY_VOTES];
  uint32_t unsure;  /* launches in a row that matched by function only */
  uint32_t support; /* how often units said so of the cursor's place */
  uint64_t hits, misses;
} history;

/* Allocates memory for `launches` and `entries` (each rounded up to a power of two). */
stow_status history_open(history *h, size_t launches, size_t entries);
void history_close(history *h);
/* Makes space for units 0 to count-1. */
stow_status history_reserve(history *h, size_t count);
/* Forgets a unit whose number is about to be reused for another range. */
void history_forget(history *h, uint32_t unit);
/* Adds the launch that is about to run. `units` are distinct; `time_ns` is its duration. */
typedef struct history_new {
  uint64_t key, function, words;
  const uint32_t *units;
  uint32_t count;
  uint64_t time_ns, device_ns;
} history_new;
void history_add(history *h, const history_new *launch);

/* Returns the first position at or after the cursor that names the unit. */
uint64_t history_next_use(history *h, uint32_t unit);
/* Returns the forecast time from now until the launch at `position`. */
uint64_t history_time_to(const history *h, uint64_t position);
/* Returns a launch of the log; its units are the entries `first` to `first + count - 1`. */
static inline const history_launch *history_at(const history *h, uint64_t position) {
  return &h->launches[position & h->launch_mask];
}
static inline uint64_t history_position(const history *h, const history_entry *e) {
  return h->end - (uint32_t)((uint32_t)h->end - e->position);
}
static inline const history_entry *history_entry_at(const history *h, uint64_t entry) {
  return &h->entries[entry & h->entry_mask];
}

#endif
