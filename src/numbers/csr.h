/* CSR: rows of mostly zeros as (column, value) pairs.
 *
 * Only +0 is left out: -0 and NaN are values, so every bit can be had back.
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

#endif
