/* Blocks: a program of large plain blocks (cuMemAlloc), together larger than the limit, used in
 * turn.
 *
 *   blocks COUNT MIB STEPS   every block is filled when it is made, and mixed with the next in each
 * step; half way one is freed and made again. Its words are worked out on the host too, and
 * compared at the end: "equal N words".
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda_driver.h"

enum {
  BLOCKS_MAX = 64,
  WORDS = 512,
  PLACES = 4
}; /* words at places that are spread over a block */

static void *library, *mix_kernel, *fill_kernel;
static cu_addr block[BLOCKS_MAX];
static size_t bytes;
static uint64_t model[BLOCKS_MAX][PLACES][WORDS];

#define DRIVER(name, type) ((type)(uintptr_t)dlsym(library, name))

static void must(cu_result code, const char *what) {
  if (code == CU_OK) return;
  printf("%s: %d\n", what, code);
  exit(3);
}

static void launch(void *kernel, uint64_t a, uint64_t b, uint64_t c) {
  void *parameters[] = {&a, &b, &c};
  must(DRIVER("cuLaunchKernel",
              cu_result(*)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                           unsigned, cu_stream, void **, void **))(kernel, 1, 1, 1, 1, 1, 1, 0,
                                                                   NULL, parameters, NULL),
       "launch");
}

static cu_addr place(int i, int k) {
  return block[i] + bytes / PLACES * (size_t)k;
}

static void make(int i, uint64_t value) {
  must(DRIVER("cuMemAlloc_v2", cu_result(*)(cu_addr *, size_t))(&block[i], bytes), "alloc");
  for (int k = 0; k < PLACES; k++) {
    launch(fill_kernel, place(i, k), WORDS, value + (uint64_t)k);
    for (uint64_t w = 0; w < WORDS; w++) model[i][k][w] = value + (uint64_t)k + w;
  }
}

static void mix(int to, int from) {
  for (int k = 0; k < PLACES; k++) {
    launch(mix_kernel, place(to, k), place(from, k), WORDS);
    for (uint64_t w = 0; w < WORDS; w++)
      model[to][k][w] = model[to][k][w] * 3 + model[from][k][w] + w;
  }
}

static void start(void) {
  cu_context context;
  void *module;
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) exit(3);
  must(DRIVER("cuInit", cu_result(*)(unsigned))(0), "init");
  must(DRIVER("cuDevicePrimaryCtxRetain", cu_result(*)(cu_context *, cu_device))(&context, 0),
       "context");
  must(DRIVER("cuCtxSetCurrent", cu_result(*)(cu_context))(context), "current");
  must(DRIVER("cuModuleLoadData", cu_result(*)(void **, const void *))(&module, "kernels"),
       "module");
  cu_result (*function)(void **, void *, const char *) =
      DRIVER("cuModuleGetFunction", cu_result(*)(void **, void *, const char *));
  must(function(&mix_kernel, module, "mix"), "mix");
  must(function(&fill_kernel, module, "fill"), "fill");
}

int main(int argc, char **argv) {
  int count = argc > 1 ? atoi(argv[1]) : 8, steps = argc > 3 ? atoi(argv[3]) : 6;
  bytes = (size_t)(argc > 2 ? atoi(argv[2]) : 192) << 20;
  start();
  for (int i = 0; i < count && i < BLOCKS_MAX; i++) make(i, (uint64_t)i * 100000 + 7);
  for (int step = 0; step < steps; step++) {
    for (int i = 0; i < count; i++) mix(i, (i + 1) % count);
    if (step == steps / 2) {
      must(DRIVER("cuMemFree_v2", cu_result(*)(cu_addr))(block[1]), "free");
      make(1, 99);
    }
  }
  static uint64_t seen[WORDS];
  for (int i = 0; i < count; i++)
    for (int k = 0; k < PLACES; k++) {
      must(DRIVER("cuMemcpyDtoH_v2", cu_result(*)(void *, cu_addr, size_t))(seen, place(i, k),
                                                                            sizeof seen),
           "copy");
      for (int w = 0; w < WORDS; w++)
        if (seen[w] != model[i][k][w]) {
          printf("block %d place %d word %d is %llx, not %llx\n", i, k, w,
                 (unsigned long long)seen[w], (unsigned long long)model[i][k][w]);
          return 1;
        }
    }
  printf("equal %d words\n", count * PLACES * WORDS);
  return 0;
}
