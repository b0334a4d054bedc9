/* Slab: a span of 64 KiB cut into equal blocks, for requests up to 16 KiB.
 *
 * There is one set of slabs per stream and tier, guarded by the lane's lock. A slab is aligned to
 * its size in its arena, so any address in it gives its index in `at`: freeing one of millions of
 * blocks misses the cache once. A block costs one bit and four bytes, a slab half a cache line. A
 * new slab is created only when all others of its class are full. At most one slab of a class is
 * kept empty; the others return to the arena. So a class never has more slabs than its blocks
 * needed at their peak, plus one. */
#ifndef MEMORY_SLAB_H
#define MEMORY_SLAB_H

#include "memory/arena.h"

#define SLAB_UNITS     128u /* 64 KiB */
#define SLAB_SHIFT     (UNIT_SHIFT + 7)
#define SLAB_CLASSES   17  /* [0] is unused */
#define SLAB_UNITS_MAX 32u /* largest block: 16 KiB */
#define BLOCK_NONE     UINT32_MAX

/* Two per cache line: values that follow from the class or from the index in `at` are not stored.
 */
typedef struct slab {
  uint64_t busy[2];    /* bits beyond the last block are always set */
  uint32_t prev, next; /* list of its class, as slab_number; 0: none */
  uint32_t marks;      /* position in the store of its blocks' flags and tags, as in span.mark */
  uint8_t class;       /* 0: no slab here */
  uint8_t used;
  bool listed : 1, odd : 1; /* odd: the mark of a block may have flags */
} __attribute__((aligned(32))) slab;

typedef struct slab_kind {
  uint32_t bytes;   /* size of a block */
  uint32_t inverse; /* 65536 / units per block, rounded up */
  uint32_t slots;
} slab_kind;
extern const slab_kind slab_kinds[];

typedef struct slabs {
  slab *room[SLAB_CLASSES];  /* slabs with a free block, by class */
  slab *empty[SLAB_CLASSES]; /* the slab that was emptied last; NULL: none */
  slab *at;                  /* indexed by address in steps of SLAB_UNITS */
  stow_addr base;            /* base address of the arena */
  /* Marks of slabs: allocated one after another, and kept by class when their slab is gone. The
   * first kept entry links to the next. */
  uint32_t *store;
  uint64_t store_used, store_count, at_bytes; /* store_* count marks; at_bytes counts bytes */
  uint32_t spare[SLAB_CLASSES];               /* position in the store + 1; 0: none */
} slabs;

/* Returns the class of a block of 1..SLAB_UNITS_MAX units. Classes are one unit apart up to 4 KiB,
 * then four per octave: at most a fifth of a block is wasted. */
static inline uint32_t slab_class(uint32_t units) {
  if (units <= 8) return units;
  if (units <= 16) return 8 + (units - 8 + 1) / 2;
  return 12 + (units - 16 + 3) / 4;
}
uint32_t slab_class_units(uint32_t class);

stow_status slabs_open(slabs *s, const arena *a);
/* Drops all slabs; their spans stay unchanged. */
void slabs_close(slabs *s);

/* Makes a slab of the class from a live span of SLAB_UNITS, aligned to that size. On failure the
 * caller keeps the span. */
stow_status slab_adopt(slabs *s, arena *a, uint32_t span, uint32_t class);
/* Returns empty slabs to the arena. */
void slabs_trim(slabs *s, arena *a);
stow_status slabs_check(const slabs *s, const arena *a);
/* Returns the bytes of allocated blocks, and of the spans of all slabs. */
uint64_t slabs_live_bytes(const slabs *s, const arena *a, uint64_t *span_total);
uint64_t slabs_metadata_bytes(const slabs *s, const arena *a);

/* Used by slab_alloc and slab_free. */
void slab_filled(slabs *s, slab *b);
void slab_drained(slabs *s, arena *a, slab *b);
void slab_list(slabs *s, slab *b);

static inline uint32_t slab_number(const slabs *s, const slab *b) {
  return (uint32_t)(b - s->at) + 1;
}
static inline stow_addr slab_base(const slabs *s, const slab *b) {
  return s->base + ((uint64_t)(b - s->at) << SLAB_SHIFT);
}
static inline uint32_t *slab_mark(const slabs *s, const slab *b, uint32_t block) {
  return &s->store[b->marks + block];
}
/* Returns the span of a slab. */
static inline uint32_t slab_span(const slabs *s, const arena *a, const slab *b) {
  return a->cells[(uint64_t)(b - s->at) * SLAB_UNITS >> a->cell_shift];
}

/* Returns the slab that contains an address of the arena, or NULL. */
static inline slab *slab_at(const slabs *s, stow_addr addr) {
  slab *b = s->at + ((addr - s->base) >> SLAB_SHIFT);
  return b->class ? b : NULL;
}

/* Takes a block from a slab of `class`. */
static inline stow_addr slab_alloc(slabs *s, slab *b, uint32_t class, uint32_t mark) {
  const slab_kind *kind = &slab_kinds[class];
  ASSERT_VALUES(b->class == class && b->listed && b->used < kind->slots, "slab: full, but listed",
                b->used, kind->slots);
  uint32_t word = b->busy[0] == UINT64_MAX;
  uint32_t bit = (uint32_t)__builtin_ctzll(~b->busy[word]), block = word * 64 + bit;
  b->busy[word] |= UINT64_C(1) << bit;
  *slab_mark(s, b, block) = mark;
  if (__builtin_expect(++b->used == kind->slots, 0)) slab_filled(s, b);
  return slab_base(s, b) + (uint64_t)block * kind->bytes;
}

/* Returns the block's number in the slab, or BLOCK_NONE if no block begins at `addr`. */
static inline uint32_t slab_block(const slabs *s, const slab *b, stow_addr addr) {
  const slab_kind *kind = &slab_kinds[b->class];
  uint32_t offset = (uint32_t)(addr - s->base) & ((1u << SLAB_SHIFT) - 1);
  /* A multiplication and a shift instead of a division; exact below 128 units. */
  uint32_t block = (offset >> UNIT_SHIFT) * kind->inverse >> 16;
  return block * kind->bytes == offset && block < kind->slots ? block : BLOCK_NONE;
}

static inline bool slab_busy(const slab *b, uint32_t block) {
  return (b->busy[block / 64] >> (block & 63)) & 1;
}

static inline void slab_free(slabs *s, arena *a, slab *b, uint32_t block) {
  ASSERT_VALUES(b->used > 0 && slab_busy(b, block), "slab: given, not taken", b->used, block);
  ASSERT_VALUES((a->spans[slab_span(s, a, b)].mark & MARK_SLAB) &&
                    span_addr(a, slab_span(s, a, b)) == slab_base(s, b),
                "slab: its span", slab_span(s, a, b), slab_base(s, b));
  b->busy[block / 64] &= ~(UINT64_C(1) << (block & 63));
  if (__builtin_expect(!b->listed, 0)) slab_list(s, b);
  if (--b->used == 0 && s->empty[b->class] != b) slab_drained(s, a, b);
}

#endif
