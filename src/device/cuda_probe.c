/* Cuda probe: the order of the backings, one child process for each, and the result.
 *
 * The child's side, which really tries a backing, is cuda_probe_child.c. */
#include "device/cuda_probe.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/command.h"
#include "device/cuda_cache.h"
#include "device/cuda_command.h"
#include "device/cuda_device_id.h"

/* Host locations exist in the driver since CUDA 12.2; older ones have crashed when queried. */
#define HOST_LOCATIONS_SINCE 12020

int cuda_probe_deadline_ms = 10000;

/* Appends "; text" to the reason, as much as fits. */
__attribute__((format(printf, 2, 3))) static void add_reason(cuda_probe *probe, const char *format,
                                                             ...) {
  size_t length = strlen(probe->reason);
  va_list args;
  if (length > 0 && length + 2 < sizeof probe->reason) {
    memcpy(probe->reason + length, "; ", 3);
    length += 2;
  }
  va_start(args, format);
  vsnprintf(probe->reason + length, sizeof probe->reason - length, format, args);
  va_end(args);
}

/* ---- one backing, one child ---- */

typedef enum walk_end { WALK_THERE, WALK_NOT_THERE, WALK_UNCERTAIN } walk_end;

static walk_end walk(cuda_probe *probe, const char *command, const char *uuid,
                     stow_host_backing backing, char *nodes) {
  const char *name = cuda_backing_name(backing);
  char *argv[] = {(char *)(uintptr_t)command,
                  (char *)(uintptr_t)CUDA_PROBE_WORD,
                  (char *)(uintptr_t)uuid,
                  (char *)(uintptr_t)name,
                  nodes,
                  NULL};
  char output[CUDA_PROBE_REASON_MAX];
  cuda_command_end end;
  if (cuda_command_run(command, argv, cuda_probe_deadline_ms, output, sizeof output, &end) !=
      STOW_OK) {
    add_reason(probe, "%s: %s", name, stow_status_message());
    return WALK_UNCERTAIN;
  }
  if (end.timed_out) {
    add_reason(probe, "%s: no answer after %g s", name, cuda_probe_deadline_ms / 1000.0);
    return WALK_UNCERTAIN;
  }
  const char *begun = strstr(output, "host-tier 1 begin\n");
  if (begun == NULL) { /* the started command does not know how to probe */
    add_reason(probe, "%s: %s did not answer (exit code %d); is it another version?", name, command,
               end.exit_code);
    return WALK_UNCERTAIN;
  }
  const char *answer = strstr(begun + 1, "host-tier 1 ");
  if (answer != NULL && strncmp(answer + 12, "ok ", 3) == 0) {
    probe->backing = backing;
    probe->numa_node = backing == STOW_HOST_NUMA ? (int)strtol(answer + 15, NULL, 10) : -1;
    return WALK_THERE;
  }
  if (answer != NULL && strncmp(answer + 12, "unable ", 7) == 0) {
    add_reason(probe, "%s: could not be tried: %.*s", name, (int)strcspn(answer + 19, "\n"),
               answer + 19);
    return WALK_UNCERTAIN;
  }
  if (answer != NULL && strncmp(answer + 12, "no ", 3) == 0)
    add_reason(probe, "%s: %.*s", name, (int)strcspn(answer + 15, "\n"), answer + 15);
  else if (end.signal != 0)
    add_reason(probe, "%s: the driver crashed (%s)", name, strsignal(end.signal));
  else
    add_reason(probe, "%s: the driver ended the process (exit code %d)", name, end.exit_code);
  return WALK_NOT_THERE;
}

/* ---- which backings, in which order ---- */

/* Writes "0,1,3": the node nearest to the device, then the other online nodes. */
static void list_nodes(char *text, size_t size, int nearest) {
  char online[256] = "0";
  FILE *in = fopen("/sys/devices/system/node/has_memory", "re");
  if (in != NULL) {
    if (fgets(online, sizeof online, in) == NULL) snprintf(online, sizeof online, "0");
    fclose(in);
  }
  int at = 0, count = 0;
  if (nearest >= 0) at = snprintf(text, size, "%d", nearest), count++;
  for (char *part = online; *part >= '0' && *part <= '9';) { /* "0-1,3" */
    char *end;
    long first = strtol(part, &end, 10), last = first;
    if (*end == '-') last = strtol(end + 1, &end, 10);
    for (long n = first; n <= last && n < 4096 && count < CUDA_PROBE_NODES_MAX; n++) {
      if (n == nearest) continue;
      at += snprintf(text + at, size - (size_t)at, "%s%ld", count > 0 ? "," : "", n);
      count++;
    }
    part = *end == ',' ? end + 1 : end;
  }
  if (count == 0) snprintf(text, size, "0");
}

/* Returns whether a backing is worth a child process; if not, adds the reason. */
static bool worth_trying(cuda_probe *probe, const cuda_driver *driver, cu_device device,
                         stow_host_backing backing) {
  if (backing == STOW_HOST_PINNED) return true;
  const char *name = cuda_backing_name(backing);
  if (!driver->has_vmm || cuda_device_attribute(driver, device, CU_ATTRIBUTE_VMM, 0) != 1)
    add_reason(probe, "%s: no virtual memory management here", name);
  else if (driver->version < HOST_LOCATIONS_SINCE)
    add_reason(probe, "%s: needs CUDA 12.2, the driver has %d.%d", name, driver->version / 1000,
               driver->version % 1000 / 10);
  else if (backing == STOW_HOST_NUMA &&
           cuda_device_attribute(driver, device, CU_ATTRIBUTE_HOST_NUMA_VMM, 1) == 0)
    add_reason(probe, "%s: the driver reports no support", name);
  else
    return true;
  return false;
}

static void try_backings(cuda_probe *probe, const cuda_driver *driver, cu_device device) {
  static const stow_host_backing BACKINGS[] = {STOW_HOST_NUMA, STOW_HOST_LOCATION,
                                               STOW_HOST_PINNED};
  char command[COMMAND_PATH_MAX], uuid[CUDA_UUID_MAX], nodes[128];
  *probe = (cuda_probe){.backing = STOW_HOST_NONE, .numa_node = -1, .certain = true};
  if (command_find(command) != STOW_OK) {
    probe->certain = false;
    add_reason(probe, "not probed: %s", stow_status_message());
    return;
  }
  cuda_device_uuid(uuid, driver, device);
  list_nodes(nodes, sizeof nodes,
             cuda_device_attribute(driver, device, CU_ATTRIBUTE_HOST_NUMA_ID, -1));
  for (size_t i = 0; i < sizeof BACKINGS / sizeof BACKINGS[0]; i++) {
    if (!worth_trying(probe, driver, device, BACKINGS[i])) continue;
    walk_end end =
        walk(probe, command, uuid, BACKINGS[i], BACKINGS[i] == STOW_HOST_NUMA ? nodes : NULL);
    if (end == WALK_UNCERTAIN) probe->certain = false;
    if (end != WALK_THERE) continue;
    if (BACKINGS[i] == STOW_HOST_NUMA)
      add_reason(probe, "pages on node %d written and read back", probe->numa_node);
    else
      add_reason(probe, "%s written and read back",
                 BACKINGS[i] == STOW_HOST_PINNED ? "a pinned allocation" : "pages");
    return;
  }
}

/* ---- queries ---- */

bool cuda_probe_kept(cuda_probe *probe, const cuda_driver *driver, cu_device device) {
  char key[CUDA_CACHE_KEY_MAX];
  cuda_cache_key(key, driver, device);
  return cuda_cache_read(probe, key);
}

void cuda_probe_device(cuda_probe *probe, const cuda_driver *driver, cu_device device, bool anew) {
  char key[CUDA_CACHE_KEY_MAX];
  cuda_cache_key(key, driver, device);
  if (!anew && cuda_cache_read(probe, key)) return;
  try_backings(probe, driver, device);
  if (probe->certain) cuda_cache_write(probe, key);
}

stow_status cuda_probe_get(cuda_probe *probe, const char *name, bool anew) {
  const cuda_driver *driver;
  cuda_device_id id;
  *probe = (cuda_probe){.backing = STOW_HOST_NONE, .numa_node = -1};
  STOW_TRY(cuda_driver_get(&driver));
  STOW_TRY(cuda_device_find(&id, driver, name == NULL || name[0] == '\0' ? "0" : name));
  cuda_probe_device(probe, driver, id.handle, anew);
  return STOW_OK;
}
