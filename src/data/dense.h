/* Dense: a sparse matrix of an .npz as a dense array, row by row, in bounded memory.
 *
 * Called by rows, so that what `stowage shrink` wrote can be opened and read in batches. Formats
 * csr and csc, which shrink writes; a csc is an array in Fortran order. */
#ifndef DATA_DENSE_H
#define DATA_DENSE_H

#include "data/array.h"

/* Opens the .npz at `path` if it is a sparse matrix and sets *is; otherwise nothing is open.
 * STOW_ERR_UNSUPPORTED for other formats than csr and csc; while reading STOW_ERR_FORMAT for
 * indices out of range, and STOW_ERR_UNSUPPORTED for unsorted or repeated ones. */
stow_status dense_open(array *a, const char *path, bool *is);

#endif
