/* Shrink's parts, shared by shrink*.c alone: where values go, and how far they were rounded. */
#ifndef DATA_SHRINK_PARTS_H
#define DATA_SHRINK_PARTS_H

#include "data/checkpoint.h"
#include "data/shrink.h"
#include "files/zip_write.h"

/* An archive being written, and how far it is noted as it goes. */
typedef struct archive {
  zip_out zip;
  checkpoint *checkpoint; /* NULL: none is kept */
} archive;

/* From where a run that was stopped had come to, if there was one. */
void archive_begin(archive *a, writer *to, checkpoint *c);
/* Everything is written, or `status` says why not. */
stow_status archive_end(archive *a, stow_status status);

/* A place that takes bytes in order: a file from some offset, or a member of an archive. */
typedef struct sink {
  writer *file;
  uint64_t offset;
  archive *archive; /* NULL: the file */
  size_t member;
  bool part;    /* of a member that several processes fill: from `offset` in it on … */
  uint32_t crc; /* … with this checksum so far */
} sink;

stow_status sink_write(sink *s, const void *bytes, size_t count);
/* Of the bytes to come, those that stand there already, of a run that was stopped; they may be left
 * out after sink_pass. */
uint64_t sink_behind(const sink *s);
void sink_pass(sink *s, uint64_t count);

/* How far values moved when cast. */
typedef struct loss {
  double tolerance;
  bool relative;
  bool exactly; /* only whether there is any error, between floats */
  double worst; /* the largest error so far */
  bool exceeded;
} loss;

/* Compares `count` values with what they became. */
void loss_add(loss *l, const void *from, dtype from_type, const void *to, dtype to_type,
              size_t count);

/* The losses of all ranks of a team, in every one of them; `status` of a rank that failed is a
 * failure in all. */
stow_status loss_join(loss *l, const budget *b, stow_status status);

/* The state of one job. */
typedef struct job {
  const shrink_options *options;
  const budget *budget;
  shrink_result *result;
  source *from; /* NULL for a table, which is read as a stream */
  const char *in, *out;
  bool to_npz;
  bool *skip; /* of a table: the columns left out; NULL: none */
  uint64_t done, total;
  bool changed;             /* the input was written to: nothing noted of it is worth keeping */
  size_t item;              /* the number of the array at hand, for the checkpoint */
  struct sparse_kept *kept; /* of the one array, if it was read that way */
} job;

/* Casts all of `a` into `to`, in file order. With `values` what goes by is scanned too, with `l`
 * the error is measured; either may be NULL. No sink: only looked at. */
stow_status shrink_values(job *j, array *a, dtype to, sink *s, scan *values, loss *l);

/* How far the array at hand was looked at for `to` need no longer be noted. */
void shrink_measured(job *j, dtype to);

/* Appends an npy header to the sink. */
stow_status shrink_header(sink *s, const char *descr, bool fortran, const uint64_t *shape,
                          uint32_t dims);
/* The bytes such a header takes. */
stow_status shrink_header_bytes(uint64_t *bytes, const char *descr, bool fortran,
                                const uint64_t *shape, uint32_t dims);
/* A member that is an npy of that shape, its header written. */
stow_status shrink_member(archive *z, sink *s, const char *name, const char *descr, bool fortran,
                          const uint64_t *shape, uint32_t dims, uint64_t item_bytes, bool deflate);

/* A member of plain bytes. */
stow_status shrink_bytes(archive *z, sink *s, const char *name, uint64_t bytes, bool deflate);

/* What is not zero of a dense array, read once; its values scanned on the way. *kept is NULL where
 * it can be no sparse matrix, or would be no smaller as one. (shrink_sparse.c) */
typedef struct sparse_kept sparse_kept;
stow_status shrink_keep(job *j, array *a, array_facts *facts, sparse_kept **kept);
stow_status shrink_write_kept(const job *j, sparse_kept *k, const array_facts *facts, dtype to,
                              archive *z);
void shrink_forget(sparse_kept *k);

/* An archive of a sparse matrix with narrower types. */
stow_status shrink_sparse(job *j, const zip *from, dtype to, archive *z);

/* What an array becomes, by what was found in it; looks at every value again where a tolerance asks
 * for it. Then whether it becomes a sparse matrix. (shrink_choose.c) */
stow_status shrink_choose(job *j, const array_facts *f, array *a, shrink_item *item);
void shrink_choose_sparse(const job *j, const array_facts *f, shrink_item *item);
/* `l`: how far it would be off, where that was looked at. */
void shrink_take_type(shrink_item *item, const array_facts *f, dtype to, const loss *l);
/* STOW_ERR_INVALID: the type asked for does not hold every value. */
stow_status shrink_refuse_type(const job *j, const array_facts *f, const loss *l);

/* A failure of one rank is one of all; the team is not broken by it. */
stow_status shrink_agree(const job *j, stow_status status);
/* The output, not under its name yet. */
stow_status shrink_open(job *j, writer *w, uint64_t expected_bytes);
/* Gives the file its name if `status` is STOW_OK and the input is still what it was; otherwise
 * takes everything back. */
stow_status shrink_finish(job *j, writer *w, stow_status status);
/* Returns true if a failed job leaves its files for --resume: the disk was full, or failed, and
 * there is a checkpoint. */
bool shrink_keeps(const job *j, stow_status status);

#endif
