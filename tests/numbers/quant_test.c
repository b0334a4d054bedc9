/* Quantization: the bytes of ggml and compressed-tensors (quant_vectors.h), every kernel set
 * against the portable one, and what a round trip may lose. */
#include <math.h>
#include <stdlib.h>

#include "harness.h"
#include "kernel_sets.h"
#include "numbers/float8.h"
#include "numbers/half.h"
#include "numbers/quant.h"
#include "quant_vectors.h"

static const struct {
  const char *name;
  const uint8_t *listed;
  size_t listed_bytes;
  uint64_t hash;
} expected[QUANT_KINDS] = {
    [QUANT_Q8_0] = {"q8_0", q8_0_listed, sizeof q8_0_listed, Q8_0_HASH},
    [QUANT_Q4_0] = {"q4_0", q4_0_listed, sizeof q4_0_listed, Q4_0_HASH},
    [QUANT_Q4_K] = {"q4_k", q4_k_listed, sizeof q4_k_listed, Q4_K_HASH},
    [QUANT_Q6_K] = {"q6_k", q6_k_listed, sizeof q6_k_listed, Q6_K_HASH},
};

/* Fills 256 values, the same as block() of make_quant_vectors.py. Every step is exact. */
static void fill_block(float *values, uint64_t index) {
  uint64_t state = index * 1000, r[257];
  for (int i = 0; i < 257; i++) r[i] = harness_random(&state);
  const float scale = ldexpf(1, (int)(r[256] % 60) - 50);
  for (int i = 0; i < 256; i++) {
    const uint32_t bits = (uint32_t)(r[i] >> 32);
    const float bell = (float)((int)(r[i] & 0xffff) + (int)(r[i] >> 16 & 0xffff) +
                               (int)(r[i] >> 32 & 0xffff) + (int)(r[i] >> 48) - 131070);
    switch (index % 8) {
    case 0: values[i] = bell * 0x1p-22f; break;
    case 1: values[i] = bell * scale; break;
    case 2: values[i] = (r[i] % 16 == 0 ? bell : 0) * 0x1p-20f; break;
    case 3: values[i] = float_from_bits(bits & 0x807fffff); break;
    case 4: values[i] = float_from_bits(bits & 0xbfffffff); break;
    case 5: values[i] = scale; break;
    case 6: values[i] = ((float)(r[i] % 17) - 8) * scale; break;
    default: values[i] = bell * (r[i] % 64 == 1 ? 0x1p-14f : 0x1p-22f); break;
    }
  }
}

static uint64_t fnv(const void *data, size_t bytes) {
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < bytes; i++) h = (h ^ ((const uint8_t *)data)[i]) * UINT64_C(0x100000001b3);
  return h;
}

static float inputs[HASHED_BLOCKS * 256];

static void fill_inputs(void) {
  for (uint64_t i = 0; i < HASHED_BLOCKS; i++) fill_block(inputs + i * 256, i);
  CHECK_U64(fnv(inputs, sizeof inputs), INPUT_HASH);
}

static size_t packed_bytes(quant_kind kind, size_t count) {
  return count / quant_block_values(kind) * quant_block_bytes(kind);
}

TEST(block_sizes_are_those_of_gguf)
{
  static const size_t sizes[QUANT_KINDS][2] = {{32, 34}, {32, 18}, {256, 144}, {256, 210}};
  for (int k = 0; k < QUANT_KINDS; k++) {
    CHECK_U64(quant_block_values((quant_kind)k), sizes[k][0]);
    CHECK_U64(quant_block_bytes((quant_kind)k), sizes[k][1]);
  }
}

TEST(every_kernel_set_gives_the_bytes_of_ggml)
{
  find_sets();
  fill_inputs();
  static uint8_t out[HASHED_BLOCKS * 8 * 34];
  for (int s = 0; s < set_count; s++) {
    for (int k = 0; k < QUANT_KINDS; k++) {
      size_t bytes = packed_bytes((quant_kind)k, HASHED_BLOCKS * 256);
      memset(out, 0xaa, sizeof out);
      sets[s]->quant->encode[k](inputs, HASHED_BLOCKS * 256, out);
      for (size_t i = 0; i < expected[k].listed_bytes; i++)
        if (out[i] != expected[k].listed[i])
          FAIL("%s %s: byte %zu of block %zu is %02x, expected %02x", sets[s]->name,
               expected[k].name, i % quant_block_bytes((quant_kind)k),
               i / quant_block_bytes((quant_kind)k), out[i], expected[k].listed[i]);
      if (fnv(out, bytes) != expected[k].hash)
        FAIL("%s %s: the hash of %d blocks differs", sets[s]->name, expected[k].name,
             HASHED_BLOCKS);
    }
  }
  harness_note("%d kernel sets", set_count);
}

/* Random blocks that the vectors do not have, of every length from one block on: vector code has
 * full and partial rounds. Nothing is written past the end. */
TEST(every_kernel_set_gives_the_same_bytes_at_every_length)
{
  find_sets();
  enum { MOST = 40 };
  static float in[MOST * 256], one_back[MOST * 256], back[MOST * 256 + 1];
  static uint8_t one[MOST * 8 * 34 + 1], two[MOST * 8 * 34 + 1];
  uint64_t seed = 5000;
  for (int round = 0; round < (harness_long() ? 2000 : 20); round++) {
    for (size_t b = 0; b < MOST; b++) fill_block(in + b * 256, seed++);
    for (int k = 0; k < QUANT_KINDS; k++) {
      const size_t per = quant_block_values((quant_kind)k);
      for (size_t blocks = 1; blocks * per <= MOST * 256; blocks += 1 + blocks / 3) {
        const size_t bytes = blocks * quant_block_bytes((quant_kind)k);
        memset(one, 0xaa, sizeof one);
        kernels_portable.quant->encode[k](in, blocks * per, one);
        kernels_portable.quant->decode[k](one, blocks * per, one_back);
        CHECK_U64(one[bytes], 0xaa);
        for (int s = 1; s < set_count; s++) {
          memset(two, 0xaa, sizeof two);
          sets[s]->quant->encode[k](in, blocks * per, two);
          if (memcmp(one, two, sizeof one) != 0)
            FAIL("%s %s: %zu blocks differ", sets[s]->name, expected[k].name, blocks);
          back[blocks * per] = 42;
          sets[s]->quant->decode[k](two, blocks * per, back);
          if (memcmp(one_back, back, blocks * per * sizeof *back) != 0)
            FAIL("%s %s: %zu blocks decode differently", sets[s]->name, expected[k].name, blocks);
          CHECK(back[blocks * per] == 42);
        }
      }
    }
  }
}

/* Any bytes decode, to the same values everywhere. */
TEST(every_kernel_set_decodes_random_bytes_alike)
{
  find_sets();
  enum { BLOCKS = 8 };
  uint64_t random = 3;
  for (int round = 0; round < 200; round++) {
    uint8_t in[BLOCKS * 210];
    float one[BLOCKS * 256], two[BLOCKS * 256];
    for (size_t i = 0; i < sizeof in; i++) in[i] = (uint8_t)harness_random(&random);
    for (int k = 0; k < QUANT_KINDS; k++) {
      const size_t count = BLOCKS * quant_block_values((quant_kind)k);
      kernels_portable.quant->decode[k](in, count, one);
      for (int s = 1; s < set_count; s++) {
        sets[s]->quant->decode[k](in, count, two);
        for (size_t i = 0; i < count; i++)
          if (float_bits(one[i]) != float_bits(two[i]) && !(one[i] != one[i] && two[i] != two[i]))
            FAIL("%s %s: value %zu is %a, expected %a", sets[s]->name, expected[k].name, i,
                 (double)two[i], (double)one[i]);
      }
    }
  }
}

/* Decodes the blocks of the vectors from the definition of the layout. */
static float q_value(quant_kind kind, const uint8_t *block, int i) {
  uint16_t d;
  memcpy(&d, kind == QUANT_Q6_K ? block + 208 : block, 2);
  const float scale = half_to_float(d);
  if (kind == QUANT_Q8_0) return (float)(int8_t)block[2 + i] * scale;
  if (kind == QUANT_Q4_0)
    return (float)((i < 16 ? block[2 + i] & 15 : block[2 + i - 16] >> 4) - 8) * scale;
  if (kind == QUANT_Q4_K) {
    const int g = i / 32, byte = block[16 + i / 64 * 32 + i % 32];
    const uint8_t *p = block + 4;
    const int sc = g < 4 ? p[g] & 63 : (p[g + 4] & 15) | p[g - 4] >> 6 << 4;
    const int mn = g < 4 ? p[g + 4] & 63 : p[g + 4] >> 4 | p[g] >> 6 << 4;
    uint16_t dmin;
    memcpy(&dmin, block + 2, 2);
    volatile float product = scale * (float)sc * (float)(g % 2 ? byte >> 4 : byte & 15);
    return product - half_to_float(dmin) * (float)mn;
  }
  const int half = i / 128, at = i % 128;
  const int low = block[half * 64 + at % 64], high = block[128 + half * 32 + at % 32];
  const int q = (at < 64 ? low & 15 : low >> 4) | (high >> at / 32 * 2 & 3) << 4;
  return scale * (float)(int8_t)block[192 + i / 16] * (float)(q - 32);
}

TEST(decoding_follows_the_layout)
{
  static float back[LISTED_BLOCKS * 256];
  for (int k = 0; k < QUANT_KINDS; k++) {
    const size_t per = quant_block_values((quant_kind)k), bytes = quant_block_bytes((quant_kind)k);
    quant_decode((quant_kind)k, expected[k].listed, LISTED_BLOCKS * 256, back);
    for (size_t i = 0; i < LISTED_BLOCKS * 256; i++) {
      float want = q_value((quant_kind)k, expected[k].listed + i / per * bytes, (int)(i % per));
      if (float_bits(back[i]) != float_bits(want))
        FAIL("%s: value %zu is %a, expected %a", expected[k].name, i, (double)back[i],
             (double)want);
    }
  }
}

/* Bell-shaped weights: the relative RMS error of each kind lies in a known band. */
TEST(round_trips_lose_what_the_bits_allow)
{
  static const double most[QUANT_KINDS] = {0.006, 0.10, 0.075, 0.02};
  static float in[256 * 256], back[256 * 256];
  static uint8_t packed[256 * 8 * 34];
  for (uint64_t b = 0; b < 256; b++) fill_block(in + b * 256, b * 8);
  for (int k = 0; k < QUANT_KINDS; k++) {
    quant_error error = {0};
    quant_encode((quant_kind)k, in, 256 * 256, packed);
    quant_decode((quant_kind)k, packed, 256 * 256, back);
    quant_error_add(&error, in, back, 256 * 256);
    double relative = sqrt(error.sum_error_squares / error.sum_squares);
    if (relative > most[k] || relative < most[k] / 4)
      FAIL("%s: relative RMS error %.4f, expected up to %.4f", expected[k].name, relative, most[k]);
    CHECK_U64(error.values, 256 * 256);
    CHECK_U64(error.clipped + error.not_finite, 0);
  }
}

/* NaN and infinity have no meaning in a block, but the bytes are the same in every kernel set for
 * Q8_0 and Q4_0, and no set reads or writes out of bounds. */
TEST(not_finite_values_stay_within_their_block)
{
  find_sets();
  static const float odd[] = {NAN, -NAN, INFINITY, -INFINITY};
  for (size_t at = 0; at < 256; at += 17) {
    for (int o = 0; o < 4; o++) {
      float in[3 * 256];
      uint8_t clean[3 * 8 * 34], out[3 * 8 * 34], one[3 * 8 * 34];
      for (uint64_t b = 0; b < 3; b++) fill_block(in + b * 256, b * 8);
      for (int k = 0; k < QUANT_KINDS; k++) {
        const size_t per = quant_block_values((quant_kind)k);
        const size_t bytes = quant_block_bytes((quant_kind)k), block = (256 + at) / per;
        const size_t all = packed_bytes((quant_kind)k, 3 * 256);
        const float before = in[256 + at];
        quant_encode((quant_kind)k, in, 3 * 256, clean);
        in[256 + at] = odd[o];
        for (int s = 0; s < set_count; s++) {
          sets[s]->quant->encode[k](in, 3 * 256, out);
          CHECK(memcmp(out, clean, block * bytes) == 0);
          CHECK(memcmp(out + (block + 1) * bytes, clean + (block + 1) * bytes,
                       all - (block + 1) * bytes) == 0);
          if (s == 0) memcpy(one, out, all);
          if (k == QUANT_Q8_0 || k == QUANT_Q4_0) CHECK(memcmp(one, out, all) == 0);
        }
        in[256 + at] = before;
      }
    }
  }
}

TEST(error_sums_are_exact_and_the_same_in_every_kernel_set)
{
  find_sets();
  const float before[11] = {1, 2, -3, 4, INFINITY, 6, 7, 8, 9, NAN, 11};
  const float after[11] = {1, 2.5f, -2, 4, 5, INFINITY, 7, 8, 9, NAN, 10.75f};
  for (int s = 0; s < set_count; s++) {
    quant_error e = {0};
    sets[s]->quant->error_add(&e, before, after, 11);
    CHECK(e.sum_squares == 1 + 4 + 9 + 16 + 49 + 64 + 81 + 121);
    CHECK(e.sum_error_squares == 0.25 + 1 + 0.0625);
    CHECK(e.max_error == 1);
    CHECK_U64(e.values, 11);
    CHECK_U64(e.clipped, 1);
    CHECK_U64(e.not_finite, 2);
  }
  fill_inputs();
  for (size_t count = 0; count < 100; count++) {
    quant_error one = {0};
    kernels_portable.quant->error_add(&one, inputs, inputs + 301, count);
    double squares = 0;
    for (size_t i = 0; i < count; i++) squares += (double)inputs[i] * (double)inputs[i];
    CHECK(fabs(one.sum_squares - squares) <= 1e-12 * squares);
    for (int s = 1; s < set_count; s++) {
      quant_error two = {0};
      sets[s]->quant->error_add(&two, inputs, inputs + 301, count);
      CHECK(memcmp(&one, &two, sizeof one) == 0);
    }
  }
}

TEST(channels_give_the_bytes_of_compressed_tensors)
{
  find_sets();
  fill_inputs();
  static const struct {
    quant_channel kind;
    const uint8_t *listed, *scales;
  } kinds[] = {{QUANT_INT8, int8_listed, int8_scales}, {QUANT_FP8, fp8_listed, fp8_scales}};
  for (size_t k = 0; k < 2; k++) {
    for (size_t row = 0; row < LISTED_BLOCKS; row++) {
      const float *x = inputs + row * 256;
      float scale;
      memcpy(&scale, kinds[k].scales + row * 4, 4);
      /* In two parts, like callers that stream. */
      float most = quant_channel_most(quant_channel_most(0, x, 100), x + 100, 156);
      CHECK_U64(float_bits(quant_channel_scale(kinds[k].kind, most)), float_bits(scale));
      for (int s = 0; s < set_count; s++) {
        uint8_t out[256];
        CHECK(sets[s]->quant->channel_most(0, x, 256) == most);
        sets[s]->quant->channel_encode[kinds[k].kind](scale, x, 256, out);
        for (size_t i = 0; i < 256; i++)
          if (out[i] != kinds[k].listed[row * 256 + i])
            FAIL("%s: row %zu value %zu (%a): %02x, expected %02x", sets[s]->name, row, i,
                 (double)x[i], out[i], kinds[k].listed[row * 256 + i]);
        float back[256];
        sets[s]->quant->channel_decode[kinds[k].kind](scale, out, 256, back);
        for (size_t i = 0; i < 256; i++) {
          float q = k == 0 ? (float)(int8_t)out[i] : float8_e4m3_to_float(out[i]);
          CHECK(back[i] == q * scale);
        }
      }
    }
  }
}

TEST(channels_clamp_and_round_to_even)
{
  find_sets();
  const float in[] = {0.5f, 1.5f, 2.5f,       -0.5f, -1.5f, 126.5f, 127.5f,   127.49f,
                      1e9f, -129, -128.4999f, -1e9f, NAN,   0,      INFINITY, -INFINITY};
  const int8_t want[] = {0, 2, 2, 0, -2, 126, 127, 127, 127, -128, -128, -128, 0, 0, 127, -128};
  const float in8[] = {448, 449, 1e9f, -1e9f, 0x1p-10f, 0x1.8p-9f, -464, INFINITY};
  const uint8_t want8[] = {0x7e, 0x7e, 0x7e, 0xfe, 0, 2, 0xfe, 0x7e};
  for (int s = 0; s < set_count; s++) {
    int8_t out[16];
    sets[s]->quant->channel_encode[QUANT_INT8](1, in, 16, out);
    for (int i = 0; i < 16; i++)
      if (out[i] != want[i])
        FAIL("%s: %a gives %d, expected %d", sets[s]->name, (double)in[i], out[i], want[i]);
    uint8_t out8[8];
    sets[s]->quant->channel_encode[QUANT_FP8](1, in8, 8, out8);
    for (int i = 0; i < 8; i++)
      if (out8[i] != want8[i])
        FAIL("%s: %a gives %02x, expected %02x", sets[s]->name, (double)in8[i], out8[i], want8[i]);
  }
  CHECK(quant_channel_scale(QUANT_INT8, 0) == 0x1p-23f);
  CHECK(quant_channel_scale(QUANT_INT8, 127.5f) == 1);
  CHECK(quant_channel_scale(QUANT_FP8, 896) == 2);
  CHECK(quant_channel_most(2, (const float[]){NAN, -3, 1}, 3) == 3);
}

TEST_MAIN
