/* Watch: the public API over hostmem, proc and nvml, for programs that measure themselves. */
#include <stowage/watch.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/growing.h"
#include "base/hostmem.h"
#include "watch/nvml.h"
#include "watch/proc.h"

#define PROCESSES_MAX 256

struct stow_watch {
  nvml *devices; /* NULL if NVML is missing */
  bool devices_tried;
};

stow_status stow_watch_open(stow_watch **watch) {
  if (watch == NULL) return stow_fail(STOW_ERR_INVALID, "watch: the result pointer is NULL");
  *watch = calloc(1, sizeof **watch);
  if (*watch == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "watch: no host memory");
  return STOW_OK;
}

stow_status stow_watch_close(stow_watch *watch) {
  if (watch != NULL && watch->devices != NULL) nvml_close(watch->devices);
  free(watch);
  return STOW_OK;
}

/* ---- the host ---- */

/* Finds the line that begins with `name` ("VmHWM:") and returns its number; 0 if it is absent. */
static uint64_t number_after(const char *text, const char *name) {
  size_t length = strlen(name);
  for (const char *line = text; line != NULL && *line != '\0';) {
    if (strncmp(line, name, length) == 0) return strtoull(line + length, NULL, 10);
    line = strchr(line, '\n');
    if (line != NULL) line++;
  }
  return 0;
}

stow_status stow_watch_read_host(stow_watch *watch, stow_watch_host *to) {
  if (watch == NULL || to == NULL) return stow_fail(STOW_ERR_INVALID, "watch: not open");
  hostmem memory;
  buffer text = BUFFER_INIT;
  stow_watch_host full = STOW_WATCH_HOST_INIT, *host = &full;
  stow_status status = hostmem_read(&memory);
  if (status == STOW_OK) status = proc_read(&text, "", "/proc/self/status");
  if (status == STOW_OK) {
    host->total_bytes = memory.total_bytes;
    host->usable_bytes = memory.usable_bytes;
    host->held_bytes =
        (number_after(text.data, "RssAnon:") + number_after(text.data, "RssShmem:")) * 1024;
    host->resident_bytes = number_after(text.data, "VmRSS:") * 1024;
    host->peak_resident_bytes = number_after(text.data, "VmHWM:") * 1024;
    host->data_bytes = number_after(text.data, "VmData:") * 1024;
    host->group_kills = hostmem_kills();
  }
  buffer_free(&text);
  return status == STOW_OK ? growing_write(to, &full, sizeof full, "stow_watch_host") : status;
}

/* ---- devices ---- */

int stow_watch_device_count(stow_watch *watch) {
  if (watch == NULL) return 0;
  /* Only now: NVML may load the CUDA driver into the process (seen with driver 580), and the shim
   * cannot go below it after that. Reading only the host must not load it. */
  if (!watch->devices_tried && nvml_open(&watch->devices) != STOW_OK) watch->devices = NULL;
  watch->devices_tried = true;
  return watch->devices == NULL ? 0 : nvml_count(watch->devices);
}

static void read_own(stow_watch *watch, int index, stow_watch_device *device) {
  nvml_process *list = calloc(PROCESSES_MAX, sizeof *list);
  int count = 0;
  if (list == NULL) return;
  if (nvml_processes(watch->devices, index, list, PROCESSES_MAX, &count) == STOW_OK) {
    for (int i = 0; i < count && i < PROCESSES_MAX; i++)
      /* In a container another process may have our pid: only an entry with a name is ours. */
      if (list[i].pid == (unsigned)getpid() && list[i].name[0] != '\0' && list[i].bytes_known) {
        device->own_known = true;
        device->own_bytes = list[i].bytes;
      }
    if (count == 0) device->own_known = true;
  }
  free(list);
}

stow_status stow_watch_read_device(stow_watch *watch, int index, stow_watch_device *to) {
  nvml_device found;
  if (watch == NULL || to == NULL) return stow_fail(STOW_ERR_INVALID, "watch: not open");
  stow_watch_device full = STOW_WATCH_DEVICE_INIT, *device = &full;
  if (index < 0 || index >= stow_watch_device_count(watch))
    return stow_fail(STOW_ERR_NOT_FOUND, "no device %d; NVML lists %d, counted from 0", index,
                     stow_watch_device_count(watch));
  STOW_TRY(nvml_device_at(watch->devices, index, &found));
  snprintf(device->uuid, sizeof device->uuid, "%.47s", found.uuid);
  snprintf(device->name, sizeof device->name, "%.63s", found.name);
  if (!found.memory_known)
    return stow_fail(STOW_ERR_UNSUPPORTED, "device %d, %s: NVML does not report its memory", index,
                     device->name);
  device->total_bytes = found.total_bytes;
  device->used_bytes = found.used_bytes;
  read_own(watch, index, device);
  return growing_write(to, &full, sizeof full, "stow_watch_device");
}
