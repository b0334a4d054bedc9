/* Sparse: SciPy's sparse matrices in .npz files: recognised, checked, measured.
 *
 * Members: indices, indptr, format (0-d text), shape (two integers), data. SciPy's own loader takes
 * negative and out-of-range indices, decreasing indptr and float indices; here all are refused. */
#ifndef DATA_SPARSE_H
#define DATA_SPARSE_H

#include "data/array.h"
#include "data/budget.h"

typedef struct sparse {
  bool columns_first; /* csc: indptr runs over columns, indices name rows */
  uint64_t shape[2];
  uint64_t nonzeros; /* stored values */
  uint64_t bytes;    /* of data, indices and indptr */
  const zip_entry *data, *indices, *indptr;
} sparse;

/* True if the archive's members are those of a sparse matrix of any format, by their names. */
bool sparse_is(const zip *z);
/* Reads the small members and holds every index against the shape. Streams; *done counts bytes. */
stow_status sparse_open(sparse *s, source *from, const zip *z, const budget *b, uint64_t *done,
                        uint64_t total);

/* The type SciPy can hold such values in: float32 for float16, itself otherwise. */
dtype sparse_value_type(dtype type);
/* The narrowest type for row starts up to `nonzeros`: int32, else int64. */
dtype sparse_start_type(uint64_t nonzeros);
/* Bytes of the arrays of such a matrix as shrink writes it. */
uint64_t sparse_bytes(uint64_t rows, uint64_t columns, uint64_t nonzeros, dtype type);

#endif
