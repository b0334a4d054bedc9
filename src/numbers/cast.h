/* Cast: converts values from one type to another, at memory speed.
 *
 * The rules are the same on every machine and for every instruction set:
 * - float to narrower float: rounds once, to nearest, ties to even; out of range becomes infinity;
 * NaN stays NaN
 * - anything to bool: 0 and -0 become 0, everything else (also NaN) becomes 1
 * - float to integer: rounds towards zero; out of range is clamped; NaN becomes 0
 * - integer to integer: keeps the low bits, as in C and NumPy
 * - integer to float: rounds once, to nearest, ties to even
 *
 * A value fits if the result is neither clamped, nor cut to its low bits, nor infinite where the
 * value is finite; NaN and infinity fit floats only. cast_fitting casts up to the first value that
 * does not fit.
 *
 * scan.h finds out whether a cast is exact: check before a cast that must not lose information. */
#ifndef NUMBERS_CAST_H
#define NUMBERS_CAST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/dtype.h"

/* Converts `count` values. The buffers must not overlap and need no alignment. Never fails on known
 * types. */
stow_status cast_values(void *to, dtype to_type, const void *from, dtype from_type, size_t count);

/* Casts as cast_values, and returns the number of values before the first that does not fit;
 * `count` if all fit. What is behind it in `to` is undefined. For number types only. */
size_t cast_fitting(void *to, dtype to_type, const void *from, dtype from_type, size_t count);

/* Casts between two different float types. Stops and returns false at the first value that is not
 * exact in the new type; all NaNs count as equal. Both buffers are aligned to their types. */
bool cast_exactly(void *to, dtype to_type, const void *from, dtype from_type, size_t count);

/* Returns how many of `count` values are NaN or infinite; 0 for types that have no such values. The
 * buffer needs no alignment. */
size_t cast_count_not_finite(const void *values, dtype type, size_t count);

#endif
