/* Rows: one array opened for one thread, its rows handed out in the type the caller asked for.
 *
 * An origin is where the array comes from, kept so that every reader can open its own. Called by
 * prefetch (batches) and by slice (stow_array). Guarantees: reads of at most 4 MiB at a time,
 * memory of one scratch area. */
#ifndef DATA_ROWS_H
#define DATA_ROWS_H

#include <stowage/array.h>

#include "data/array.h"

typedef struct origin {
  stow_array_options options; /* its texts are the origin's own */
  array_spec spec;
  dtype to; /* DTYPE_NONE: as the file has it */
  char *texts;
} origin;

/* Checks and keeps a copy of the options. */
stow_status origin_open(origin *o, const stow_array_options *options);
void origin_close(origin *o);

typedef struct rows {
  array from;
  source *reader; /* ours, where the origin is a reader of the caller's */
  dtype to;
  bool cast;
  bool serial;             /* HDF5, sparse: one reader, because each has memory of its own */
  uint64_t count, items;   /* rows; items of one */
  uint64_t row_bytes;      /* as handed out */
  uint64_t file_row_bytes; /* as the file has it */
  uint64_t item_bytes;     /* as handed out */
  char *scratch;           /* made when first needed */
  size_t scratch_bytes;    /* rows_scratch_bytes, at least */
  const origin *opened_from;
} rows;

stow_status rows_open(rows *r, const origin *o);
void rows_close(rows *r);
/* The least scratch area that works: 0 where none is needed. Set r->scratch_bytes before reading.
 */
uint64_t rows_scratch_least(const rows *r);
/* Rows `first` to `first + count`, in C order and in type `to`. */
stow_status rows_read(rows *r, uint64_t first, uint64_t count, void *to);
/* Where in the file that row stands; false where rows_read does not give the file's own bytes, one
 * after another, straight from a file. */
bool rows_offset(const rows *r, uint64_t row, uint64_t *offset);
/* Of one row, items `item` to `item + items`; of arrays in C order only. */
stow_status rows_read_items(rows *r, uint64_t row, uint64_t item, uint64_t items, void *to);
/* Reading it backwards starts it anew: a deflated member. */
bool rows_forward_only(const rows *r);
/* Several readers would wait for one another. */
bool rows_one_reader(const rows *r);
/* Over a network: slow to answer, so several readers at once. */
bool rows_remote(const rows *r);
/* STOW_ERR_IO if another file stands there now than `first` was opened from. */
stow_status rows_same(const rows *r, const rows *first);
/* The file again, after all was read: STOW_ERR_IO if it has changed. */
stow_status rows_check(const rows *r);
void rows_info(const rows *r, stow_array_info *info);

#endif
