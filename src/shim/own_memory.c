/* Own memory: see own_memory.h. */
#include "shim/own_memory.h"

#include <pthread.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/library.h"
#include "device/nvml_library.h"
#include "device/nvml_types.h"
#include "shim/shim.h"

enum { PROCESSES_MAX = 256 };

static struct {
  int (*device)(const char *uuid, void **device);
  int (*processes)(void *device, unsigned *count, nvml_process_v2 *infos);
} real; /* set by `once`; NULL: not known */

static void open_real(void) {
  void *library = nvml_library_open(NULL);
  int (*start)(void);
  if (library == NULL || !library_find(library, "nvmlInit_v2", &start) || start() != NVML_OK)
    return;
  if (!library_find(library, "nvmlDeviceGetHandleByUUID", &real.device)) return;
  if (!library_find(library, "nvmlDeviceGetComputeRunningProcesses_v3", &real.processes))
    library_find(library, "nvmlDeviceGetComputeRunningProcesses_v2", &real.processes);
}

uint64_t own_memory(const char *uuid) {
  ASSERT(uuid != NULL);
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  nvml_process_v2 infos[PROCESSES_MAX];
  unsigned count = PROCESSES_MAX, own = (unsigned)getpid();
  void *device;
  if (uuid[0] == '\0') return OWN_UNKNOWN;
  pthread_once(&once, open_real);
  if (real.device == NULL || real.processes == NULL || real.device(uuid, &device) != NVML_OK ||
      real.processes(device, &count, infos) != NVML_OK)
    return OWN_UNKNOWN;
  ASSERT(count <= PROCESSES_MAX);
  for (unsigned i = 0; i < count && i < PROCESSES_MAX; i++)
    if (infos[i].pid == own) return infos[i].bytes; /* all ones if the driver does not say */
  return OWN_UNKNOWN;
}
