/* CSR: rows of mostly zeros as (column, value) pairs.
 *
 * +0 and -0 are omitted, as SciPy does; NaN is a value. The caller is given the number of -0, whose
 * signs are lost.
 * Column indices have the narrowest type that holds them all; SciPy widens them when it loads.
 */
#ifndef NUMBERS_CSR_H
#define NUMBERS_CSR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

/* Returns the type for column indices: uint16 up to 65536 columns, then int32, then int64. SciPy
 * accepts all of them. */
dtype csr_index_type(uint64_t columns);

/* Appends the values of one row that are not zero to `values`, and their columns (from
 * `first_column`) to `indices`. Both must have space for `columns` more. Returns the number of
 * values appended, and adds the number of -0 to *minus_zeros. `row` and `values` are aligned to
 * their type. */
size_t csr_compress(void *values, void *indices, dtype index_type, const void *row, dtype type,
                    size_t columns, uint64_t first_column, uint64_t *minus_zeros);

#endif
