/* Zip sums: see zip_sums.h. */
#include "files/zip_sums.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

typedef struct range {
  uint64_t from, end;
  uint32_t crc;
} range;

struct zip_sums {
  uint64_t bytes;
  uint32_t crc; /* of the archive */
  pthread_mutex_t guard;
  /* Guarded by `guard`. */
  range *ranges; /* in order; two never touch */
  size_t count, capacity;
  enum { READING, RIGHT, WRONG, GIVEN_UP } state;
};

stow_status zip_sums_open(zip_sums **out, uint64_t bytes, uint32_t crc) {
  zip_sums *s = calloc(1, sizeof *s);
  if (s == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a checksum");
  s->bytes = bytes;
  s->crc = crc;
  pthread_mutex_init(&s->guard, NULL);
  *out = s;
  return STOW_OK;
}

void zip_sums_close(zip_sums *s) {
  if (s == NULL) return;
  pthread_mutex_destroy(&s->guard);
  free(s->ranges);
  free(s);
}

bool zip_sums_wants(zip_sums *s) {
  pthread_mutex_lock(&s->guard);
  bool wants = s->state == READING || s->state == WRONG;
  pthread_mutex_unlock(&s->guard);
  return wants;
}

/* Returns the index of the first range that ends after `offset`. */
static size_t find(const zip_sums *s, uint64_t offset) {
  size_t low = 0, high = s->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (s->ranges[middle].end > offset)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

static void give_up(zip_sums *s) {
  free(s->ranges);
  s->ranges = NULL;
  s->count = s->capacity = 0;
  s->state = GIVEN_UP;
}

static bool make_space(zip_sums *s) {
  if (s->count < s->capacity) return true;
  size_t capacity = s->capacity == 0 ? 64 : 2 * s->capacity;
  range *more = capacity <= ZIP_SUMS_MOST ? realloc(s->ranges, capacity * sizeof *more) : NULL;
  if (more == NULL) return false;
  s->ranges = more;
  s->capacity = capacity;
  return true;
}

static void join(range *to, const range *next) {
  to->crc = (uint32_t)crc32_combine(to->crc, next->crc, (z_off_t)(next->end - next->from));
  to->end = next->end;
}

static void insert(zip_sums *s, const range *r) {
  size_t at = find(s, r->from);
  bool after = at < s->count && s->ranges[at].from <= r->end;
  if (after && s->ranges[at].from < r->end) return; /* overlaps */
  bool before = at > 0 && s->ranges[at - 1].end == r->from;
  if (before) {
    join(&s->ranges[at - 1], r);
    if (!after) return;
    join(&s->ranges[at - 1], &s->ranges[at]);
    memmove(&s->ranges[at], &s->ranges[at + 1], (s->count - at - 1) * sizeof *r);
    s->count--;
  } else if (after) {
    range whole = *r;
    join(&whole, &s->ranges[at]);
    s->ranges[at] = whole;
  } else if (make_space(s)) {
    memmove(&s->ranges[at + 1], &s->ranges[at], (s->count - at) * sizeof *r);
    s->ranges[at] = *r;
    s->count++;
  } else {
    give_up(s);
  }
}

bool zip_sums_add(zip_sums *s, uint64_t offset, uint64_t count, uint32_t crc) {
  pthread_mutex_lock(&s->guard);
  if (s->state == READING && count > 0) {
    insert(s, &(range){offset, offset + count, crc});
    if (s->count == 1 && s->ranges[0].from == 0 && s->ranges[0].end == s->bytes)
      s->state = s->ranges[0].crc == s->crc ? RIGHT : WRONG;
  }
  bool right = s->state != WRONG;
  pthread_mutex_unlock(&s->guard);
  return right;
}
