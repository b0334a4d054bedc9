/* Sparse: SciPy's sparse matrices in .npz files, in all formats it saves: recognised, checked,
 * measured.
 *
 * Members: format (0-d text), shape (integers), data, and where its values stand:
 *   csr, csc   indices, indptr
 *   bsr        the same by blocks; data is blocks x rows x columns
 *   coo        row, col; of arrays in other than two dimensions coords, a row for each of them
 *   dia        offsets; data is diagonals x columns
 * SciPy's own loader takes negative and out-of-range indices, decreasing indptr and float indices;
 * here all are refused. */
#ifndef DATA_SPARSE_H
#define DATA_SPARSE_H

#include "data/array.h"
#include "data/budget.h"

/* A member that says where values stand. */
typedef struct sparse_places {
  const char *name;
  const zip_entry *entry;
  uint64_t count;       /* of entries it must have */
  int64_t least, bound; /* of each entry: [least, bound) */
  bool starts;          /* indptr: from 0 up, `bound` at its end */
  bool coords;          /* a row for each dimension, which is its bound */
  dtype type;           /* the narrowest that SciPy reads and that holds every such place */
} sparse_places;

typedef struct sparse {
  char layout[8]; /* "csr", "csc", "bsr", "coo", "dia" */
  uint32_t dims;  /* two, but for a csr of one and for coords */
  uint64_t shape[ARRAY_DIMS_MAX];
  const zip_entry *data;
  uint64_t stored; /* values in data */
  uint64_t bytes;  /* of data and places */
  sparse_places places[2];
  size_t places_count;
  uint64_t places_bytes; /* in the types above */
  /* Of a dia, which stores whole rows of `width` for each diagonal: values that are not zero and
   * stand outside of the matrix, known once it is checked. */
  uint64_t width, outside;
  /* Some entries may stand in one place, where SciPy adds them up: a narrower type that holds each
   * need not hold the sum. Known once it is checked; false is sure, true where it would take more
   * than the budget to know. */
  bool repeats;
} sparse;

/* True if the archive's members are those of a sparse matrix of any format, by their names. */
bool sparse_is(const zip *z);
/* Reads the small members: what there should be, and where. */
stow_status sparse_begin(sparse *s, source *from, const zip *z);
/* Holds every place against that. Streams; *done counts bytes. */
stow_status sparse_check(sparse *s, source *from, const budget *b, uint64_t *done, uint64_t total);

/* The type SciPy can hold such values in: float32 for float16, itself otherwise. */
dtype sparse_value_type(dtype type);
/* The narrowest type for row starts up to `nonzeros`: int32, else int64. */
dtype sparse_start_type(uint64_t nonzeros);
/* Bytes of the arrays of a csr of so many rows, or a csc of so many columns, as shrink writes it.
 */
uint64_t sparse_bytes(uint64_t rows, uint64_t columns, uint64_t nonzeros, dtype type);

#endif
