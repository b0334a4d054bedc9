/* Shrink's parts, shared only by shrink*.c: where values go, and how much they were rounded. */
#ifndef DATA_SHRINK_PARTS_H
#define DATA_SHRINK_PARTS_H

#include "data/checkpoint.h"
#include "data/shrink.h"
#include "files/zip_write.h"

/* An archive being written, with its checkpoints. */
typedef struct archive {
  zip_out zip;
  checkpoint *checkpoint; /* NULL: no checkpoint */
} archive;

/* Begins where an interrupted run stopped, if there was one. */
void archive_begin(archive *a, writer *to, checkpoint *c);
/* Records how much of each member is written, if a checkpoint is due. */
stow_status archive_note(archive *a);
/* Finishes the archive; `status` says whether everything was written. */
stow_status archive_end(archive *a, stow_status status);

/* Takes bytes in order: a file from some offset, or a member of an archive. */
typedef struct sink {
  writer *file;
  uint64_t offset;
  archive *archive; /* NULL: the file */
  size_t member;
  bool part;    /* a part of a member that several processes fill: from `offset` on … */
  uint32_t crc; /* … with this checksum so far */
} sink;

stow_status sink_write(sink *s, const void *bytes, size_t count);
/* Returns how many of the next bytes an interrupted run has already written; they may be omitted
 * after sink_pass. */
uint64_t sink_behind(const sink *s);
void sink_pass(sink *s, uint64_t count);

/* The error of casting values. */
typedef struct loss {
  double tolerance;
  bool relative;
  bool exactly; /* only whether there is any error, between floats */
  double worst; /* the largest error so far */
  bool exceeded;
} loss;

/* Compares `count` values with their casts. */
void loss_add(loss *l, const void *from, dtype from_type, const void *to, dtype to_type,
              size_t count);

/* Joins the losses of all ranks of a team; every rank gets the result. A failed rank's `status`
 * fails all. */
stow_status loss_join(loss *l, const budget *b, stow_status status);

/* The state of one job. */
typedef struct job {
  const shrink_options *options;
  const budget *budget;
  shrink_result *result;
  source *from; /* NULL for a table, which is read as a stream */
  const char *in, *out;
  const char *path;            /* what the caller called the input: names several files, too */
  uint64_t file_bytes, others; /* of all files; a hash of those after the first */
  bool to_npz;
  bool *skip; /* for a table: the omitted columns; NULL: none */
  uint64_t done, total;
  bool changed;             /* the input was modified: what was recorded about it is discarded */
  size_t item;              /* the number of the current array, for the checkpoint */
  struct sparse_kept *kept; /* for the single array, if it was read that way */
} job;

/* Casts all of `a` to `to`, in file order. Scans the values into `values` and measures the error
 * into `l`; either may be NULL. Without a sink nothing is written. */
stow_status shrink_values(job *j, array *a, dtype to, sink *s, scan *values, loss *l);

/* Clears the checkpoint of measuring the current array for `to`. */
void shrink_measured(job *j, dtype to);

/* Appends an npy header to the sink. */
stow_status shrink_header(sink *s, const char *descr, bool fortran, const uint64_t *shape,
                          uint32_t dims);
/* Returns the size of such a header. */
stow_status shrink_header_bytes(uint64_t *bytes, const char *descr, bool fortran,
                                const uint64_t *shape, uint32_t dims);
/* Begins a member that is an npy of that shape and writes its header. */
stow_status shrink_member(archive *z, sink *s, const char *name, const char *descr, bool fortran,
                          const uint64_t *shape, uint32_t dims, uint64_t item_bytes, bool deflate);

/* Writes a member of plain bytes. */
stow_status shrink_bytes(archive *z, sink *s, const char *name, uint64_t bytes, bool deflate);

/* Reads a dense array once and keeps its nonzero values, scanning them. *kept is NULL if it cannot
 * be a sparse matrix, or would not be smaller as one. (shrink_sparse.c) */
typedef struct sparse_kept sparse_kept;
stow_status shrink_keep(job *j, array *a, array_facts *facts, sparse_kept **kept);
stow_status shrink_write_kept(const job *j, sparse_kept *k, const array_facts *facts, dtype to,
                              archive *z);
void shrink_forget(sparse_kept *k);

/* Writes an archive of a sparse matrix with narrower types. */
stow_status shrink_sparse(job *j, const zip *from, dtype to, archive *z);

/* Chooses the type of an array from its facts; with a tolerance, reads every value again. Then
 * decides whether it becomes a sparse matrix. (shrink_choose.c) */
stow_status shrink_choose(job *j, const array_facts *f, array *a, shrink_item *item);
void shrink_choose_sparse(const job *j, const array_facts *f, shrink_item *item);
/* Sets the item's type. `l`: the error it would have, if measured. */
void shrink_take_type(shrink_item *item, const array_facts *f, dtype to, const loss *l);
/* Returns STOW_ERR_INVALID if the requested type does not hold every value. */
stow_status shrink_refuse_type(const job *j, const array_facts *f, const loss *l);

/* Fails on all ranks if one failed; the team stays usable. */
stow_status shrink_agree(const job *j, stow_status status);
/* Opens the output under its temporary name. */
stow_status shrink_open(job *j, writer *w, uint64_t expected_bytes);
/* Renames the file to its final name if `status` is STOW_OK and the input is unchanged; otherwise
 * removes it. */
stow_status shrink_finish(job *j, writer *w, stow_status status);
/* Returns true if a failed job leaves its files for --resume: the disk was full, or failed, and
 * there is a checkpoint. */
bool shrink_keeps(const job *j, stow_status status);

#endif
