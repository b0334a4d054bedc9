/* Rows: one array opened for one thread; returns its rows in the caller's type.
 *
 * An origin is where the array comes from, kept so that every reader can open its own. Called by
 * prefetch (batches) and by slice (stow_array). Guarantees: reads of at most 4 MiB at a time,
 * memory of one scratch buffer. */
#ifndef DATA_ROWS_H
#define DATA_ROWS_H

#include <stowage/array.h>

#include "data/array.h"

struct rows;

typedef struct origin {
  stow_array_options options; /* with its own copies of the texts */
  array_spec spec;
  dtype to; /* DTYPE_NONE: as in the file */
  char *texts;
  source *shared; /* an archive that is open, of which it is member `entry`; NULL: none */
  const zip_entry *entry;
  const char *copy_of; /* the array whose rows these are in another order; NULL: none */
  bool in_order;       /* of a copy: its rows have their numbers */
  zip_sums *sums;      /* of all its readers; NULL: none */
} origin;

/* Checks and keeps a copy of the options. */
stow_status origin_open(origin *o, const stow_array_options *options);
void origin_close(origin *o);
/* Makes all readers of a stored member of an .npz check it together, `first` and later ones. */
stow_status origin_sum(origin *o, struct rows *first);

typedef struct rows {
  array from;
  source *reader; /* ours, if the origin is a caller's reader */
  dtype to;
  bool cast;
  bool serial;             /* HDF5, sparse: one reader, because each has its own memory */
  uint64_t count, items;   /* rows; items per row */
  uint64_t row_bytes;      /* as returned */
  uint64_t file_row_bytes; /* as in the file */
  uint64_t item_bytes;     /* as returned */
  char *scratch;           /* allocated at first use */
  size_t scratch_bytes;    /* at least rows_scratch_least */
  const origin *opened_from;
} rows;

stow_status rows_open(rows *r, const origin *o);
void rows_close(rows *r);
/* Returns the smallest scratch buffer that works: 0 if none is needed. Set r->scratch_bytes before
 * reading. */
uint64_t rows_scratch_least(const rows *r);
/* Reads rows `first` to `first + count`, in C order and in type `to`. */
stow_status rows_read(rows *r, uint64_t first, uint64_t count, void *to);
/* Returns the file offset of a row; false unless rows_read returns the file's own contiguous bytes,
 * straight from a file. */
bool rows_offset(const rows *r, uint64_t row, uint64_t *offset);
/* Returns whether rows_read_parts can read it. */
bool rows_reads_parts(const rows *r);
/* Reads rows from `first` on, each into one part. Modifies `parts`. */
struct iovec;
stow_status rows_read_parts(rows *r, uint64_t first, struct iovec *parts, size_t count);
/* Reads items `item` to `item + items` of one row; only for arrays in C order. */
stow_status rows_read_items(rows *r, uint64_t row, uint64_t item, uint64_t items, void *to);
/* Returns whether reading backwards restarts it: a deflated member. */
bool rows_forward_only(const rows *r);
/* Returns whether several readers would wait for each other. */
bool rows_one_reader(const rows *r);
/* Returns whether it is remote: high latency, so several readers at once. */
bool rows_remote(const rows *r);
/* Returns STOW_ERR_IO if the file is no longer the one that `first` opened. */
stow_status rows_same(const rows *r, const rows *first);
/* Checks the file after everything was read: STOW_ERR_IO if it has changed. */
stow_status rows_check(const rows *r);
void rows_info(const rows *r, stow_array_info *info);

#endif
