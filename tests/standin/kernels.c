/* Stand-in libcuda: a few kernels, and how they are found and launched.
 *
 *   stowage_fingerprint(addresses, bytes, sums)   Stowage's own (src/shim/fingerprint.c)
 *   mix(to, from, words)      to[i] = to[i] * 3 + from[i] + i
 *   fill(to, words, value)    to[i] = value + i
 *   through(table, count, words)   for each address of a table on the device: add its number and i
 *   stamp(table, count, words)     the same, and what was there does not matter
 *   point(to, high, low)      to[0] = high << 32 | low: an address that no parameter shows
 */
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "device/cuda_driver.h"
#include "shim/hooks.h"
#include "standin/queue.h"

#define CALL cu_result __attribute__((visibility("default")))

CALL cuModuleLoadData(void **module, const void *image);
CALL cuModuleGetFunction(void **function, void *module, const char *name);
CALL cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *bytes);
CALL cuKernelGetParamInfo(void *function, size_t index, size_t *offset, size_t *bytes);
CALL cuFuncGetName(const char **name, void *function);
CALL cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                    unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                    cu_stream stream, void **parameters, void **extra);
CALL cuLaunchKernel_ptsz(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                         unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                         cu_stream stream, void **parameters, void **extra);

static uint64_t *at(uint64_t addr) {
  return (uint64_t *)(uintptr_t)addr;
}

/* Other threads may read or write the same words at this moment, as on a device. */
static uint64_t get(uint64_t addr, uint64_t i) {
  return __atomic_load_n(at(addr) + i, __ATOMIC_RELAXED);
}
static void put(uint64_t addr, uint64_t i, uint64_t value) {
  __atomic_store_n(at(addr) + i, value, __ATOMIC_RELAXED);
}

/* Words that are 0 add nothing, so memory that was never written need not be read. */
static void print_words(uint64_t page, uint64_t first, uint64_t end, uint64_t *sums) {
  for (uint64_t i = first; i < end; i++) {
    uint64_t word = get(page, i);
    if (word == 0) continue;
    uint64_t x = word * (2 * i + 1);
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 29;
    x += (x == 0) + i;
    sums[0] += x;
    uint64_t y = x * UINT64_C(0xff51afd7ed558ccd);
    sums[1] += y ^ (y >> 32);
  }
}

static void print_page(uint64_t page, uint64_t bytes, uint64_t *sums) {
  uint64_t offset, left;
  pthread_mutex_lock(&standin_mutex);
  int file = standin_file(page, &offset, &left);
  pthread_mutex_unlock(&standin_mutex);
  if (file < 0 || left < bytes) {
    print_words(page, 0, bytes / 8, sums);
    return;
  }
  for (uint64_t at_byte = 0; at_byte < bytes;) {
    off_t data = lseek(file, (off_t)(offset + at_byte), SEEK_DATA);
    if (data < 0 || (uint64_t)data - offset >= bytes) return;
    off_t hole = lseek(file, data, SEEK_HOLE);
    uint64_t end = hole < 0 || (uint64_t)hole - offset > bytes ? bytes : (uint64_t)hole - offset;
    print_words(page, ((uint64_t)data - offset) / 8, end / 8, sums);
    at_byte = end;
  }
}

/* Stores the sum of a whole page in its first block's sums; the caller adds them up. */
static void fingerprint(const uint64_t *arguments, unsigned grid_x, unsigned grid_y) {
  for (unsigned y = 0; y < grid_y; y++) {
    uint64_t sums[2] = {0, 0}, to = arguments[2] + (uint64_t)y * grid_x * 16;
    print_page(get(arguments[0], y), arguments[1], sums);
    put(to, 0, sums[0]);
    put(to, 1, sums[1]);
    for (unsigned i = 2; i < grid_x * 2; i++) put(to, i, 0);
  }
}
static int fingerprint_ranges(const uint64_t *arguments, unsigned grid_x, unsigned grid_y,
                              bool list, standin_range *out) {
  int n = 0;
  out[n++] = (standin_range){arguments[0], (uint64_t)grid_y * 8};
  out[n++] = (standin_range){arguments[2], (uint64_t)grid_x * grid_y * 16};
  for (unsigned y = 0; list && y < grid_y; y++)
    out[n++] = (standin_range){get(arguments[0], y), arguments[1]};
  return n;
}

static void mix(const uint64_t *arguments, unsigned grid_x, unsigned grid_y) {
  (void)grid_x, (void)grid_y;
  for (uint64_t i = 0; i < arguments[2]; i++)
    put(arguments[0], i, get(arguments[0], i) * 3 + get(arguments[1], i) + i);
}
static int mix_ranges(const uint64_t *arguments, unsigned grid_x, unsigned grid_y, bool list,
                      standin_range *out) {
  (void)grid_x, (void)grid_y, (void)list;
  out[0] = (standin_range){arguments[0], arguments[2] * 8};
  out[1] = (standin_range){arguments[1], arguments[2] * 8};
  return 2;
}

static void fill(const uint64_t *arguments, unsigned grid_x, unsigned grid_y) {
  (void)grid_x, (void)grid_y;
  for (uint64_t i = 0; i < arguments[1]; i++) put(arguments[0], i, arguments[2] + i);
}
static int fill_ranges(const uint64_t *arguments, unsigned grid_x, unsigned grid_y, bool list,
                       standin_range *out) {
  (void)grid_x, (void)grid_y, (void)list;
  out[0] = (standin_range){arguments[0], arguments[1] * 8};
  return 1;
}

static void through(const uint64_t *arguments, unsigned grid_x, unsigned grid_y) {
  (void)grid_x, (void)grid_y;
  for (uint64_t k = 0; k < arguments[1]; k++) {
    uint64_t to = get(arguments[0], k);
    for (uint64_t i = 0; i < arguments[2]; i++) put(to, i, get(to, i) + k + i);
  }
}
static void stamp(const uint64_t *arguments, unsigned grid_x, unsigned grid_y) {
  (void)grid_x, (void)grid_y;
  for (uint64_t k = 0; k < arguments[1]; k++) {
    uint64_t to = get(arguments[0], k);
    for (uint64_t i = 0; i < arguments[2]; i++) put(to, i, k + i);
  }
}
static int table_ranges(const uint64_t *arguments, unsigned grid_x, unsigned grid_y, bool list,
                        standin_range *out) {
  (void)grid_x, (void)grid_y;
  int n = 0;
  out[n++] = (standin_range){arguments[0], arguments[1] * 8};
  for (uint64_t k = 0; list && k < arguments[1]; k++)
    out[n++] = (standin_range){get(arguments[0], k), arguments[2] * 8};
  return n;
}

static void point(const uint64_t *arguments, unsigned grid_x, unsigned grid_y) {
  (void)grid_x, (void)grid_y;
  put(arguments[0], 0, arguments[1] << 32 | arguments[2]);
}
static int point_ranges(const uint64_t *arguments, unsigned grid_x, unsigned grid_y, bool list,
                        standin_range *out) {
  (void)grid_x, (void)grid_y, (void)list;
  out[0] = (standin_range){arguments[0], 8};
  return 1;
}

static standin_kernel kernels[] = {{"stowage_fingerprint", fingerprint, fingerprint_ranges},
                                   {"mix", mix, mix_ranges},
                                   {"fill", fill, fill_ranges},
                                   {"through", through, table_ranges},
                                   {"stamp", stamp, table_ranges},
                                   {"point", point, point_ranges}};
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

CALL cuFuncGetName(const char **name, void *function) {
  *name = ((const standin_kernel *)function)->name;
  return CU_OK;
}

CALL cuKernelGetParamInfo(void *function, size_t index, size_t *offset, size_t *bytes) {
  (void)function, (void)index, (void)offset, (void)bytes;
  return CU_ERROR_INVALID_HANDLE;
}

static cu_result launch(const char *name, void *function, unsigned grid_x, unsigned grid_y,
                        cu_stream stream, bool per_thread, void **parameters, void **extra) {
  const standin_kernel *k = function;
  uint64_t arguments[PARAMETERS];
  if (k < kernels || k >= kernels + sizeof kernels / sizeof *kernels)
    return CU_ERROR_INVALID_HANDLE;
  if (parameters == NULL)
    memcpy(arguments, extra[1], sizeof arguments);
  else
    for (int i = 0; i < PARAMETERS; i++) memcpy(&arguments[i], parameters[i], 8);
  pthread_mutex_lock(&standin_mutex);
  int code = standin_begin(name, 1);
  standin_queue *q = code == CU_OK ? queue_of(stream, per_thread) : NULL;
  if (q != NULL) queue_kernel(q, k, arguments, grid_x, grid_y);
  pthread_mutex_unlock(&standin_mutex);
  return code != CU_OK ? code : q != NULL ? CU_OK : CU_ERROR_INVALID_HANDLE;
}

CALL cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                    unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                    cu_stream stream, void **parameters, void **extra) {
  (void)grid_z, (void)block_x, (void)block_y, (void)block_z, (void)shared;
  return launch(__func__, function, grid_x, grid_y, stream, false, parameters, extra);
}

CALL cuLaunchKernel_ptsz(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                         unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                         cu_stream stream, void **parameters, void **extra) {
  (void)grid_z, (void)block_x, (void)block_y, (void)block_z, (void)shared;
  return launch(__func__, function, grid_x, grid_y, stream, true, parameters, extra);
}
