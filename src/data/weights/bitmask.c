/* Bitmask: one chunk of a tensor without its zeros (weights.h), in the two layouts of
 * compressed-tensors.
 *
 *   sparse-bitmask      compressed: the values that are not 0, row after row
 *                       bitmask: a bit for each value; row_offsets: kept values before each row
 *   sparse-24-bitmask   compressed: two of every four values, half a row for each row; bitmask */
#include <string.h>

#include "data/weights/parts.h"

/* Returns the bits of four values, exactly two of them set: zeros fill up from the end. */
static unsigned two_of_four(const float *values) {
  unsigned bits = 0, count = 0;
  for (unsigned k = 0; k < 4; k++)
    if (values[k] != 0) bits |= 1u << k, count++;
  for (unsigned k = 4; k-- > 0 && count < 2;)
    if ((bits >> k & 1) == 0) bits |= 1u << k, count++;
  return bits;
}

static void set_bits(const weights_item *item, const float *values, uint8_t *bits) {
  size_t row = (size_t)item->row;
  memset(bits, 0, (row + 7) / 8);
  if (item->action == ACTION_BITMASK_24)
    for (size_t i = 0; i < row; i += 4) bits[i / 8] |= (uint8_t)(two_of_four(values + i) << i % 8);
  else
    for (size_t i = 0; i < row; i++) bits[i / 8] |= (uint8_t)((values[i] != 0) << i % 8);
}

/* Moves the values whose bits are set to `to`, which is at or before them. Returns their number. */
static size_t move_kept(uint8_t *to, const uint8_t *from, size_t width, const uint8_t *bits,
                        size_t row) {
  size_t kept = 0;
  for (size_t i = 0; i < row; i++)
    if (bits[i / 8] >> i % 8 & 1) memmove(to + kept++ * width, from + i * width, width);
  return kept;
}

size_t weights_compact(const weights_item *item, size_t count, chunk_buffers *c) {
  size_t row = (size_t)item->row, rows = count / row, bytes = (row + 7) / 8, kept = 0;
  size_t width = (size_t)tensor_type_bytes(item->to, 1);
  c->offsets = (uint64_t *)(void *)(c->codes + (rows * bytes + 7) / 8 * 8);
  for (size_t r = 0; r < rows; r++) {
    uint8_t *bits = c->codes + r * bytes;
    set_bits(item, c->after + r * row, bits);
    c->offsets[r] = kept;
    kept += move_kept(c->out + kept * width, c->out + r * row * width, width, bits, row);
  }
  return kept;
}
