/* Low rank: see lowrank.h. Tiles of 4 rows and 16 columns stay in registers while the sum runs over
 * the rank. Compiled once for each instruction set; every set gives the same bits. */
#include "numbers/lowrank.h"

#include <string.h>

#include "base/cpu.h"

enum { TILE_ROWS = 4, TILE_COLUMNS = 16, WIDE = 8, TILE_PARTS = TILE_COLUMNS / WIDE };
/* A strip of `right` is copied together up to this rank: 32 KiB, the first cache. Its rows are a
 * power of two apart in most models, so that they would evict one another. */
enum { STRIP_RANK = 256 };

typedef double wide __attribute__((vector_size(WIDE * 8)));

typedef struct product {
  double *to;
  size_t rows, columns;
  const double *left, *right;
  size_t rank;
  double scale;
} product;

/* `right` points to the strip's first row; its rows are `step` values apart. */
static inline __attribute__((always_inline)) void
add_tile(const product *p, size_t row, size_t column, const double *right, size_t step) {
  wide sum[TILE_ROWS][TILE_PARTS] = {{{0}}};
  const double *left = p->left + row * p->rank;
  for (size_t k = 0; k < p->rank; k++, right += step) {
    wide r[TILE_PARTS];
    memcpy(r, right, sizeof r);
    for (size_t i = 0; i < TILE_ROWS; i++)
      for (size_t j = 0; j < TILE_PARTS; j++) sum[i][j] += left[i * p->rank + k] * r[j];
  }
  for (size_t i = 0; i < TILE_ROWS; i++) {
    wide to[TILE_PARTS];
    double *at = p->to + (row + i) * p->columns + column;
    memcpy(to, at, sizeof to);
    for (size_t j = 0; j < TILE_PARTS; j++) to[j] += p->scale * sum[i][j];
    memcpy(at, to, sizeof to);
  }
}

static inline __attribute__((always_inline)) void add_one(const product *p, size_t row,
                                                          size_t column) {
  double sum = 0;
  for (size_t k = 0; k < p->rank; k++)
    sum += p->left[row * p->rank + k] * p->right[k * p->columns + column];
  p->to[row * p->columns + column] += p->scale * sum;
}

static inline __attribute__((always_inline)) void add_all(const product *p) {
  size_t whole_rows = p->rows / TILE_ROWS * TILE_ROWS;
  size_t whole_columns = p->columns / TILE_COLUMNS * TILE_COLUMNS;
  double strip[STRIP_RANK * TILE_COLUMNS];
  for (size_t column = 0; column < whole_columns; column += TILE_COLUMNS) {
    const double *right = p->right + column;
    size_t step = p->columns;
    if (p->rank <= STRIP_RANK) {
      for (size_t k = 0; k < p->rank; k++)
        memcpy(strip + k * TILE_COLUMNS, right + k * step, TILE_COLUMNS * sizeof *strip);
      right = strip;
      step = TILE_COLUMNS;
    }
    for (size_t row = 0; row < whole_rows; row += TILE_ROWS) add_tile(p, row, column, right, step);
  }
  for (size_t row = 0; row < p->rows; row++)
    for (size_t column = row < whole_rows ? whole_columns : 0; column < p->columns; column++)
      add_one(p, row, column);
}

static void add_plain(const product *p) {
  add_all(p);
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void add_avx2(const product *p) {
  add_all(p);
}

/* gcc takes the vector width as part of the target; clang 14 has no such word. */
#if defined(__clang__)
#define AVX512 "avx512f,avx512dq,avx512vl,avx2,fma"
#else
#define AVX512 "avx512f,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512"
#endif
__attribute__((target(AVX512))) static void add_avx512(const product *p) {
  add_all(p);
}
#endif

void lowrank_add(double *to, size_t rows, size_t columns, const double *left, const double *right,
                 size_t rank, double scale) {
  product p = {to, rows, columns, left, right, rank, scale};
#if defined(__x86_64__)
  if (cpu_has(CPU_AVX512F) && cpu_has(CPU_AVX512DQ) && cpu_has(CPU_AVX512VL))
    add_avx512(&p);
  else if (cpu_has(CPU_AVX2) && cpu_has(CPU_FMA))
    add_avx2(&p);
  else
    add_plain(&p);
#else
  add_plain(&p);
#endif
}
