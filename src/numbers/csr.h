/* CSR: rows of mostly zeros as (column, value) pairs, and back.
 *
 * Only +0 is left out: -0 and NaN are values, so dense -> CSR -> dense gives back every bit.
 * Columns are stored in the narrowest type that numbers them all; SciPy widens them when it loads.
 */
#ifndef NUMBERS_CSR_H
#define NUMBERS_CSR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

/* uint16 up to 65536 columns, then int32, then int64: all types SciPy accepts for indices. */
dtype csr_index_type(uint64_t columns);

/* Appends the values of one row that are not +0 to `values`, their columns (from `first_column`) to
 * `indices`, both with room for `columns` more. Returns how many. `row` and `values` are aligned to
 * their type. */
size_t csr_compress(void *values, void *indices, dtype index_type, const void *row, dtype type,
                    size_t columns, uint64_t first_column);

/* Fills one dense row of `columns` from `count` pairs. STOW_ERR_FORMAT (with the number of the
 * pair) if a column is past the end; a column that stands twice is the caller's to have refused. */
stow_status csr_expand(void *row, dtype type, size_t columns, const void *values,
                       const void *indices, dtype index_type, size_t count);

/* Bytes of the CSR form (values, indices and int64 row starts) of rows x columns with `nonzeros`
 * stored. */
uint64_t csr_bytes(uint64_t rows, uint64_t columns, uint64_t nonzeros, dtype type);

#endif
