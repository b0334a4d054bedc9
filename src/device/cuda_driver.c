/* Cuda driver: opens libcuda and translates its error codes. */
#include "device/cuda_driver.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/variables.h"

#define LIBRARY "libcuda.so.1"

/* Next steps for common errors. */
static const struct hint {
  cu_result code;
  const char *text;
} HINTS[] = {
    {CU_ERROR_NOT_INITIALIZED,
     "a process forked after the driver was initialized cannot use it: spawn it instead"},
    {CU_ERROR_DEINITIALIZED, "the driver is shutting down with the process"},
    {CU_ERROR_STUB_LIBRARY, "the toolkit's stub library was loaded instead of the driver; remove "
                            "its folder from LD_LIBRARY_PATH"},
    {CU_ERROR_DEVICE_UNAVAILABLE,
     "the GPU is busy or in exclusive mode; run nvidia-smi to see who uses it"},
    {CU_ERROR_NO_DEVICE, "the driver sees no GPU; check CUDA_VISIBLE_DEVICES and nvidia-smi"},
    {CU_ERROR_INVALID_CONTEXT, "the program reset the device (cudaDeviceReset?); open it again"},
    {CU_ERROR_CONTEXT_IS_DESTROYED,
     "the program reset the device (cudaDeviceReset?); open it again"},
    {CU_ERROR_ILLEGAL_ADDRESS, "a kernel accessed unmapped memory; restart the process"},
    {CU_ERROR_LAUNCH_FAILED, "a kernel crashed; restart the process"},
    {CU_ERROR_ECC_UNCORRECTABLE, "the GPU's memory has failed; run nvidia-smi -q -d ECC"},
    {CU_ERROR_NOT_PERMITTED, "a container may need more rights, or a graph is being captured"},
    {CU_ERROR_SYSTEM_NOT_READY, "is the fabric manager running?"},
    {CU_ERROR_SYSTEM_DRIVER_MISMATCH, "the kernel driver and libcuda have different versions; "
                                      "reboot after a driver update, or fix the container"},
    {CU_ERROR_CAPTURE_UNSUPPORTED, "a graph is being captured on this thread"},
    {CU_ERROR_UNKNOWN, "check dmesg for a line with \"NVRM: Xid\""},
};

stow_status cuda_status_of(cu_result code) {
  if (code >= CU_ERROR_CAPTURE_UNSUPPORTED && code <= CU_ERROR_CAPTURE_LAST) return STOW_ERR_STATE;
  /* Device faults that end the context: 714 hardware stack, 715 illegal instruction, 716 misaligned
   * address, 717 invalid address space, 718 invalid program counter, 719 launch failed. */
  if (code >= CU_ERROR_HARDWARE_STACK_ERROR && code <= CU_ERROR_LAUNCH_FAILED)
    return STOW_ERR_DEVICE_LOST;
  switch (code) {
  case CU_OK: return STOW_OK;
  case CU_ERROR_INVALID_VALUE:
  case CU_ERROR_INVALID_HANDLE: return STOW_ERR_INVALID;
  case CU_ERROR_OUT_OF_MEMORY: return STOW_ERR_OUT_OF_MEMORY;
  case CU_ERROR_NOT_INITIALIZED:
  case CU_ERROR_DEINITIALIZED: return STOW_ERR_STATE;
  case CU_ERROR_STUB_LIBRARY:
  case CU_ERROR_NO_DEVICE:
  case CU_ERROR_INVALID_DEVICE: return STOW_ERR_NOT_FOUND;
  case CU_ERROR_NOT_READY: return STOW_ERR_NOT_READY;
  case CU_ERROR_NOT_SUPPORTED:
  case CU_ERROR_COMPAT_NOT_SUPPORTED: return STOW_ERR_UNSUPPORTED;
  case CU_ERROR_INVALID_CONTEXT:
  case CU_ERROR_ECC_UNCORRECTABLE:
  case CU_ERROR_NVLINK_UNCORRECTABLE:
  case CU_ERROR_CONTAINED:
  case CU_ERROR_ILLEGAL_ADDRESS:
  case CU_ERROR_LAUNCH_TIMEOUT:
  case CU_ERROR_CONTEXT_IS_DESTROYED:
  case CU_ERROR_ASSERT:
  case CU_ERROR_TENSOR_MEMORY_LEAK: return STOW_ERR_DEVICE_LOST;
  default: return STOW_ERR_DEVICE;
  }
}

const char *cuda_driver_text(const cuda_driver *driver, cu_result code) {
  ASSERT(driver != NULL);
  const char *text = NULL;
  if (driver->cuGetErrorString == NULL || driver->cuGetErrorString(code, &text) != CU_OK) return "";
  return text != NULL ? text : "";
}

stow_status cuda_driver_fail(const cuda_driver *driver, cu_result code, const char *format, ...) {
  ASSERT(code != CU_OK);
  char what[512];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  const char *name = NULL, *words = cuda_driver_text(driver, code), *next = NULL;
  if (driver->cuGetErrorName == NULL || driver->cuGetErrorName(code, &name) != CU_OK ||
      name == NULL)
    name = "CUDA error";
  for (size_t i = 0; i < sizeof HINTS / sizeof HINTS[0]; i++)
    if (HINTS[i].code == code) next = HINTS[i].text;
  return stow_fail(cuda_status_of(code), "%s: %s (%d)%s%s%s%s", what, name, code,
                   words[0] != '\0' ? ": " : "", words, next != NULL ? "; " : "",
                   next != NULL ? next : "");
}

/* dlsym returns an object pointer, and C has no cast from it to a function pointer; POSIX
 * guarantees the same representation. */
static void set_function(void *member, void *pointer) {
  memcpy(member, &pointer, sizeof pointer);
}

/* ---- the test aid STOWAGE_DRIVER_LEVEL ---- */

static pthread_once_t level_once = PTHREAD_ONCE_INIT;
static int level = INT_MAX;

static void read_level(void) {
  int major, minor;
  const char *text = secure_getenv(ENV_DRIVER_LEVEL);
  /* NOLINTNEXTLINE(cert-err34-c): anything but two numbers hides nothing */
  if (text != NULL && sscanf(text, "%d.%d", &major, &minor) == 2) level = major * 1000 + minor * 10;
}

bool cuda_driver_may_use(int since) {
  pthread_once(&level_once, read_level);
  return since <= level;
}

/* ---- filling and initializing ---- */

void cuda_driver_note_pages(cuda_driver *driver) {
  ASSERT(driver != NULL);
  bool all = true;
#define NOTE_PAGES(name) all = all && driver->name != NULL;
#define NOTE_NEEDED(name)
#define NOTE_OPTIONAL(name)
#define DRIVER(name, since, need, role, parameters) NOTE_##need(name)
#include "device/driver.def"
  driver->has_vmm = all;
}

static const char *first_missing(const cuda_driver *driver) {
#define MISSING_NEEDED(name)                                                                       \
  if (driver->name == NULL) return #name;
#define MISSING_PAGES(name)
#define MISSING_OPTIONAL(name)
#define DRIVER(name, since, need, role, parameters) MISSING_##need(name)
#include "device/driver.def"
  return NULL;
}

stow_status cuda_driver_fill(cuda_driver *driver, cuda_resolve resolve, void *user) {
  ASSERT(driver != NULL && resolve != NULL);
  *driver = (cuda_driver){0};
#define DRIVER(name, since, need, role, parameters)                                                \
  if (cuda_driver_may_use(since)) set_function(&driver->name, resolve(user, #name));
#include "device/driver.def"
  cuda_driver_note_pages(driver);
  return cuda_driver_start(driver);
}

stow_status cuda_driver_start(cuda_driver *driver) {
  ASSERT(driver != NULL);
  const char *missing = first_missing(driver);
  if (missing != NULL)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "CUDA driver: it has no function %s; CUDA 11.0 or newer is required", missing);
  cu_result code = driver->cuInit(0);
  if (code != CU_OK) return cuda_driver_fail(driver, code, "initializing the CUDA driver");
  code = driver->cuDriverGetVersion(&driver->version);
  if (code != CU_OK) return cuda_driver_fail(driver, code, "querying the CUDA driver's version");
  return STOW_OK;
}

/* ---- the process's own driver ---- */

static pthread_once_t own_once = PTHREAD_ONCE_INIT;
static cuda_driver own;
static stow_status own_status;
static char own_reason[STATUS_MESSAGE_MAX];

static void *resolve_in_library(void *library, const char *name) {
  return dlsym(library, name);
}

static void load_own(void) {
  const char *path = secure_getenv(ENV_LIBCUDA);
  if (path == NULL || path[0] == '\0') path = LIBRARY;
  /* Never closed: the driver has its own threads and exit handlers. */
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL)
    own_status = stow_fail(STOW_ERR_NOT_FOUND,
                           "no CUDA driver found (%s); install NVIDIA's driver, or start the "
                           "container with --gpus all",
                           dlerror());
  else
    own_status = cuda_driver_fill(&own, resolve_in_library, library);
  if (own_status != STOW_OK) snprintf(own_reason, sizeof own_reason, "%s", stow_status_message());
}

stow_status cuda_driver_get(const cuda_driver **driver) {
  ASSERT(driver != NULL);
  *driver = NULL;
  pthread_once(&own_once, load_own);
  if (own_status != STOW_OK) return stow_fail(own_status, "%s", own_reason);
  *driver = &own;
  return STOW_OK;
}
