/* Sparse masks: bit order, which values are kept, and packing there and back at every length. */
#include "numbers/sparse.h"

#include <math.h>
#include <stdlib.h>

#include "harness.h"
#include "numbers/half.h"

TEST(bits_are_in_little_order_and_rows_end_with_zero_bits)
{
  const float row[10] = {0, 1, -0.0f, NAN, 0, 0, 0, -2, 3, 0};
  uint8_t mask[2] = {0xff, 0xff};
  CHECK_U64(sparse_mask_bytes(10), 2);
  CHECK_U64(sparse_mask_bytes(16), 2);
  CHECK_U64(sparse_mask_bytes(0), 0);
  CHECK_U64(sparse_mask_nonzero(row, 4, true, 10, mask), 4);
  CHECK_U64(mask[0], 0x8a);
  CHECK_U64(mask[1], 0x01);
  CHECK_U64(sparse_mask_nonzero(row, 4, false, 10, mask), 5); /* as integers -0 is not zero */
  CHECK_U64(mask[0], 0x8e);
  const uint8_t bytes[3] = {0x80, 0, 1};
  CHECK_U64(sparse_mask_nonzero(bytes, 1, true, 3, mask), 1);
  CHECK_U64(mask[0], 4);
  const uint16_t halves[3] = {0x8000, 0x8001, 0};
  CHECK_U64(sparse_mask_nonzero(halves, 2, true, 3, mask), 1);
  CHECK_U64(mask[0], 2);
  const double doubles[2] = {-0.0, 5e-324};
  CHECK_U64(sparse_mask_nonzero(doubles, 8, true, 2, mask), 1);
  CHECK_U64(mask[0], 2);
}

TEST(a_threshold_keeps_what_is_above_it)
{
  const float row[9] = {0.5f, -0.5f, 0.75f, -0.75f, 0, NAN, INFINITY, 0.4f, 9};
  uint8_t mask[2];
  CHECK_U64(sparse_mask_above(row, 0.5f, 9, mask), 5);
  CHECK_U64(mask[0], 0x6c);
  CHECK_U64(mask[1], 1);
}

/* Computes the mask by counting: value k is kept if fewer than two others come before it in
 * (magnitude, position). */
static unsigned two_by_counting(const float *v) {
  unsigned bits = 0;
  for (int k = 0; k < 4; k++) {
    int before = 0;
    for (int j = 0; j < 4; j++)
      before += fabsf(v[j]) > fabsf(v[k]) || (v[j] == v[k] && j < k) ||
                (fabsf(v[j]) == fabsf(v[k]) && v[j] != v[k] && j < k);
    bits |= (unsigned)(before < 2) << k;
  }
  return bits;
}

TEST(two_of_four_keeps_the_two_largest_of_all_small_cases)
{
  static const float choices[] = {0, -0.0f, 1, -1, 2, -2, 0.5f};
  enum { N = sizeof choices / sizeof choices[0] };
  for (int c = 0; c < N * N * N * N; c++) {
    const float v[12] = {choices[c % N],
                         choices[c / N % N],
                         choices[c / N / N % N],
                         choices[c / N / N / N],
                         1,
                         2,
                         3,
                         4,
                         0,
                         0,
                         0,
                         0};
    uint8_t mask[2] = {0xff, 0xff};
    CHECK_U64(sparse_mask_two_of_four(v, 12, mask), 6);
    CHECK_U64(mask[0] & 15, two_by_counting(v));
    CHECK_U64(mask[0] >> 4, 0xc);
    CHECK_U64(mask[1], 3); /* equal values: the first two */
  }
  uint8_t mask;
  CHECK_U64(sparse_mask_two_of_four((const float[]){1, NAN, INFINITY, 2}, 4, &mask), 2);
  CHECK_U64(mask, 6);
}

TEST(packing_and_unpacking_restore_every_kept_value_at_every_length)
{
  static uint64_t values[200], packed[201], back[201], applied[200];
  uint8_t mask[25];
  uint64_t random = 11;
  static const size_t widths[] = {1, 2, 4, 8};
  for (size_t columns = 0; columns < 200; columns++) {
    for (int w = 0; w < 4; w++) {
      const size_t width = widths[w];
      for (size_t i = 0; i < 200; i++) values[i] = harness_random(&random);
      const uint64_t dense = harness_random(&random);
      for (size_t i = 0; i < 25; i++)
        mask[i] = dense % 3 == 0 ? 0xff : harness_random(&random) & harness_random(&random) & 0xff;
      size_t kept = 0;
      for (size_t i = 0; i < columns; i++) kept += mask[i / 8] >> i % 8 & 1;
      memset(packed, 0xaa, sizeof packed);
      CHECK_U64(sparse_pack(values, width, columns, mask, packed), kept);
      CHECK_U64(((uint8_t *)packed)[kept * width], 0xaa);
      memset(back, 0xaa, sizeof back);
      CHECK_U64(sparse_unpack(packed, kept, width, columns, mask, back), kept);
      CHECK_U64(((uint8_t *)back)[columns * width], 0xaa);
      memcpy(applied, values, sizeof values);
      sparse_apply(applied, width, columns, mask);
      CHECK(memcmp(back, applied, columns * width) == 0);
      CHECK(memcmp((char *)applied + columns * width, (char *)values + columns * width,
                   sizeof values - columns * width) == 0);
      for (size_t i = 0; i < columns; i++) {
        uint64_t x = 0, y = 0;
        memcpy(&x, (char *)values + i * width, width);
        memcpy(&y, (char *)back + i * width, width);
        CHECK_U64(y, mask[i / 8] >> i % 8 & 1 ? x : 0);
      }
    }
  }
}

TEST(a_mask_with_more_bits_than_values_reads_no_further)
{
  /* Exact heap blocks: a sanitizer sees a read past the end. */
  uint8_t mask[16];
  memset(mask, 0xff, sizeof mask);
  uint32_t *in = malloc(5 * sizeof *in), out[128];
  CHECK(in != NULL);
  for (uint32_t i = 0; i < 5; i++) in[i] = i + 1;
  CHECK_U64(sparse_unpack(in, 5, 4, 128, mask, out), 128);
  for (uint32_t i = 0; i < 128; i++) CHECK_U64(out[i], i < 5 ? i + 1 : 0);
  free(in);
}

TEST_MAIN
