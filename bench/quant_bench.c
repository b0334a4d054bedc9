/* quant_bench: block quantization in memory beside ggml's reference functions, one thread, the best
 * of rounds that take turns. GB/s counts the float32 side.
 *
 * Set STOWAGE_PEER_GGML to the path of a libggml-base.so (the Python package llama-cpp-python has
 * one). Without it only our figures are printed. STOWAGE_KERNELS=portable or avx2 selects a kernel
 * set. The program also compares the bytes and fails if they differ. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "numbers/cast.h"
#include "numbers/float8.h"
#include "numbers/kernels.h"
#include "numbers/quant.h"
#include "numbers/sparse.h"

enum { COUNT = 4 << 20, COUNT_SLOW = 1 << 18, ROUNDS = 15 };

typedef void (*peer_encode)(const float *values, void *out, int64_t count);
typedef void (*peer_decode)(const void *in, float *values, int64_t count);

static const struct {
  const char *name, *encode, *decode;
  quant_kind kind;
  size_t count; /* fewer for the K types, which are slow to encode */
} cases[] = {
    {"q8_0", "quantize_row_q8_0_ref", "dequantize_row_q8_0", QUANT_Q8_0, COUNT},
    {"q4_0", "quantize_row_q4_0_ref", "dequantize_row_q4_0", QUANT_Q4_0, COUNT},
    {"q4_k", "quantize_row_q4_K_ref", "dequantize_row_q4_K", QUANT_Q4_K, COUNT_SLOW},
    {"q6_k", "quantize_row_q6_K_ref", "dequantize_row_q6_K", QUANT_Q6_K, COUNT_SLOW},
};

static float *values, *back;
static uint8_t *ours, *theirs;

static uint64_t least(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

static void report(const char *name, const char *verb, size_t count, uint64_t our_ns,
                   uint64_t peer_ns) {
  double bytes = (double)count * sizeof(float), rate = bytes / (double)our_ns;
  if (peer_ns == UINT64_MAX)
    printf("case=%s_%s ours=%.3g peer=ggml:not-run unit=GB/s\n", name, verb, rate);
  else
    printf("case=%s_%s ours=%.3g peer=ggml:%.3g ratio=%.2f unit=GB/s\n", name, verb, rate,
           bytes / (double)peer_ns, (double)peer_ns / (double)our_ns);
}

static int bench_block(size_t c, void *library) {
  const size_t count = cases[c].count;
  const size_t bytes = count / quant_block_values(cases[c].kind) * quant_block_bytes(cases[c].kind);
  peer_encode encode = NULL;
  peer_decode decode = NULL;
  if (library != NULL) {
    *(void **)&encode = dlsym(library, cases[c].encode);
    *(void **)&decode = dlsym(library, cases[c].decode);
  }
  uint64_t our_ns = UINT64_MAX, peer_ns = UINT64_MAX;
  for (int i = 0; i < ROUNDS; i++) {
    uint64_t start = clock_ns();
    quant_encode(cases[c].kind, values, count, ours);
    our_ns = least(our_ns, clock_ns() - start);
    if (encode == NULL) continue;
    start = clock_ns();
    encode(values, theirs, (int64_t)count);
    peer_ns = least(peer_ns, clock_ns() - start);
  }
  report(cases[c].name, "encode", count, our_ns, peer_ns);
  our_ns = peer_ns = UINT64_MAX;
  for (int i = 0; i < ROUNDS; i++) {
    uint64_t start = clock_ns();
    quant_decode(cases[c].kind, ours, count, back);
    our_ns = least(our_ns, clock_ns() - start);
    if (decode == NULL) continue;
    start = clock_ns();
    decode(ours, back, (int64_t)count);
    peer_ns = least(peer_ns, clock_ns() - start);
  }
  report(cases[c].name, "decode", count, our_ns, peer_ns);
  if (encode != NULL && memcmp(ours, theirs, bytes) != 0) {
    printf("case=%s FAIL: the bytes differ from ggml's\n", cases[c].name);
    return 1;
  }
  return 0;
}

#define BEST(name, call)                                                                           \
  do {                                                                                             \
    uint64_t best = UINT64_MAX;                                                                    \
    for (int round = 0; round < ROUNDS; round++) {                                                 \
      uint64_t start = clock_ns();                                                                 \
      call;                                                                                        \
      best = least(best, clock_ns() - start);                                                      \
    }                                                                                              \
    printf("case=%s ours=%.3g unit=GB/s\n", name, (double)COUNT * sizeof(float) / (double)best);   \
  } while (0)

/* Measures the parts of a conversion that have no peer in ggml. */
static void bench_rest(void) {
  quant_error error = {0};
  memcpy(theirs, values, COUNT * sizeof *values);
  BEST("copy", memcpy(back, values, COUNT * sizeof *values));
  BEST("error_add", quant_error_add(&error, values, (const float *)theirs, COUNT));
  float most = 0;
  BEST("channel_most", most = quant_channel_most(0, values, COUNT));
  float scale = quant_channel_scale(QUANT_INT8, most);
  BEST("int8_encode", quant_channel_encode(QUANT_INT8, scale, values, COUNT, ours));
  BEST("int8_decode", quant_channel_decode(QUANT_INT8, scale, ours, COUNT, back));
  scale = quant_channel_scale(QUANT_FP8, most);
  BEST("fp8_encode", quant_channel_encode(QUANT_FP8, scale, values, COUNT, ours));
  BEST("fp8_decode", quant_channel_decode(QUANT_FP8, scale, ours, COUNT, back));
  BEST("f32_to_e4m3", float8_from_floats(FLOAT8_E4M3, values, COUNT, ours));
  BEST("e4m3_to_f32", float8_to_floats(FLOAT8_E4M3, ours, COUNT, back));
  BEST("f32_to_e5m2", float8_from_floats(FLOAT8_E5M2, values, COUNT, ours));
  BEST("e5m2_to_f32", float8_to_floats(FLOAT8_E5M2, ours, COUNT, back));
  BEST("f32_to_f16", cast_values(ours, DTYPE_F16, values, DTYPE_F32, COUNT));
  BEST("f16_to_f32", cast_values(back, DTYPE_F32, ours, DTYPE_F16, COUNT));
  BEST("f32_to_bf16", cast_values(ours, DTYPE_BF16, values, DTYPE_F32, COUNT));
  BEST("bf16_to_f32", cast_values(back, DTYPE_F32, ours, DTYPE_BF16, COUNT));
  BEST("mask_two_of_four", sparse_mask_two_of_four(values, COUNT, ours));
  BEST("pack_f32", sparse_pack(values, 4, COUNT, ours, back));
  size_t kept = COUNT / 2;
  BEST("unpack_f32", sparse_unpack(back, kept, 4, COUNT, ours, theirs));
  BEST("apply_f32", sparse_apply(theirs, 4, COUNT, ours));
  BEST("mask_above", sparse_mask_above(values, most / 8, COUNT, ours));
  BEST("mask_nonzero", sparse_mask_nonzero(values, 4, true, COUNT, ours));
}

int main(void) {
  const char *path = getenv("STOWAGE_PEER_GGML");
  void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (path == NULL)
    puts("quant_bench: no peer: set STOWAGE_PEER_GGML to the path of a libggml-base.so");
  else if (library == NULL)
    printf("quant_bench: no peer: %s\n", dlerror());
  values = malloc(COUNT * sizeof *values);
  back = malloc(COUNT * sizeof *back);
  ours = malloc(COUNT * sizeof *values);
  theirs = malloc(COUNT * sizeof *values);
  if (values == NULL || back == NULL || ours == NULL || theirs == NULL) return 1;
  /* Near a bell curve, as weights are: the sum of four uniform values. */
  uint64_t state = 1;
  for (size_t i = 0; i < COUNT; i++) {
    float sum = 0;
    for (int k = 0; k < 4; k++) {
      state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
      sum += (float)(int32_t)(state >> 32) * 0x1p-31f;
    }
    values[i] = sum * 0.02f;
  }
  memset(back, 0, COUNT * sizeof *back);
  memset(ours, 0, COUNT * sizeof *values);
  memset(theirs, 0, COUNT * sizeof *values);
  printf("quant_bench: kernel set %s\n", kernels_get()->name);
  int failed = 0;
  for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) failed |= bench_block(c, library);
  bench_rest();
  return failed;
}
