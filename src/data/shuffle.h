/* Shuffle: the order in which the rows of an epoch come, in memory that does not grow with the
 * file.
 *
 * A sequence is a permutation of the rows made of whole blocks: places 0 to rows - 1 are cut into
 * blocks of `block_rows`, and the blocks (contiguous rows of the file, the last one perhaps short)
 * stand behind one another in random order, or in the file's own. Rows within a window of places
 * are then mixed by a draw of their own (shuffle_draw). Called by prefetch. Guarantees: the same
 * key gives the same order on every machine; every permutation a draw can give is equally likely,
 * as far as a 64-bit key has that many. */
#ifndef DATA_SHUFFLE_H
#define DATA_SHUFFLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct sequence {
  uint64_t rows, block_rows, block_count;
  uint32_t *blocks;  /* block at each place; NULL: the file's own order */
  uint64_t short_at; /* place of the short last block among them */
} sequence;

/* Ready for sequence_draw; in the file's own order until then. `block_rows` 0: never shuffled. At
 * most UINT32_MAX blocks. */
stow_status sequence_open(sequence *o, uint64_t rows, uint64_t block_rows);
void sequence_close(sequence *o);
/* Draws the blocks' order for that key. */
void sequence_draw(sequence *o, uint64_t key);
/* The rows of the file that stand from `place` on without a gap: *row is the first of them. */
uint64_t sequence_run(const sequence *o, uint64_t place, uint64_t *row);

/* 0 to count - 1 in random order. */
void shuffle_draw(uint32_t *numbers, uint32_t count, uint64_t key);

/* A key from several numbers: each change of one gives an unrelated key. */
uint64_t shuffle_key(uint64_t seed, uint64_t epoch, uint64_t what);

#endif
