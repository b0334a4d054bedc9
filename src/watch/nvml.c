/* Nvml: opens the library and queries it. */
#include "watch/nvml.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/library.h"
#include "base/variables.h"
#include "device/nvml_types.h"

#define NVML_NOT_AVAILABLE (~0ull) /* NVML_VALUE_NOT_AVAILABLE: not permitted or not available */
/* The maximum number of programs listed for a device. */
#define PROCESSES_MAX 4096
/* The inode of the first pid namespace (PROC_PID_INIT_INO of the kernel's proc_ns.h). */
#define FIRST_PID_NAMESPACE "pid:[4026531836]"

typedef void *device_handle;

struct nvml {
  void *library;
  int (*start)(void);
  int (*stop)(void);
  const char *(*error_string)(int code);
  int (*driver_version)(char *text, unsigned size);
  int (*library_version)(char *text, unsigned size);
  int (*count)(unsigned *count);
  int (*device)(unsigned index, device_handle *device);
  int (*uuid)(device_handle device, char *text, unsigned size);
  int (*name)(device_handle device, char *text, unsigned size);
  int (*memory)(device_handle device, nvml_memory_v1 *memory);
  int (*memory2)(device_handle device, nvml_memory_v2 *memory);
  int (*processes1)(device_handle device, unsigned *count, nvml_process_v1 *infos);
  int (*processes2)(device_handle device, unsigned *count, nvml_process_v2 *infos);
  int (*bus)(device_handle device, int counter, unsigned *kib_s);
  char driver_text[96], library_text[96];
  unsigned devices;
  bool names_fit; /* its pids match our /proc */
};

static void find_functions(nvml *n) {
  const library_symbol symbols[] = {
      {"nvmlInit_v2", &n->start},
      {"nvmlShutdown", &n->stop},
      {"nvmlErrorString", &n->error_string},
      {"nvmlSystemGetDriverVersion", &n->driver_version},
      {"nvmlSystemGetNVMLVersion", &n->library_version},
      {"nvmlDeviceGetCount_v2", &n->count},
      {"nvmlDeviceGetHandleByIndex_v2", &n->device},
      {"nvmlDeviceGetUUID", &n->uuid},
      {"nvmlDeviceGetName", &n->name},
      {"nvmlDeviceGetMemoryInfo", &n->memory},
      {"nvmlDeviceGetMemoryInfo_v2", &n->memory2},
      {"nvmlDeviceGetPcieThroughput", &n->bus},
      {"nvmlDeviceGetComputeRunningProcesses", &n->processes1},
      {"nvmlDeviceGetComputeRunningProcesses_v3", &n->processes2},
  };
  /* Old drivers lack some of them; start() refuses a library without the necessary ones. */
  for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++)
    library_find(n->library, symbols[i].name, symbols[i].to);
  if (n->start == NULL) library_find(n->library, "nvmlInit", &n->start);
  if (n->processes2 == NULL)
    library_find(n->library, "nvmlDeviceGetComputeRunningProcesses_v2", &n->processes2);
}

__attribute__((format(printf, 4, 5))) static stow_status fail(const nvml *n, stow_status status,
                                                              int code, const char *format, ...) {
  char what[256];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  const char *words = n->error_string != NULL ? n->error_string(code) : NULL;
  return stow_fail(status, "%s: NVML error %d%s%s", what, code, words != NULL ? ": " : "",
                   words != NULL ? words : "");
}

static stow_status start(nvml *n) {
  if (n->start == NULL || n->count == NULL || n->device == NULL || n->uuid == NULL)
    return stow_fail(STOW_ERR_NOT_FOUND,
                     "%s: not NVML, or a version that is too old; update the NVIDIA driver",
                     NVML_LIBRARY);
  int code = n->start();
  if (code != NVML_OK) {
    n->stop = NULL; /* never started */
    return fail(n, STOW_ERR_NOT_FOUND, code, "starting NVML");
  }
  code = n->count(&n->devices);
  if (code != NVML_OK) return fail(n, STOW_ERR_NOT_FOUND, code, "counting the devices");
  if (n->driver_version == NULL ||
      n->driver_version(n->driver_text, sizeof n->driver_text) != NVML_OK)
    n->driver_text[0] = '\0';
  if (n->library_version == NULL ||
      n->library_version(n->library_text, sizeof n->library_text) != NVML_OK)
    n->library_text[0] = '\0';
  char space[64];
  ssize_t length = readlink("/proc/self/ns/pid", space, sizeof space - 1);
  space[length > 0 ? length : 0] = '\0';
  n->names_fit = strcmp(space, FIRST_PID_NAMESPACE) == 0;
  return STOW_OK;
}

stow_status nvml_open(nvml **out) {
  *out = NULL;
  static const char *const names[] = {NVML_LIBRARY, NULL};
  char reason[LIBRARY_REASON_BYTES];
  nvml *n = calloc(1, sizeof *n);
  if (n == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to open NVML");
  n->library = library_open(ENV_LIBNVML, names, false, reason);
  if (n->library == NULL) {
    free(n);
    return stow_fail(
        STOW_ERR_NOT_FOUND,
        "NVML was not found (%s); it comes with NVIDIA's driver, and in a container with "
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        reason);
  }
  find_functions(n);
  stow_status status = start(n);
  if (status != STOW_OK) {
    nvml_close(n);
    return status;
  }
  *out = n;
  return STOW_OK;
}

void nvml_close(nvml *n) {
  if (n == NULL) return;
  if (n->stop != NULL) n->stop();
  dlclose(n->library);
  free(n);
}

const char *nvml_driver_version(const nvml *n) {
  return n->driver_text;
}

const char *nvml_library_version(const nvml *n) {
  return n->library_text;
}

int nvml_count(const nvml *n) {
  return (int)n->devices;
}

static stow_status device_at(nvml *n, int index, device_handle *handle) {
  if (index < 0 || index >= (int)n->devices)
    return stow_fail(STOW_ERR_NOT_FOUND, "no device %d; NVML lists %u", index, n->devices);
  int code = n->device((unsigned)index, handle);
  return code == NVML_OK ? STOW_OK : fail(n, STOW_ERR_DEVICE, code, "device %d", index);
}

static void read_memory(nvml *n, device_handle handle, nvml_device *device) {
  nvml_memory_v2 m2 = {.version = NVML_MEMORY_V2};
  nvml_memory_v1 m1;
  if (n->memory2 != NULL && n->memory2(handle, &m2) == NVML_OK) {
    device->memory_known = true;
    device->total_bytes = m2.total;
    device->used_bytes = m2.used;
    device->free_bytes = m2.free;
    device->reserved_bytes = m2.reserved;
  } else if (n->memory != NULL && n->memory(handle, &m1) == NVML_OK) {
    device->memory_known = true;
    device->total_bytes = m1.total;
    device->used_bytes = m1.used;
    device->free_bytes = m1.free;
  }
}

stow_status nvml_device_at(nvml *n, int index, nvml_device *device) {
  device_handle handle;
  *device = (nvml_device){0};
  STOW_TRY(device_at(n, index, &handle));
  if (n->uuid(handle, device->uuid, sizeof device->uuid) != NVML_OK) device->uuid[0] = '\0';
  if (n->name == NULL || n->name(handle, device->name, sizeof device->name) != NVML_OK)
    device->name[0] = '\0';
  read_memory(n, handle, device);
  return STOW_OK;
}

stow_status nvml_find(nvml *n, const char *uuid, int *index) {
  for (int i = 0; i < (int)n->devices; i++) {
    device_handle handle;
    char text[96];
    STOW_TRY(device_at(n, i, &handle));
    if (n->uuid(handle, text, sizeof text) == NVML_OK && strcasecmp(text, uuid) == 0) {
      *index = i;
      return STOW_OK;
    }
  }
  return stow_fail(STOW_ERR_NOT_FOUND, "device %s: NVML lists %u devices, but not this one", uuid,
                   n->devices);
}

/* ---- processes ---- */

static void read_name(const nvml *n, nvml_process *process) {
  char path[64];
  if (!n->names_fit) return;
  snprintf(path, sizeof path, "/proc/%u/comm", process->pid);
  FILE *in = fopen(path, "re");
  if (in == NULL) return;
  if (fgets(process->name, sizeof process->name, in) == NULL) process->name[0] = '\0';
  process->name[strcspn(process->name, "\n")] = '\0';
  fclose(in);
}

/* Calls the function in one of its two forms; with NULL, returns only the count. */
static int query_processes(nvml *n, device_handle handle, unsigned *count, void *infos) {
  return n->processes2 != NULL ? n->processes2(handle, count, infos)
                               : n->processes1(handle, count, infos);
}

/* Lists all processes in newly allocated memory. Programs start and end between the two calls, so
 * this allocates extra space and retries a few times. */
static int list_processes(nvml *n, device_handle handle, unsigned *count, void **infos) {
  int code = NVML_INSUFFICIENT_SIZE;
  *infos = NULL;
  *count = 0;
  for (int attempt = 0; attempt < 4 && code == NVML_INSUFFICIENT_SIZE; attempt++) {
    unsigned room = (*count < PROCESSES_MAX ? *count : PROCESSES_MAX) + 16;
    free(*infos);
    *infos = calloc(room, sizeof(nvml_process_v2)); /* the larger of the two forms */
    if (*infos == NULL) return -1;
    *count = room;
    code = query_processes(n, handle, count, *infos);
    if (code == NVML_OK && *count > room) *count = room;
  }
  return code;
}

stow_status nvml_processes(nvml *n, int index, nvml_process *processes, int max, int *count) {
  device_handle handle;
  *count = 0;
  STOW_TRY(device_at(n, index, &handle));
  if (n->processes1 == NULL && n->processes2 == NULL)
    return stow_fail(STOW_ERR_UNSUPPORTED, "device %d: this NVML does not list processes", index);
  unsigned there;
  void *infos;
  int code = list_processes(n, handle, &there, &infos);
  if (code != NVML_OK) {
    free(infos);
    return fail(n, STOW_ERR_UNSUPPORTED, code, "listing the processes on device %d", index);
  }
  const nvml_process_v1 *form1 = infos;
  const nvml_process_v2 *form2 = infos;
  for (int i = 0; i < (int)there && i < max; i++) {
    bool newer = n->processes2 != NULL;
    unsigned long long bytes = newer ? form2[i].bytes : form1[i].bytes;
    processes[i] = (nvml_process){.pid = newer ? form2[i].pid : form1[i].pid,
                                  .bytes_known = bytes != NVML_NOT_AVAILABLE,
                                  .bytes = bytes != NVML_NOT_AVAILABLE ? bytes : 0};
    read_name(n, &processes[i]);
  }
  free(infos);
  *count = (int)there;
  return STOW_OK;
}

stow_status nvml_bus_rate(nvml *n, int index, uint64_t *bytes_s) {
  device_handle device;
  *bytes_s = 0;
  int code = n->bus == NULL ? NVML_OK : n->device((unsigned)index, &device);
  if (n->bus == NULL || code != NVML_OK)
    return stow_fail(STOW_ERR_UNSUPPORTED, "NVML does not report the PCIe rate of this device");
  for (int counter = 0; counter < 2; counter++) { /* NVML_PCIE_UTIL_TX_BYTES, _RX_BYTES */
    unsigned kib_s = 0;
    code = n->bus(device, counter, &kib_s);
    if (code != NVML_OK)
      return fail(n, STOW_ERR_UNSUPPORTED, code, "reading the PCIe rate of a device");
    *bytes_s += (uint64_t)kib_s * 1024;
  }
  return STOW_OK;
}
