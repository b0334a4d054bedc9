/* Framework: a library that needs the driver by name and calls it in three ways: through its
 * imports; like cudart, by opening it and looking up functions at the first use; and through an
 * address stored when it was loaded. The tests of Python's enable() load it before or after the
 * shim. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

#include "device/cuda_driver.h"

extern cu_result cuInit(unsigned flags);
extern cu_result cuDevicePrimaryCtxRetain(cu_context *context, cu_device device);
extern cu_result cuCtxSetCurrent(cu_context context);
extern cu_result cuMemAlloc_v2(cu_addr *addr, size_t bytes);

/* Filled when the library is loaded, as in cuBLASLt. */
static cu_result (*table[2])(cu_addr *, size_t);

__attribute__((constructor)) static void fill_table(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver != NULL)
    table[1] = (cu_result(*)(cu_addr *, size_t))(uintptr_t)dlsym(driver, "cuMemAlloc_v2");
}

__attribute__((visibility("default"))) int framework_start(void);
int framework_start(void) {
  cu_context context;
  int code = (int)cuInit(0);
  if (code == 0) code = (int)cuDevicePrimaryCtxRetain(&context, 0);
  return code != 0 ? code : (int)cuCtxSetCurrent(context);
}

/* how: 0 through its imports, 1 like cudart, 2 through its table. */
__attribute__((visibility("default"))) int framework_take(int how, size_t mib);
int framework_take(int how, size_t mib) {
  cu_addr addr;
  if (how == 0) return (int)cuMemAlloc_v2(&addr, mib << 20);
  if (how == 2) return table[1] == NULL ? -3 : (int)table[1](&addr, mib << 20);
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL) return -1;
  cu_result (*ask)(const char *, void **, int, uint64_t, int *) = (cu_result(*)(
      const char *, void **, int, uint64_t, int *))(uintptr_t)dlsym(driver, "cuGetProcAddress_v2");
  void *take = NULL;
  int found;
  if (ask == NULL || ask("cuMemAlloc", &take, 13000, 0, &found) != CU_OK || take == NULL) return -2;
  return (int)((cu_result(*)(cu_addr *, size_t))(uintptr_t)take)(&addr, mib << 20);
}
