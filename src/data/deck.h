/* Deck: the rows of the files in random order, in a scratch file: the shuffle on disk.
 *
 * The rows are dealt in one pass. A hand (deck_rows rows, as many as the budget allows) takes
 * random blocks of the files and is mixed row by row in memory. Its rows are dealt to all stripes
 * of the scratch file in pieces:
 *
 *   stripe 0: piece 0 of hand 0, piece 0 of hand 1, …
 *   stripe 1: piece 1 of hand 0, piece 1 of hand 1, …
 *
 * So a block of the scratch file has rows of many hands, and each hand has rows of many places of
 * the file. The batches then shuffle blocks and windows of the scratch file in each epoch.
 *
 * Called by batches, which makes it, and by prefetch, which builds it before the first batch.
 * Guarantees: the same seed and sizes give the same order on every machine; memory is two hands;
 * the scratch file vanishes with the batches. Several ranks on one machine share one. */
#ifndef DATA_DECK_H
#define DATA_DECK_H

#include <stowage/batches.h>

#include "data/rows.h"

typedef struct deck deck;

typedef struct deck_options {
  uint32_t parts;
  const origin *origins; /* of the files; must outlive the deck */
  const char *folder;    /* NULL: $TMPDIR, or /var/tmp */
  uint64_t deck_rows;    /* of a hand */
  uint64_t block_rows;   /* of the files, at most */
  bool chunked;          /* blocks are whole chunks: exactly block_rows */
  uint64_t seed;
  uint64_t bounce_bytes; /* for direct reads; 0: through the page cache */
  bool shared;           /* with other ranks */
} deck_options;

/* Returns the rows of a hand that a budget allows, a multiple of `unit_rows` if possible; 0: not
 * even one. */
uint64_t deck_rows_for(uint64_t memory_bytes, const rows *files, uint32_t parts,
                       uint64_t unit_rows);

/* Takes over `first`, the opened rows of each part. Reads and writes nothing yet. */
stow_status deck_open(deck **d, const deck_options *options, rows *first);
void deck_close(deck *d);
/* Writes the scratch file, unless it is written. Takes as long as reading and writing the files
 * once. STOW_ERR_IO says how many bytes the folder must have free; STOW_ERR_INTERRUPTED after
 * deck_cancel. */
stow_status deck_build(deck *d);
/* Ends a build in another thread, and later ones, until it is called with false. */
void deck_cancel(deck *d, bool cancel);
/* Returns the origin of a part of the scratch file. Valid after deck_build. */
const origin *deck_origin(const deck *d, uint32_t part);
uint64_t deck_bytes(const deck *d);
/* Returns how many places of the files the rows of a window come from: each piece has rows of all
 * blocks of its hand. *run_rows are the neighbours at one place. The window has blocks of
 * `block_rows` of the scratch file. */
double deck_places(const deck *d, uint64_t window_rows, uint64_t block_rows, uint64_t *run_rows);

#endif
