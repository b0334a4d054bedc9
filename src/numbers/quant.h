/* Quant: weights in 4 to 8 bits, block by block (GGUF) or with one scale for a row or a tensor
 * (compressed-tensors).
 *
 * The block formats give the same bytes as the functions quantize_row_*_ref of ggml without an
 * importance matrix and without fused multiply-add. This holds on every machine and for every
 * kernel set, for every input that is finite. NaN and infinity have no meaning in these formats: a
 * block that has one gives the bytes of ggml on x86-64 in Q8_0 and Q4_0, and unspecified bytes in
 * Q4_K and Q6_K. Other blocks are not affected. quant_error counts the values; callers refuse them.
 *
 * Nothing here allocates or fails. Floats are aligned to 4 bytes; packed data needs no
 * alignment. */
#ifndef NUMBERS_QUANT_H
#define NUMBERS_QUANT_H

#include <stddef.h>
#include <stdint.h>

#include "numbers/quant_types.h"

/* Returns the values in one block (32 or 256), and the bytes of one block (34, 18, 144, 210). */
size_t quant_block_values(quant_kind kind);
size_t quant_block_bytes(quant_kind kind);

/* Packs `count` values, a multiple of the values in a block. */
void quant_encode(quant_kind kind, const float *values, size_t count, void *out);
/* Unpacks `count` values, a multiple of the values in a block. Accepts any bytes. */
void quant_decode(quant_kind kind, const void *in, size_t count, float *values);

/* Adds `count` values. The result depends on how the values are split into calls only by the
 * rounding of the sums; for the same calls it is the same for every kernel set. */
void quant_error_add(quant_error *error, const float *before, const float *after, size_t count);

/* ---- one scale for a row (output channel) or a tensor ----
 *
 * The symmetric scheme of the compressed-tensors package (0.20) in float32 arithmetic. int8: scale
 * = max|w| / 127.5, q = w / scale clamped to -128..127, then rounded, ties to even. float8
 * (e4m3fn): scale = max|w| / 448, q = w / scale clamped to -448..448, then rounded, ties to even. A
 * scale of 0 becomes 2^-23. The package computes in the type of the weights: it gives the same
 * bytes for float32 weights, and less exact ones for 16-bit weights. */

/* Returns the largest |value|; NaN values are ignored. `so_far` is the result of earlier parts of
 * the same channel, or 0. */
float quant_channel_most(float so_far, const float *values, size_t count);
float quant_channel_scale(quant_channel kind, float most);
/* Writes one byte for each value. A NaN becomes 0 in int8 and NaN in float8. */
void quant_channel_encode(quant_channel kind, float scale, const float *values, size_t count,
                          void *out);
/* Decodes: value = q * scale, rounded to float32. */
void quant_channel_decode(quant_channel kind, float scale, const void *in, size_t count,
                          float *values);

#endif
