/* Scans: what is called the smallest exact type is exact over every value, and nothing smaller is.
 */
#include <math.h>
#include <stdlib.h>

#include "harness.h"
#include "numbers/cast.h"
#include "numbers/scan.h"

static dtype smallest(const void *values, dtype type, size_t count) {
  scan s;
  CHECK_OK(scan_begin(&s, type));
  scan_add(&s, values, count);
  return scan_smallest(&s, false);
}

#define SMALLEST(TYPE, C, ...)                                                                     \
  smallest((C[]){__VA_ARGS__}, TYPE, sizeof((C[]){__VA_ARGS__}) / sizeof(C))

TEST(integers_find_their_smallest_type)
{
  CHECK_TEXT(dtype_name(SMALLEST(DTYPE_I64, int64_t, 0, 255)), "uint8");
  CHECK_TEXT(dtype_name(SMALLEST(DTYPE_I64, int64_t, -1, 127)), "int8");
  CHECK_TEXT(dtype_name(SMALLEST(DTYPE_I64, int64_t, -1, 128)), "int16");
  CHECK_TEXT(dtype_name(SMALLEST(DTYPE_I64, int64_t, 0, 65536)), "uint32");
  CHECK_TEXT(dtype_name(SMALLEST(DTYPE_I64, int64_t, INT64_MIN, 0)), "int64");
  CHECK_TEXT(dtype_name(SMALLEST(DTYPE_I64, int64_t, INT32_MIN, INT32_MAX)), "int32");
  CHECK_TEXT(dtype_name(SMALLEST(DTYPE_I64, int64_t, -5, INT64_C(1) << 31)), "int64");
  CHECK_TEXT(dtype_name(SMALLEST(DTYPE_U64, uint64_t, UINT64_MAX)), "uint64");
  CHECK_TEXT(dtype_name(SMALLEST(DTYPE_U64, uint64_t, UINT32_MAX)), "uint32");
}

TEST(floats_find_their_smallest_type)
{
  CHECK_TEXT(dtype_name(SMALLEST(DTYPE_F64, double, 0.5, 1.25)), "float16");
  CHECK_TEXT(dtype_name(SMALLEST(DTYPE_F64, double, 0.1)), "float64");
  CHECK_TEXT(dtype_name(SMALLEST(DTYPE_F64, double, (double)0.1f)), "float32");
  CHECK_TEXT(dtype_name(SMALLEST(DTYPE_F64, double, 2053)),
             "uint16"); /* not float16, which would give 2052 */
  CHECK_TEXT(dtype_name(SMALLEST(DTYPE_F64, double, 2048, 1024)), "float16");
  CHECK_TEXT(dtype_name(SMALLEST(DTYPE_F64, double, 1, 2, 255)), "uint8");
  CHECK_TEXT(dtype_name(SMALLEST(DTYPE_F64, double, 1, NAN)), "float16"); /* no integer is NaN */
  CHECK_TEXT(dtype_name(SMALLEST(DTYPE_F64, double, 1, INFINITY)), "float16");
  CHECK_TEXT(dtype_name(SMALLEST(DTYPE_F64, double, 1, -0.0)), "float16"); /* no integer is -0 */
  CHECK_TEXT(dtype_name(SMALLEST(DTYPE_F64, double, 0x1p63)), "float32");
}

/* Checks value by value whether each one survives a conversion to `type` and back. */
static bool survives(const void *values, dtype from, dtype to, size_t count) {
  static char there[8 * 64], back[8 * 64];
  CHECK_OK(cast_values(there, to, values, from, count));
  CHECK_OK(cast_values(back, from, there, to, count));
  size_t width = dtype_bytes(from);
  for (size_t i = 0; i < count; i++) {
    const char *a = (const char *)values + i * width, *b = back + i * width;
    double x = 0, y = 0;
    /* The value itself must be the same there: -1 and 65535 share bits, not values. */
    cast_values(&x, DTYPE_F64, a, from, 1);
    cast_values(&y, DTYPE_F64, there + i * dtype_bytes(to), to, 1);
    if (x != y && !(isnan(x) && isnan(y))) return false;
    if (memcmp(a, b, width) == 0) continue;
    if (dtype_kind(from) != CLASS_FLOAT) return false;
    cast_values(&x, DTYPE_F64, a, from, 1);
    cast_values(&y, DTYPE_F64, b, from, 1);
    if (!(isnan(x) && isnan(y))) return false;
  }
  return true;
}

TEST(the_smallest_type_is_exact_and_no_smaller_one_is)
{
  static const dtype types[] = {DTYPE_F64, DTYPE_F32, DTYPE_F16, DTYPE_I64,
                                DTYPE_U64, DTYPE_I32, DTYPE_U16};
  static const dtype candidates[] = {DTYPE_F16, DTYPE_F32, DTYPE_U8,  DTYPE_I8,
                                     DTYPE_U16, DTYPE_I16, DTYPE_U32, DTYPE_I32};
  uint64_t random = 99;
  for (int round = 0; round < 40000; round++) {
    dtype type = types[harness_random(&random) % 7];
    size_t count = 1 + harness_random(&random) % 20;
    int style = (int)(harness_random(&random) % 5), shift = (int)(harness_random(&random) % 64);
    double wide[32];
    char values[8 * 32];
    for (size_t i = 0; i < count; i++) {
      uint64_t r = harness_random(&random);
      wide[i] = style == 0   ? (double)((int64_t)r >> shift)
                : style == 1 ? (double)(r >> shift)
                : style == 2 ? (double)((int64_t)r >> shift) / 1024
                : style == 3 ? (double)(float)((double)(int64_t)r * 0x1p-60)
                             : (double)(r % 5 == 0   ? -0.0
                                        : r % 7 == 0 ? NAN
                                                     : (double)(r % 100));
    }
    CHECK_OK(cast_values(values, type, wide, DTYPE_F64, count));
    dtype small = smallest(values, type, count);
    if (!survives(values, type, small, count))
      FAIL("%s is not exact in round %d", dtype_name(small), round);
    for (size_t c = 0; c < 8; c++) {
      dtype other = candidates[c];
      if (dtype_bytes(other) >= dtype_bytes(small)) continue;
      if (dtype_kind(other) == CLASS_FLOAT && dtype_kind(type) != CLASS_FLOAT) continue;
      bool negative_zero = false;
      for (size_t i = 0; i < count; i++) negative_zero |= wide[i] == 0 && signbit(wide[i]);
      if (dtype_kind(other) != CLASS_FLOAT && negative_zero) continue;
      if (survives(values, type, other, count))
        FAIL("%s chosen for %s, but %s is exact and smaller (round %d)", dtype_name(small),
             dtype_name(type), dtype_name(other), round);
    }
  }
}

TEST(parts_joined_say_what_the_whole_says)
{
  double values[5000];
  uint64_t random = 3;
  for (int i = 0; i < 5000; i++) values[i] = (double)(harness_random(&random) % 1000) / 8;
  values[4999] = 0.1;
  scan whole, a, b;
  CHECK_OK(scan_begin(&whole, DTYPE_F64));
  CHECK_OK(scan_begin(&a, DTYPE_F64));
  CHECK_OK(scan_begin(&b, DTYPE_F64));
  scan_add(&whole, values, 5000);
  scan_add(&a, values, 1234);
  scan_add(&b, values + 1234, 5000 - 1234);
  CHECK(scan_smallest(&a, false) == DTYPE_F16);
  scan_join(&b, &a);
  CHECK(memcmp(&whole, &b, sizeof whole) == 0);
  CHECK(scan_smallest(&b, false) == DTYPE_F64);
}

TEST(the_least_of_values_past_int64_is_exact)
{
  uint64_t values[] = {UINT64_MAX, UINT64_C(9223372036854775813)};
  scan s;
  CHECK_OK(scan_begin(&s, DTYPE_U64));
  scan_add(&s, values, 2);
  CHECK_U64((uint64_t)s.least_int, values[1]);
  CHECK_U64(s.most_int, values[0]);
}

TEST(nothing_scanned_keeps_the_type)
{ CHECK(smallest(NULL, DTYPE_F32, 0) == DTYPE_F32); }

TEST_MAIN
