/* Scan: finds the smallest type that holds values exactly, in one pass.
 *
 *   scan s; scan_begin(&s, DTYPE_F64);  scan_add(&s, values, n); …  dtype small =
 * scan_smallest(&s);
 *
 * Checks every value, never samples. The results of parts can be joined in any order (threads,
 * ranks). */
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
  uint64_t zeros;       /* values that a sparse form can omit: +0 and -0 */
  uint64_t minus_zeros; /* number of -0 among the zeros; a sparse form loses their sign */
  double least, most;   /* range of the values that are not NaN; least > most if there are none */
  int64_t least_int;    /* exact, for integer types; for whole floats derived from least and most */
  uint64_t most_int;    /* exact; for signed types the bits of an int64 if `most` is negative */
  bool whole;           /* all values are integers that fit in 64 bits, and none is -0 */
  bool fits_f32, fits_f16, fits_bf16; /* all values survive the round trip */
} scan;

stow_status scan_begin(scan *s, dtype type);
/* Scans more values, which need no alignment. */
void scan_add(scan *s, const void *values, size_t count);
/* Adds `count` copies of one value, in a time that does not depend on the count. */
void scan_repeat(scan *s, const void *value, uint64_t count);
/* Adds the results of `other`, which has the same type. */
void scan_join(scan *s, const scan *other);

/* Returns the smallest type that holds every value exactly; the current type if none is smaller,
 * and a type of the same kind (float for float) if two are equally small. Considers bfloat16 only
 * if `bfloat` (few formats have it). */
dtype scan_smallest(const scan *s, bool bfloat);
/* What the values are for, and so which types may replace theirs:
 *   arithmetic  no float16, whose sums overflow at 65504; no unsigned type, whose differences wrap
 *   training    float16 and uint8, which models take as inputs, and signed types
 *   storage     any type */
typedef enum scan_purpose {
  SCAN_FOR_ARITHMETIC,
  SCAN_FOR_TRAINING,
  SCAN_FOR_STORAGE,
  SCAN_PURPOSES
} scan_purpose;
/* Returns "arithmetic", "training" or "storage". */
const char *scan_purpose_name(scan_purpose purpose);
/* Returns true if values may become `type` for that purpose. */
bool scan_allows(scan_purpose purpose, dtype type);
/* Returns the smallest type for that purpose that holds every value exactly; the current type if
 * none is smaller. */
dtype scan_type_for(const scan *s, scan_purpose purpose);
/* Returns true if every value scanned fits `type` exactly. */
bool scan_fits(const scan *s, dtype type);

#endif
