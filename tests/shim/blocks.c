/* Blocks: a program of large plain blocks (cuMemAlloc), together larger than the limit, used in
 * turn.
 *
 *   blocks COUNT MIB STEPS   every block is filled when it is made, and mixed with the next in each
 * step; half way one is freed and made again. Its words are worked out on the host too, and
 * compared at the end: "equal N words".
 *   blocks COUNT MIB STEPS pool   the blocks are parts of one page that the program maps itself
 * (cuMemCreate), as JAX's pool is; none is freed.
 *   blocks COUNT MIB STEPS large   the same; the page is three times as large as they are.
 *   blocks COUNT MIB STEPS small   in every step the program also maps 16 pages of 2 MiB and uses
 * them; it prints how many of those are on the host.
 *   blocks COUNT MIB STEPS burst   the same with 48 pages, all mapped before the first is used.
 *   blocks COUNT MIB STEPS hold   while the last two blocks are made and filled, the device is not
 * done with anything.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda_driver.h"

enum {
  BLOCKS_MAX = 64,
  WORDS = 512,
  PLACES = 4, /* words at places that are spread over a block */
  SMALL = 16, /* small pages in each step … */
  BURST = 48, /* … or so many at once */
  SMALL_MAX = 256
};

static void *library, *mix_kernel, *fill_kernel;
static cu_addr block[BLOCKS_MAX];
static size_t bytes;
static bool pooled;
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

/* Maps one page of `all` bytes at a range of its own. */
static cu_addr map_page(size_t all, cu_handle *made) {
  cu_prop prop = {.type = CU_ALLOCATION_PINNED, .location = {CU_LOCATION_DEVICE, 0}};
  cu_access access = {prop.location, CU_ACCESS_READ_WRITE};
  cu_handle handle;
  cu_addr base;
  must(DRIVER("cuMemCreate", cu_result(*)(cu_handle *, size_t, const cu_prop *,
                                          unsigned long long))(&handle, all, &prop, 0),
       "create");
  must(DRIVER("cuMemAddressReserve", cu_result(*)(cu_addr *, size_t, size_t, cu_addr,
                                                  unsigned long long))(&base, all, 0, 0, 0),
       "reserve");
  must(DRIVER("cuMemMap", cu_result(*)(cu_addr, size_t, size_t, cu_handle, unsigned long long))(
           base, all, 0, handle, 0),
       "map");
  must(DRIVER("cuMemSetAccess",
              cu_result(*)(cu_addr, size_t, const cu_access *, size_t))(base, all, &access, 1),
       "access");
  *made = handle;
  return base;
}

/* Returns the address of one page of `all` bytes; its handle is given up. `asks`: the page is asked
 * about first, which the stand-in itself cannot answer. */
static cu_addr pool(size_t all, bool asks) {
  cu_prop seen;
  cu_handle handle, again;
  cu_addr base = map_page(all, &handle);
  cu_result (*release)(cu_handle) = DRIVER("cuMemRelease", cu_result(*)(cu_handle));
  if (!asks) {
    must(release(handle), "release");
    return base;
  }
  must(DRIVER("cuMemGetAllocationPropertiesFromHandle", cu_result(*)(cu_prop *, cu_handle))(&seen,
                                                                                            handle),
       "properties");
  if (seen.location.type != CU_LOCATION_DEVICE) must(CU_ERROR_UNKNOWN, "place");
  must(DRIVER("cuMemRetainAllocationHandle",
              cu_result(*)(cu_handle *, void *))(&again, (void *)(uintptr_t)(base + all / 2)),
       "retain");
  if (again != handle) must(CU_ERROR_UNKNOWN, "another handle");
  must(release(again), "release");
  must(release(handle), "release");
  return base;
}

static cu_addr small[SMALL_MAX];
static int small_count;

static void map_small(bool burst) {
  cu_handle handle;
  int filled = small_count;
  for (int i = 0; i < (burst ? BURST : SMALL) && small_count < SMALL_MAX; i++) {
    small[small_count++] = map_page((size_t)2 << 20, &handle);
    if (!burst) launch(fill_kernel, small[filled++], WORDS, 1);
  }
  while (filled < small_count) launch(fill_kernel, small[filled++], WORDS, 1);
}

/* Returns a function of the stand-in, which is behind the shim. */
static void *standin(const char *name) {
  return DRIVER("stow_shim_real", void *(*)(const char *))(name);
}

static int small_on_host(void) {
  int (*location)(uint64_t) = (int (*)(uint64_t))(uintptr_t)standin("standin_location");
  int found = 0;
  for (int i = 0; i < small_count; i++) found += location(small[i]) != CU_LOCATION_DEVICE;
  return found;
}

static void make(int i, uint64_t value) {
  if (!pooled)
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
  bool large = argc > 4 && strcmp(argv[4], "large") == 0;
  pooled = large || (argc > 4 && strcmp(argv[4], "pool") == 0);
  bool burst = argc > 4 && strcmp(argv[4], "burst") == 0;
  bool with_small = burst || (argc > 4 && strcmp(argv[4], "small") == 0);
  bool holds = argc > 4 && strcmp(argv[4], "hold") == 0;
  start();
  size_t all = bytes * (size_t)count * (large ? 3 : 1);
  cu_addr base = pooled ? pool(all, !large) : 0;
  for (int i = 0; pooled && i < count; i++) block[i] = base + bytes * (size_t)i;
  void (*hold)(int) = holds ? (void (*)(int))(uintptr_t)standin("standin_hold") : NULL;
  for (int i = 0; i < count && i < BLOCKS_MAX; i++) {
    if (hold != NULL && i == count - 2) hold(1);
    make(i, (uint64_t)i * 100000 + 7);
  }
  if (hold != NULL) hold(0);
  for (int step = 0; step < steps; step++) {
    for (int i = 0; i < count; i++) mix(i, (i + 1) % count);
    if (with_small) map_small(burst);
    if (step == steps / 2 && !pooled) {
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
  if (pooled) must(DRIVER("cuMemUnmap", cu_result(*)(cu_addr, size_t))(base, all), "unmap");
  if (with_small) printf("%d of %d small pages on the host\n", small_on_host(), small_count);
  printf("equal %d words\n", count * PLACES * WORDS);
  return 0;
}
