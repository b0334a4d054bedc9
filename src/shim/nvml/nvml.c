/* NVML proxy: a library that acts as libnvidia-ml.so.1, preloaded if a run has a limit or spilling,
 * so that NVML reports the same limited figures as cudaMemGetInfo.
 *
 * It exports every name of NVML: stubs that jump to the real library (../stubs.S, with its own
 * list), except for the few functions below, which change the real result. The real one is opened
 * at the first call, by its path; the figures come from the run's ledger, devices are matched by
 * UUID, and the figures of a device without a limit are unchanged. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/variables.h"
#include "device/nvml_library.h"
#include "device/nvml_types.h"
#include "run/ledger.h"

#define HOOK __attribute__((visibility("default")))

/* ---- the real one ---- */

/* A number for each name NVML exports. */
enum {
#define SYMBOL(name) SYMBOL_##name,
#include <shim-symbols.inc>
#undef SYMBOL
  SYMBOL_COUNT
};

/* Used by stubs.S. */
extern void *_Atomic shim_slots[SYMBOL_COUNT];
void *_Atomic shim_slots[SYMBOL_COUNT];
void *shim_stub_resolve(unsigned symbol);

static const char *const names[SYMBOL_COUNT] = {
#define SYMBOL(name) #name,
#include <shim-symbols.inc>
#undef SYMBOL
};

static void *_Atomic library; /* NULL until found */
static _Atomic bool looked;   /* for it; set after it */
static ledger run;            /* set by `once`; header NULL: no run */

static int no_library(void) {
  return NVML_LIBRARY_NOT_FOUND;
}
static int no_function(void) {
  return NVML_FUNCTION_NOT_FOUND;
}
static const char *no_words(void) {
  return "NVML is not here";
}

static void open_ledger(void) {
  const char *path = secure_getenv(ENV_LEDGER);
  if (path != NULL && path[0] != '\0' && ledger_open(&run, path) != STOW_OK) run.header = NULL;
}

/* Returns a function of the real library. Threads that arrive at the same time all open it and get
 * the same one: one may hold the loader's lock while another waits for it (a library that calls us
 * while it is loaded). */
static void *real(const char *name) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, open_ledger);
  if (!atomic_load_explicit(&looked, memory_order_acquire)) {
    Dl_info self;
    void *found = dladdr((void *)(uintptr_t)no_library, &self) == 0
                      ? NULL
                      : nvml_library_open(self.dli_fname);
    if (found != NULL) atomic_store(&library, found);
    atomic_store(&looked, true);
  }
  return library == NULL ? NULL : dlsym(library, name);
}

void *shim_stub_resolve(unsigned symbol) {
  void *found = real(names[symbol]);
  if (found == NULL && strcmp(names[symbol], "nvmlErrorString") == 0)
    found = (void *)(uintptr_t)no_words;
  else if (found == NULL)
    found = (void *)(uintptr_t)(library == NULL ? no_library : no_function);
  atomic_store_explicit(&shim_slots[symbol], found, memory_order_release);
  return found;
}

/* ---- the limited truth ---- */

/* Returns the run's number of a device; -1 if the run has no figures for it. */
static int device_of(void *handle) {
  int (*get)(void *, char *, unsigned) =
      (int (*)(void *, char *, unsigned))(uintptr_t)real("nvmlDeviceGetUUID");
  char uuid[96] = "";
  if (run.header == NULL || get == NULL || get(handle, uuid, sizeof uuid) != NVML_OK) return -1;
  for (int i = 0; i < LEDGER_DEVICES_MAX; i++)
    if (uuid[0] != '\0' &&
        strncmp(run.header->uuids[i], uuid, sizeof run.header->uuids[i] - 1) == 0)
      return i;
  return -1;
}

/* Returns whether the figures were changed. */
static bool limit_memory(void *handle, unsigned long long *free_bytes,
                         unsigned long long *total_bytes) {
  int device = device_of(handle);
  if (device < 0) return false;
  uint64_t spill =
      atomic_load(&run.header->host_path) == LEDGER_PATH_NONE ? 0 : ledger_spill_limit(&run);
  if (spill == 0 && ledger_limit(&run, (unsigned)device) >= *total_bytes) return false;
  uint64_t left = *free_bytes, total = *total_bytes;
  ledger_report_memory(&run, (unsigned)device, spill, &left, &total);
  *free_bytes = left;
  *total_bytes = total;
  return true;
}

HOOK int nvmlDeviceGetMemoryInfo(void *handle, nvml_memory_v1 *memory);
HOOK int nvmlDeviceGetMemoryInfo(void *handle, nvml_memory_v1 *memory) {
  __typeof__(&nvmlDeviceGetMemoryInfo) ask =
      (__typeof__(ask))(uintptr_t)real("nvmlDeviceGetMemoryInfo");
  if (ask == NULL) return library == NULL ? NVML_LIBRARY_NOT_FOUND : NVML_FUNCTION_NOT_FOUND;
  int code = ask(handle, memory);
  if (code == NVML_OK && memory != NULL && limit_memory(handle, &memory->free, &memory->total))
    memory->used = memory->total - memory->free;
  return code;
}

HOOK int nvmlDeviceGetMemoryInfo_v2(void *handle, nvml_memory_v2 *memory);
HOOK int nvmlDeviceGetMemoryInfo_v2(void *handle, nvml_memory_v2 *memory) {
  __typeof__(&nvmlDeviceGetMemoryInfo_v2) ask =
      (__typeof__(ask))(uintptr_t)real("nvmlDeviceGetMemoryInfo_v2");
  if (ask == NULL) return library == NULL ? NVML_LIBRARY_NOT_FOUND : NVML_FUNCTION_NOT_FOUND;
  int code = ask(handle, memory);
  if (code == NVML_OK && memory != NULL && limit_memory(handle, &memory->free, &memory->total)) {
    memory->used = memory->total - memory->free;
    memory->reserved = 0; /* the limit does not include the driver's own share */
  }
  return code;
}

/* ---- processes ---- */

/* Finds what a process holds on a device. Returns false if it is not part of the run. */
static bool held_by(unsigned pid, int device, unsigned long long *bytes) {
  uint64_t high = device < 0 ? 0 : atomic_load(&run.header->slots_high);
  for (uint64_t i = 0; i < high && i < LEDGER_SLOTS_MAX; i++) {
    const ledger_slot *slot = &run.slots[i];
    if (atomic_load(&slot->owner) >> 32 != pid || pid == 0) continue;
    *bytes = 0;
    for (int k = 0; k < LEDGER_VRAM_KINDS; k++)
      *bytes += atomic_load(&slot->devices[device].bytes[k]);
    return true;
  }
  return false;
}

/* Entries of either form, `width` bytes each: they begin alike. */
static int list(const char *name, void *handle, unsigned *count, void *infos, size_t width) {
  int (*ask)(void *, unsigned *, void *) =
      (int (*)(void *, unsigned *, void *))(uintptr_t)real(name);
  if (ask == NULL) return library == NULL ? NVML_LIBRARY_NOT_FOUND : NVML_FUNCTION_NOT_FOUND;
  int code = ask(handle, count, infos);
  if (code != NVML_OK || infos == NULL || count == NULL) return code;
  int device = device_of(handle);
  for (unsigned i = 0; i < *count; i++) {
    nvml_process_v1 *info = (nvml_process_v1 *)(void *)((char *)infos + i * width);
    unsigned long long bytes;
    if (held_by(info->pid, device, &bytes)) info->bytes = bytes;
  }
  return code;
}

#define LIST(name, version)                                                                        \
  HOOK int name(void *handle, unsigned *count, nvml_process_v##version *infos);                    \
  HOOK int name(void *handle, unsigned *count, nvml_process_v##version *infos) {                   \
    return list(#name, handle, count, infos, sizeof *infos);                                       \
  }
LIST(nvmlDeviceGetComputeRunningProcesses, 1)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, 2)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, 2)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, 1)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, 2)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, 2)
