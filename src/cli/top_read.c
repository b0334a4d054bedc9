/* Top read: takes one sample of devices, runs and processes (top.h). */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/top.h"
#include "run/folder.h"
#include "run/ledger.h"
#include "run/protocol.h"

/* A process with less host memory, and no device memory, is not listed. */
#define SHOWN_LEAST    (UINT64_C(16) << 20)
#define NVML_PROCESSES 64

/* ---- files of /proc ---- */

/* Reads a small file and appends '\0'. Returns the length; 0 if it cannot be read. */
static size_t read_file(const char *path, char *to, size_t size) {
  FILE *file = fopen(path, "re");
  if (file == NULL) return 0;
  size_t length = fread(to, 1, size - 1, file);
  fclose(file);
  to[length] = '\0';
  return length;
}

static uint64_t status_bytes(const char *status, const char *key) {
  const char *at = strstr(status, key);
  return at != NULL ? strtoull(at + strlen(key), NULL, 10) * 1024 : 0;
}

static uint64_t host_bytes(pid_t pid) {
  char path[64], status[4096];
  snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
  if (read_file(path, status, sizeof status) == 0) return 0;
  return status_bytes(status, "RssAnon:") + status_bytes(status, "RssShmem:");
}

/* Reads the command line, cleaned and without secrets; if it is empty, the name in brackets. */
static void read_names(top_process *p) {
  char path[64], words[2048], comm[64];
  snprintf(path, sizeof path, "/proc/%d/comm", (int)p->pid);
  size_t length = read_file(path, comm, sizeof comm);
  if (length > 0 && comm[length - 1] == '\n') comm[length - 1] = '\0';
  text_show(p->name, sizeof p->name, length > 0 ? comm : "?");
  snprintf(path, sizeof path, "/proc/%d/cmdline", (int)p->pid);
  length = read_file(path, words, sizeof words - 1);
  if (length == 0) {
    snprintf(p->command, sizeof p->command, "[%s]", p->name);
    return;
  }
  words[length] = words[length + 1 < sizeof words ? length + 1 : length] = '\0';
  text_hide_command(words, &length);
  for (size_t i = 0; i < length; i++)
    if (words[i] == '\0') words[i] = ' ';
  words[length] = '\0';
  while (length > 0 && words[length - 1] == ' ') words[--length] = '\0';
  /* The folder of the program is of little use, and a narrow screen has no space for it. */
  size_t first = strcspn(words, " ");
  char *slash = memrchr(words, '/', first);
  text_show(p->command, sizeof p->command, slash != NULL ? slash + 1 : words);
}

/* ---- the list ---- */

static top_process *find(top_look *t, pid_t pid) {
  for (int i = 0; i < t->process_count; i++)
    if (t->processes[i].pid == pid) return &t->processes[i];
  return NULL;
}

/* Returns the row of a process, creating it if needed; NULL if the process is gone or the table is
 * full. */
static top_process *row_of(top_look *t, pid_t pid) {
  top_process *p = find(t, pid);
  process about;
  if (p != NULL) return p;
  if (process_read(&about, pid) != PROCESS_LIVES) return NULL;
  if (t->process_count == TOP_PROCESSES_MAX) {
    t->left_out++;
    return NULL;
  }
  p = &t->processes[t->process_count++];
  *p = (top_process){.pid = pid, .start = about.start, .run = -1, .device = -1, .held_known = true};
  p->host_bytes = host_bytes(pid);
  read_names(p);
  return p;
}

/* ---- devices ---- */

static void read_devices(top_look *t, nvml *n) {
  int count = n != NULL ? nvml_count(n) : 0;
  for (int i = 0; i < count && t->device_count < TOP_DEVICES_MAX; i++) {
    nvml_device device;
    if (nvml_device_at(n, i, &device) != STOW_OK) continue;
    top_device *d = &t->devices[t->device_count++];
    *d = (top_device){.index = i,
                      .known = device.memory_known,
                      .total_bytes = device.total_bytes,
                      .used_bytes = device.used_bytes};
    text_show(d->name, sizeof d->name, device.name);
    snprintf(d->uuid, sizeof d->uuid, "%s", device.uuid);
  }
}

/* Adds programs on the devices that are not part of a run, as the driver lists them. */
static void read_card_users(top_look *t, nvml *n) {
  for (int i = 0; n != NULL && i < t->device_count; i++) {
    nvml_process users[NVML_PROCESSES];
    int count = 0;
    if (t->devices[i].index < 0 ||
        nvml_processes(n, t->devices[i].index, users, NVML_PROCESSES, &count) != STOW_OK)
      continue;
    for (int u = 0; u < count && u < NVML_PROCESSES; u++) {
      top_process *p = row_of(t, (pid_t)users[u].pid);
      if (p == NULL || p->held_bytes > 0) continue; /* part of a run: its ledger is exact */
      p->device = i;
      p->held_known = users[u].bytes_known;
      p->held_bytes = users[u].bytes_known ? users[u].bytes : 0;
    }
  }
}

/* ---- runs ---- */

/* Maps a device of the ledger through CUDA_VISIBLE_DEVICES, if all devices are alike: CUDA counts
 * the fastest first, so otherwise the orders differ. Returns -1 if unknown. */
static int device_by_order(const top_look *t, const ledger *l, unsigned number) {
  char list[sizeof l->header->visible_devices], token[64] = "";
  int devices = 0;
  while (devices < t->device_count && t->devices[devices].index >= 0) devices++;
  for (int i = 1; i < devices; i++)
    if (strcmp(t->devices[i].name, t->devices[0].name) != 0) return -1;
  snprintf(list, sizeof list, "%.*s", (int)sizeof list - 1, l->header->visible_devices);
  snprintf(token, sizeof token, "%u", number);
  char *rest = list;
  for (unsigned at = 0; list[0] != '\0'; at++) {
    const char *word = strsep(&rest, ",");
    if (word == NULL) return -1;
    if (at < number) continue;
    snprintf(token, sizeof token, "%.63s", word);
    break;
  }
  char *end;
  long index = strtol(token, &end, 10);
  for (int i = 0; i < devices; i++)
    if (*end == '\0' ? index == i : strncmp(t->devices[i].uuid, token, strlen(token)) == 0)
      return i;
  return -1;
}

/* Maps a device number of the ledger to a device: by UUID, or else to one of the run's own. */
static int device_of(top_look *t, const ledger *l, unsigned number, int run) {
  uint64_t key = (uint64_t)run * LEDGER_DEVICES_MAX + number;
  const char *uuid = l->header->uuids[number];
  for (int i = 0; i < t->device_count; i++)
    if (uuid[0] != '\0' ? strncmp(t->devices[i].uuid, uuid, sizeof l->header->uuids[0] - 1) == 0
                        : t->devices[i].index < 0 && t->devices[i].uuid[0] == '\0' &&
                              t->devices[i].total_bytes == key)
      return i;
  int device = uuid[0] == '\0' ? device_by_order(t, l, number) : -1;
  if (device >= 0) return device;
  if (t->device_count == TOP_DEVICES_MAX) return -1;
  top_device *d = &t->devices[t->device_count];
  *d = (top_device){.index = -1, .total_bytes = key}; /* until the sample is complete */
  snprintf(d->name, sizeof d->name, "device %u of run %d", number, (int)t->runs[run].pid);
  snprintf(d->uuid, sizeof d->uuid, "%.*s", (int)sizeof l->header->uuids[0] - 1, uuid);
  return t->device_count++;
}

static void add_slot(top_look *t, const ledger *l, const ledger_slot *slot, int run) {
  uint64_t owner = atomic_load(&slot->owner);
  if (owner == 0 || (owner & LEDGER_TAKING) != 0) return;
  top_process *p = row_of(t, (pid_t)(owner >> 32));
  if (p == NULL) return;
  p->run = run;
  uint64_t most = 0;
  for (unsigned d = 0; d < LEDGER_DEVICES_MAX; d++) {
    const ledger_device *on = &slot->devices[d];
    uint64_t held = 0, spilled = atomic_load(&on->bytes[LEDGER_SPILLED]);
    for (int kind = 0; kind < LEDGER_VRAM_KINDS; kind++) held += atomic_load(&on->bytes[kind]);
    uint64_t pinned = atomic_load(&on->bytes[LEDGER_PINNED]);
    if (held + spilled + pinned == 0) continue;
    int device = device_of(t, l, d, run);
    p->held_bytes += held;
    p->spilled_bytes += spilled;
    p->pinned_bytes += pinned;
    p->cached_bytes += atomic_load(&on->idle_vram);
    if (device < 0) continue;
    if (held + spilled > most) most = held + spilled, p->device = device;
    top_device *at = &t->devices[device];
    at->held_bytes += held;
    at->spilled_bytes += spilled;
    uint64_t limit = ledger_limit(l, d);
    if (limit != LEDGER_UNLIMITED && (at->limit_bytes == 0 || limit < at->limit_bytes))
      at->limit_bytes = limit;
    uint64_t spill = ledger_spill_limit(l);
    if (spill > at->spill_limit_bytes) at->spill_limit_bytes = spill;
  }
}

static void name_trace(top_process *p, const char *folder) {
  char path[PATH_MAX];
  DIR *open = p->trace[0] == '\0' ? opendir(folder) : NULL;
  if (open == NULL) return;
  for (struct dirent *entry; (entry = readdir(open)) != NULL;) {
    bool ring = run_has_ending(entry->d_name, RUN_RING),
         stow = run_has_ending(entry->d_name, RUN_STOW);
    if ((!ring && !stow) || run_process_pid(entry->d_name) != (int)p->pid) continue;
    snprintf(path, sizeof path, "%.*s",
             (int)(strlen(entry->d_name) - strlen(ring ? RUN_RING : RUN_STOW)), entry->d_name);
    snprintf(p->trace, sizeof p->trace, "%.63s", path);
    break;
  }
  closedir(open);
}

static void read_run(top_look *t, const char *folder) {
  char path[PATH_MAX];
  ledger l;
  int run = t->run_count++;
  top_run *r = &t->runs[run];
  snprintf(r->folder, sizeof r->folder, "%s", folder);
  /* The PID is at the end of the folder's name, or of the name above a rank's folder. */
  const char *dash = strrchr(folder, '-');
  r->pid = dash != NULL ? (pid_t)strtol(dash + 1, NULL, 10) : 0;
  if (!run_path(path, folder, RUN_LEDGER) || ledger_copy(&l, path) != STOW_OK) return;
  ledger_reap(&l);
  uint64_t high = atomic_load(&l.header->slots_high);
  for (uint64_t i = 0; i < high && i < LEDGER_SLOTS_MAX; i++) add_slot(t, &l, &l.slots[i], run);
  ledger_close(&l);
}

/* ---- every process ---- */

typedef struct family {
  pid_t pid, parent;
  bool own; /* belongs to this user */
  int run;  /* -1: not part of a run */
} family;

static family *read_families(size_t *count) {
  DIR *open = opendir("/proc");
  family *list = NULL;
  size_t capacity = 0;
  *count = 0;
  if (open == NULL) return NULL;
  for (struct dirent *entry; (entry = readdir(open)) != NULL;) {
    process p;
    struct stat info;
    char path[64];
    pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
    if (!isdigit((unsigned char)entry->d_name[0]) || process_read(&p, pid) != PROCESS_LIVES)
      continue;
    if (*count == capacity) {
      capacity = capacity == 0 ? 256 : 2 * capacity;
      family *more = realloc(list, capacity * sizeof *list);
      if (more == NULL) break;
      list = more;
    }
    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    list[(*count)++] = (family){.pid = pid,
                                .parent = p.parent,
                                .own = stat(path, &info) == 0 && info.st_uid == getuid(),
                                .run = -1};
  }
  closedir(open);
  return list;
}

/* Marks the descendants of each run. A child may be listed before its parent, so repeats until
 * nothing changes. */
static void mark_runs(const top_look *t, family *list, size_t count) {
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < count; i++) {
      if (list[i].run >= 0) continue;
      for (int r = 0; r < t->run_count && list[i].run < 0; r++)
        if (t->runs[r].pid > 0 && list[i].parent == t->runs[r].pid) list[i].run = r;
      for (size_t k = 0; k < count && list[i].run < 0; k++)
        if (list[k].pid == list[i].parent) list[i].run = list[k].run;
      more = more || list[i].run >= 0;
    }
  }
}

static void read_families_into(top_look *t, bool all) {
  size_t count;
  family *list = read_families(&count);
  if (list == NULL) return;
  mark_runs(t, list, count);
  bool none = t->process_count == 0 && t->run_count == 0;
  for (size_t i = 0; i < count; i++) {
    bool listed = list[i].run >= 0 && list[i].pid != t->runs[list[i].run].pid;
    if (!listed && (all || none) && list[i].own && list[i].pid != getpid())
      listed = find(t, list[i].pid) == NULL && host_bytes(list[i].pid) >= SHOWN_LEAST;
    if (!listed) continue;
    top_process *p = row_of(t, list[i].pid);
    if (p != NULL && p->run < 0) p->run = list[i].run;
  }
  free(list);
}

void top_read(top_look *t, nvml *n, bool all) {
  char reason[sizeof t->no_device];
  memcpy(reason, t->no_device, sizeof reason);
  *t = (top_look){.time_ns = clock_ns(), .wall_ns = clock_wall_ns()};
  memcpy(t->no_device, reason, sizeof reason);
  if (gethostname(t->machine, sizeof t->machine - 1) != 0) t->machine[0] = '\0';
  t->host_known = hostmem_read(&t->host) == STOW_OK;
  read_devices(t, n);
  char(*folders)[PATH_MAX] = malloc(TOP_RUNS_MAX * sizeof *folders);
  size_t runs = folders != NULL ? run_folder_live(folders, TOP_RUNS_MAX) : 0;
  for (size_t i = 0; i < runs; i++) read_run(t, folders[i]);
  free(folders);
  read_card_users(t, n);
  read_families_into(t, all);
  for (int i = 0; i < t->process_count; i++)
    if (t->processes[i].run >= 0) name_trace(&t->processes[i], t->runs[t->processes[i].run].folder);
  for (int i = 0; i < t->device_count; i++)
    if (t->devices[i].index < 0) t->devices[i].total_bytes = 0;
}

/* ---- history ---- */

static top_series *series_of(top_history *h, const top_process *p) {
  top_series *free_one = NULL;
  for (int i = 0; i < TOP_PROCESSES_MAX; i++) {
    top_series *s = &h->processes[i];
    if (s->used && s->pid == p->pid && s->start == p->start) return s;
    if (!s->used && free_one == NULL) free_one = s;
  }
  if (free_one != NULL) *free_one = (top_series){.pid = p->pid, .start = p->start, .used = true};
  return free_one;
}

static void add_value(top_series *s, uint64_t bytes) {
  if (s->count == TOP_HISTORY) {
    memmove(s->values, s->values + 1, (TOP_HISTORY - 1) * sizeof *s->values);
    s->count--;
  }
  s->values[s->count++] = (float)((double)bytes / (1 << 20));
}

/* Computes the change over about the last second, in bytes per second. */
static bool rate_of(const top_history *h, const top_series *s, double *rate) {
  int back = 1;
  if (s->count < 2) return false;
  const uint64_t *now = &h->times_ns[h->looks - 1];
  while (back + 1 < s->count && back + 1 < h->looks && *now - *(now - back) < 1000000000) back++;
  if (back >= h->looks) return false;
  double seconds = (double)(*now - *(now - back)) / 1e9;
  *rate = ((double)s->values[s->count - 1] - (double)s->values[s->count - 1 - back]) * (1 << 20) /
          (seconds > 0 ? seconds : 1);
  return seconds > 0;
}

void top_note(top_history *h, top_look *t) {
  if (h->looks == TOP_HISTORY) {
    memmove(h->times_ns, h->times_ns + 1, (TOP_HISTORY - 1) * sizeof *h->times_ns);
    h->looks--;
  }
  h->times_ns[h->looks++] = t->time_ns;
  if (t->host_known)
    add_value(&h->host, t->host.machine_total_bytes - t->host.machine_available_bytes);
  for (int i = 0; i < t->device_count; i++)
    add_value(&h->devices[i],
              t->devices[i].known ? t->devices[i].used_bytes : t->devices[i].held_bytes);
  for (int i = 0; i < TOP_PROCESSES_MAX; i++) { /* processes that have ended */
    top_series *s = &h->processes[i];
    const top_process *p = s->used ? find(t, s->pid) : NULL;
    s->used = p != NULL && p->start == s->start;
  }
  for (int i = 0; i < t->process_count; i++) {
    top_process *p = &t->processes[i];
    top_series *s = series_of(h, p);
    if (s == NULL) continue;
    add_value(s, p->held_bytes + p->spilled_bytes + p->host_bytes);
    p->rate_known = rate_of(h, s, &p->rate_bytes_s);
    p->history = s->values;
    p->history_count = s->count;
  }
}
