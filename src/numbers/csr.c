/* CSR. The inner loop has no branch on the data: it writes every value and advances only past those
 * to keep. It skips a whole cache line of +0, the common case, with one comparison. */
#include "numbers/csr.h"

#include <string.h>

#include "numbers/kernels.h"

#define LINE 16 /* values compared at once */

dtype csr_index_type(uint64_t columns) {
  return columns <= UINT64_C(1) << 16   ? DTYPE_U16
         : columns <= UINT64_C(1) << 31 ? DTYPE_I32
                                        : DTYPE_I64;
}

/* BITS: the unsigned type as wide as a value; INDEX: the type of columns. */
#define COMPRESS(name, BITS, INDEX)                                                                \
  static size_t name(void *values_, void *indices_, const void *row_, size_t columns,              \
                     uint64_t first, uint64_t magnitude_, uint64_t *signs) {                       \
    const BITS magnitude = (BITS)magnitude_;                                                       \
    BITS *values = values_;                                                                        \
    INDEX *indices = indices_;                                                                     \
    const BITS *row = row_;                                                                        \
    size_t kept = 0, i = 0;                                                                        \
    for (; i + LINE <= columns; i += LINE) {                                                       \
      BITS any = 0;                                                                                \
      for (size_t k = 0; k < LINE; k++) any |= row[i + k];                                         \
      if (any == 0) continue;                                                                      \
      for (size_t k = 0; k < LINE; k++) {                                                          \
        values[kept] = row[i + k];                                                                 \
        indices[kept] = (INDEX)(first + i + k);                                                    \
        kept += (row[i + k] & magnitude) != 0;                                                     \
        *signs += (row[i + k] & magnitude) == 0 && row[i + k] != 0;                                \
      }                                                                                            \
    }                                                                                              \
    for (; i < columns; i++) {                                                                     \
      if ((row[i] & magnitude) == 0) {                                                             \
        *signs += row[i] != 0;                                                                     \
        continue;                                                                                  \
      }                                                                                            \
      values[kept] = row[i];                                                                       \
      indices[kept++] = (INDEX)(first + i);                                                        \
    }                                                                                              \
    return kept;                                                                                   \
  }

/* The loop above writes at most one element past what it keeps, and that element is within the
 * space for `columns`: when k of the first n values were kept, k <= n - 1 or the write was kept. */
#define COMPRESS_INDEXES(bits)                                                                     \
  COMPRESS(compress_##bits##_u16, uint##bits##_t, uint16_t)                                        \
  COMPRESS(compress_##bits##_i32, uint##bits##_t, int32_t)                                         \
  COMPRESS(compress_##bits##_i64, uint##bits##_t, int64_t)
COMPRESS_INDEXES(8)
COMPRESS_INDEXES(16)
COMPRESS_INDEXES(32)
COMPRESS_INDEXES(64)

size_t csr_compress(void *values, void *indices, dtype index_type, const void *row, dtype type,
                    size_t columns, uint64_t first_column, uint64_t *minus_zeros) {
  typedef size_t (*compress)(void *, void *, const void *, size_t, uint64_t, uint64_t, uint64_t *);
  static const compress table[4][3] = {
      {compress_8_u16, compress_8_i32, compress_8_i64},
      {compress_16_u16, compress_16_i32, compress_16_i64},
      {compress_32_u16, compress_32_i32, compress_32_i64},
      {compress_64_u16, compress_64_i32, compress_64_i64},
  };
  int width = __builtin_ctzll(dtype_bytes(type));
  int index = index_type == DTYPE_U16 ? 0 : index_type == DTYPE_I32 ? 1 : 2;
  /* Floats: every bit but the sign. */
  uint64_t magnitude = UINT64_MAX >> (64 - (8 << width) + (dtype_kind(type) == CLASS_FLOAT));
  size_t done = 0, kept = 0;
  compress_kernel kernel =
      width >= 2 && index < 2 ? kernels_get()->compress[width - 2][index] : NULL;
  if (kernel != NULL) {
    done = columns;
    kept = kernel(values, indices, row, &done, first_column, magnitude, minus_zeros);
  }
  return kept + table[width][index]((char *)values + (kept << width),
                                    (char *)indices + kept * dtype_bytes(index_type),
                                    (const char *)row + (done << width), columns - done,
                                    first_column + done, magnitude, minus_zeros);
}
