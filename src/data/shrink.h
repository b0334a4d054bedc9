/* Shrink: rewrites a data file in the smallest types that hold every value, sparse where that is
 * smaller.
 *
 *   npy, raw -> npy           the values cast; memory order kept
 *   npy, raw -> npz           SciPy's CSR (CSC for Fortran order) if smaller, else one member,
 * arr_0 npz -> npz                each member cast; stored stays stored, deflated stays deflated
 *   sparse npz -> npz         values and indices narrowed
 *   csv -> npy                all columns in one type that holds them all
 *   csv -> npz                one member per column; text as in text_layout.h
 *
 * Called by `stowage shrink`, in every rank of a team if the budget has one: arrays to npy and
 * tables are split among the ranks; the first rank does anything else. An interrupted run can be
 * resumed with the same number of ranks. A type is proved over all values before the output is
 * renamed to its final name; with a tolerance, float16 and float32 may round by at most that. The
 * input is never modified; the output is the old file or the complete new one; memory stays within
 * the budget. */
#ifndef DATA_SHRINK_H
#define DATA_SHRINK_H

#include "data/inspect.h"

typedef struct shrink_options {
  dtype type;       /* DTYPE_NONE: the smallest that holds every value */
  double tolerance; /* 0: exactly */
  bool relative;    /* the tolerance is relative to each value; else absolute */
  bool dry_run;     /* decide but write nothing */
  bool resume;      /* continue an interrupted run */
  bool no_sync;     /* do not wait until the output is flushed */
  bool force;       /* write the output even if it is larger than the input */
  /* For a table: names of the columns to write, and of those to omit. Counts of 0: all, and
   * none. */
  const char *const *columns, *const *drop;
  size_t column_count, drop_count;
  inspect_options in;
} shrink_options;

/* The result for one array or column. */
typedef struct shrink_item {
  dtype to; /* DTYPE_NONE: copied unchanged (not numbers); for a text column, the type of its
             * codes */
  bool sparse;
  bool skipped;  /* left out: a column, or an HDF5 dataset that is not numbers */
  char *member;  /* for a column in an npz: its member name; otherwise NULL */
  bool not_utf8; /* texts of the column, written as they are, are not UTF-8 */
  bool rounded;  /* within the tolerance, not exact */
  double error;  /* the largest, as the tolerance measures it */
  uint64_t bytes, bytes_after;
} shrink_item;

typedef struct shrink_result {
  file_facts facts;
  shrink_item *items; /* one per array or table column */
  size_t item_count;
  uint64_t bytes, bytes_after; /* memory needed before and after */
  uint64_t file_bytes;         /* size of the output; 0 on a dry run */
  bool resumed;                /* it continued an interrupted run */
} shrink_result;

stow_status shrink_file(shrink_result *r, const char *in, const char *out, const shrink_options *o,
                        const budget *b);
void shrink_free(shrink_result *r);

#endif
