/* Quant: sizes, scales, and the call of the kernels for this machine. */
#include "numbers/quant.h"

#include "numbers/float8.h"
#include "numbers/kernels.h"

static const struct {
  uint16_t values, bytes;
} blocks[QUANT_KINDS] = {
    [QUANT_Q8_0] = {32, 34},
    [QUANT_Q4_0] = {32, 18},
    [QUANT_Q4_K] = {256, 144},
    [QUANT_Q6_K] = {256, 210},
};

size_t quant_block_values(quant_kind kind) {
  return blocks[kind].values;
}

size_t quant_block_bytes(quant_kind kind) {
  return blocks[kind].bytes;
}

void quant_encode(quant_kind kind, const float *values, size_t count, void *out) {
  kernels_get()->quant->encode[kind](values, count, out);
}

void quant_decode(quant_kind kind, const void *in, size_t count, float *values) {
  kernels_get()->quant->decode[kind](in, count, values);
}

void quant_error_add(quant_error *error, const float *before, const float *after, size_t count) {
  kernels_get()->quant->error_add(error, before, after, count);
}

float quant_channel_most(float so_far, const float *values, size_t count) {
  return kernels_get()->quant->channel_most(so_far, values, count);
}

float quant_channel_scale(quant_channel kind, float most) {
  /* Half the range: -128..127 has 255 steps, -448..448 has 896. */
  float scale = most / (kind == QUANT_INT8 ? 127.5f : 448.0f);
  return scale != 0 ? scale : 0x1p-23f;
}

void quant_channel_encode(quant_channel kind, float scale, const float *values, size_t count,
                          void *out) {
  kernels_get()->quant->channel_encode[kind](scale, values, count, out);
}

void quant_channel_decode(quant_channel kind, float scale, const void *in, size_t count,
                          float *values) {
  kernels_get()->quant->channel_decode[kind](scale, in, count, values);
}

void float8_from_floats(float8_kind kind, const float *values, size_t count, void *out) {
  kernels_get()->quant->float8_encode[kind](1, values, count, out);
}

void float8_to_floats(float8_kind kind, const void *in, size_t count, float *values) {
  kernels_get()->quant->float8_decode[kind](1, in, count, values);
}
