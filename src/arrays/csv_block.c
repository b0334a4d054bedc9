/* Csv block: chooses the loop for this machine and handles the rows that the loop leaves. */
#include "arrays/csv_block.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "arrays/csv_block_parts.h"
#include "base/cpu.h"
#include "base/variables.h"

/* Rows processed together. Their fields should stay in the L1 cache; at least 16 rows, because the
 * loops read eight at a time. */
enum { BATCH_ROWS = 256, BATCH_ROWS_LEAST = 16, BATCH_FIELDS = 2048 };

static const csv_loops portable = {"portable", csv_rows_portable, csv_line_ends_portable,
                                   csv_last_row_portable};
#if defined(__x86_64__)
static const csv_loops avx2 = {"avx2", csv_rows_avx2, csv_line_ends_avx2, csv_last_row_avx2};
static const csv_loops avx512 = {"avx512", csv_rows_avx512, csv_line_ends_avx512,
                                 csv_last_row_avx512};
#endif

size_t csv_loops_here(const csv_loops *list[CSV_LOOPS_MAX]) {
  size_t count = 0;
  list[count++] = &portable;
#if defined(__x86_64__)
  if (cpu_has(CPU_AVX2) && cpu_has(CPU_BMI2)) {
    list[count++] = &avx2;
    if (cpu_has(CPU_AVX512F) && cpu_has(CPU_AVX512BW) && cpu_has(CPU_AVX512CD) &&
        cpu_has(CPU_AVX512DQ) && cpu_has(CPU_AVX512VL))
      list[count++] = &avx512;
  }
#endif
  return count;
}

/* Returns the widest loop, or the one that $STOWAGE_KERNELS names (for tests). */
static const csv_loops *choose(void) {
  const csv_loops *list[CSV_LOOPS_MAX];
  size_t count = csv_loops_here(list);
  const char *wanted = getenv(ENV_KERNELS);
  for (size_t i = 0; wanted != NULL && i < count; i++)
    if (strcmp(list[i]->name, wanted) == 0) return list[i];
  return list[count - 1];
}

static const csv_loops *chosen(void) {
  static _Atomic(const csv_loops *) known; /* all threads store the same value */
  const csv_loops *set = atomic_load_explicit(&known, memory_order_relaxed);
  if (set == NULL) {
    set = choose();
    atomic_store_explicit(&known, set, memory_order_relaxed);
  }
  return set;
}

size_t csv_line_ends(const char *at, size_t count) {
  return chosen()->line_ends(at, count);
}

const char *csv_last_row(const csv *c, const char *at, const char *end) {
  return csv_last_row_by(c, at, end, chosen());
}

const char *csv_last_row_by(const csv *c, const char *at, const char *end, const csv_loops *by) {
  const char *found = NULL;
  for (bool odd = true; odd && at < end;) {
    const char *last = by->last_row(at, end, c->delimiter, &odd);
    if (last != NULL) at = found = last;
    if (!odd) break;
    last = csv_row_end(c, at, end);
    if (last == NULL) break;
    at = found = last + 1;
  }
  return found;
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
  return csv_block_fill_by(b, c, chosen());
}

static void free_batch(csv_batch *f) {
  free(f->ends);
  free(f->texts);
  free(f->gaps);
  free(f->copy);
}

static stow_status make_batch(csv_batch *f, const csv_block *b, const csv *c) {
  size_t most = BATCH_FIELDS / b->count;
  if (most < BATCH_ROWS_LEAST) most = BATCH_ROWS_LEAST;
  if (most > BATCH_ROWS) most = BATCH_ROWS;
  size_t fields = most * b->count;
  *f = (csv_batch){.most = most, .size = most};
  f->ends = malloc((2 * fields + CSV_ENDS_MORE + most + 1) * sizeof *f->ends);
  f->texts = malloc(most * sizeof *f->texts);
  f->gaps = malloc(fields * sizeof *f->gaps);
  if (f->ends == NULL || f->texts == NULL || f->gaps == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", c->in.name);
  f->start = f->ends + fields + CSV_ENDS_MORE;
  f->lengths = f->start + most + 1;
  return STOW_OK;
}

stow_status csv_block_fill_by(csv_block *b, csv *c, const csv_loops *by) {
  csv_batch f;
  stow_status status = make_batch(&f, b, c);
  while (c->in.at < c->in.end && status == STOW_OK) {
    bool odd = false;
    status = by->rows(b, c, &f, &odd);
    if (status == STOW_OK && odd) status = odd_row(b, c);
  }
  free_batch(&f);
  return status;
}
