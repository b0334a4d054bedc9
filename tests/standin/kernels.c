/* Stand-in libcuda: a few kernels, and how they are found and launched. They run when launched.
 *
 *   stowage_fingerprint(addresses, bytes, sums)   Stowage's own (src/shim/fingerprint.c)
 *   mix(to, from, words)      to[i] = to[i] * 3 + from[i] + i
 *   fill(to, words, value)    to[i] = value + i
 *   through(table, count, words)   for each address of a table on the device: fill from its number
 */
#include <stdint.h>
#include <string.h>

#include "device/cuda_driver.h"
#include "shim/hooks.h"

#define CALL cu_result __attribute__((visibility("default")))

CALL cuModuleLoadData(void **module, const void *image);
CALL cuModuleGetFunction(void **function, void *module, const char *name);
CALL cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *bytes);
CALL cuKernelGetParamInfo(void *function, size_t index, size_t *offset, size_t *bytes);
CALL cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                    unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                    cu_stream stream, void **parameters, void **extra);

typedef struct kernel {
  const char *name;
  void (*run)(const uint64_t *arguments, unsigned grid_x, unsigned grid_y);
} kernel;

static uint64_t *at(uint64_t addr) {
  return (uint64_t *)(uintptr_t)addr;
}

static void print_page(const uint64_t *page, uint64_t words, uint64_t first, uint64_t step,
                       uint64_t *sums) {
  uint64_t a = 0, b = 0;
  for (uint64_t i = first; 2 * i < words; i += step)
    for (uint64_t k = 0; k < 2; k++) {
      uint64_t x =
          page[2 * i + k] ^ (i * UINT64_C(0x3c6ef372fe94f82a) + k * UINT64_C(0x9e3779b97f4a7c15));
      x ^= x >> 32;
      x *= UINT64_C(0xd6e8feb86659fd93);
      x ^= x >> 29;
      a += x;
      uint64_t y = x * UINT64_C(0xff51afd7ed558ccd);
      b += y ^ (y >> 32);
    }
  sums[0] = a;
  sums[1] = b;
}

/* All of a page in its first block's sums: they are added up in any case. */
static void fingerprint(const uint64_t *arguments, unsigned grid_x, unsigned grid_y) {
  for (unsigned y = 0; y < grid_y; y++) {
    uint64_t *sums = at(arguments[2]) + (size_t)y * grid_x * 2;
    memset(sums, 0, (size_t)grid_x * 16);
    print_page(at(at(arguments[0])[y]), arguments[1] / 8, 0, 1, sums);
  }
}

static void mix(const uint64_t *arguments, unsigned grid_x, unsigned grid_y) {
  (void)grid_x, (void)grid_y;
  uint64_t *to = at(arguments[0]);
  const uint64_t *from = at(arguments[1]);
  for (uint64_t i = 0; i < arguments[2]; i++) to[i] = to[i] * 3 + from[i] + i;
}

static void fill(const uint64_t *arguments, unsigned grid_x, unsigned grid_y) {
  (void)grid_x, (void)grid_y;
  for (uint64_t i = 0; i < arguments[1]; i++) at(arguments[0])[i] = arguments[2] + i;
}

static void through(const uint64_t *arguments, unsigned grid_x, unsigned grid_y) {
  (void)grid_x, (void)grid_y;
  for (uint64_t k = 0; k < arguments[1]; k++)
    for (uint64_t i = 0; i < arguments[2]; i++) at(at(arguments[0])[k])[i] += k + i;
}

static kernel kernels[] = {
    {"stowage_fingerprint", fingerprint}, {"mix", mix}, {"fill", fill}, {"through", through}};
enum { PARAMETERS = 3 };

CALL cuModuleLoadData(void **module, const void *image) {
  *module = (void *)(uintptr_t)image;
  return image != NULL ? CU_OK : CU_ERROR_INVALID_VALUE;
}

CALL cuModuleGetFunction(void **function, void *module, const char *name) {
  (void)module;
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
    if (strcmp(kernels[i].name, name) == 0) {
      *function = &kernels[i];
      return CU_OK;
    }
  return 500; /* CUDA_ERROR_NOT_FOUND */
}

CALL cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *bytes) {
  (void)function;
  if (index >= PARAMETERS) return CU_ERROR_INVALID_VALUE;
  *offset = index * 8;
  *bytes = 8;
  return CU_OK;
}

CALL cuKernelGetParamInfo(void *function, size_t index, size_t *offset, size_t *bytes) {
  (void)function, (void)index, (void)offset, (void)bytes;
  return CU_ERROR_INVALID_HANDLE;
}

CALL cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                    unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                    cu_stream stream, void **parameters, void **extra) {
  (void)grid_z, (void)block_x, (void)block_y, (void)block_z, (void)shared, (void)stream;
  uint64_t arguments[PARAMETERS];
  if ((kernel *)function < kernels ||
      (kernel *)function >= kernels + sizeof kernels / sizeof *kernels)
    return CU_ERROR_INVALID_HANDLE;
  if (parameters == NULL)
    memcpy(arguments, extra[1], sizeof arguments);
  else
    for (int i = 0; i < PARAMETERS; i++) memcpy(&arguments[i], parameters[i], 8);
  ((kernel *)function)->run(arguments, grid_x, grid_y);
  return CU_OK;
}
