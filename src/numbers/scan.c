/* Scan: combines the kernels' results; a property that failed once is not checked again. */
#include "numbers/scan.h"

#include <math.h>
#include <string.h>

#include "numbers/kernels.h"

stow_status scan_begin(scan *s, dtype type) {
  if (dtype_bytes(type) == 0) return stow_fail(STOW_ERR_INVALID, "scan: not a number type");
  *s = (scan){.type = type,
              .least = INFINITY,
              .most = -INFINITY,
              .least_int = dtype_kind(type) == CLASS_SIGNED ? INT64_MAX : (int64_t)UINT64_MAX,
              .most_int = dtype_kind(type) == CLASS_SIGNED ? (uint64_t)INT64_MIN : 0,
              .whole = true,
              .fits_f32 = true,
              .fits_f16 = true,
              .fits_bf16 = true};
  return STOW_OK;
}

static bool is_float(dtype type) {
  return dtype_kind(type) == CLASS_FLOAT;
}

/* Merges a range. For unsigned types least_int holds the bits of the low end; values above
 * INT64_MAX compare as unsigned. */
static void join_range(scan *s, double least, double most, int64_t least_int, uint64_t most_int) {
  if (least < s->least) s->least = least;
  if (most > s->most) s->most = most;
  if (is_float(s->type)) return;
  if (dtype_kind(s->type) == CLASS_SIGNED) {
    if (least_int < s->least_int) s->least_int = least_int;
    if ((int64_t)most_int > (int64_t)s->most_int) s->most_int = most_int;
  } else {
    if ((uint64_t)least_int < (uint64_t)s->least_int) s->least_int = least_int;
    if (most_int > s->most_int) s->most_int = most_int;
  }
}

void scan_add(scan *s, const void *values, size_t count) {
  scan_kernel kernel = kernels_get()->scan[s->type];
  size_t width = dtype_bytes(s->type);
  const char *at = values;
  bool direct = ((uintptr_t)values & (width - 1)) == 0;
  for (size_t run; count > 0; count -= run, at += run * width) {
    run = count < KERNEL_RUN ? count : KERNEL_RUN;
    uint64_t copy[KERNEL_RUN];
    const void *from = at;
    if (!direct) from = memcpy(copy, at, run * width);
    unsigned wanted = (s->whole ? SCAN_WHOLE : 0u) | (s->fits_f32 ? SCAN_F32 : 0u) |
                      (s->fits_f16 ? SCAN_F16 : 0u) | (s->fits_bf16 ? SCAN_BF16 : 0u);
    scan_part part;
    kernel(&part, from, run, wanted);
    s->count += run;
    s->nans += part.nans;
    s->infs += part.infs;
    s->zeros += part.zeros;
    s->minus_zeros += part.minus_zeros;
    s->whole = s->whole && part.whole;
    if (is_float(s->type)) {
      s->fits_f32 = s->fits_f32 && part.fits_f32;
      s->fits_f16 = s->fits_f16 && part.fits_f16;
      s->fits_bf16 = s->fits_bf16 && part.fits_bf16;
    }
    join_range(s, part.least, part.most, part.least_int, part.most_int);
  }
}

void scan_join(scan *s, const scan *other) {
  if (other->count == 0) return;
  s->count += other->count;
  s->nans += other->nans;
  s->infs += other->infs;
  s->zeros += other->zeros;
  s->minus_zeros += other->minus_zeros;
  s->whole = s->whole && other->whole;
  s->fits_f32 = s->fits_f32 && other->fits_f32;
  s->fits_f16 = s->fits_f16 && other->fits_f16;
  s->fits_bf16 = s->fits_bf16 && other->fits_bf16;
  join_range(s, other->least, other->most, other->least_int, other->most_int);
}

void scan_repeat(scan *s, const void *value, uint64_t count) {
  scan one;
  if (count == 0 || scan_begin(&one, s->type) != STOW_OK) return;
  scan_add(&one, value, 1);
  one.count = count;
  one.nans *= count;
  one.infs *= count;
  one.zeros *= count;
  one.minus_zeros *= count;
  scan_join(s, &one);
}

/* Returns true if all integers scanned are within the range of the type. */
static bool range_fits(const scan *s, dtype type) {
  if (is_float(s->type)) {
    /* Whole floats: compared in double, where every bound is a power of two (the upper one
     * exclusive). */
    double above = ldexp(1, (int)(8 * dtype_bytes(type)) - (dtype_kind(type) == CLASS_SIGNED));
    if (dtype_kind(type) == CLASS_BOOL) above = 2;
    return s->least >= (double)dtype_least(type) && s->most < above;
  }
  if (dtype_kind(s->type) == CLASS_SIGNED) {
    int64_t least = s->least_int, most = (int64_t)s->most_int;
    return least >= dtype_least(type) && (most < 0 || (uint64_t)most <= dtype_most(type));
  }
  return s->most_int <= dtype_most(type);
}

/* Integers within ±2^bits are exact in a float with that many bits of precision. Larger ones may be
 * exact too, but checking each value is not worth it: integers stay integers. */
static bool integers_fit_float(const scan *s, int bits) {
  double bound = ldexp(1, bits);
  return s->least >= -bound && s->most <= bound;
}

bool scan_fits(const scan *s, dtype type) {
  if (type == s->type || s->count == 0) return true;
  if (dtype_kind(type) != CLASS_FLOAT)
    return (is_float(s->type) ? s->whole : true) && range_fits(s, type);
  if (!is_float(s->type)) {
    switch (type) {
    case DTYPE_F16: return integers_fit_float(s, 11);
    case DTYPE_BF16: return integers_fit_float(s, 8);
    case DTYPE_F32: return integers_fit_float(s, 24);
    default: return integers_fit_float(s, 53);
    }
  }
  switch (type) {
  case DTYPE_F16: return s->fits_f16;
  case DTYPE_BF16: return s->fits_bf16;
  case DTYPE_F32: return s->type == DTYPE_F16 || s->type == DTYPE_BF16 || s->fits_f32;
  default: return true;
  }
}

const char *scan_purpose_name(scan_purpose purpose) {
  static const char *const names[] = {"arithmetic", "training", "storage"};
  return names[purpose];
}

bool scan_allows(scan_purpose purpose, dtype type) {
  if (purpose == SCAN_FOR_STORAGE) return true;
  if (type == DTYPE_F16) return purpose == SCAN_FOR_TRAINING;
  if (type == DTYPE_U8) return purpose == SCAN_FOR_TRAINING;
  return dtype_kind(type) != CLASS_UNSIGNED;
}

static dtype smallest(const scan *s, bool bfloat, scan_purpose purpose) {
  static const dtype floats[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32};
  static const dtype integers[] = {DTYPE_U8,  DTYPE_I8,  DTYPE_U16, DTYPE_I16,
                                   DTYPE_U32, DTYPE_I32, DTYPE_U64, DTYPE_I64};
  dtype best = s->type;
  if (s->count == 0) return best;
  /* Try a type of the same kind first, so that the other kind wins only if it is smaller. */
  for (int pass = 0; pass < 2; pass++) {
    bool try_floats = is_float(s->type) == (pass == 0);
    size_t count = try_floats ? 3 : 8;
    if (try_floats && !is_float(s->type)) continue; /* integers stay integers */
    for (size_t i = 0; i < count; i++) {
      dtype candidate = try_floats ? floats[i] : integers[i];
      if ((candidate == DTYPE_BF16 && !bfloat) || !scan_allows(purpose, candidate)) continue;
      if (dtype_bytes(candidate) < dtype_bytes(best) && scan_fits(s, candidate)) best = candidate;
    }
  }
  return best;
}

dtype scan_smallest(const scan *s, bool bfloat) {
  return smallest(s, bfloat, SCAN_FOR_STORAGE);
}

dtype scan_type_for(const scan *s, scan_purpose purpose) {
  return smallest(s, false, purpose);
}
