/* Cast: runs of values from one type to another, as fast as memory allows.
 *
 * Rules, the same on every machine and for every width of instruction:
 *   float to narrower float   round to nearest, ties to even, once; past the range: infinity; NaN
 * stays NaN anything to bool          0 and -0 are 0, everything else (NaN too) is 1 float to
 * integer          towards zero; past the range: the nearest end; NaN is 0 integer to integer the
 * low bits, as in C and NumPy integer to float          round to nearest, ties to even, once
 * Whether a cast is exact is scan.h's business: ask before casting what may not lose anything. */
#ifndef NUMBERS_CAST_H
#define NUMBERS_CAST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/dtype.h"

/* Converts `count` values. The two areas do not overlap; neither needs any alignment. Never fails
 * on known types. */
stow_status cast_values(void *to, dtype to_type, const void *from, dtype from_type, size_t count);

/* The same between two different types of float. False at the first values that one does not hold
 * exactly, the rest not converted; a NaN is a NaN whatever its bits. Both areas are aligned to
 * their types. */
bool cast_exactly(void *to, dtype to_type, const void *from, dtype from_type, size_t count);

/* Reverses the bytes of each of `count` values of `width` 2, 4 or 8, in place (big-endian files).
 */
void cast_swap_bytes(void *values, size_t width, size_t count);

#endif
