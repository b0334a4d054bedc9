/* Cast: applies the kernels to runs that fit in the cache; unaligned buffers go through a small
 * aligned copy.
 */
#include "numbers/cast.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "numbers/kernels.h"

static bool aligned(const void *at, size_t width) {
  return ((uintptr_t)at & (width - 1)) == 0;
}

stow_status cast_values(void *to, dtype to_type, const void *from, dtype from_type, size_t count) {
  size_t to_width = dtype_bytes(to_type), from_width = dtype_bytes(from_type);
  if (to_width == 0 || from_width == 0)
    return stow_fail(STOW_ERR_INVALID, "cast: %s to %s: not number types", dtype_name(from_type),
                     dtype_name(to_type));
  cast_kernel kernel = kernels_get()->cast[from_type][to_type];
  bool direct = aligned(to, to_width) && aligned(from, from_width);
  char *out = to;
  const char *in = from;
  for (size_t run; count > 0; count -= run) {
    run = count < KERNEL_RUN ? count : KERNEL_RUN;
    if (direct) {
      kernel(out, in, run);
    } else {
      uint64_t in_copy[KERNEL_RUN], out_copy[KERNEL_RUN];
      memcpy(in_copy, in, run * from_width);
      kernel(out_copy, in_copy, run);
      memcpy(out, out_copy, run * to_width);
    }
    in += run * from_width;
    out += run * to_width;
  }
  return STOW_OK;
}

/* ---- values that do not fit ---- */

/* How values of one type are compared with what another holds. */
typedef struct fit {
  enum { FITS_ALWAYS, FITS_BITS, FITS_RANGE, FITS_FINITE } how;
  uint64_t bias, allowed; /* bits: of value + bias, only these may be set */
  double least, below;    /* range */
} fit;

/* value + 2^(k - 1) has no bit from k on if a signed value fits k bits. */
static fit fit_integer(dtype to, dtype from) {
  unsigned to_bits = (unsigned)dtype_bytes(to) * 8, from_bits = (unsigned)dtype_bytes(from) * 8;
  bool to_signed = dtype_kind(to) == CLASS_SIGNED, from_signed = dtype_kind(from) == CLASS_SIGNED;
  fit f = {.how = FITS_BITS, .allowed = dtype_most(to)};
  if (from_signed == to_signed ? to_bits >= from_bits : to_signed && to_bits > from_bits)
    f.how = FITS_ALWAYS;
  if (from_signed && to_signed) {
    f.bias = dtype_most(to) + 1;
    f.allowed = 2 * dtype_most(to) + 1;
  } else if (from_signed && to_bits >= from_bits) {
    f.allowed = dtype_most(from);
  }
  return f;
}

/* Truncation reaches a type from every value above its least - 1 and below its most + 1. */
static fit fit_truncated(dtype to, dtype from) {
  bool narrow = from != DTYPE_F64;
  double before = (double)dtype_least(to) - 1; /* the least itself where doubles are wider apart */
  fit f = {.how = FITS_RANGE, .least = narrow ? (float)before : before};
  f.below = ldexp(1, (int)dtype_bytes(to) * 8 - (dtype_kind(to) == CLASS_SIGNED));
  if (f.least < (double)dtype_least(to))
    f.least = narrow ? nextafterf((float)before, 0) : nextafter(before, 0);
  return f;
}

static fit fit_of(dtype to, dtype from) {
  if (to == DTYPE_BOOL || from == DTYPE_BOOL || to == from) return (fit){FITS_ALWAYS, 0, 0, 0, 0};
  bool from_float = dtype_kind(from) == CLASS_FLOAT;
  if (dtype_kind(to) != CLASS_FLOAT)
    return from_float ? fit_truncated(to, from) : fit_integer(to, from);
  /* 65504 and 3.4e38: what halves, and what bfloat16 and float32 reach. */
  bool wide = !from_float ? dtype_bytes(from) < 2 || from == DTYPE_I16 : from == DTYPE_F16;
  bool overflows = to == DTYPE_F16 ? !wide : from_float && to != DTYPE_F64 && dtype_bytes(from) > 2;
  return (fit){overflows ? FITS_FINITE : FITS_ALWAYS, 0, 0, 0, 0};
}

/* Returns whether a run fits. `to` is what it was cast to. */
static bool run_fits(const fit *f, const void *to, dtype to_type, const void *from, dtype from_type,
                     size_t count) {
  const kernels *k = kernels_get();
  float wide[KERNEL_RUN];
  switch (f->how) {
  case FITS_ALWAYS: return true;
  case FITS_BITS: return (k->bits[from_type](from, count, f->bias) & ~f->allowed) == 0;
  case FITS_FINITE:
    if (to_type == DTYPE_F32 ? k->most_32(to, count) < 0x7f800000
                             : k->most_16(to, count) < (to_type == DTYPE_F16 ? 0x7c00 : 0x7f80))
      return true;
    return cast_count_not_finite(to, to_type, count) ==
           cast_count_not_finite(from, from_type, count);
  case FITS_RANGE: break;
  }
  if (from_type == DTYPE_F64) return k->within_f64(from, count, f->least, f->below);
  if (from_type != DTYPE_F32) {
    k->cast[from_type][DTYPE_F32](wide, from, count);
    from = wide;
  }
  return k->within_f32(from, count, (float)f->least, (float)f->below);
}

size_t cast_fitting(void *to, dtype to_type, const void *from, dtype from_type, size_t count) {
  fit f = fit_of(to_type, from_type);
  size_t to_width = dtype_bytes(to_type), from_width = dtype_bytes(from_type);
  uint64_t copy[KERNEL_RUN], made_copy[KERNEL_RUN]; /* aligned */
  for (size_t done = 0, run; done < count; done += run) {
    run = count - done < KERNEL_RUN ? count - done : KERNEL_RUN;
    char *out = (char *)to + done * to_width;
    const void *in = (const char *)from + done * from_width, *made = out;
    if (!aligned(in, from_width)) in = memcpy(copy, in, run * from_width);
    (void)cast_values(out, to_type, in, from_type, run);
    if (!aligned(out, to_width)) made = memcpy(made_copy, out, run * to_width);
    if (run_fits(&f, made, to_type, in, from_type, run)) continue;
    size_t i = 0;
    while (i < run && run_fits(&f, (const char *)made + i * to_width, to_type,
                               (const char *)in + i * from_width, from_type, 1))
      i++;
    return done + i;
  }
  return count;
}

/* Casts between float types preserve -0, so comparing values is enough; all NaNs count as equal. */
static bool same_run(const void *a, const void *b, dtype type, size_t count) {
  if (type == DTYPE_F32) return kernels_get()->same_f32(a, b, count);
  unsigned unlike = 0;
  uint16_t infinity = type == DTYPE_F16 ? 0x7c00 : 0x7f80;
  for (size_t i = 0; i < count; i++) {
    uint16_t x = ((const uint16_t *)a)[i], y = ((const uint16_t *)b)[i];
    unlike |= x != y && !((x & 0x7fff) > infinity && (y & 0x7fff) > infinity);
  }
  return unlike == 0;
}

/* Casts a run and returns whether it is exact. A value exact in a 16-bit type is exact in float32,
 * so doubles are first narrowed to float32. */
static bool exact_run(void *to, dtype to_type, const void *from, dtype from_type, size_t count) {
  const kernels *k = kernels_get();
  uint32_t narrow[KERNEL_RUN], back[KERNEL_RUN];
  if (from_type == DTYPE_F64) {
    void *at = to_type == DTYPE_F32 ? to : narrow;
    if (!k->narrow_f64(at, from, count)) return false;
    if (to_type == DTYPE_F32) return true;
    from = narrow;
    from_type = DTYPE_F32;
  }
  k->cast[from_type][to_type](to, from, count);
  k->cast[to_type][from_type](back, to, count);
  return same_run(from, back, from_type, count);
}

bool cast_exactly(void *to, dtype to_type, const void *from, dtype from_type, size_t count) {
  char *out = to;
  const char *in = from;
  for (size_t run; count > 0; count -= run) {
    run = count < KERNEL_RUN ? count : KERNEL_RUN;
    if (!exact_run(out, to_type, in, from_type, run)) return false;
    out += run * dtype_bytes(to_type);
    in += run * dtype_bytes(from_type);
  }
  return true;
}

/* Counts the values at or above the infinity of their type, without the sign. Most runs have none,
 * and the largest value of a run, as a signed integer, is vector code everywhere. */
#define COUNT_RUN    2048
#define int16_t_MOST INT16_MAX
#define int32_t_MOST INT32_MAX
#define int64_t_MOST INT64_MAX
#define COUNT_FROM(type, infinity)                                                                 \
  for (size_t i = 0; i < count; i += COUNT_RUN) {                                                  \
    const char *run = (const char *)values + i * sizeof(type);                                     \
    size_t length = count - i < COUNT_RUN ? count - i : COUNT_RUN;                                 \
    type most = 0, one;                                                                            \
    for (size_t k = 0; k < length; k++) {                                                          \
      memcpy(&one, run + k * sizeof one, sizeof one);                                              \
      one = (type)(one & (type##_MOST));                                                           \
      most = one > most ? one : most;                                                              \
    }                                                                                              \
    for (size_t k = 0; k < length && most >= (infinity); k++) {                                    \
      memcpy(&one, run + k * sizeof one, sizeof one);                                              \
      sum += (one & (type##_MOST)) >= (infinity);                                                  \
    }                                                                                              \
  }

size_t cast_count_not_finite(const void *values, dtype type, size_t count) {
  size_t sum = 0;
  switch (type) {
  case DTYPE_F16: COUNT_FROM(int16_t, 0x7c00) break;
  case DTYPE_BF16: COUNT_FROM(int16_t, 0x7f80) break;
  case DTYPE_F32: COUNT_FROM(int32_t, 0x7f800000) break;
  case DTYPE_F64: COUNT_FROM(int64_t, INT64_C(0x7ff0000000000000)) break;
  default: break;
  }
  return sum;
}
