/* Column stats: statistics of the values of one table column. Parts can be joined in any order,
 * except for which comes first. Plain bytes: can be sent to another process or written to a file.
 *
 * Called by the table reader. */
#ifndef DATA_COLUMN_STATS_H
#define DATA_COLUMN_STATS_H

#include "arrays/csv_block.h"
#include "arrays/csv_time.h"
#include "base/hash.h"
#include "data/inspect.h"

typedef struct column_stats {
  scan integers, wides, floats; /* int64; uint64 of parts above INT64_MAX; every number as a
                                 * double */
  uint64_t numbers;             /* fields that are numbers */
  uint64_t wide_count;          /* of these, the number above INT64_MAX */
  uint64_t fractions;           /* of these, the number that are not integers */
  uint64_t bools, false_count, texts, missing;
  uint64_t missing_words;       /* of the missing values, those such as NA, which are text in a text
                                 * column */
  uint64_t absent;              /* of the missing values, those of rows that end before */
  uint64_t text_bytes, longest; /* bytes of all fields, including numbers; of the longest */
  uint64_t shortest;            /* bytes of the shortest field; UINT64_MAX: none */
  uint64_t first_text_line;     /* 0: none */
  bool as_text, as_times;       /* the column has this type also if it has no text: --type */
  bool negative_beside_wide;    /* no type holds both */
  bool inexact;                 /* an integer that no double represents */
  bool mixed;                   /* numbers or words before the first text */
  bool padded;                  /* the first text is "007" or the like: csv_keeps_zeros */
  bool beyond;                  /* the first text is a number that no type holds: csv_is_beyond */
  bool not_utf8;                /* some text is not UTF-8; for texts that are kept */
  /* Texts that are dates or times, by distinct text where those are kept. */
  bool not_times;           /* some text is not a time, or times are not looked for */
  bool times, clock;        /* some are; some have a time of day */
  bool zoned, unzoned;      /* some times have a zone; some have none */
  bool past_nanos;          /* some are before or after the times that nanoseconds hold */
  bool gaps;                /* some texts are NA or the like, which are missing times */
  uint8_t digits;           /* of fractions of a second, at most */
  int64_t earliest, latest; /* in seconds, if `times` */
  uint64_t gap_count;
} column_stats;

void column_stats_begin(column_stats *t);
/* Adds a later part. */
void column_stats_join(column_stats *t, const column_stats *later);
/* Adds the block's values in column `c`; the counts of unusual rows were added before. */
void column_stats_block(column_stats *t, const csv_column *c, size_t rows);

/* Returns whether a text in a column of times is a missing one: NaT, NA and the like. */
bool column_stats_gap(const char *text, size_t length);
/* Checks whether a text is a time; not called again after one that is not. */
void column_stats_text(column_stats *t, const char *text, size_t length);

/* Derives the facts of a column. `words`: the distinct texts; NULL if they were not kept. */
void column_stats_conclude(column_facts *to, const column_stats *t, uint64_t rows,
                           const intern *words, scan_purpose purpose);

#endif
