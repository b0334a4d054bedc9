/* Bitmask: one chunk of a tensor without its zeros (weights.h), in the two layouts of
 * compressed-tensors.
 *
 *   sparse-bitmask      compressed: the values that are not 0, row after row
 *                       bitmask: a bit for each value; row_offsets: kept values before each row
 *   sparse-24-bitmask   compressed: two of every four values, half a row for each row; bitmask */
#include "data/weights/parts.h"

/* Returns a bit for each of eight values, or fewer: whether it is not 0. */
static unsigned bits_of(const float *values, size_t count) {
  unsigned bits = 0;
  for (size_t k = 0; k < count; k++) bits |= (unsigned)(values[k] != 0) << k;
  return bits;
}

/* Returns the bits of four values, of which at most two are not 0, with exactly two set: zeros are
 * added from the end. */
static unsigned two_of_four(unsigned bits) {
  static const uint8_t filled[16] = {12, 9, 10, 3, 12, 5, 6, 7, 12, 9, 10, 11, 12, 13, 14, 15};
  return filled[bits];
}

static void set_bits(const weights_item *item, const float *values, uint8_t *to) {
  size_t row = (size_t)item->row;
  for (size_t i = 0; i < row; i += 8) {
    unsigned bits = row - i < 8 ? bits_of(values + i, row - i) : bits_of(values + i, 8);
    if (item->action == ACTION_BITMASK_24)
      bits = two_of_four(bits & 15) | (row - i > 4 ? two_of_four(bits >> 4) << 4 : 0);
    to[i / 8] = (uint8_t)bits;
  }
}

/* Moves the values whose bits are set to `to`, which is at or before them. Returns their number.
 * Writes every value and steps on only behind a kept one: which are kept cannot be predicted. */
#define MOVE_KEPT(name, type)                                                                      \
  static size_t name(void *to, const void *from, const uint8_t *bits, size_t row) {                \
    type *out = to;                                                                                \
    const type *in = from;                                                                         \
    size_t kept = 0;                                                                               \
    for (size_t i = 0; i < row; i++) {                                                             \
      out[kept] = in[i];                                                                           \
      kept += bits[i / 8] >> i % 8 & 1;                                                            \
    }                                                                                              \
    return kept;                                                                                   \
  }
MOVE_KEPT(move_16, uint16_t)
MOVE_KEPT(move_32, uint32_t)
MOVE_KEPT(move_64, uint64_t)

size_t weights_compact(const weights_item *item, size_t count, chunk_buffers *c) {
  size_t row = (size_t)item->row, rows = count / row, bytes = (row + 7) / 8, kept = 0;
  size_t width = (size_t)tensor_type_bytes(item->to, 1);
  size_t (*move)(void *, const void *, const uint8_t *, size_t) = width == 2   ? move_16
                                                                  : width == 4 ? move_32
                                                                               : move_64;
  c->offsets = (uint64_t *)(void *)(c->codes + (rows * bytes + 7) / 8 * 8);
  for (size_t r = 0; r < rows; r++) {
    uint8_t *bits = c->codes + r * bytes;
    set_bits(item, c->after + r * row, bits);
    c->offsets[r] = kept;
    kept += move(c->out + kept * width, c->out + r * row * width, bits, row);
  }
  return kept;
}
