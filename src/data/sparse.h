/* Sparse: SciPy's sparse matrices in .npz files, in all formats it saves: detects, checks and
 * measures them.
 *
 * Members: format (0-d text), shape (integers), data, and the positions of its values:
 *   csr, csc   indices, indptr
 *   bsr        the same by blocks; data is blocks x rows x columns
 *   coo        row, col; for arrays not in two dimensions coords, with a row per dimension
 *   dia        offsets; data is diagonals x columns
 * SciPy's own loader accepts negative and out-of-range indices, decreasing indptr and float
 * indices; here all are rejected. */
#ifndef DATA_SPARSE_H
#define DATA_SPARSE_H

#include "data/array.h"
#include "data/budget.h"

/* A member with positions of values. */
typedef struct sparse_places {
  const char *name;
  const zip_entry *entry;
  uint64_t count;       /* number of entries it must have */
  int64_t least, bound; /* allowed range of each entry: [least, bound) */
  bool starts;          /* indptr: starts at 0, ends at `bound` */
  bool coords;          /* one row per dimension, which is its bound */
  dtype type;           /* the narrowest type that SciPy reads and that holds every such entry */
} sparse_places;

typedef struct sparse {
  char layout[8]; /* "csr", "csc", "bsr", "coo", "dia" */
  uint32_t dims;  /* two, except for a csr of one and for coords */
  uint64_t shape[ARRAY_DIMS_MAX];
  const zip_entry *data;
  uint64_t stored; /* values in data */
  uint64_t bytes;  /* size of data and positions */
  sparse_places places[2];
  size_t places_count;
  uint64_t places_bytes; /* size in the types above */
  /* For dia, which stores whole rows of `width` per diagonal: nonzero values outside the matrix,
   * known after the check. */
  uint64_t width, outside;
  /* A position may occur twice, and SciPy adds such entries up, so a narrower type that holds each
   * entry may not hold the sum. Known after the check. false is certain; true may also mean that
   * checking would exceed the budget. */
  bool repeats;
} sparse;

/* Returns whether the archive's members are those of a sparse matrix of any format, by their
 * names. */
bool sparse_is(const zip *z);
/* Reads the small members: what must exist, and where. */
stow_status sparse_begin(sparse *s, source *from, const zip *z);
/* Checks every entry against that. Streams; *done counts bytes. */
stow_status sparse_check(sparse *s, source *from, const budget *b, uint64_t *done, uint64_t total);

/* Returns the type SciPy can hold such values in: float32 for float16, else the same. */
dtype sparse_value_type(dtype type);
/* Returns the narrowest type for row starts up to `nonzeros`: int32, else int64. */
dtype sparse_start_type(uint64_t nonzeros);
/* Returns the bytes of the arrays of a csr with so many rows, or a csc with so many columns, as
 * shrink writes it. */
uint64_t sparse_bytes(uint64_t rows, uint64_t columns, uint64_t nonzeros, dtype type);

#endif
