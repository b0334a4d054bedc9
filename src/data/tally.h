/* Tally: what the values of one column of a table were like; adds up, part by part, in any order
 * but for what comes first. Plain bytes: it may be sent to another process or kept in a file.
 *
 * Called by the reader of tables. */
#ifndef DATA_TALLY_H
#define DATA_TALLY_H

#include "arrays/csv_block.h"
#include "base/hash.h"
#include "data/inspect.h"

typedef struct tally {
  scan integers, wides, floats; /* int64; uint64 of parts that pass it; every number as a double */
  uint64_t numbers;             /* fields that are numbers */
  uint64_t wide_count;          /* of them, past int64 */
  uint64_t fractions;           /* of them, no integers */
  uint64_t bools, false_count, texts, missing;
  uint64_t missing_words;       /* of missing: NA and the like, which are text if the column is */
  uint64_t text_bytes, longest; /* letters of all fields, of numbers too; of the longest */
  uint64_t shortest;            /* letters of the shortest field; UINT64_MAX: there is none */
  uint64_t first_text_line;     /* 0: none */
  bool negative_beside_wide;    /* no type holds both */
  bool inexact;                 /* an integer that no double holds */
  bool mixed;                   /* numbers or words before the first text */
} tally;

void tally_begin(tally *t);
/* Adds a later part. */
void tally_join(tally *t, const tally *later);
/* Adds the block's values in column `c`; the counts of odd rows were added as they came. */
void tally_block(tally *t, const csv_column *c, size_t rows);

/* `words`: the distinct texts, NULL where they were not kept. */
void tally_conclude(column_facts *to, const tally *t, uint64_t rows, const intern *words,
                    scan_purpose purpose);

#endif
