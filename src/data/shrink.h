/* Shrink: a data file again in the smallest types that hold every value, sparse where that is
 * smaller.
 *
 *   npy, raw -> npy           the values cast; memory order kept
 *   npy, raw -> npz           SciPy's CSR (CSC for Fortran order) if smaller, else one member,
 * arr_0 npz -> npz                each member cast; stored stays stored, deflated stays deflated
 *   sparse npz -> npz         values and indices narrowed
 *   csv -> npy                all columns in one type that holds them all
 *   csv -> npz                a member for each column; text as text_layout.h has it
 *
 * Called by `stowage shrink`, by every rank of a team where the budget has one: arrays to npy and
 * tables are cut among the ranks, anything else is the first one's work. A run that was stopped
 * can be resumed by as many ranks as it had. A type is proved over all values before anything takes
 * the output's name; with a tolerance float16 and float32 may round that far and no further. The
 * input is never touched; the output is the old file or the complete new one; memory stays in the
 * budget. */
#ifndef DATA_SHRINK_H
#define DATA_SHRINK_H

#include "data/inspect.h"

typedef struct shrink_options {
  dtype type;       /* DTYPE_NONE: the smallest that holds every value */
  double tolerance; /* 0: exactly */
  bool relative;    /* the tolerance is a part of each value; else it is an amount */
  bool dry_run;     /* decide, write nothing */
  bool resume;      /* go on where a run that was stopped had come to */
  bool no_sync;     /* do not wait until the output is on the disk */
  bool force;       /* write an output that takes more bytes than the input */
  /* Of a table: the columns to write, by name, and those to leave out. 0: all, and none. */
  const char *const *columns, *const *drop;
  size_t column_count, drop_count;
  inspect_options in;
} shrink_options;

/* What one array or column becomes. */
typedef struct shrink_item {
  dtype to; /* DTYPE_NONE: copied as it is (not numbers); codes of a text column are `to` */
  bool sparse;
  bool skipped; /* left out: a column, a dataset of HDF5 that is not numbers */
  char *member; /* of a column in an npz: the name it has there; NULL elsewhere */
  bool rounded; /* within the tolerance, not exactly */
  double error; /* the largest, as the tolerance counts it */
  uint64_t bytes, bytes_after;
} shrink_item;

typedef struct shrink_result {
  file_facts facts;
  shrink_item *items; /* one for each array, or column of a table */
  size_t item_count;
  uint64_t bytes, bytes_after; /* in memory */
  uint64_t file_bytes;         /* of the output; 0 on a dry run */
  bool resumed;                /* it went on with what another run had done */
} shrink_result;

stow_status shrink_file(shrink_result *r, const char *in, const char *out, const shrink_options *o,
                        const budget *b);
void shrink_free(shrink_result *r);

#endif
