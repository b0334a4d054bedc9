/* Run request: decides which process to ask and when, and reads its answers. */
#include "cli/run_request.h"
#include "base/variables.h"
#include "run/protocol.h"

#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#define MS UINT64_C(1000000)
/* A request without an answer is repeated after this time. */
#define LOST_NS (5000 * MS)
/* After an answer, the process is left alone for this many times the duration of the answer. */
#define REST 4
/* … before it is asked because its memory has doubled. */
#define DOUBLED_REST 16
/* … before it is asked because the last answer covers less than half of what it holds, and it does
 * not grow any more. */
#define HALF_REST 2
/* How long an answer may take on a busy machine. */
#define ANSWER_NS (250 * MS)
/* How much a process must hold before a plain watch asks it. */
#define RISE_LEAST (UINT64_C(48) << 20)
/* … and before it is asked each time that its memory has doubled. */
#define DOUBLED_LEAST (UINT64_C(128) << 20)
/* So many times in a run, a process is asked again because its answer came too late. */
#define MISSED_MOST 8

stow_status run_request_open(run_request *a, const char *folder) {
  char path[PATH_MAX];
  *a = (run_request){0};
  if (!run_path(path, folder, RUN_WATCH)) return STOW_OK;
  STOW_TRY(request_create(&a->word, path));
  if (setenv(ENV_WATCH, path, 1) != 0)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for the environment");
  return STOW_OK;
}

void run_request_close(run_request *a) {
  request_close(a->word);
  a->word = NULL;
}

static bool is_listener(pid_t pid, const char *task) {
  char path[64], name[32] = "";
  snprintf(path, sizeof path, "/proc/%d/task/%.16s/comm", (int)pid, task);
  FILE *file = fopen(path, "re");
  bool is = file != NULL && fgets(name, sizeof name, file) != NULL &&
            strcmp(name, RUN_LISTENER "\n") == 0;
  if (file != NULL) fclose(file);
  return is;
}

bool run_request_has_listener(pid_t pid) {
  char path[64];
  bool hears = false;
  snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
  DIR *tasks = opendir(path);
  for (struct dirent *entry; !hears && tasks != NULL && (entry = readdir(tasks)) != NULL;)
    hears = isdigit((unsigned char)entry->d_name[0]) && is_listener(pid, entry->d_name);
  if (tasks != NULL) closedir(tasks);
  return hears;
}

/* Returns the largest process, or the one asked last if it holds about as much: among many similar
 * processes, one report is enough. */
static const tree_process *choose_process(const run_request *a, const host_record *h) {
  for (size_t i = 1; i < h->process_count; i++)
    if (h->processes[i].pid == a->pid &&
        h->processes[i].held_bytes + h->processes[i].held_bytes / 4 >= h->processes[0].held_bytes)
      return &h->processes[i];
  return &h->processes[0];
}

/* Returns how long the first thread of a process has waited for a CPU so far; 0: not known. */
static uint64_t waited_ns(pid_t pid) {
  char path[64];
  uint64_t waited = 0;
  snprintf(path, sizeof path, "/proc/%d/schedstat", (int)pid);
  FILE *file = fopen(path, "re");
  if (file == NULL) return 0;
  if (fscanf(file, "%*u %" SCNu64, &waited) != 1) waited = 0;
  fclose(file);
  return waited;
}

/* Returns how long the process has run since it was asked, without the time it waited for a CPU. On
 * a busy machine a process runs little, and answers may take a share of that only. */
static uint64_t own_time_ns(const run_request *a, uint64_t now_ns) {
  uint64_t passed = now_ns > a->asked_ns ? now_ns - a->asked_ns : 0, now = waited_ns(a->pid);
  uint64_t waited = now > a->waited_ns ? now - a->waited_ns : 0;
  return waited < passed ? passed - waited : 0;
}

static void post(run_request *a, const tree_process *p, bool thorough, uint64_t now_ns) {
  if (p->pid != a->pid || p->held_bytes > a->most_bytes) a->most_bytes = p->held_bytes;
  a->pid = p->pid;
  a->bytes = p->held_bytes;
  a->whole = false;
  a->asked_ns = now_ns;
  a->waited_ns = waited_ns(p->pid);
  a->serial = request_post(a->word, p->pid, thorough);
}

void run_request_now(run_request *a, const host_record *h, uint64_t now_ns) {
  if (a->word != NULL && h->process_count > 0) post(a, choose_process(a, h), true, now_ns);
}

void run_request_soon(run_request *a, const host_record *h, uint64_t left_bytes, uint64_t now_ns) {
  if (a->word == NULL || h->process_count == 0) return;
  const tree_process *p = choose_process(a, h);
  /* Near the limit: no more is left than the process holds, or the rest would be filled before it
   * answers. */
  double answer_s = (double)(REST * a->took_ns > ANSWER_NS ? REST * a->took_ns : ANSWER_NS) / 1e9;
  bool near =
      left_bytes <= h->held_bytes || (left_bytes / 3 <= h->held_bytes &&
                                      (double)h->growth_bytes_s * answer_s >= (double)left_bytes);
  if (!near) return;
  if (p->pid == a->pid) {
    uint64_t rest_ns = a->whole ? (REST + 1) * a->took_ns : LOST_NS;
    if (p->held_bytes < a->bytes + a->bytes / 10 || now_ns < a->asked_ns + rest_ns) return;
  }
  post(a, p, true, now_ns);
}

/* Returns whether a process holds twice as much as at any request before. */
static bool doubled(const run_request *a, const tree_process *p) {
  return p->held_bytes >= DOUBLED_LEAST && p->held_bytes / 2 >= a->most_bytes;
}

void run_request_rise(run_request *a, const host_record *h, unsigned part, uint64_t now_ns) {
  if (a->word == NULL || h->process_count == 0) return;
  const tree_process *p = choose_process(a, h);
  bool often = part <= 25;
  if (p->held_bytes < (often ? RISE_LEAST / 4 : RISE_LEAST)) return;
  if (p->pid == a->pid) {
    bool moved =
        often ? p->held_bytes > a->bytes + a->bytes / 50 || p->held_bytes < a->bytes - a->bytes / 50
              : p->held_bytes >= a->bytes + a->bytes / 4;
    if (!moved) return;
    /* Memory that doubles is worth more of its time: that happens ten times up to 100 GiB. */
    unsigned rest = doubled(a, p) ? DOUBLED_REST : part;
    if (a->whole ? own_time_ns(a, now_ns) < rest * a->spent_ns : now_ns < a->asked_ns + LOST_NS)
      return;
  }
  post(a, p, often, now_ns);
}

bool run_request_lacks(const run_request *a, pid_t pid, uint64_t bytes, uint64_t now_ns) {
  if (a->word == NULL || bytes < DOUBLED_LEAST) return false;
  if (pid != a->pid) return a->pid == 0;
  unsigned rest = bytes / 2 >= a->most_bytes ? HALF_REST : DOUBLED_REST;
  return bytes >= a->most_bytes + a->most_bytes / 4 &&
         (a->whole ? own_time_ns(a, now_ns) >= rest * a->spent_ns
                   : now_ns >= a->asked_ns + LOST_NS);
}

void run_request_settled(run_request *a, const host_record *h, uint64_t now_ns) {
  if (h->process_count == 0) return;
  const tree_process *p = choose_process(a, h);
  if (run_request_lacks(a, p->pid, p->held_bytes, now_ns)) post(a, p, false, now_ns);
}

void run_request_forget(run_request *a) {
  a->bytes = 0;
}

/* A process answers once the interpreter's lock is free. If it has freed what it was asked about by
 * then, what counts as growth is measured from the amount that the answer covers: an array that a
 * line makes in every iteration is asked about again. */
static void measure_from_answer(run_request *a, uint64_t seen_bytes) {
  if (seen_bytes == 0 || seen_bytes > a->bytes / 4 * 3 || a->missed == MISSED_MOST) return;
  a->missed++;
  a->bytes = a->most_bytes = seen_bytes;
}

bool run_request_read(run_request *a, host_record *h, const char *folder, uint64_t now_ns) {
  if (a->whole) return true;
  if (a->pid == 0 || !host_record_read_inside(h, folder, a->pid)) return false;
  a->whole = h->inside_whole && h->inside_serial == a->serial;
  if (a->whole) {
    a->took_ns = now_ns - a->asked_ns;
    a->spent_ns = h->inside_ns;
    measure_from_answer(a, h->inside_bytes);
  }
  return a->whole;
}
