/* Run ram: reading /proc for the descendants of this process. */
#include "cli/run_ram.h"

#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stowage/size.h>

#include "base/clock.h"
#include "base/hostmem.h"
#include "base/status.h"

#define PROCESSES_MAX 4096

typedef struct process {
  pid_t pid, parent;
  bool ours;
} process;

stow_status run_ram_init(run_ram *r, const char *text) {
  *r = (run_ram){0};
  if (text == NULL) return STOW_OK;
  r->on = true;
  r->automatic = strcmp(text, "auto") == 0;
  hostmem memory;
  STOW_TRY(hostmem_read(&memory));
  r->limit_bytes = memory.total_bytes;
  if (!r->automatic && stow_size_parse(&r->limit_bytes, text) != STOW_OK)
    return stow_fail(STOW_ERR_INVALID, "--ram-limit \"%.40s\": must be auto or a size such as 8G",
                     text);
  if (r->limit_bytes == 0)
    return stow_fail(STOW_ERR_INVALID, "--ram-limit 0: a limit of nothing lets nothing run");
  /* What a process of the command leaves behind comes to us, and is still counted. */
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  return STOW_OK;
}

/* ---- who is there ---- */

/* The parent of a process, from /proc/PID/stat; 0 if it is gone. */
static pid_t parent_of(pid_t pid) {
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  FILE *file = fopen(path, "re");
  if (file == NULL) return 0;
  size_t got = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[got] = '\0';
  const char *at = strrchr(text, ')'); /* the name before it may hold anything */
  return at == NULL || strlen(at) < 5 ? 0 : (pid_t)strtol(at + 4, NULL, 10);
}

static size_t list_processes(process *list) {
  DIR *folder = opendir("/proc");
  size_t count = 0;
  for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
    if (!isdigit((unsigned char)entry->d_name[0]) || count == PROCESSES_MAX) continue;
    pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
    list[count++] = (process){pid, parent_of(pid), false};
  }
  if (folder != NULL) closedir(folder);
  return count;
}

/* Marks every descendant of this process. */
static void mark(process *list, size_t count) {
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < count; i++) {
      if (list[i].ours) continue;
      bool ours = list[i].parent == getpid();
      for (size_t j = 0; j < count && !ours; j++)
        ours = list[j].ours && list[j].pid == list[i].parent;
      list[i].ours = ours;
      more = more || ours;
    }
  }
}

/* What a process holds that the kernel cannot drop: anonymous and shared memory. */
static uint64_t held_by(pid_t pid, char name[32]) {
  char path[64], line[256];
  uint64_t kib = 0, value;
  snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
  FILE *file = fopen(path, "re");
  if (file == NULL) return 0;
  while (fgets(line, sizeof line, file) != NULL) {
    if (strncmp(line, "Name:\t", 6) == 0) {
      line[strcspn(line, "\n")] = '\0';
      snprintf(name, 32, "%.31s", line + 6);
    } else if (strncmp(line, "RssAnon:", 8) == 0 || strncmp(line, "RssShmem:", 9) == 0) {
      value = strtoull(strchr(line, ':') + 1, NULL, 10);
      kib += value;
    }
  }
  fclose(file);
  return kib * 1024;
}

/* ---- looking ---- */

static void take_stock(run_ram *r) {
  process *list = malloc(PROCESSES_MAX * sizeof *list);
  if (list == NULL) return;
  size_t count = list_processes(list);
  mark(list, count);
  uint64_t sum = 0;
  r->largest_bytes = 0;
  for (size_t i = 0; i < count; i++) {
    char name[32] = "";
    if (!list[i].ours) continue;
    uint64_t bytes = held_by(list[i].pid, name);
    sum += bytes;
    if (bytes <= r->largest_bytes) continue;
    r->largest_bytes = bytes;
    r->largest = list[i].pid;
    snprintf(r->largest_name, sizeof r->largest_name, "%s", name);
  }
  free(list);
  uint64_t now = clock_ns();
  if (r->looked_ns != 0 && now > r->looked_ns) {
    double rate = ((double)sum - (double)r->held_bytes) * 1e9 / (double)(now - r->looked_ns);
    r->growth_bytes_s = 0.75 * r->growth_bytes_s + 0.25 * rate;
  }
  r->looked_ns = now;
  /* An ending process has nothing left: keep what it held before. */
  if (sum > 0) r->held_bytes = sum;
  if (sum > r->peak_bytes) r->peak_bytes = sum;
}

static void say_state(const run_ram *r) {
  char held[STOW_SIZE_TEXT_MAX], rate[STOW_SIZE_TEXT_MAX], most[STOW_SIZE_TEXT_MAX];
  fprintf(stderr, "the command holds %s", stow_size_format(held, r->held_bytes));
  if (r->growth_bytes_s > 1 << 20)
    fprintf(stderr, ", growing by %s a second",
            stow_size_format(rate, (uint64_t)r->growth_bytes_s));
  if (r->largest_bytes > 0)
    fprintf(stderr, "; %s (process %d) holds most, %s", r->largest_name, (int)r->largest,
            stow_size_format(most, r->largest_bytes));
  fputc('\n', stderr);
}

void run_ram_look(void *user) {
  run_ram *r = user;
  hostmem memory;
  take_stock(r);
  if (hostmem_read(&memory) == STOW_OK) r->usable_bytes = memory.usable_bytes;
  uint64_t tenth = r->limit_bytes / 10;
  bool full = r->held_bytes >= r->limit_bytes - tenth || (r->automatic && r->usable_bytes < tenth);
  if (full && !r->warned) {
    char limit[STOW_SIZE_TEXT_MAX], left[STOW_SIZE_TEXT_MAX];
    if (r->automatic)
      fprintf(stderr, "stowage run: host memory runs out: %s left; ",
              stow_size_format(left, r->usable_bytes));
    else
      fprintf(stderr, "stowage run: nine tenths of the %s of host memory are used; ",
              stow_size_format(limit, r->limit_bytes));
    say_state(r);
    r->warned = true;
  }
  /* Said again only after it was over. */
  if (r->held_bytes < r->limit_bytes - 2 * tenth && (!r->automatic || r->usable_bytes > 2 * tenth))
    r->warned = false;
}

void run_ram_end(const run_ram *r, int how) {
  char peak[STOW_SIZE_TEXT_MAX], left[STOW_SIZE_TEXT_MAX];
  if (!r->on) return;
  if (WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL) {
    fprintf(stderr, "stowage run: killed by SIGKILL with %s of host memory left; when last seen ",
            stow_size_format(left, r->usable_bytes));
    say_state(r);
  }
  fprintf(stderr, "stowage run: host memory: at the peak %s\n",
          stow_size_format(peak, r->peak_bytes));
}
