/* Mixer: allocates and frees memory in every way, at random and sometimes in unusual ways, and
 * after each step compares what the shim counts with what the driver holds.
 *
 *   mixer SEED [LIMIT_MIB]
 *
 * Sizes are whole pages, so that the two agree to the byte. Prints differences. The exit code is 0
 * if there are none, the limit was obeyed, and everything is reported as free at the end. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda_driver.h"
#include "shim/hooks.h"

#define STEPS      2000
#define THINGS_MAX 400
#define MAPS_MAX   3

typedef enum kind { PLAIN, PAGE, POOLED, MANAGED, ARRAY, PINNED, KIND_COUNT } kind;

typedef struct thing {
  kind what;
  size_t bytes;
  cu_handle name; /* handle, address or array */
  cu_addr maps[MAPS_MAX];
  int map_count, released, depth; /* depth: number of our own contexts when it was created */
} thing;

static void *library;
static thing things[THINGS_MAX];
static int thing_count, wrong;
static cu_context own[3];
static int own_count;
static cu_pool pools[3];
static unsigned long long seed;

#define DRIVER(name, type) ((type)(uintptr_t)dlsym(library, name))
#define HOOKED(name)       ((__typeof__(&name))(uintptr_t)dlsym(library, #name))

static unsigned chance(unsigned of) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (unsigned)(seed >> 33) % of;
}

/* Reports an unexpected result. */
static void expect(const char *what, int code, int wanted) {
  if (code == wanted) return;
  printf("%s: %d instead of %d\n", what, code, wanted);
  wrong++;
}

/* ---- pages ---- */

static int map_more(thing *t) {
  cu_access access = {{CU_LOCATION_DEVICE, 0}, CU_ACCESS_READ_WRITE};
  cu_addr at;
  DRIVER("cuMemAddressReserve",
         cu_result(*)(cu_addr *, size_t, size_t, cu_addr, unsigned long long))
  (&at, t->bytes, 0, 0, 0);
  int code = HOOKED(cuMemMap)(at, t->bytes, 0, t->name, 0);
  if (code != CU_OK) return code;
  t->maps[t->map_count++] = at;
  return HOOKED(cuMemSetAccess)(at, t->bytes, &access, 1);
}

static int unmap_one(thing *t, int i) {
  int code = HOOKED(cuMemUnmap)(t->maps[i], t->bytes);
  if (code == CU_OK) code = HOOKED(cuMemAddressFree)(t->maps[i], t->bytes);
  t->maps[i] = t->maps[--t->map_count];
  return code;
}

/* Does what a program may do with a page it has mapped. */
static void be_odd(thing *t) {
  cu_handle same;
  if (t->what != PAGE || t->map_count == 0) return;
  switch (t->released ? 3 : chance(4)) {
  case 0:
    if (t->map_count < MAPS_MAX) expect("a second mapping", map_more(t), CU_OK);
    break;
  case 1:
    expect(
        "retaining",
        HOOKED(cuMemRetainAllocationHandle)(&same, (void *)(uintptr_t)(t->maps[0] + t->bytes - 1)),
        CU_OK);
    expect("releasing what was retained", HOOKED(cuMemRelease)(same), CU_OK);
    break;
  case 2:
    expect("releasing while mapped", HOOKED(cuMemRelease)(t->name), CU_OK);
    expect("releasing twice", HOOKED(cuMemRelease)(t->name), CU_ERROR_INVALID_VALUE);
    t->released = 1;
    break;
  default:
    if (t->map_count > 1) expect("unmapping one", unmap_one(t, (int)chance(2)), CU_OK);
  }
}

/* ---- allocating and freeing ---- */

static int take(thing *t) {
  cu_prop prop = {.type = CU_ALLOCATION_PINNED, .location = {CU_LOCATION_DEVICE, 0}};
  cu_array_size size = {t->bytes / 16, 0, 0x20, 4};
  void *pointer = NULL;
  cu_array array = NULL;
  cu_addr addr = 0;
  int code;
  switch (t->what) {
  case PLAIN: code = HOOKED(cuMemAlloc_v2)(&addr, t->bytes); break;
  case MANAGED: code = HOOKED(cuMemAllocManaged)(&addr, t->bytes, 1); break;
  case POOLED:
    code = HOOKED(cuMemAllocFromPoolAsync)(&addr, t->bytes, pools[chance(3)], NULL);
    break;
  case ARRAY: code = HOOKED(cuArrayCreate_v2)(&array, &size); break;
  case PINNED: code = HOOKED(cuMemHostAlloc)(&pointer, t->bytes, 0); break;
  default: code = HOOKED(cuMemCreate)(&t->name, t->bytes, &prop, 0);
  }
  if (t->what != PAGE) t->name = addr + (uintptr_t)pointer + (uintptr_t)array;
  if (code == CU_OK && t->what == PAGE && chance(4) > 0) expect("mapping", map_more(t), CU_OK);
  return code;
}

static int give(thing *t) {
  switch (t->what) {
  case PLAIN:
  case MANAGED: return HOOKED(cuMemFree_v2)(t->name);
  case POOLED: return HOOKED(cuMemFreeAsync)(t->name, NULL);
  case ARRAY: return HOOKED(cuArrayDestroy)((cu_array)(uintptr_t)t->name);
  case PINNED: return HOOKED(cuMemFreeHost)((void *)(uintptr_t)t->name);
  default: break;
  }
  int code = CU_OK;
  while (t->map_count > 0 && code == CU_OK) code = unmap_one(t, 0);
  return code == CU_OK && !t->released ? HOOKED(cuMemRelease)(t->name) : code;
}

static void take_one(void) {
  thing *t = &things[thing_count];
  *t = (thing){.what = chance(3) > 0 ? (kind)chance(KIND_COUNT) : PAGE,
               .bytes = (1 + chance(12)) * (size_t)(2 << 20),
               .depth = own_count};
  int code = take(t);
  if (code != CU_ERROR_OUT_OF_MEMORY) expect("taking", code, CU_OK);
  thing_count += code == CU_OK;
}

static void give_one(void) {
  int i = (int)chance((unsigned)thing_count);
  expect("giving", give(&things[i]), CU_OK);
  things[i] = things[--thing_count];
}

/* ---- contexts, pools, invalid calls ---- */

static void end_context(void) {
  expect("ending a context", HOOKED(cuCtxDestroy_v2)(own[--own_count]), CU_OK);
  for (int i = 0; i < thing_count;) {
    kind what = things[i].what;
    if (things[i].depth > own_count && (what == PLAIN || what == MANAGED || what == ARRAY))
      things[i] = things[--thing_count]; /* it was destroyed with the context */
    else
      i++;
  }
}

static void free_nothing(void) {
  expect("freeing nothing", HOOKED(cuMemFree_v2)(0xdead000), CU_ERROR_INVALID_VALUE);
  expect("unpinning nothing", HOOKED(cuMemFreeHost)((void *)0xdead000), CU_ERROR_INVALID_VALUE);
  expect("releasing nothing", HOOKED(cuMemRelease)(77), CU_ERROR_INVALID_VALUE);
  expect("unmapping nothing", HOOKED(cuMemUnmap)(0x7000000000, 2 << 20), CU_ERROR_INVALID_VALUE);
  expect("freeing nothing of a pool", HOOKED(cuMemFreeAsync)(0xdead000, NULL),
         CU_ERROR_INVALID_VALUE);
}

static void trim_pools(void) {
  for (int i = 0; i < 3; i++) expect("trimming", HOOKED(cuMemPoolTrimTo)(pools[i], 0), CU_OK);
}

static void step(void) {
  unsigned what = chance(100);
  if (what < 35 && thing_count < THINGS_MAX)
    take_one();
  else if (what < 55 && thing_count > 0)
    be_odd(&things[chance((unsigned)thing_count)]);
  else if (what < 57)
    free_nothing();
  else if (what < 58 && own_count < 3)
    expect("a context", HOOKED(cuCtxCreate_v2)(&own[own_count++], 0, 0), CU_OK);
  else if (what < 59 && own_count > 0)
    end_context();
  else if (what < 60)
    trim_pools();
  else if (thing_count > 0)
    give_one();
}

/* ---- comparing ---- */

static void compare(int at, size_t limit) {
  size_t left = 0, total = 0;
  uint64_t counted = HOOKED(stow_shim_bytes)(0, NULL);
  cu_result (*real)(size_t *, size_t *) =
      (cu_result(*)(size_t *, size_t *))(uintptr_t)HOOKED(stow_shim_real)("cuMemGetInfo_v2");
  expect("the driver's figure", real(&left, &total), CU_OK);
  size_t used = total - left;
  if (counted == used && (limit == 0 || used <= limit)) return;
  printf("step %d: %zu bytes are held, %zu were counted, the limit is %zu\n", at, used,
         (size_t)counted, limit);
  wrong++;
}

int main(int argc, char **argv) {
  cu_context context;
  cu_pool_props props = {CU_ALLOCATION_PINNED, 0, {CU_LOCATION_DEVICE, 0}};
  size_t limit = argc > 2 ? (size_t)strtoul(argv[2], NULL, 10) << 20 : 0, left, total;
  seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
  library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL || dlsym(library, "stow_shim_bytes") == NULL) {
    puts("the shim is not loaded");
    return 3;
  }
  expect("cuInit", DRIVER("cuInit", cu_result(*)(unsigned))(0), CU_OK);
  expect("the primary context", HOOKED(cuDevicePrimaryCtxRetain)(&context, 0), CU_OK);
  DRIVER("cuCtxSetCurrent", cu_result(*)(cu_context))(context);
  DRIVER("cuDeviceGetMemPool", cu_result(*)(cu_pool *, cu_device))(&pools[0], 0);
  for (int i = 1; i < 3; i++) expect("a pool", HOOKED(cuMemPoolCreate)(&pools[i], &props), CU_OK);
  for (int i = 0; i < STEPS && wrong == 0; i++) {
    step();
    compare(i, limit);
  }
  while (thing_count > 0 && wrong == 0) give_one();
  while (own_count > 0) end_context();
  trim_pools();
  expect("the figures", HOOKED(cuMemGetInfo_v2)(&left, &total), CU_OK);
  compare(STEPS, limit);
  if (left != total) printf("in the end %zu of %zu bytes are reported as free\n", left, total);
  if (HOOKED(stow_shim_bytes)(0, "pinned") != 0) puts("pinned memory is still counted");
  return wrong != 0 || left != total || HOOKED(stow_shim_bytes)(0, "pinned") != 0;
}
