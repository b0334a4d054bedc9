/* Casts: every float16 and bfloat16, every pattern near a tie, and every kernel set against the
 * definition in half.h, which itself is held to long-hand rounding. */
#include <math.h>
#include <stdlib.h>

#include "harness.h"
#include "numbers/cast.h"
#include "numbers/half.h"
#include "numbers/kernels.h"

static const kernels *sets[3];
static int set_count;

static void find_sets(void) {
  sets[set_count++] = &kernels_portable;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    sets[set_count++] = &kernels_avx2;
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    sets[set_count++] = &kernels_avx512;
#endif
}

/* Converts to float16 by definition: scales so that the last kept bit is worth one, rounds to even
 * in long double, scales back. */
static uint16_t half_by_definition(double x) {
  uint16_t sign = signbit(x) ? 0x8000 : 0;
  if (isnan(x)) return 0x7e00;
  double m = fabs(x);
  if (m == 0) return sign;
  int exponent;
  frexp(m, &exponent); /* m = f * 2^exponent, f in [0.5, 1) */
  int unit = exponent - 11 < -24 ? -24 : exponent - 11;
  double rounded = rint(ldexp(m, -unit)); /* exact scaling; ties to even is the mode in force */
  double value = ldexp(rounded, unit);
  if (value >= 65536) return sign | 0x7c00;
  if (value < 0x1p-14) return (uint16_t)(sign | (int)ldexp(value, 24));
  frexp(value, &exponent);
  return (uint16_t)(sign | ((exponent - 1 + 15) << 10) |
                    ((int)ldexp(value, 11 - exponent) & 0x3ff));
}

TEST(every_half_goes_to_float_and_back)
{
  for (uint32_t h = 0; h <= 0xffff; h++) {
    float wide = half_to_float((uint16_t)h);
    bool nan = (h & 0x7fff) > 0x7c00;
    CHECK(nan == (wide != wide));
    if (!nan) CHECK_U64(half_from_float(wide), h);
    if (!nan) CHECK_U64(half_by_definition(wide), h);
  }
}

TEST(halves_between_two_neighbours_round_as_defined)
{
  /* For each pair of neighbouring halves: the tie, and the floats and doubles right next to it. */
  for (uint32_t h = 0; h < 0x7c00; h++) {
    double low = half_to_float((uint16_t)h);
    double high = h + 1 == 0x7c00 ? 65536 : half_to_float((uint16_t)(h + 1));
    double tie = (low + high) / 2; /* exact in double */
    const double cases[] = {tie,
                            nextafter(tie, 0),
                            nextafter(tie, INFINITY),
                            nextafterf((float)tie, 0),
                            nextafterf((float)tie, INFINITY),
                            low,
                            nextafter(low, INFINITY)};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
      for (int sign = 0; sign < 2; sign++) {
        double x = sign ? -cases[i] : cases[i];
        uint16_t want = half_by_definition(x);
        if (half_from_double(x) != want)
          FAIL("%a: %04x, expected %04x", x, half_from_double(x), want);
        if ((double)(float)x == x && half_from_float((float)x) != want)
          FAIL("%a as float: %04x, expected %04x", x, half_from_float((float)x), want);
      }
    }
  }
}

TEST(every_kernel_set_agrees_with_the_definition_on_every_float_to_half)
{
  find_sets();
  harness_deadline(120);
  /* All 2^32 floats would take a while under a sanitizer: every 977th (a prime), which meets every
   * exponent. */
  static float in[KERNEL_RUN];
  static uint16_t out[KERNEL_RUN];
  uint64_t bits = 0, tried = 0;
  while (bits <= UINT32_MAX) {
    for (size_t i = 0; i < KERNEL_RUN; i++, bits += 977) in[i] = float_from_bits((uint32_t)bits);
    for (int k = 0; k < set_count; k++) {
      sets[k]->cast[DTYPE_F32][DTYPE_F16](out, in, KERNEL_RUN);
      for (size_t i = 0; i < KERNEL_RUN; i++)
        if (out[i] != half_from_float(in[i]))
          FAIL("%s: %a gives %04x, expected %04x", sets[k]->name, (double)in[i], out[i],
               half_from_float(in[i]));
    }
    tried += KERNEL_RUN;
  }
  harness_note("%" PRIu64 " floats over %d kernel sets", tried, set_count);
}

/* Makes one value of `type` from random bits, with interesting values often. */
static void random_value(void *at, dtype type, uint64_t *random) {
  uint64_t r = harness_random(random), bits = harness_random(random);
  if (dtype_kind(type) == CLASS_BOOL) {
    *(uint8_t *)at = bits & 1;
  } else if (dtype_kind(type) == CLASS_FLOAT) {
    double nice[] = {0,      -0.0,     1,         -1,      0.1, 65504, 65520,
                     1e300,  INFINITY, -INFINITY, NAN,     255, 256,   -129,
                     0x1p31, 0x1p63,   0x1p64,    -0x1p63, 3.5, 2049,  0x1p-25};
    double x = nice[bits % (sizeof nice / sizeof nice[0])];
    if (r % 3 == 0) x = (double)(int64_t)bits / (double)(UINT64_C(1) << (r >> 8 & 63));
    if (r % 3 == 1)
      memcpy(at, &bits, dtype_bytes(type));
    else if (type == DTYPE_F64)
      memcpy(at, &x, 8);
    else if (type == DTYPE_F32)
      memcpy(at, &(float){(float)x}, 4);
    else
      memcpy(at, &(uint16_t){type == DTYPE_F16 ? half_from_double(x) : bfloat_from_double(x)}, 2);
  } else {
    bits >>= r % 3 == 0 ? 0 : r % 64;
    memcpy(at, &bits, dtype_bytes(type));
  }
}

TEST(every_pair_of_types_is_the_same_on_every_kernel_set_and_unaligned)
{
  find_sets();
  static _Alignas(64) uint64_t in[300], one[300], two[301];
  uint64_t random = 7;
  for (int round = 0; round < 20; round++) {
    for (int from = DTYPE_BOOL; from < DTYPE_COUNT; from++) {
      size_t width = dtype_bytes((dtype)from);
      for (size_t i = 0; i < 300; i++) random_value((char *)in + i * width, (dtype)from, &random);
      for (int to = DTYPE_BOOL; to < DTYPE_COUNT; to++) {
        size_t out = dtype_bytes((dtype)to);
        kernels_portable.cast[from][to](one, in, 300);
        for (int k = 1; k < set_count; k++) {
          sets[k]->cast[from][to](two, in, 300);
          for (size_t i = 0; i < 300; i++)
            if (memcmp((char *)one + i * out, (char *)two + i * out, out) != 0)
              FAIL("%s: %s to %s differs at %zu", sets[k]->name, dtype_name((dtype)from),
                   dtype_name((dtype)to), i);
        }
        char *odd = (char *)two + 1;
        CHECK_OK(cast_values(odd, (dtype)to, in, (dtype)from, 300));
        CHECK(memcmp(odd, one, 300 * out) == 0);
      }
    }
  }
}

TEST(floats_past_an_integers_range_give_its_nearest_end)
{
  const double in[] = {NAN, 1e300, -1e300, 127.9, -128.9, -0.5, 255.99, INFINITY};
  int8_t i8[8];
  uint8_t u8[8];
  CHECK_OK(cast_values(i8, DTYPE_I8, in, DTYPE_F64, 8));
  CHECK_OK(cast_values(u8, DTYPE_U8, in, DTYPE_F64, 8));
  const int8_t want_i8[] = {0, 127, -128, 127, -128, 0, 127, 127};
  const uint8_t want_u8[] = {0, 255, 0, 127, 0, 0, 255, 255};
  CHECK(memcmp(i8, want_i8, 8) == 0);
  CHECK(memcmp(u8, want_u8, 8) == 0);
}

TEST(large_integers_reach_a_half_with_one_rounding)
{
  /* 2049 and its neighbours tie between halves; +1 far below must break the tie the right way. */
  const int64_t in[] = {2049,  2051,  (INT64_C(2049) << 4) + 1, (INT64_C(2049) << 4) - 1, 65519,
                        65520, -65520};
  uint16_t out[7];
  CHECK_OK(cast_values(out, DTYPE_F16, in, DTYPE_I64, 7));
  for (int i = 0; i < 7; i++) CHECK_U64(out[i], half_by_definition((double)in[i]));
  /* Above 2^53, converting through double must not round twice. */
  const int64_t big = (INT64_C(0x101) << 53) + 1; /* just above a bfloat16 tie, lost in a double */
  uint16_t b;
  CHECK_OK(cast_values(&b, DTYPE_BF16, &big, DTYPE_I64, 1));
  CHECK(bfloat_to_float(b) > 0x1.01p61f);
}

static double as_double(const void *value, dtype type) {
  uint64_t aligned;
  double x;
  memcpy(&aligned, value, dtype_bytes(type));
  kernels_portable.cast[type][DTYPE_F64](&x, &aligned, 1);
  return x;
}

TEST(an_exact_cast_is_distinguished_from_one_that_loses_a_single_value)
{
  enum { COUNT = KERNEL_RUN + 500 };
  static const dtype floats[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32, DTYPE_F64};
  static _Alignas(64) uint64_t in[COUNT], made[COUNT], plain[COUNT];
  uint64_t random = 11;
  int lost = 0, kept = 0;
  for (int round = 0; round < 4000; round++) {
    dtype from = floats[round % 4], to = floats[round / 4 % 4];
    if (from == to) continue;
    size_t width = dtype_bytes(from), place = harness_random(&random) % COUNT;
    char *value = (char *)in + place * width;
    random_value(value, from, &random);
    CHECK_OK(cast_values(plain, to, in, from, COUNT));
    double before = as_double(value, from),
           after = as_double((char *)plain + place * dtype_bytes(to), to);
    bool exact = before == after || (before != before && after != after);
    if (cast_exactly(made, to, in, from, COUNT) != exact)
      FAIL("%s to %s: %a is %sexact at %zu", dtype_name(from), dtype_name(to), before,
           exact ? "" : "not ", place);
    if (exact) CHECK(memcmp(made, plain, COUNT * dtype_bytes(to)) == 0);
    *(exact ? &kept : &lost) += 1;
    memset(value, 0, width);
  }
  CHECK(lost > 300 && kept > 300);
}

TEST(every_kernel_set_narrows_doubles_alike)
{
  static _Alignas(64) double in[300];
  static _Alignas(64) float one[300], two[300];
  uint64_t random = 5;
  for (int round = 0; round < 2000; round++) {
    size_t count = harness_random(&random) % 300 + 1;
    memset(in, 0, sizeof in);
    random_value(&in[harness_random(&random) % count], DTYPE_F64, &random);
    bool exact = kernels_portable.narrow_f64(one, in, count);
    for (int k = 0; k < set_count; k++) {
      CHECK(sets[k]->narrow_f64(two, in, count) == exact);
      CHECK(memcmp(one, two, count * sizeof *one) == 0);
    }
  }
}

/* Integers are compared exactly; a float fits an integer if it does after truncation. */
static bool fits_by_definition(dtype to, dtype from, const void *value, const void *made) {
  if (to == DTYPE_BOOL || from == DTYPE_BOOL) return true;
  if (dtype_kind(to) == CLASS_FLOAT)
    return isfinite(as_double(made, to)) || !isfinite(as_double(value, from));
  if (dtype_kind(from) == CLASS_FLOAT) {
    long double x = truncl((long double)as_double(value, from));
    return x >= dtype_least(to) && x <= (long double)dtype_most(to);
  }
  int64_t whole = 0;
  CHECK_OK(cast_values(&whole, DTYPE_I64, value, from, 1));
  bool negative = dtype_kind(from) == CLASS_SIGNED && whole < 0;
  return negative ? whole >= dtype_least(to) : (uint64_t)whole <= dtype_most(to);
}

TEST(the_first_value_that_does_not_fit_is_found)
{
  enum { COUNT = 5000 };
  static const double edges[] = {
      0,      -0.5,      -0.999,  -1,     127.9,       128,        -128.9,    -129,
      255.9,  256,       32767.5, 32768,  -32769,      65504,      65519,     65520,
      65536,  0x1p31,    -0x1p31, 0x1p32, -0x1p31 - 1, 0x1p32 - 1, 0x1p63,    -0x1p63,
      0x1p64, 3.4028e38, 3.4e38,  3.5e38, 1e300,       INFINITY,   -INFINITY, NAN};
  static char in[COUNT * 8 + 1], made[COUNT * 8 + 1], one[8];
  unsigned fitting = 0, others = 0;
  for (int from = DTYPE_BOOL; from < DTYPE_COUNT; from++)
    for (int to = DTYPE_BOOL; to < DTYPE_COUNT; to++)
      for (size_t e = 0; e < sizeof edges / sizeof edges[0]; e++) {
        size_t width = dtype_bytes(from), place = (e * 997 + 31) % COUNT;
        char *values = in + e % 2; /* not aligned, too */
        memset(in, 0, sizeof in);
        CHECK_OK(cast_values(values + place * width, from, &edges[e], DTYPE_F64, 1));
        CHECK_OK(cast_values(one, to, values + place * width, from, 1));
        bool fits = fits_by_definition(to, from, values + place * width, one);
        size_t found = cast_fitting(made + e % 2, to, values, from, COUNT);
        if (found != (fits ? COUNT : place))
          FAIL("%a as %s to %s: stopped at %zu, expected %zu", edges[e], dtype_name(from),
               dtype_name(to), found, fits ? (size_t)COUNT : place);
        *(fits ? &fitting : &others) += 1;
      }
  CHECK(fitting > 1000 && others > 500);
}

TEST(unknown_types_are_refused)
{
  char byte = 0;
  CHECK_STATUS(cast_values(&byte, DTYPE_NONE, &byte, DTYPE_I8, 1), STOW_ERR_INVALID);
  dtype type;
  CHECK_STATUS(dtype_parse(&type, "float17"), STOW_ERR_INVALID);
  CHECK_MESSAGE("float17");
  CHECK_OK(dtype_parse(&type, "F16"));
  CHECK(type == DTYPE_F16);
}

TEST(values_that_are_not_finite_are_counted)
{
  static const struct {
    dtype type;
    uint64_t odd[2], fine[2];
  } kinds[] = {{DTYPE_F16, {0xfc00, 0x7c01}, {0x7bff, 0xfbff}},
               {DTYPE_BF16, {0xff80, 0x7f81}, {0x7f7f, 0xff7f}},
               {DTYPE_F32, {0xff800000, 0x7f800001}, {0x7f7fffff, 0xff7fffff}},
               {DTYPE_F64,
                {UINT64_C(0xfff0000000000000), UINT64_C(0x7ff0000000000001)},
                {UINT64_C(0x7fefffffffffffff), UINT64_C(0xffefffffffffffff)}},
               {DTYPE_I32, {0, 0}, {0x7f800000, 0xffffffff}}};
  for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
    for (size_t count = 1; count < 200; count += 7) {
      uint8_t room[200 * 8 + 1], *values = room + 1; /* not aligned */
      size_t width = dtype_bytes(kinds[k].type), odd = 0;
      for (size_t i = 0; i < count; i++) {
        bool is_odd = kinds[k].odd[0] != 0 && i % 3 == 1;
        memcpy(values + i * width, (is_odd ? kinds[k].odd : kinds[k].fine) + i % 2, width);
        odd += is_odd;
      }
      CHECK(cast_count_not_finite(values, kinds[k].type, count) == odd);
    }
}

TEST_MAIN
