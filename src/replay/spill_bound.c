/* Spill: Belady's bound. With the whole step known, a miss evicts the unit used furthest in the
 * future; no plan for the same units and capacity copies in fewer of them. */
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "replay/spill.h"
#include "residency/space.h"

typedef struct touch {
  uint32_t unit;
  uint32_t launch;
  uint64_t next; /* the next launch that names the unit; the step repeats */
  bool holds;    /* the unit held data before this launch */
} touch;

typedef struct candidate {
  uint64_t next;
  uint32_t unit;
} candidate;

typedef struct bound {
  space space;
  touch *touches;
  size_t count, capacity;
  uint64_t *born; /* per unit: the launch before which it last became live or dead */
  uint64_t stamp;
  uint64_t *next; /* per unit: its next use; 0: not in vram */
  candidate *heap;
  size_t heap_count, heap_capacity;
} bound;

static void changed(void *context, uint32_t unit) {
  bound *b = context;
  b->born[unit] = b->stamp;
}

/* Visits the touches of one step; `keep` adds them to the list. */
static stow_status walk(bound *b, const spill_program *p, bool keep, uint32_t *named) {
  uint32_t launch = 0;
  for (size_t i = 0; i < p->op_count; i++) {
    const spill_op *op = &p->ops[i];
    if (op->kind == SPILL_ALLOC)
      STOW_TRY(space_block_add(&b->space, op->addr, op->bytes, changed, b));
    if (op->kind == SPILL_FREE) space_block_remove(&b->space, op->addr, changed, b);
    if (op->kind != SPILL_LAUNCH) continue;
    uint32_t count = space_resolve(&b->space,
                                   &(space_launch){.stamp = ++b->stamp,
                                                   .shape = op->function,
                                                   .words = p->words + op->first_word,
                                                   .count = op->word_count},
                                   named, b->space.count);
    for (uint32_t k = 0; k < count && keep; k++) {
      STOW_TRY(LIST_ROOM(b->touches, b->count, b->capacity, 65536, "touches"));
      bool holds = b->space.units[named[k]].live > 0 && b->born[named[k]] != b->stamp - 1;
      b->touches[b->count++] = (touch){named[k], launch, 0, holds};
    }
    launch++;
  }
  return STOW_OK;
}

static void link_uses(bound *b, const spill_program *p) {
  memset(b->next, 0, (b->space.count + 1) * sizeof *b->next);
  for (int round = 0; round < 2; round++)
    for (size_t i = b->count; i-- > 0;) {
      touch *t = &b->touches[i];
      /* The second pass knows the touches of the next step. */
      uint64_t next = b->next[t->unit];
      t->next = next > t->launch ? next : next + p->launch_count;
      b->next[t->unit] = t->launch + (uint64_t)(round == 0) * p->launch_count;
    }
}

/* ---- the unit used furthest in the future ---- */

static stow_status push(bound *b, candidate c) {
  STOW_TRY(LIST_ROOM(b->heap, b->heap_count, b->heap_capacity, 65536, "candidates"));
  size_t at = b->heap_count++;
  while (at > 0 && b->heap[(at - 1) / 2].next < c.next) {
    b->heap[at] = b->heap[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  b->heap[at] = c;
  return STOW_OK;
}

static candidate pop(bound *b) {
  candidate top = b->heap[0], last = b->heap[--b->heap_count];
  size_t at = 0;
  for (;;) {
    size_t child = 2 * at + 1;
    if (child >= b->heap_count) break;
    if (child + 1 < b->heap_count && b->heap[child + 1].next > b->heap[child].next) child++;
    if (b->heap[child].next <= last.next) break;
    b->heap[at] = b->heap[child];
    at = child;
  }
  if (b->heap_count > 0) b->heap[at] = last;
  return top;
}

static stow_status play(bound *b, const spill_program *p, uint64_t room, uint64_t *missed,
                        uint64_t *copied) {
  uint64_t held = 0;
  memset(b->next, 0, (b->space.count + 1) * sizeof *b->next);
  for (uint64_t round = 0; round < 4; round++) {
    *missed = *copied = 0;
    uint64_t base = round * p->launch_count + 1;
    for (size_t i = 0; i < b->count; i++) {
      const touch *t = &b->touches[i];
      bool miss = b->next[t->unit] == 0;
      b->next[t->unit] = base + t->next;
      STOW_TRY(push(b, (candidate){base + t->next, t->unit}));
      if (!miss) continue;
      ++*missed;
      *copied += t->holds;
      for (held++; held > room && b->heap_count > 0;) {
        candidate c = pop(b);
        if (b->next[c.unit] != c.next) continue; /* used in the meantime */
        b->next[c.unit] = 0;
        held--;
      }
    }
  }
  return STOW_OK;
}

static stow_status add_units(bound *b, const spill_program *p, uint64_t unit_bytes) {
  for (size_t i = 0; i < p->initial_count + p->op_count; i++) {
    const spill_op *op = i < p->initial_count ? NULL : &p->ops[i - p->initial_count];
    if (op != NULL && op->kind != SPILL_ALLOC) continue;
    uint64_t addr = op != NULL ? op->addr : p->initial[i].addr;
    uint64_t bytes = op != NULL ? op->bytes : p->initial[i].bytes;
    for (uint64_t k = addr / unit_bytes; bytes > 0 && k <= (addr + bytes - 1) / unit_bytes; k++) {
      uint32_t unit;
      if (space_find(&b->space, k * unit_bytes) == SPACE_NO_UNIT)
        STOW_TRY(space_add(&b->space, k * unit_bytes, unit_bytes, &unit));
    }
  }
  return STOW_OK;
}

static stow_status run(bound *b, const spill_program *p, uint64_t room, uint64_t unit_bytes,
                       uint64_t *missed, uint64_t *copied) {
  STOW_TRY(add_units(b, p, unit_bytes));
  uint32_t *named = malloc((b->space.count + 1) * sizeof *named);
  b->born = calloc(b->space.count + 1, sizeof *b->born);
  b->next = calloc(b->space.count + 1, sizeof *b->next);
  stow_status status = STOW_OK;
  if (named == NULL || b->born == NULL || b->next == NULL)
    status = stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %u units", b->space.count);
  for (size_t i = 0; i < p->initial_count && status == STOW_OK; i++)
    status = space_block_add(&b->space, p->initial[i].addr, p->initial[i].bytes, NULL, NULL);
  /* The first step shows which words large blocks have. */
  if (status == STOW_OK) status = walk(b, p, false, named);
  if (status == STOW_OK) status = walk(b, p, true, named);
  free(named);
  STOW_TRY(status);
  link_uses(b, p);
  return play(b, p, room, missed, copied);
}

stow_status spill_bound(const spill_program *p, uint64_t capacity_bytes, uint64_t unit_bytes,
                        uint64_t *in_bytes, uint64_t *copied_bytes) {
  bound b = {0};
  *in_bytes = *copied_bytes = 0;
  stow_status status = run(&b, p, capacity_bytes / unit_bytes, unit_bytes, in_bytes, copied_bytes);
  *in_bytes *= unit_bytes;
  *copied_bytes *= unit_bytes;
  space_free(&b.space);
  free(b.touches);
  free(b.born);
  free(b.next);
  free(b.heap);
  return status;
}
