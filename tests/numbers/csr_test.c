/* CSR: there and back gives every bit, whatever the type, the width of the index and the density.
 */
#include <math.h>
#include <stdlib.h>

#include "harness.h"
#include "numbers/csr.h"

static uint64_t index_at(const void *indices, dtype type, size_t i) {
  const char *at = (const char *)indices + i * dtype_bytes(type);
  uint16_t narrow;
  int32_t middle;
  int64_t wide;
  switch (type) {
  case DTYPE_U16: return memcpy(&narrow, at, 2), narrow;
  case DTYPE_I32: return memcpy(&middle, at, 4), (uint64_t)(int64_t)middle;
  default: return memcpy(&wide, at, 8), (uint64_t)wide;
  }
}

/* Expands `count` pairs to the dense row they represent. */
static void expand(void *row, dtype type, size_t columns, const void *values, const void *indices,
                   dtype index_type, size_t count) {
  size_t width = dtype_bytes(type);
  memset(row, 0, columns * width);
  for (size_t i = 0; i < count; i++) {
    uint64_t column = index_at(indices, index_type, i);
    CHECK(column < columns && (i == 0 || column > index_at(indices, index_type, i - 1)));
    memcpy((char *)row + column * width, (const char *)values + i * width, width);
  }
}

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
    uint64_t minus = 0, signs = 0;
    if (columns > 0 && round % 5 == 0 && dtype_kind(type) == CLASS_FLOAT) {
      size_t at = harness_random(&random) % columns;
      memset(row + at * width, 0, width);
      row[at * width + width - 1] = (char)0x80;
    }
    size_t count = csr_compress(values, indices, index, row, type, columns, 0, &minus);
    CHECK(count <= columns);
    for (size_t i = 0; i < columns; i++) { /* -0 comes back as 0 */
      char *value = row + i * width;
      bool lowest = dtype_kind(type) == CLASS_FLOAT && value[width - 1] == (char)0x80;
      for (size_t k = 0; k + 1 < width; k++) lowest = lowest && value[k] == 0;
      if (lowest) value[width - 1] = 0, signs++;
    }
    CHECK_U64(minus, signs);
    stored += count;
    expand(back, type, columns, values, indices, index, count);
    CHECK(memcmp(row, back, columns * width) == 0);
    free(row), free(back), free(values), free(indices);
  }
  harness_note("%" PRIu64 " values stored", stored);
}

TEST(nan_is_kept_and_negative_zeros_are_counted)
{
  const float row[] = {0, -0.0f, NAN, 1};
  float values[4];
  uint16_t indices[4];
  uint64_t minus = 0;
  CHECK_U64(csr_compress(values, indices, DTYPE_U16, row, DTYPE_F32, 4, 0, &minus), 2);
  CHECK(isnan(values[0]) && values[1] == 1 && minus == 1);
  CHECK(indices[0] == 2 && indices[1] == 3);
  /* An integer with the highest bit alone is a value. */
  const int32_t integers[] = {INT32_MIN, 0, 3};
  CHECK_U64(csr_compress(values, indices, DTYPE_U16, integers, DTYPE_I32, 3, 0, &minus), 2);
  CHECK_U64(minus, 1);
}

TEST(the_narrowest_index_that_numbers_every_column_is_chosen)
{
  CHECK(csr_index_type(65536) == DTYPE_U16);
  CHECK(csr_index_type(65537) == DTYPE_I32);
  CHECK(csr_index_type(UINT64_C(1) << 40) == DTYPE_I64);
}

TEST_MAIN
