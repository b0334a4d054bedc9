/* Csv block: which loop this machine gets, and the rows that loop leaves. */
#include "formats/csv_block.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "formats/csv_block_parts.h"

/* Rows looked at together: their fields stay in the first-level cache. */
enum { BATCH_ROWS = 256, BATCH_FIELDS = 2048 };

/* An integer no double holds is rounded; the flag says so. */
static double nearest(int64_t value, bool *inexact) {
  double near = (double)value;
  /* 2^63 itself does not come back into an int64. */
  if (near >= 0x1p63 || (int64_t)near != value) *inexact = true;
  return near;
}

static double nearest_wide(uint64_t value, bool *inexact) {
  double near = (double)value;
  if (near >= 0x1p64 || (uint64_t)near != value) *inexact = true;
  return near;
}

static void to_floats(csv_column *to, size_t rows) {
  for (size_t i = 0; i < rows; i++) {
    double near = to->form == CSV_WIDES ? nearest_wide(to->values[i], &to->inexact)
                                        : nearest((int64_t)to->values[i], &to->inexact);
    memcpy(&to->values[i], &near, sizeof near);
  }
  to->form = CSV_FLOATS;
}

void csv_column_float(csv_column *to, size_t row, double value) {
  if (to->form != CSV_FLOATS) to_floats(to, row);
  memcpy(&to->values[row], &value, sizeof value);
}

void csv_column_integer(csv_column *to, size_t row, int64_t value) {
  if (to->form == CSV_FLOATS) {
    csv_column_float(to, row, nearest(value, &to->inexact));
    return;
  }
  if (to->form == CSV_WIDES && value < 0) to->negative = true;
  to->values[row] = (uint64_t)value;
}

void csv_column_wide(csv_column *to, size_t row, uint64_t value) {
  if (to->form == CSV_FLOATS) {
    csv_column_float(to, row, nearest_wide(value, &to->inexact));
    return;
  }
  for (size_t i = 0; i < row && to->form == CSV_INTEGERS; i++)
    if ((int64_t)to->values[i] < 0) to->negative = true;
  to->form = CSV_WIDES;
  to->values[row] = value;
}

/* Wide loops where the machine has them; $STOWAGE_KERNELS=portable is for tests. */
static bool use_wide(void) {
#if defined(__x86_64__)
  const char *wanted = getenv("STOWAGE_KERNELS");
  return cpu_has(CPU_AVX512VBMI2) && cpu_has(CPU_AVX512BW) && cpu_has(CPU_AVX512VL) &&
         cpu_has(CPU_BMI2) && (wanted == NULL || strcmp(wanted, "avx512") == 0);
#else
  return false;
#endif
}

static bool wide_loops;
static pthread_once_t wide_once = PTHREAD_ONCE_INIT;

static void look(void) {
  wide_loops = use_wide();
}

static csv_rows choose(void) {
  pthread_once(&wide_once, look);
#if defined(__x86_64__)
  if (wide_loops) return csv_rows_avx512;
#endif
  return csv_rows_portable;
}

size_t csv_line_ends(const char *at, size_t count) {
  pthread_once(&wide_once, look);
#if defined(__x86_64__)
  if (wide_loops) return csv_line_ends_avx512(at, count);
#endif
  return csv_line_ends_portable(at, count);
}

static stow_status odd_row(csv_block *b, csv *c) {
  bool more = false;
  STOW_TRY(csv_next(c, &more));
  if (!more) return STOW_OK;
  STOW_TRY(b->row(b->context, c));
  b->rows++;
  return STOW_OK;
}

stow_status csv_block_fill(csv_block *b, csv *c) {
  csv_rows rows = choose();
  csv_batch f = {.most = BATCH_FIELDS / b->count};
  if (f.most < 1) f.most = 1;
  if (f.most > BATCH_ROWS) f.most = BATCH_ROWS;
  f.size = f.most;
  f.ends = malloc(f.most * (b->count + 2) * sizeof *f.ends + 2 * sizeof *f.ends);
  if (f.ends == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", c->in.name);
  f.start = f.ends + f.most * b->count;
  f.lines = f.start + f.most + 1;
  stow_status status = STOW_OK;
  while (c->in.at < c->in.end && status == STOW_OK) {
    bool odd = false;
    status = rows(b, c, &f, &odd);
    if (status == STOW_OK && odd) status = odd_row(b, c);
  }
  free(f.ends);
  return status;
}
