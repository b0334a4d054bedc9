/* Cuda probe, the child's side: really tries one backing.
 *
 * Runs as `stowage probe-host-tier DEVICE BACKING [NODES]` in a process that may crash. It prints
 * "begin" first, so that its parent can tell a backing that crashes from a command that does not
 * know the verb. It does what the backend does later: create a page, map it, let the device write
 * and read it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda_device_id.h"
#include "device/cuda_probe.h"
#include "device/physical.h"

#define HEAD    "host-tier 1 "
#define PATTERN 0x5a

typedef struct walker {
  const cuda_driver *driver;
  cu_device device;
  size_t bytes; /* size of the page tried: the device's granularity */
  unsigned char *back;
} walker;

/* Records the driver call that failed. */
static cu_result failed_at(const char **step, const char *name, cu_result code) {
  if (code != CU_OK && *step == NULL) *step = name;
  return code;
}

/* Lets the device write through `addr` and the host read it back; then the reverse. */
static cu_result use_memory(const walker *w, cu_addr addr, const char **step) {
  const cuda_driver *d = w->driver;
  cu_addr back = (uintptr_t)w->back;
  cu_result code =
      failed_at(step, "cuMemsetD8Async", d->cuMemsetD8Async(addr, PATTERN, w->bytes, NULL));
  if (code == CU_OK)
    code = failed_at(step, "cuMemcpyAsync", d->cuMemcpyAsync(back, addr, w->bytes, NULL));
  if (code == CU_OK) code = failed_at(step, "cuStreamSynchronize", d->cuStreamSynchronize(NULL));
  if (code != CU_OK) return code;
  for (size_t i = 0; i < w->bytes; i++)
    if (w->back[i] != PATTERN) return failed_at(step, "reading back", CU_ERROR_UNKNOWN);
  for (size_t i = 0; i < w->bytes; i++) w->back[i] = (unsigned char)(i * 31 >> 3);
  code = failed_at(step, "cuMemcpyAsync", d->cuMemcpyAsync(addr, back, w->bytes, NULL));
  if (code == CU_OK) code = failed_at(step, "cuStreamSynchronize", d->cuStreamSynchronize(NULL));
  memset(w->back, 0, w->bytes);
  if (code == CU_OK)
    code = failed_at(step, "cuMemcpyAsync", d->cuMemcpyAsync(back, addr, w->bytes, NULL));
  if (code == CU_OK) code = failed_at(step, "cuStreamSynchronize", d->cuStreamSynchronize(NULL));
  for (size_t i = 0; code == CU_OK && i < w->bytes; i++)
    if (w->back[i] != (unsigned char)(i * 31 >> 3))
      code = failed_at(step, "reading back", CU_ERROR_UNKNOWN);
  return code;
}

/* Creates, maps and uses a page at `location`, and frees it again, which is part of the test. */
static cu_result walk_page(const walker *w, cu_location location, const char **step) {
  const cuda_driver *d = w->driver;
  cu_prop prop = {.type = CU_ALLOCATION_PINNED, .location = location};
  physical made = {.driver = d};
  cu_access grant = {.location = {CU_LOCATION_DEVICE, w->device}, .flags = CU_ACCESS_READ_WRITE};
  cu_addr addr = 0;
  cu_handle page = 0;
  size_t granule = 0;
  cu_result code =
      failed_at(step, "cuMemGetAllocationGranularity",
                d->cuMemGetAllocationGranularity(&granule, &prop, CU_GRANULARITY_MINIMUM));
  if (code != CU_OK) return code;
  if (granule > w->bytes) /* pages of the two tiers must be interchangeable */
    return failed_at(step, "comparing page granularities", CU_ERROR_NOT_SUPPORTED);
  code = failed_at(step, "cuMemCreate", physical_page_create(&made, &page, w->bytes, &prop, 0));
  if (code != CU_OK) return code;
  code = failed_at(step, "cuMemAddressReserve", d->cuMemAddressReserve(&addr, w->bytes, 0, 0, 0));
  if (code == CU_OK) {
    code = failed_at(step, "cuMemMap", d->cuMemMap(addr, w->bytes, 0, page, 0));
    if (code == CU_OK) {
      code = failed_at(step, "cuMemSetAccess", d->cuMemSetAccess(addr, w->bytes, &grant, 1));
      if (code == CU_OK) code = use_memory(w, addr, step);
      cu_result unmapped = failed_at(step, "cuMemUnmap", d->cuMemUnmap(addr, w->bytes));
      if (code == CU_OK) code = unmapped;
    }
    d->cuMemAddressFree(addr, w->bytes);
  }
  cu_result released =
      failed_at(step, "cuMemRelease", physical_page_release(&made, page, w->bytes));
  return code != CU_OK ? code : released;
}

static cu_result walk_pinned(const walker *w, const char **step) {
  const cuda_driver *d = w->driver;
  void *pointer = NULL;
  cu_addr addr = 0;
  cu_result code =
      failed_at(step, "cuMemHostAlloc",
                d->cuMemHostAlloc(&pointer, w->bytes, CU_HOST_PORTABLE | CU_HOST_DEVICE_MAP));
  if (code != CU_OK) return code;
  code = failed_at(step, "cuMemHostGetDevicePointer",
                   d->cuMemHostGetDevicePointer_v2(&addr, pointer, 0));
  if (code == CU_OK) code = use_memory(w, addr, step);
  d->cuMemFreeHost(pointer);
  return code;
}

/* Prints the result of the last attempt. */
static int answer(const walker *w, cu_result code, const char *step, int node) {
  if (code == CU_OK) {
    printf(HEAD "ok %d\n", node);
    return 0;
  }
  /* A full or busy device proves nothing about the backing. */
  bool unable = code == CU_ERROR_OUT_OF_MEMORY || code == CU_ERROR_DEVICE_UNAVAILABLE;
  const char *name = NULL;
  if (w->driver->cuGetErrorName == NULL || w->driver->cuGetErrorName(code, &name) != CU_OK ||
      name == NULL)
    name = "an error";
  printf(HEAD "%s %s answered %s (%d)\n", unable ? "unable" : "no", step, name, code);
  return 1;
}

static int walk_numa(const walker *w, const char *nodes) {
  cu_result code = CU_ERROR_INVALID_VALUE;
  const char *step = "reading the list of nodes";
  for (const char *at = nodes; *at >= '0' && *at <= '9';) {
    char *end;
    int node = (int)strtol(at, &end, 10);
    step = NULL;
    code = walk_page(w, (cu_location){CU_LOCATION_HOST_NUMA, node}, &step);
    if (code == CU_OK) return answer(w, code, step, node);
    at = *end == ',' ? end + 1 : end;
  }
  return answer(w, code, step, -1);
}

static int walk_path(const walker *w, const char *path, const char *nodes) {
  const char *step = NULL;
  if (strcmp(path, "numa") == 0) return walk_numa(w, nodes);
  cu_result code = strcmp(path, "host") == 0
                       ? walk_page(w, (cu_location){CU_LOCATION_HOST, 0}, &step)
                       : walk_pinned(w, &step);
  return answer(w, code, step, -1);
}

static bool understood(int argc, char **argv) {
  if (argc < 3) return false;
  if (strcmp(argv[2], "numa") == 0) return argc == 4;
  return argc == 3 && (strcmp(argv[2], "host") == 0 || strcmp(argv[2], "pinned") == 0);
}

int cuda_probe_main(int argc, char **argv) {
  if (!understood(argc, argv)) {
    fprintf(stderr,
            "usage: stowage " CUDA_PROBE_WORD " DEVICE numa NODE[,NODE]... | host | pinned\n");
    return 2;
  }
  printf(HEAD "begin\n");
  fflush(stdout);
  walker w = {.bytes = (size_t)2 << 20};
  cuda_device_id id;
  cu_context context;
  if (cuda_driver_get(&w.driver) != STOW_OK ||
      cuda_device_find(&id, w.driver, argv[1]) != STOW_OK) {
    printf(HEAD "unable %s\n", stow_status_message());
    return 1;
  }
  w.device = id.handle;
  cu_prop prop = {.type = CU_ALLOCATION_PINNED, .location = {CU_LOCATION_DEVICE, w.device}};
  if (w.driver->has_vmm)
    w.driver->cuMemGetAllocationGranularity(&w.bytes, &prop, CU_GRANULARITY_MINIMUM);
  cu_result code = w.driver->cuDevicePrimaryCtxRetain(&context, w.device);
  if (code == CU_OK) code = w.driver->cuCtxSetCurrent(context);
  if (code != CU_OK) return answer(&w, code, "making a context", -1);
  w.back = malloc(w.bytes);
  if (w.back == NULL) return answer(&w, CU_ERROR_OUT_OF_MEMORY, "malloc", -1);
  int result = walk_path(&w, argv[2], argc > 3 ? argv[3] : "");
  fflush(stdout); /* before the driver is released, which may hang or crash */
  free(w.back);
  w.driver->cuDevicePrimaryCtxRelease_v2(w.device);
  return result;
}
