/* Sparse: weights as a bitmask and the values it keeps, the layouts sparse-bitmask and
 * sparse-24-bitmask of the compressed-tensors package.
 *
 * A mask has one bit for each value of a row: value i is bit i % 8 of byte i / 8; the unused bits
 * of a row's last byte are 0. Rows start on a byte: callers pass one row at a time, or any part of
 * a row that starts at a multiple of 8. The kept values follow each other in order. The 2:4 layout
 * keeps exactly two of every four values, so each of its rows has columns / 2 values. */
#ifndef NUMBERS_SPARSE_H
#define NUMBERS_SPARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the bytes of the mask of a row: (columns + 7) / 8. */
size_t sparse_mask_bytes(size_t columns);

/* Set the bits of the values to keep. Each returns the number of bits set.
 *
 * nonzero: every value but zero. Values have 1, 2, 4 or 8 bytes; with `is_float` the sign bit is
 * ignored (-0 is zero, NaN is kept).
 * above: |value| > threshold, or NaN.
 * two_of_four: the two largest magnitudes of every four values; the first ones if equal; NaN counts
 * as largest. `columns` is a multiple of 4. The package uses topk of PyTorch, which follows no rule
 * between equal values; readers use the mask that is stored, so the values they see are the same.
 */
size_t sparse_mask_nonzero(const void *values, size_t width, bool is_float, size_t columns,
                           uint8_t *mask);
size_t sparse_mask_above(const float *values, float threshold, size_t columns, uint8_t *mask);
size_t sparse_mask_two_of_four(const float *values, size_t columns, uint8_t *mask);

/* Copies the values whose bit is set to `out`, of `width` 1, 2, 4 or 8 bytes. `out` has space for
 * the bits set. Returns the number copied. */
size_t sparse_pack(const void *values, size_t width, size_t columns, const uint8_t *mask,
                   void *out);
/* Does the reverse: values whose bit is not set become 0. Reads at most `in_count` values from
 * `in`. Returns the number of bits set; if that is more than `in_count`, the mask does not belong
 * to `in`, and the values past it are 0. */
size_t sparse_unpack(const void *in, size_t in_count, size_t width, size_t columns,
                     const uint8_t *mask, void *values);
/* Sets the values whose bit is not set to 0, in place. */
void sparse_apply(void *values, size_t width, size_t columns, const uint8_t *mask);

#endif
