/* Slab: a span of 64 KiB cut into equal blocks; requests to 16 KiB live in one.
 *
 * One set of slabs per stream and tier, guarded by the lane's lock. A block costs one bit and four
 * bytes. At most one slab of a class stands empty; the rest go back to the arena. */
#ifndef MEMORY_SLAB_H
#define MEMORY_SLAB_H

#include "memory/arena.h"

#define SLAB_UNITS     128u /* 64 KiB */
#define SLAB_CLASSES   17   /* [0] is none */
#define SLAB_UNITS_MAX 32u  /* largest block: 16 KiB */

typedef struct slab {
  uint32_t span, prev, next; /* its span; its neighbours among those of its class with room */
  uint8_t class, slots, used;
  bool listed;
  uint64_t busy[2];
  uint32_t marks[]; /* flags and tag of each block, as in span.mark */
} slab;

typedef struct slabs {
  slab **table;                    /* [0] none */
  uint32_t count, capacity, spare; /* spare: indices in free_list */
  uint32_t *free_list;
  uint32_t room[SLAB_CLASSES];  /* slabs with a free block, by class */
  uint32_t empty[SLAB_CLASSES]; /* one that has only free blocks; 0 none */
  uint64_t live_bytes, live_count, span_bytes;
} slabs;

uint32_t slab_class(uint32_t units); /* 1.. for units 1..SLAB_UNITS_MAX */
uint32_t slab_class_units(uint32_t class);

/* A block of the class with `mark`; 0 if every slab of it is full. */
stow_addr slab_take(slabs *s, const arena *a, uint32_t class, uint32_t mark);
/* Cuts a live span of SLAB_UNITS for the class. On failure the span stays the caller's. */
stow_status slab_adopt(slabs *s, arena *a, uint32_t span, uint32_t class);
/* The block's number in the slab, or UINT32_MAX if no block begins at `addr`. */
uint32_t slab_block(const slabs *s, const arena *a, uint32_t index, stow_addr addr);
bool slab_busy(const slabs *s, uint32_t index, uint32_t block);
void slab_give(slabs *s, arena *a, uint32_t index, uint32_t block);
/* Gives empty slabs back to the arena. */
void slabs_trim(slabs *s, arena *a);
void slabs_close(slabs *s);
stow_status slabs_check(const slabs *s, const arena *a);
uint64_t slabs_book_bytes(const slabs *s);

#endif
