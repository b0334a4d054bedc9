/* Scan: everything that decides the smallest type that holds a run of values exactly, in one pass
 * over them.
 *
 *   scan s; scan_begin(&s, DTYPE_F64);  scan_add(&s, values, n); …  dtype small =
 * scan_smallest(&s);
 *
 * Proved over every value given, never sampled. Results of parts may be joined in any order
 * (threads, ranks). */
#ifndef NUMBERS_SCAN_H
#define NUMBERS_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

typedef struct scan {
  dtype type;
  uint64_t count;
  uint64_t nans, infs;
  uint64_t zeros;     /* values that may be left out of a sparse form: for floats +0, not -0 */
  double least, most; /* of those that are not NaN; least > most if there is none */
  int64_t least_int;  /* exact, for integer types; for whole floats derived from least and most */
  uint64_t most_int;  /* exact; for signed types an int64 in disguise when most is negative */
  bool whole;         /* all are integers that 64 bits hold, and none is -0 */
  bool fits_f32, fits_f16, fits_bf16; /* all survive the way there and back */
} scan;

stow_status scan_begin(scan *s, dtype type);
/* `values` needs no alignment. */
void scan_add(scan *s, const void *values, size_t count);
/* Adds what `other` saw; both of the same type. */
void scan_join(scan *s, const scan *other);

/* The type of fewest bytes that holds every value exactly; the present type where none is smaller,
 * and a type of the same kind (float for float) where two are equally small. bfloat16 is considered
 * only if `bfloat` (few formats have it). */
dtype scan_smallest(const scan *s, bool bfloat);
/* True if every value scanned fits `type` exactly. */
bool scan_fits(const scan *s, dtype type);

#endif
