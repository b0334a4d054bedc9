/* History: the last launches with the units they named, and a cursor where the present repeats the
 * past. What followed the cursor then is the forecast.
 *
 *   position   base ...... cursor ............ end
 *              the past    what follows now    the launch being added
 *
 * There is no step detection. A launch whose key equals the one at the cursor moves the cursor on;
 * so does one with the same function and other units (temporary blocks came to lie elsewhere), as
 * long as keys were equal a short while ago. Otherwise the cursor goes where the last 8 keys, or
 * else the last 2, were seen most recently. A launch that is new stays an insertion: the cursor
 * waits for it to pass. Since the log grows by one and the cursor moves by one, [cursor, end) is
 * always one period of the program, whatever its shape: a training step, two networks in turn, a
 * prompt with its tokens.
 *
 * All memory is taken when the history is opened. Every operation is O(1) per unit named,
 * amortised. Not safe from several threads. */
#ifndef RESIDENCY_HISTORY_H
#define RESIDENCY_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define HISTORY_NEVER UINT64_MAX /* a position: no use is forecast */

typedef struct history_launch {
  uint64_t key;
  uint64_t pair;    /* hash of the last two keys */
  uint64_t four;    /* of the last four */
  uint64_t words;   /* hash of function and words; 0: not to be compared */
  uint64_t time_ns; /* sum of the launches' times before this one */
  uint64_t first;   /* entry */
  uint32_t count;   /* of entries */
  uint32_t device_ns;
  uint64_t function;
} history_launch;

/* 16 bytes, so that the entries of a step stay in cache. */
typedef struct history_entry {
  uint32_t unit;
  uint32_t position;   /* of its launch, low 32 bits */
  uint32_t next, prev; /* distances to the entries of the same unit; 0: none */
} history_entry;

typedef struct history_unit {
  uint64_t last; /* its latest entry */
  uint64_t hint; /* an entry near the cursor */
} history_unit;

typedef struct history {
  history_launch *launches; /* rings */
  history_entry *entries;
  uint64_t launch_mask, entry_mask;
  uint64_t base, end;             /* positions kept */
  uint64_t entry_base, entry_end; /* entries kept */
  uint32_t *index;                /* hash of keys → position, low 32 bits */
  uint64_t index_mask;
  history_unit *units;
  size_t unit_capacity;
  uint64_t cursor;    /* HISTORY_NEVER: nothing like the present is known */
  uint64_t jumps;     /* times the cursor was set anew: whoever keeps positions looks again */
  uint64_t matched;   /* launches in a row that were as forecast */
  uint32_t strangers; /* launches in a row that were not */
  uint32_t soft;      /* launches in a row of which only the function was as forecast */
  uint64_t hits, misses;
} history;

/* Takes memory for `launches` and `entries` (each rounded up to a power of two). */
stow_status history_open(history *h, size_t launches, size_t entries);
void history_close(history *h);
/* Makes place for units 0 to count-1. */
stow_status history_reserve(history *h, size_t count);
/* Forgets a unit whose number is about to be used for another range. */
void history_forget(history *h, uint32_t unit);
/* Adds the launch that is about to run; `units` are distinct. `time_ns`: what it takes. */
typedef struct history_new {
  uint64_t key, function, words;
  const uint32_t *units;
  uint32_t count;
  uint64_t time_ns, device_ns;
} history_new;
void history_add(history *h, const history_new *launch);

/* The first position at or after the cursor that names the unit. */
uint64_t history_next_use(history *h, uint32_t unit);
/* Forecast time from now until the launch at `position`. */
uint64_t history_time_to(const history *h, uint64_t position);
/* Units of a launch of the log: an entry number; entry + k for the others. */
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
