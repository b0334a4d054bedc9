/* cast_bench [FILE.npy TO]: casts in memory through the library, one thread, best of nine, into the
 * same output each time (as NumPy's copyto does). With a file it prints the GB/s of input alone,
 * for data_bench.sh, which has the peer. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "data/array.h"
#include "numbers/cast.h"

enum { ROUNDS = 9 };

static double best_rate(const void *values, dtype from, dtype to, size_t count) {
  uint64_t best = UINT64_MAX;
  void *out = malloc(count * dtype_bytes(to) + 1);
  if (out == NULL) exit(1);
  for (int i = 0; i < ROUNDS; i++) {
    uint64_t start = clock_ns();
    if (cast_values(out, to, values, from, count) != STOW_OK) exit(1);
    uint64_t took = clock_ns() - start;
    if (took < best) best = took;
  }
  free(out);
  return (double)(count * dtype_bytes(from)) / (double)best;
}

static int one_file(const char *path, const char *to_name) {
  array a;
  dtype to;
  if (dtype_parse(&to, to_name) != STOW_OK || array_open(&a, path, NULL) != STOW_OK) {
    fprintf(stderr, "cast_bench: %s\n", stow_status_message());
    return 1;
  }
  void *values = malloc(a.bytes + 1);
  if (values == NULL || array_read(&a, 0, values, a.count) != STOW_OK) return 1;
  printf("%.4f\n", best_rate(values, a.type, to, a.count));
  free(values);
  array_close(&a);
  return 0;
}

int main(int argc, char **argv) {
  static const dtype pairs[][2] = {{DTYPE_F32, DTYPE_F16},  {DTYPE_F64, DTYPE_F32},
                                   {DTYPE_F64, DTYPE_F16},  {DTYPE_F16, DTYPE_F32},
                                   {DTYPE_F32, DTYPE_BF16}, {DTYPE_I64, DTYPE_I16}};
  enum { COUNT = 8 << 20 };
  if (argc == 3) return one_file(argv[1], argv[2]);
  for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++) {
    void *values = calloc(COUNT, dtype_bytes(pairs[p][0]));
    if (values == NULL) return 1;
    printf("case=cast_%s_to_%s ours=%.4g unit=GB/s\n", dtype_name(pairs[p][0]),
           dtype_name(pairs[p][1]), best_rate(values, pairs[p][0], pairs[p][1], COUNT));
    free(values);
  }
  return 0;
}
