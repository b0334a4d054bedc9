/* Columns: the numbers of every lifetime, as small as they can be told.
 *
 * Values are numbered in dictionaries. A size is told as its place among the sizes its stack ever
 * asked for (a line of a program asks for few). An address is told by what an allocator would do:
 * 0 the address freed last by an allocation of that size, 1 the lowest never used so far, else its
 * number + 2. web/data.js does the same walk to undo it. */
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
  COLUMN_ADDR, /* ascending; the others by how often they come */
  COLUMN_STACK,
  COLUMN_TAG,
  COLUMN_STREAM,
  COLUMN_COUNT
} column;

typedef struct columns {
  const timeline *t;
  dictionary all[COLUMN_COUNT];
} columns;

/* Free in any case. */
stow_status columns_build(columns *c, const timeline *t);
void columns_free(columns *c);

/* LEB128. */
void columns_put(buffer *b, uint64_t value);
/* For each stack: how many sizes, then their numbers, the most frequent first; and into `indexes`
 * for each lifetime the place of its size in its stack's list. */
stow_status columns_put_sizes(buffer *lists, buffer *indexes, const columns *c);
stow_status columns_put_addresses(buffer *b, const columns *c);

#endif
