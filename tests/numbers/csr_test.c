/* CSR: there and back gives every bit, whatever the type, the width of the index and the density.
 */
#include <math.h>
#include <stdlib.h>

#include "harness.h"
#include "numbers/csr.h"

TEST(rows_go_there_and_back_bit_for_bit)
{
  static const dtype types[] = {DTYPE_U8,  DTYPE_I16, DTYPE_F16, DTYPE_F32,
                                DTYPE_I32, DTYPE_F64, DTYPE_U64};
  static const dtype indexes[] = {DTYPE_U16, DTYPE_I32, DTYPE_I64};
  uint64_t random = 5, stored = 0;
  for (int round = 0; round < 3000; round++) {
    dtype type = types[round % 7], index = indexes[round % 3];
    size_t width = dtype_bytes(type), columns = harness_random(&random) % 300;
    uint64_t density = harness_random(&random) % 101;
    /* Exactly as much room as promised, so that a write past it is seen. */
    char *row = calloc(columns + 1, width), *back = malloc((columns + 1) * width);
    char *values = malloc(columns * width + 1), *indices = malloc(columns * dtype_bytes(index) + 1);
    CHECK(row != NULL && back != NULL && values != NULL && indices != NULL);
    for (size_t i = 0; i < columns; i++) {
      uint64_t bits = harness_random(&random);
      if (bits % 100 < density)
        bits = harness_random(&random), memcpy(row + i * width, &bits, width);
    }
    size_t count = csr_compress(values, indices, index, row, type, columns, 0);
    CHECK(count <= columns);
    stored += count;
    CHECK_OK(csr_expand(back, type, columns, values, indices, index, count));
    CHECK(memcmp(row, back, columns * width) == 0);
    free(row), free(back), free(values), free(indices);
  }
  harness_note("%" PRIu64 " values stored", stored);
}

TEST(negative_zero_and_nan_are_kept)
{
  const float row[] = {0, -0.0f, NAN, 1};
  float values[4];
  uint16_t indices[4];
  CHECK_U64(csr_compress(values, indices, DTYPE_U16, row, DTYPE_F32, 4, 0), 3);
  CHECK(signbit(values[0]) && isnan(values[1]) && values[2] == 1);
  CHECK(indices[0] == 1 && indices[1] == 2 && indices[2] == 3);
}

TEST(columns_past_the_end_and_negative_ones_are_refused)
{
  const float values[] = {1, 2};
  float row[4];
  CHECK_STATUS(csr_expand(row, DTYPE_F32, 4, values, (int32_t[]){0, 4}, DTYPE_I32, 2),
               STOW_ERR_FORMAT);
  CHECK_MESSAGE("column 4 of 4");
  CHECK_STATUS(csr_expand(row, DTYPE_F32, 4, values, (int32_t[]){0, -1}, DTYPE_I32, 2),
               STOW_ERR_FORMAT);
}

TEST(the_narrowest_index_that_numbers_every_column_is_chosen)
{
  CHECK(csr_index_type(65536) == DTYPE_U16);
  CHECK(csr_index_type(65537) == DTYPE_I32);
  CHECK(csr_index_type(UINT64_C(1) << 40) == DTYPE_I64);
  CHECK_U64(csr_bytes(10, 100, 7, DTYPE_F32), 7 * 6 + 88);
}

TEST_MAIN
