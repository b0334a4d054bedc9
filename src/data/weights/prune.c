/* Prune: the magnitude below which values become 0 (weights.h).
 *
 * The k-th smallest magnitude is found exactly with two histograms over the bits of |x| as float32,
 * whose order is that of the magnitudes: the first by the upper 16 of 31 bits, the second by the
 * lower 15 bits within the bin that holds the k-th value. That takes two passes over a tensor, or
 * over the model for one threshold, and 768 KiB for each thread. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "data/weights/walk.h"
#include "data/workers.h"

#define HIGH_BINS 65536
#define LOW_BINS  32768

typedef struct histogram {
  uint64_t high[HIGH_BINS];
  uint64_t low[LOW_BINS]; /* for the values whose high bits are `bin` */
} histogram;

typedef struct search {
  histogram *members[WORKERS_MAX];
  float *values[WORKERS_MAX];
  uint32_t bin;
  bool second;
} search;

static void count_high(histogram *h, const float *values, size_t count) {
  for (size_t i = 0; i < count; i++) {
    uint32_t bits;
    memcpy(&bits, &values[i], sizeof bits);
    h->high[(bits & 0x7fffffff) >> 15]++;
  }
}

static void count_low(histogram *h, const float *values, size_t count, uint32_t bin) {
  for (size_t i = 0; i < count; i++) {
    uint32_t bits;
    memcpy(&bits, &values[i], sizeof bits);
    bits &= 0x7fffffff;
    if (bits >> 15 == bin) h->low[bits & 0x7fff]++;
  }
}

static stow_status count_chunk(weights_job *j, unsigned member, size_t item, uint64_t first,
                               size_t count, const uint8_t *bytes) {
  search *s = j->user;
  (void)first;
  weights_decode(j->r->items[item].from.facts->stored, bytes, count, s->values[member]);
  if (s->second)
    count_low(s->members[member], s->values[member], count, s->bin);
  else
    count_high(s->members[member], s->values[member], count);
  return STOW_OK;
}

/* Returns whether an item is pruned. A threshold for the whole model also counts what a resumed run
 * has already written. */
static bool is_pruned(const weights_job *j, size_t item) {
  return j->r->items[item].pruned && (j->o->prune_model || !j->r->items[item].done);
}

static void add_up(search *s, unsigned members) {
  histogram *sum = s->members[0];
  for (unsigned m = 1; m < members; m++) {
    for (size_t i = 0; i < HIGH_BINS; i++) sum->high[i] += s->members[m]->high[i];
    for (size_t i = 0; i < LOW_BINS; i++) sum->low[i] += s->members[m]->low[i];
    memset(s->members[m], 0, sizeof *s->members[m]);
  }
}

/* Finds one threshold for the items from `start` to `end`. */
static stow_status find_one(weights_job *j, search *s, size_t start, size_t end) {
  walk_task task = {.start = start, .end = end, .wanted = is_pruned, .run = count_chunk};
  uint64_t values = 0, below = 0;
  for (size_t i = start; i < end; i++)
    if (is_pruned(j, i)) values += j->r->items[i].from.facts->count;
  if (values == 0) return STOW_OK;
  for (unsigned m = 0; m < j->threads; m++) memset(s->members[m], 0, sizeof *s->members[m]);
  uint64_t wanted = (uint64_t)llround(j->o->prune * (double)values);
  s->second = false;
  STOW_TRY(weights_walk(j, &task));
  add_up(s, j->threads);
  const histogram *h = s->members[0];
  for (s->bin = 0; s->bin < HIGH_BINS - 1 && below + h->high[s->bin] < wanted; s->bin++)
    below += h->high[s->bin];
  s->second = true;
  STOW_TRY(weights_walk(j, &task));
  add_up(s, j->threads);
  uint32_t low = 0;
  for (; low < LOW_BINS - 1 && below + h->low[low] < wanted; low++) below += h->low[low];
  uint32_t bits = s->bin << 15 | low;
  float threshold;
  memcpy(&threshold, &bits, sizeof threshold);
  double part = h->low[low] > 0 ? (double)(wanted - below) / (double)h->low[low] : 0;
  for (size_t i = start; i < end; i++)
    if (j->r->items[i].pruned) {
      j->r->items[i].threshold = threshold;
      j->r->items[i].tie_part = part;
    }
  return STOW_OK;
}

stow_status weights_find_thresholds(weights_job *j) {
  if (j->o->prune == 0 || j->r->pruned == 0) return STOW_OK;
  search s = {0};
  stow_status status = STOW_OK;
  for (unsigned m = 0; m < j->threads && status == STOW_OK; m++) {
    s.members[m] = malloc(sizeof *s.members[m]);
    s.values[m] = malloc(j->chunk_values * sizeof(float));
    if (s.members[m] == NULL || s.values[m] == NULL)
      status = stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for the histograms");
  }
  j->user = &s;
  size_t count = j->r->item_count;
  if (status == STOW_OK && j->o->prune_model) status = find_one(j, &s, 0, count);
  for (size_t i = 0; i < count && status == STOW_OK && !j->o->prune_model; i++)
    if (is_pruned(j, i)) status = find_one(j, &s, i, i + 1);
  for (unsigned m = 0; m < WORKERS_MAX; m++) {
    free(s.members[m]);
    free(s.values[m]);
  }
  j->user = NULL;
  return status;
}
