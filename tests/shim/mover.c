/* Mover: a program that uses more pages than the limit allows, in steps that repeat.
 *
 *   mover PAGES STEPS HOW   HOW: letters of: r (half of the pages are only read), h (one page is
 * written through a table of pointers that no launch names), s (a second stream), c (order changes
 * at half of the steps)
 *
 * Every page's words are kept on the host too, worked out by the same arithmetic; at the end all
 * are compared. Prints "equal N words" or the first difference. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda_driver.h"

enum { PAGES_MAX = 256, WORDS = 4096 };
#define PAGE_BYTES ((size_t)8 << 20)

static void *library;
static cu_addr base;
static uint64_t (*model)[WORDS];
static void *mix_kernel, *fill_kernel, *through_kernel;
static cu_result (*launch_kernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned,
                                  unsigned, unsigned, cu_stream, void **, void **);

#define DRIVER(name, type) ((type)(uintptr_t)dlsym(library, name))

static void must(cu_result code, const char *what) {
  if (code == CU_OK) return;
  printf("%s: %d\n", what, code);
  exit(3);
}

static void launch3(void *kernel, uint64_t a, uint64_t b, uint64_t c, cu_stream stream) {
  void *parameters[] = {&a, &b, &c};
  must(launch_kernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL), "launch");
}

static cu_addr page_at(unsigned i) {
  return base + i * PAGE_BYTES;
}

static void mix(unsigned to, unsigned from, cu_stream stream) {
  launch3(mix_kernel, page_at(to), page_at(from), WORDS, stream);
  for (unsigned i = 0; i < WORDS; i++) model[to][i] = model[to][i] * 3 + model[from][i] + i;
}

static void fill_pages(unsigned pages) {
  for (unsigned i = 0; i < pages; i++) {
    launch3(fill_kernel, page_at(i), WORDS, i * 1000, NULL);
    for (unsigned k = 0; k < WORDS; k++) model[i][k] = i * 1000 + k;
  }
}

static void make_pages(unsigned pages) {
  cu_prop prop = {.type = CU_ALLOCATION_PINNED, .location = {CU_LOCATION_DEVICE, 0}};
  cu_access access = {{CU_LOCATION_DEVICE, 0}, CU_ACCESS_READ_WRITE};
  must(DRIVER("cuMemAddressReserve",
              cu_result(*)(cu_addr *, size_t, size_t, cu_addr, unsigned long long))(
           &base, pages * PAGE_BYTES, 0, 0, 0),
       "reserve");
  for (unsigned i = 0; i < pages; i++) {
    cu_handle handle;
    must(DRIVER("cuMemCreate", cu_result(*)(cu_handle *, size_t, const cu_prop *,
                                            unsigned long long))(&handle, PAGE_BYTES, &prop, 0),
         "create");
    must(DRIVER("cuMemMap", cu_result(*)(cu_addr, size_t, size_t, cu_handle, unsigned long long))(
             page_at(i), PAGE_BYTES, 0, handle, 0),
         "map");
    must(DRIVER("cuMemSetAccess", cu_result(*)(cu_addr, size_t, const cu_access *, size_t))(
             page_at(i), PAGE_BYTES, &access, 1),
         "access");
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
  must(function(&through_kernel, module, "through"), "through");
  launch_kernel = DRIVER("cuLaunchKernel", __typeof__(launch_kernel));
}

int main(int argc, char **argv) {
  unsigned pages = argc > 1 ? (unsigned)atoi(argv[1]) : 32,
           steps = argc > 2 ? (unsigned)atoi(argv[2]) : 20;
  const char *how = argc > 3 ? argv[3] : "";
  cu_stream other = NULL;
  model = calloc(PAGES_MAX, sizeof *model);
  start();
  if (strchr(how, 'p'))
    must(DRIVER("cuMemAlloc_v2", cu_result(*)(cu_addr *, size_t))(&base, pages * PAGE_BYTES),
         "alloc");
  else
    make_pages(pages);
  fill_pages(pages);
  if (strchr(how, 's'))
    must(DRIVER("cuStreamCreate", cu_result(*)(cu_stream *, unsigned))(&other, 1), "stream");
  unsigned first = strchr(how, 'r') ? pages / 2 : 0;
  for (unsigned step = 0; step < steps; step++) {
    bool turned = strchr(how, 'c') && step >= steps / 2;
    for (unsigned k = 0; k < pages; k++) {
      unsigned i = turned ? pages - 1 - k : k, to = first + i % (pages - first);
      if (to != (i + 1) % pages) mix(to, (i + 1) % pages, i % 2 ? other : NULL);
    }
    if (strchr(how, 'h')) { /* the table is on the last page; what it names is the first to leave */
      cu_addr table = page_at(pages - 1) + PAGE_BYTES / 2, named = page_at(1);
      must(DRIVER("cuMemcpyAsync", cu_result(*)(cu_addr, cu_addr, size_t, cu_stream))(
               table, (cu_addr)(uintptr_t)&named, 8, NULL),
           "copy");
      launch3(through_kernel, table, 1, WORDS, NULL);
      for (unsigned k = 0; k < WORDS; k++) model[1][k] += k;
    }
  }
  static uint64_t seen[WORDS];
  for (unsigned i = 0; i < pages; i++) {
    must(DRIVER("cuMemcpyAsync", cu_result(*)(cu_addr, cu_addr, size_t, cu_stream))(
             (cu_addr)(uintptr_t)seen, page_at(i), sizeof seen, NULL),
         "copy back");
    must(DRIVER("cuCtxSynchronize", cu_result(*)(void))(), "wait");
    for (unsigned k = 0; k < WORDS; k++)
      if (seen[k] != model[i][k]) {
        printf("page %u word %u is %llx, not %llx\n", i, k, (unsigned long long)seen[k],
               (unsigned long long)model[i][k]);
        return 1;
      }
  }
  if (strchr(how, 'p')) must(DRIVER("cuMemFree_v2", cu_result(*)(cu_addr))(base), "free");
  printf("equal %u words\n", pages * WORDS);
  return 0;
}
