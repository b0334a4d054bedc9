/* A plain CUDA program that allocates four GiB in pieces of 256 MiB. It needs no toolkit: it opens
 * the driver at run time. Run it without Stowage; on a GPU that appears to have 2 GiB, where it
 * stops; with spilling to host memory; and with the heap and a recording:
 *
 * - cc -o plain examples/run/plain.c -ldl && ./plain - stowage run --vram-limit 2G -- ./plain -
 * stowage run --vram-limit 2G --spill 4G -- ./plain - stowage run --fast-malloc --record plain.stow
 * -- ./plain - stowage report plain.stow --text */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define PIECES 16
#define PIECE  ((size_t)256 << 20)

typedef unsigned long long address; /* CUdeviceptr */

/* Returns the driver's function of that name, as its manual declares it. */
static void *driver(const char *name) {
  static void *library;
  if (library == NULL) library = dlopen("libcuda.so.1", RTLD_NOW);
  void *found = library == NULL ? NULL : dlsym(library, name);
  if (found != NULL) return found;
  printf("no CUDA driver here\n");
  exit(1);
}

int main(void) {
  int (*init)(unsigned) = (int (*)(unsigned))driver("cuInit");
  int (*retain)(void **, int) = (int (*)(void **, int))driver("cuDevicePrimaryCtxRetain");
  int (*set)(void *) = (int (*)(void *))driver("cuCtxSetCurrent");
  int (*info)(size_t *, size_t *) = (int (*)(size_t *, size_t *))driver("cuMemGetInfo_v2");
  int (*take)(address *, size_t) = (int (*)(address *, size_t))driver("cuMemAlloc_v2");
  int (*give)(address) = (int (*)(address))driver("cuMemFree_v2");
  int (*fill)(address, unsigned char, size_t, void *) =
      (int (*)(address, unsigned char, size_t, void *))driver("cuMemsetD8Async");
  int (*copy)(address, address, size_t, void *) =
      (int (*)(address, address, size_t, void *))driver("cuMemcpyAsync");
  int (*wait)(void) = (int (*)(void))driver("cuCtxSynchronize");
  void *context;
  address pieces[PIECES];
  size_t free_bytes, total_bytes;
  if (init(0) != 0 || retain(&context, 0) != 0 || set(context) != 0 ||
      info(&free_bytes, &total_bytes) != 0) {
    printf("no GPU here\n");
    return 1;
  }
  printf("GPU memory: %zu MiB, %zu MiB free\n", total_bytes >> 20, free_bytes >> 20);
  int count = 0;
  while (count < PIECES && take(&pieces[count], PIECE) == 0) {
    if (fill(pieces[count], (unsigned char)count, 4096, NULL) != 0) return 1;
    count++;
  }
  printf("%zu MiB allocated\n", count * (PIECE >> 20));
  for (int i = 0; i < count; i++) {
    unsigned char seen = 255;
    if (copy((address)(size_t)&seen, pieces[i], 1, NULL) != 0 || wait() != 0 || seen != i) return 1;
    give(pieces[i]);
  }
  return 0;
}
