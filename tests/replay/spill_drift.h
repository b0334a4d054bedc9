/* Steps whose own blocks are somewhere else each time, as a caching allocator places them when
 * frees come earlier or later. */
#ifndef TESTS_SPILL_DRIFT_H
#define TESTS_SPILL_DRIFT_H

#include <stdlib.h>

#include "replay/spill.h"

typedef struct drift_moved {
  spill_block from, to;
} drift_moved;

typedef struct drift {
  spill_block *holes;
  size_t hole_count;
  drift_moved *moved; /* the blocks that are live elsewhere */
  size_t moved_count;
  uint64_t end, random;
} drift;

static inline uint64_t drift_random(drift *d, uint64_t below) {
  d->random = d->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (d->random >> 33) % below;
}

/* Takes the smallest hole that is large enough, one time in two any of them. */
static inline uint64_t drift_take(drift *d, uint64_t bytes) {
  size_t best = SIZE_MAX, seen = 0;
  bool any = drift_random(d, 2) == 0;
  for (size_t i = 0; i < d->hole_count; i++) {
    if (d->holes[i].bytes < bytes) continue;
    seen++;
    if (best == SIZE_MAX ||
        (any ? drift_random(d, seen) == 0 : d->holes[i].bytes < d->holes[best].bytes))
      best = i;
  }
  if (best == SIZE_MAX) {
    d->end += bytes;
    return d->end - bytes;
  }
  uint64_t addr = d->holes[best].addr;
  d->holes[best].addr += bytes;
  d->holes[best].bytes -= bytes;
  return addr;
}

static inline void drift_give(drift *d, spill_block b) {
  for (size_t i = 0; i < d->hole_count; i++) {
    spill_block *h = &d->holes[i];
    if (h->bytes == 0 || (h->addr + h->bytes != b.addr && b.addr + b.bytes != h->addr)) continue;
    if (h->addr < b.addr) b.addr = h->addr;
    b.bytes += h->bytes;
    h->bytes = 0;
  }
  d->holes[d->hole_count++] = b;
}

/* Copies the program. Blocks that the step allocates and frees itself are placed anew. */
static inline void drift_program(spill_program *out, const spill_program *p, uint64_t seed) {
  *out = *p;
  out->next = NULL;
  out->ops = malloc(p->op_count * sizeof *p->ops);
  out->words = malloc((p->word_count + 1) * sizeof *p->words);
  out->word_blocks = malloc((p->word_count + 1) * sizeof *p->word_blocks);
  out->initial = malloc((p->initial_count + 1) * sizeof *p->initial);
  drift d = {.holes = calloc(2 * p->op_count + 1, sizeof *d.holes),
             .moved = calloc(p->op_count + 1, sizeof *d.moved),
             .random = seed};
  bool *own = calloc(p->op_count + 1, sizeof *own);
  if (p->initial_count > 0) memcpy(out->initial, p->initial, p->initial_count * sizeof *p->initial);
  memcpy(out->ops, p->ops, p->op_count * sizeof *p->ops);
  memcpy(out->words, p->words, p->word_count * sizeof *p->words);
  memcpy(out->word_blocks, p->word_blocks, p->word_count * sizeof *p->word_blocks);
  for (size_t i = 0; i < p->op_count;
       i++) { /* which allocations does the step free before its end */
    if (p->ops[i].kind == SPILL_ALLOC && p->ops[i].addr + p->ops[i].bytes > d.end)
      d.end = p->ops[i].addr + p->ops[i].bytes;
    for (size_t k = i + 1; p->ops[i].kind == SPILL_ALLOC && k < p->op_count && !own[i]; k++) {
      if (p->ops[k].kind == SPILL_LAUNCH || p->ops[k].addr != p->ops[i].addr) continue;
      own[i] = p->ops[k].kind == SPILL_FREE;
      break;
    }
  }
  d.end = (d.end + (UINT64_C(64) << 20) - 1) / (UINT64_C(64) << 20) * (UINT64_C(64) << 20);
  for (size_t i = 0; i < p->op_count; i++) {
    spill_op *op = &out->ops[i];
    if (op->kind == SPILL_ALLOC && own[i]) {
      uint64_t to = drift_take(&d, op->bytes);
      d.moved[d.moved_count++] = (drift_moved){{op->addr, op->bytes}, {to, op->bytes}};
      op->addr = to;
    }
    for (size_t k = 0; op->kind == SPILL_FREE && k < d.moved_count; k++) {
      if (d.moved[k].from.addr != op->addr) continue;
      op->addr = d.moved[k].to.addr;
      drift_give(&d, d.moved[k].to);
      d.moved[k] = d.moved[--d.moved_count];
      break;
    }
    for (size_t w = op->first_word; op->kind == SPILL_LAUNCH && w < op->first_word + op->word_count;
         w++)
      for (size_t k = 0; k < d.moved_count; k++)
        if (p->words[w] - d.moved[k].from.addr < d.moved[k].from.bytes) {
          out->words[w] = p->words[w] - d.moved[k].from.addr + d.moved[k].to.addr;
          out->word_blocks[w] = d.moved[k].to;
        }
  }
  free(d.holes);
  free(d.moved);
  free(own);
}

#endif
