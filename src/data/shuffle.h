/* Shuffle: the order of an epoch's rows, in memory that does not grow with the file.
 *
 * A sequence is a permutation of the rows made of whole blocks: positions 0 to rows - 1 are
 * divided into blocks of `block_rows`, and the blocks (contiguous rows of the file, the last one
 * perhaps short) follow each other in random order or in file order. Rows within a window of
 * positions are then shuffled separately (shuffle_draw). Called by prefetch. Guarantees: the
 * same key gives the same order on every machine; every permutation is equally likely, as far as
 * a 64-bit key allows. */
#ifndef DATA_SHUFFLE_H
#define DATA_SHUFFLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct sequence {
  uint64_t rows, block_rows, block_count;
  uint32_t *blocks;  /* block at each position; NULL: file order */
  uint64_t short_at; /* position of the short last block */
} sequence;

/* Opens a sequence in file order, ready for sequence_draw. `block_rows` 0: never shuffled. At most
 * UINT32_MAX blocks. */
stow_status sequence_open(sequence *o, uint64_t rows, uint64_t block_rows);
void sequence_close(sequence *o);
/* Draws the order of the blocks for that key. */
void sequence_draw(sequence *o, uint64_t key);
/* Returns how many rows from position `place` on are contiguous in the file; *row is the first. */
uint64_t sequence_run(const sequence *o, uint64_t place, uint64_t *row);

/* Writes 0 to count - 1 in random order. */
void shuffle_draw(uint32_t *numbers, uint32_t count, uint64_t key);

/* Copies rows of `bytes` each from `from`, in the order of `numbers`. */
void shuffle_gather(char *to, const char *from, const uint32_t *numbers, uint64_t count,
                    size_t bytes);

/* Makes a key from several numbers: changing any of them gives an unrelated key. */
uint64_t shuffle_key(uint64_t seed, uint64_t epoch, uint64_t what);

#endif
