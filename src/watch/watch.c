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
  nvml *cards; /* NULL where it is not here */
  bool cards_tried;
};

stow_status stow_watch_open(stow_watch **watch) {
  if (watch == NULL) return stow_fail(STOW_ERR_INVALID, "watch: the result pointer is NULL");
  *watch = calloc(1, sizeof **watch);
  if (*watch == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "watch: no host memory");
  return STOW_OK;
}

stow_status stow_watch_close(stow_watch *watch) {
  if (watch != NULL && watch->cards != NULL) nvml_close(watch->cards);
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

/* ---- cards ---- */

int stow_watch_device_count(stow_watch *watch) {
  if (watch == NULL) return 0;
  /* Only now: NVML may load the CUDA driver into the process (seen with driver 580), and the shim
   * cannot go below it after that. Reading only the host must not load it. */
  if (!watch->cards_tried && nvml_open(&watch->cards) != STOW_OK) watch->cards = NULL;
  watch->cards_tried = true;
  return watch->cards == NULL ? 0 : nvml_count(watch->cards);
}

static void read_own(stow_watch *watch, int index, stow_watch_device *card) {
  nvml_process *list = calloc(PROCESSES_MAX, sizeof *list);
  int count = 0;
  if (list == NULL) return;
  if (nvml_processes(watch->cards, index, list, PROCESSES_MAX, &count) == STOW_OK) {
    for (int i = 0; i < count && i < PROCESSES_MAX; i++)
      /* In a container another process may have our pid: only an entry with a name is ours. */
      if (list[i].pid == (unsigned)getpid() && list[i].name[0] != '\0' && list[i].bytes_known) {
        card->own_known = true;
        card->own_bytes = list[i].bytes;
      }
    if (count == 0) card->own_known = true;
  }
  free(list);
}

stow_status stow_watch_read_device(stow_watch *watch, int index, stow_watch_device *to) {
  nvml_card found;
  if (watch == NULL || to == NULL) return stow_fail(STOW_ERR_INVALID, "watch: not open");
  stow_watch_device full = STOW_WATCH_DEVICE_INIT, *card = &full;
  if (index < 0 || index >= stow_watch_device_count(watch))
    return stow_fail(STOW_ERR_NOT_FOUND, "card %d: NVML shows %d; count from 0", index,
                     stow_watch_device_count(watch));
  STOW_TRY(nvml_card_at(watch->cards, index, &found));
  snprintf(card->uuid, sizeof card->uuid, "%.47s", found.uuid);
  snprintf(card->name, sizeof card->name, "%.63s", found.name);
  if (!found.memory_known)
    return stow_fail(STOW_ERR_UNSUPPORTED, "card %d, %s: NVML does not report its memory", index,
                     card->name);
  card->total_bytes = found.total_bytes;
  card->used_bytes = found.used_bytes;
  read_own(watch, index, card);
  return growing_write(to, &full, sizeof full, "stow_watch_device");
}
