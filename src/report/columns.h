/* Columns: the numbers of every lifetime, encoded compactly.
 *
 * Values are numbered in dictionaries. A size is encoded as its index among the sizes that its
 * stack requests (a line of a program requests few). An address is encoded by what an allocator
 * would do: 0 the address freed last by an allocation of that size, 1 the lowest address not used
 * so far, else its number + 2. web/data.js repeats these steps to decode it. */
#ifndef REPORT_COLUMNS_H
#define REPORT_COLUMNS_H

#include "base/buffer.h"
#include "replay/timeline.h"

typedef struct dictionary {
  uint64_t *values;
  uint32_t count;
  uint32_t *of; /* lifetime → number */
} dictionary;

typedef enum column {
  COLUMN_SIZE,
  COLUMN_ADDR, /* ascending; the others by frequency */
  COLUMN_STACK,
  COLUMN_TAG,
  COLUMN_STREAM,
  COLUMN_COUNT
} column;

typedef struct columns {
  const timeline *t;
  dictionary all[COLUMN_COUNT];
} columns;

/* Builds the columns. Free them even after a failure. */
stow_status columns_build(columns *c, const timeline *t);
void columns_free(columns *c);

/* LEB128. */
void columns_put(buffer *b, uint64_t value);
/* Writes for each stack the number of sizes, then their numbers, most frequent first; and to
 * `indexes`, for each lifetime, the index of its size in its stack's list. */
stow_status columns_put_sizes(buffer *lists, buffer *indexes, const columns *c);
stow_status columns_put_addresses(buffer *b, const columns *c);

#endif
