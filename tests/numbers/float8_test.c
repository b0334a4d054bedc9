/* Float8: every byte, every tie between neighbours, and every kernel set against float8.h, which
 * itself is held to the nearest value found by search. Also every 16-bit float in every set. */
#include "numbers/float8.h"

#include <math.h>

#include "harness.h"
#include "kernel_sets.h"

static float to_float(float8_kind kind, uint8_t v) {
  return kind == FLOAT8_E4M3 ? float8_e4m3_to_float(v) : float8_e5m2_to_float(v);
}

static uint8_t from_float(float8_kind kind, float x) {
  return kind == FLOAT8_E4M3 ? float8_e4m3_from_float(x) : float8_e5m2_from_float(x);
}

/* Returns the value of a byte by the definition of the type. */
static double by_definition(float8_kind kind, uint8_t v) {
  const int fraction_bits = kind == FLOAT8_E4M3 ? 3 : 2, bias = kind == FLOAT8_E4M3 ? 7 : 15;
  const int exponent = (v & 0x7f) >> fraction_bits, fraction = v & ((1 << fraction_bits) - 1);
  const double sign = v & 0x80 ? -1 : 1;
  if (kind == FLOAT8_E4M3 && (v & 0x7f) == 0x7f) return NAN;
  if (kind == FLOAT8_E5M2 && exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
  const double whole = exponent == 0 ? fraction : fraction + (1 << fraction_bits);
  return sign * ldexp(whole, (exponent == 0 ? 1 : exponent) - bias - fraction_bits);
}

TEST(every_byte_has_the_value_of_its_definition_and_comes_back)
{
  find_sets();
  uint8_t all[256];
  for (int v = 0; v < 256; v++) all[v] = (uint8_t)v;
  for (int kind = 0; kind < 2; kind++) {
    for (int s = 0; s < set_count; s++) {
      float wide[256];
      uint8_t back[256];
      sets[s]->quant->float8_decode[kind](1, all, 256, wide);
      sets[s]->quant->float8_encode[kind](1, wide, 256, back);
      for (int v = 0; v < 256; v++) {
        double want = by_definition((float8_kind)kind, (uint8_t)v);
        CHECK(float_bits(wide[v]) == float_bits(to_float((float8_kind)kind, (uint8_t)v)));
        CHECK(isnan(want) ? isnan(wide[v]) : (double)wide[v] == want);
        CHECK(!signbit(wide[v]) == !(v & 0x80));
        CHECK_U64(back[v], isnan(want) ? (v & 0x80) | 0x7f : v);
      }
    }
  }
}

TEST(ties_go_to_even_and_neighbours_of_ties_to_the_nearest)
{
  for (int kind = 0; kind < 2; kind++) {
    const int last = kind == FLOAT8_E4M3 ? 0x7e : 0x7b; /* the largest finite value */
    const uint8_t past = kind == FLOAT8_E4M3 ? 0x7f : 0x7c;
    for (int v = 0; v <= last; v++) {
      float low = to_float((float8_kind)kind, (uint8_t)v);
      float high = v < last ? to_float((float8_kind)kind, (uint8_t)(v + 1))
                            : 2 * low - to_float((float8_kind)kind, (uint8_t)(v - 1));
      float tie = (low + high) / 2; /* exact */
      const uint8_t above = v < last ? (uint8_t)(v + 1) : past;
      CHECK_U64(from_float((float8_kind)kind, tie), v % 2 == 0 ? (uint8_t)v : above);
      CHECK_U64(from_float((float8_kind)kind, nextafterf(tie, 0)), v);
      CHECK_U64(from_float((float8_kind)kind, nextafterf(tie, INFINITY)), above);
      CHECK_U64(from_float((float8_kind)kind, -nextafterf(tie, INFINITY)), above | 0x80);
    }
  }
  CHECK_U64(float8_e4m3_from_float(INFINITY), 0x7f);
  CHECK_U64(float8_e4m3_from_float(-INFINITY), 0xff);
  CHECK_U64(float8_e5m2_from_float(-INFINITY), 0xfc);
  CHECK_U64(float8_e4m3_from_float(0x1p-149f), 0);
  CHECK_U64(float8_e5m2_from_float(-0.0f), 0x80);
}

TEST(every_kernel_set_agrees_with_the_definition_on_floats_of_every_exponent)
{
  find_sets();
  enum { RUN = 4099 };
  static float in[RUN];
  static uint8_t out[RUN + 1];
  const uint64_t stride = harness_long() ? 17 : 1009; /* primes: every exponent and low bit */
  for (uint64_t bits = 0; bits <= UINT32_MAX;) {
    for (size_t i = 0; i < RUN; i++, bits += stride) in[i] = float_from_bits((uint32_t)bits);
    for (int kind = 0; kind < 2; kind++) {
      for (int s = 0; s < set_count; s++) {
        out[RUN] = 0xaa;
        sets[s]->quant->float8_encode[kind](1, in, RUN, out);
        for (size_t i = 0; i < RUN; i++)
          if (out[i] != from_float((float8_kind)kind, in[i]))
            FAIL("%s: %a gives %02x, expected %02x", sets[s]->name, (double)in[i], out[i],
                 from_float((float8_kind)kind, in[i]));
        CHECK_U64(out[RUN], 0xaa);
      }
    }
  }
}

TEST(every_16_bit_float_widens_and_comes_back_in_every_kernel_set)
{
  find_sets();
  static uint16_t in[KERNEL_RUN], back[KERNEL_RUN];
  static float wide[KERNEL_RUN];
  static const dtype types[] = {DTYPE_F16, DTYPE_BF16};
  for (int t = 0; t < 2; t++) {
    const uint16_t infinity = t == 0 ? 0x7c00 : 0x7f80;
    for (uint32_t first = 0; first < 0x10000; first += KERNEL_RUN) {
      for (uint32_t i = 0; i < KERNEL_RUN; i++) in[i] = (uint16_t)(first + i);
      for (int s = 0; s < set_count; s++) {
        sets[s]->cast[types[t]][DTYPE_F32](wide, in, KERNEL_RUN);
        sets[s]->cast[DTYPE_F32][types[t]](back, wide, KERNEL_RUN);
        for (size_t i = 0; i < KERNEL_RUN; i++) {
          float want = t == 0 ? half_to_float(in[i]) : bfloat_to_float(in[i]);
          bool nan = (in[i] & 0x7fff) > infinity;
          CHECK(nan ? isnan(wide[i]) : float_bits(wide[i]) == float_bits(want));
          if (nan)
            CHECK((back[i] & 0x7fff) > infinity);
          else
            CHECK_U64(back[i], in[i]);
        }
      }
    }
  }
}

TEST_MAIN
