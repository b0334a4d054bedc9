/* Run ram: decides when to sample, what to report, what to keep, and which processes to end. */
#include "cli/run_ram.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <stowage/size.h>

#include "advise/host_case.h"
#include "base/clock.h"
#include "base/hostmem.h"
#include "base/process.h"
#include "base/status.h"
#include "cli/output.h"
#include "cli/run_child.h"
#include "cli/run_shim.h"
#include "cli/verb.h"
#include "watch/tree.h"

#define NAMED_LEAST (UINT64_C(1) << 20) /* bytes of an object that a warning names */
#define MS          UINT64_C(1000000)
/* How long to wait for an answer before a command over its limit is ended. Waiting is harmless
 * while little more memory is allocated (a garbage collection, a call into C). */
#define ANSWER_NS       (5000 * MS)
#define ANSWER_SHORT_NS (1000 * MS)
#define ANSWER_LOOK_NS  (2 * MS)
/* How far a command may go above its limit while it answers: a quarter of the limit, but at least
 * this. Up to there it has ANSWER_NS, up to twice as far only ANSWER_SHORT_NS. */
#define PAST_LEAST (UINT64_C(256) << 20)
/* How long a shell or a pool of workers takes to end after one of its processes was killed. */
#define LATELY_NS (5000 * MS)
/* How fast memory may fill, per millisecond. Between two samples, at most a quarter of what is left
 * can then be filled. */
#define FILL_BYTES_MS (UINT64_C(4) << 20)
/* Between two samples of a plain watch, the largest process is read alone this often (10 us):
 * memory that is held for a moment only is filled for longer than that (1 GiB takes 100 to 300 ms).
 */
#define PULSE_MS        20
#define RISE_LEAST      (UINT64_C(32) << 20)
#define PULSE_PROCESSES 8
/* A process whose memory changed by less than 1/SETTLED_PART in so many of these readings has
 * stopped growing. */
#define SETTLED_PULSES 3
#define SETTLED_PART   32
/* A child that was just started is sampled too, so that it is read from then on. A command that
 * starts one child after the other, none of them large, is left alone for longer each time. */
#define FAMILY_MOST_NS (1000 * MS)
/* A process spends at most 1/PART of its time on answers. */
#define WATCH_PART  200
#define RECORD_PART 25

stow_status run_ram_init(run_ram *r, const char *text) {
  *r = (run_ram){.on = true, .plain = text == NULL};
  r->automatic = r->plain || strcmp(text, "auto") == 0;
  hostmem memory;
  if (hostmem_read(&memory) != STOW_OK) {
    r->on = !r->plain;
    return r->plain ? STOW_OK : STOW_ERR_IO;
  }
  host_record *h = &r->record;
  h->limit_bytes = h->total_bytes = memory.total_bytes;
  h->usable_bytes = memory.usable_bytes;
  snprintf(h->limit_from, sizeof h->limit_from, "%s",
           !r->automatic    ? "given"
           : memory.limited ? "cgroup"
                            : "machine");
  if (!r->automatic && verb_memory_parse(&h->limit_bytes, text) != STOW_OK)
    return stow_fail(STOW_ERR_INVALID, "--ram-limit: %s; or auto", stow_status_message());
  if (h->limit_bytes == 0)
    return stow_fail(STOW_ERR_INVALID,
                     "--ram-limit 0: a limit of 0 leaves no memory; give a size such as 8G");
  /* Orphans of the command become our children and are still counted. */
  if (!r->plain) prctl(PR_SET_CHILD_SUBREAPER, 1);
  return STOW_OK;
}

stow_status run_ram_open(run_ram *r, const char *folder, bool record) {
  if (!r->on) return STOW_OK;
  snprintf(r->folder, sizeof r->folder, "%s", folder);
  r->start_ns = clock_ns();
  r->record.started_wall_ns = clock_wall_ns();
  stow_status status = run_request_open(&r->request, folder);
  if (status != STOW_OK) {
    r->on = !r->plain; /* the watch was not requested, so the command runs without it */
    return r->plain ? STOW_OK : status;
  }
  run_shim_preload_host();
  if (record) run_host_trace_open(&r->trace, folder, &r->record);
  return STOW_OK;
}

void run_ram_started(run_ram *r) {
  r->kills = hostmem_kills();
}

/* ---- sampling ---- */

static void add_sample(host_record *h, uint64_t time_ms) {
  if (h->sample_count == HOST_SAMPLES_MAX) { /* drop every second sample, so that the whole run
                                              * stays covered */
    for (size_t i = 0; i < HOST_SAMPLES_MAX / 2; i++) h->samples[i] = h->samples[2 * i + 1];
    h->sample_count = HOST_SAMPLES_MAX / 2;
  }
  h->samples[h->sample_count++] = (host_sample){time_ms, h->held_bytes};
}

static void take_stock(run_ram *r, uint64_t now) {
  host_record *h = &r->record;
  tree t;
  hostmem memory;
  bool known = hostmem_read(&memory) == STOW_OK;
  /* A process that is ending holds nothing any more: keep its last figures. */
  if (tree_read(&t, getpid()) == STOW_OK && t.held_bytes > 0) {
    if (known) {
      h->usable_bytes = memory.usable_bytes;
      h->cache_bytes = memory.limit_cache_bytes;
    }
    if (r->looked_ns != 0 && now > r->looked_ns) {
      double rate =
          ((double)t.held_bytes - (double)h->held_bytes) * 1e9 / (double)(now - r->looked_ns);
      r->growth_bytes_s = 0.5 * r->growth_bytes_s + 0.5 * rate;
    }
    h->held_bytes = t.held_bytes;
    h->growth_bytes_s = (int64_t)r->growth_bytes_s;
    if (h->held_bytes > h->peak_bytes) h->peak_bytes = h->held_bytes;
    h->process_count = t.count < HOST_PROCESSES_MAX ? t.count : HOST_PROCESSES_MAX;
    memcpy(h->processes, t.list, h->process_count * sizeof *t.list);
    add_sample(h, (now - r->start_ns) / MS);
    if (h->held_bytes >= r->top.held_bytes) r->top = *h;
  }
  tree_free(&t);
  r->looked_ns = now;
}

/* Returns how much the command may still allocate. */
static uint64_t left_bytes(const run_ram *r) {
  const host_record *h = &r->record;
  uint64_t left = h->limit_bytes > h->held_bytes ? h->limit_bytes - h->held_bytes : 0;
  return r->automatic && h->usable_bytes < left ? h->usable_bytes : left;
}

/* Returns when to sample next: soon if memory runs out at the current rate, later otherwise. */
static uint64_t next_look(const run_ram *r) {
  const host_record *h = &r->record;
  uint64_t left = left_bytes(r);
  /* Sample often at the start, so that short commands are covered. */
  uint64_t age_ms = (r->looked_ns - r->start_ns) / MS;
  if (r->plain && age_ms < 1000)
    return (age_ms / 4 < RUN_RAM_SOON_MS ? RUN_RAM_SOON_MS : age_ms / 4) * MS;
  if (r->growth_bytes_s > 2 * (double)left) return RUN_RAM_SOON_MS * MS;
  if (left < h->limit_bytes / 5 || r->growth_bytes_s * 2 > (double)left)
    return RUN_RAM_BEAT_MS * MS;
  uint64_t ms = left / 4 / FILL_BYTES_MS;
  if (ms < RUN_RAM_BEAT_MS) ms = RUN_RAM_BEAT_MS;
  uint64_t most_ms = r->trace != NULL ? RUN_RAM_BEAT_MS : 250;
  return (ms < most_ms ? ms : most_ms) * MS;
}

/* ---- reports ---- */

static void say_state(const run_ram *r) {
  const host_record *h = &r->record;
  char held[STOW_SIZE_TEXT_MAX], rate[STOW_SIZE_TEXT_MAX], most[STOW_SIZE_TEXT_MAX];
  output_error("the command holds %s", stow_size_format(held, h->held_bytes));
  if (h->growth_bytes_s > 1 << 20)
    output_error(", growing by %s per second", stow_size_format(rate, (uint64_t)h->growth_bytes_s));
  if (h->process_count > 0)
    output_error("; %s (process %d) holds most, %s", output_name(h->processes[0].name),
                 (int)h->processes[0].pid, stow_size_format(most, h->processes[0].held_bytes));
  output_error("\n");
}

static void warn(run_ram *r) {
  const host_record *h = &r->record;
  char limit[STOW_SIZE_TEXT_MAX], left[STOW_SIZE_TEXT_MAX];
  if (r->automatic)
    output_error("stowage run: host memory runs out: %s left; ",
                 stow_size_format(left, h->usable_bytes));
  else
    output_error("stowage run: 90%% of the %s of host memory is used; ",
                 stow_size_format(limit, h->limit_bytes));
  say_state(r);
  r->warned = true;
}

static void report_inside(run_ram *r) {
  const host_record *h = &r->record;
  char text[480];
  if (r->reported || !h->from_inside) return;
  r->reported = true;
  if (h->object_count == 0 || h->objects[0].bytes < NAMED_LEAST) return;
  host_describe(text, sizeof text, &h->objects[0]);
  output_error("stowage run: largest: %s\n", output_name(text));
}

/* Reads the mappings, but for at most a twentieth of the time: it takes milliseconds per GiB. */
static void take_details(run_ram *r, uint64_t now) {
  host_record *h = &r->record;
  if (h->process_count == 0 || now < r->detail_ns) return;
  pid_t pid = h->processes[0].pid;
  uint64_t kinds[TREE_MAP_KINDS];
  tree_map maps[HOST_MAPS_MAX];
  uint64_t began = clock_cpu_ns();
  size_t count = tree_maps(pid, kinds, maps, HOST_MAPS_MAX);
  if (count > 0) {
    memcpy(h->kinds, kinds, sizeof kinds);
    memcpy(h->maps, maps, count * sizeof *maps);
    h->map_count = count;
    h->file_count = tree_files(pid, h->files, HOST_FILES_MAX);
  }
  uint64_t took = clock_cpu_ns() - began;
  r->detail_ns = now + (20 * took > 500 * MS ? 20 * took : 500 * MS);
}

/* ---- over the limit ---- */

/* Returns whether there is time to wait for an answer. Reads what is held now; the record stays as
 * it was when the limit was exceeded, except for the peak. */
static bool may_wait(host_record *h, uint64_t waited_ns) {
  tree t;
  hostmem memory;
  uint64_t held = tree_read(&t, getpid()) == STOW_OK ? t.held_bytes : h->held_bytes;
  tree_free(&t);
  if (held > h->peak_bytes) h->peak_bytes = held;
  if (hostmem_read(&memory) == STOW_OK && memory.usable_bytes <= memory.total_bytes / 20)
    return false;
  uint64_t past = held > h->limit_bytes ? held - h->limit_bytes : 0;
  uint64_t room = h->limit_bytes / 4 > PAST_LEAST ? h->limit_bytes / 4 : PAST_LEAST;
  return past < 2 * room && waited_ns < (past < room ? ANSWER_NS : ANSWER_SHORT_NS);
}

/* Sends one last request and waits for the answer. Does not wait for a process that ends or does
 * not listen. */
static void request_last(run_ram *r) {
  const struct timespec pause = {.tv_nsec = (long)ANSWER_LOOK_NS};
  uint64_t asked = clock_ns(), now = asked, looked = asked;
  process p;
  run_request_now(&r->request, &r->record, asked);
  r->detail_ns = 0;
  take_details(r, asked);
  if (r->request.pid == 0 || !run_request_has_listener(r->request.pid)) return;
  while (!run_request_read(&r->request, &r->record, r->folder, now) &&
         process_read(&p, r->request.pid) == PROCESS_LIVES) {
    if (now >= looked + RUN_RAM_BEAT_MS * MS) {
      looked = now;
      if (!may_wait(&r->record, now - asked)) break;
    }
    nanosleep(&pause, NULL);
    now = clock_ns();
  }
}

/* Writes the record to the folder of the run. After a failure an older one may be there. */
static void keep_record(run_ram *r, const host_record *h) {
  bool kept = host_record_write(h, r->folder) == STOW_OK;
  snprintf(r->lost, sizeof r->lost, "%s", kept ? "" : stow_status_message());
}

/* Ends everything that the command started, because it exceeded a given limit. Ending one process
 * would leave others waiting for it (a pool of workers, forever). */
static void end_all(run_ram *r) {
  host_record *h = &r->record;
  char limit[STOW_SIZE_TEXT_MAX];
  if (h->process_count == 0) return;
  request_last(r);
  report_inside(r);
  r->ended = true;
  snprintf(h->ended, sizeof h->ended, "limit");
  keep_record(r, h);
  output_error("stowage run: the command exceeded the %s of --ram-limit: ",
               stow_size_format(limit, h->limit_bytes));
  say_state(r);
  child_signal_all(0, SIGKILL);
}

/* Takes one sample: reads what is held, requests a report, prints and records. */
static void look(run_ram *r, uint64_t now) {
  host_record *h = &r->record;
  take_stock(r, now);
  uint64_t tenth = h->limit_bytes / 10;
  bool over = h->held_bytes >= h->limit_bytes - tenth || (r->automatic && h->usable_bytes < tenth);
  if (over && !r->warned) {
    warn(r);
    run_request_now(&r->request, h, now);
    r->warned_serial = r->request.serial;
  } else
    run_request_soon(&r->request, h, left_bytes(r), now);
  if (r->plain || r->trace != NULL)
    run_request_rise(&r->request, h, r->trace != NULL ? RECORD_PART : WATCH_PART, now);
  if (r->plain && r->pulses >= SETTLED_PULSES) run_request_settled(&r->request, h, now);
  if (r->request.pid != 0) run_request_read(&r->request, h, r->folder, now);
  run_host_trace_look(r->trace, h);
  /* Leave processes alone that stay below. */
  if (over || (r->request.pid != 0 && h->held_bytes > r->kept_bytes + r->kept_bytes / 50)) {
    take_details(r, now);
    keep_record(r, h);
    r->kept_bytes = h->held_bytes;
  }
  if (over && h->inside_serial >= r->warned_serial) report_inside(r);
  /* After a kill, a process may be gone one or two samples before its parent is. */
  if (h->held_bytes >= r->full.held_bytes / 2 || now >= r->full_ns + LATELY_NS) {
    r->full = *h;
    r->full_ns = now;
  }
  if (over) r->over_ns = now;
  if (!r->automatic && h->held_bytes > h->limit_bytes)
    end_all(r);
  else if (h->held_bytes < h->limit_bytes / 2 && (!r->automatic || h->usable_bytes > 3 * tenth)) {
    r->warned = false; /* warn again only after it was exceeded again */
    run_request_forget(&r->request);
    r->kept_bytes = 0;
  }
}

/* Notes what the largest process holds, and how long that has not changed. */
static void note_pulse(run_ram *r, uint64_t bytes) {
  uint64_t change = bytes > r->pulse_bytes ? bytes - r->pulse_bytes : r->pulse_bytes - bytes;
  if (change > r->pulse_bytes / SETTLED_PART)
    r->pulse_bytes = bytes, r->pulses = 0;
  else
    r->pulses++;
}

/* Returns whether the largest process does not grow any more, and its last answer covers less. */
static bool has_settled(const run_ram *r, uint64_t now) {
  const host_record *h = &r->record;
  return r->pulses >= SETTLED_PULSES && h->process_count > 0 &&
         run_request_lacks(&r->request, h->processes[0].pid, r->pulse_bytes, now);
}

/* Returns whether the largest processes have grown by a quarter beyond every sample. */
static bool has_risen(run_ram *r) {
  const host_record *h = &r->record;
  uint64_t now = h->held_bytes, before = r->top.held_bytes;
  for (size_t i = 0; i < h->process_count && i < PULSE_PROCESSES; i++) {
    uint64_t bytes = tree_anonymous_bytes(h->processes[i].pid);
    if (i == 0) note_pulse(r, bytes);
    if (bytes > h->processes[i].anonymous_bytes) now += bytes - h->processes[i].anonymous_bytes;
  }
  return now >= before + (before / 4 > RISE_LEAST ? before / 4 : RISE_LEAST);
}

/* Returns a number that changes when the command or its largest process starts a child. */
static uint64_t family(const run_ram *r) {
  const host_record *h = &r->record;
  uint64_t hash = 0;
  for (size_t i = 0; i < h->process_count; i++)
    if (i == 0 || h->processes[i].parent == getpid())
      hash = hash * 31 + tree_children_hash(h->processes[i].pid);
  return hash;
}

/* Returns whether a child was started since the last sample. */
static bool has_child(const run_ram *r, uint64_t now) {
  return now >= r->family_ns + r->family_wait && family(r) != r->family_hash;
}

/* Notes a sample that was taken because of a new child, or that is larger than all before. */
static void saw_child(run_ram *r, uint64_t now, bool risen) {
  r->family_ns = now;
  r->family_wait = risen ? 0 : 2 * r->family_wait + PULSE_MS * MS;
  if (r->family_wait > FAMILY_MOST_NS) r->family_wait = FAMILY_MOST_NS;
}

int run_ram_look(run_ram *r) {
  uint64_t now = clock_ns();
  if (r->ended) { /* processes that were being started while the others were ended */
    child_signal_all(0, SIGKILL);
    return RUN_RAM_BEAT_MS;
  }
  bool risen = r->plain && has_risen(r), due = now >= r->next_ns || risen;
  due = due || (r->plain && has_settled(r, now));
  bool child = !due && r->plain && has_child(r, now);
  if (due || child) {
    uint64_t began = clock_cpu_ns(), before = r->top.held_bytes;
    look(r, now);
    bool larger = r->top.held_bytes > before + RISE_LEAST;
    if (child || larger) saw_child(r, now, larger);
    r->family_hash = r->plain ? family(r) : 0;
    /* With very many processes, use at most a quarter of the time. By CPU time: a sample during
     * which this process was stopped must not delay the next. */
    uint64_t rest_ns = next_look(r), least_ns = 4 * (clock_cpu_ns() - began);
    r->next_ns = now + (rest_ns > least_ns ? rest_ns : least_ns);
    now = clock_ns();
  }
  uint64_t rest_ms = r->next_ns > now + MS ? (r->next_ns - now) / MS : 1;
  return r->plain && rest_ms > PULSE_MS ? PULSE_MS : (int)rest_ms;
}

/* Waits for the answer of a process that may have outlived the command: a worker whose parent was
 * killed. */
static void await_answer(run_ram *r) {
  const struct timespec pause = {.tv_nsec = (long)ANSWER_LOOK_NS};
  process p;
  uint64_t now = clock_ns(), until = now + ANSWER_SHORT_NS;
  if (r->request.pid == 0) return;
  while (!run_request_read(&r->request, &r->record, r->folder, now) && now < until &&
         process_read(&p, r->request.pid) == PROCESS_LIVES &&
         run_request_has_listener(r->request.pid)) {
    nanosleep(&pause, NULL);
    now = clock_ns();
  }
}

static bool is_kill(int how) {
  return WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL;
}

/* Returns whether the exit code is one with which a shell reports a killed command. */
static bool is_reported_kill(int how) {
  return WIFEXITED(how) && WEXITSTATUS(how) == 128 + SIGKILL;
}

/* Returns whether the kernel killed a process of the run. Its count covers the whole cgroup, which
 * may include others, so a command that ended normally must have held much memory. */
static bool by_kernel(const run_ram *r, int how) {
  if (how == 0 || r->ended || hostmem_kills() <= r->kills) return false;
  return is_kill(how) || is_reported_kill(how) ||
         (r->on && r->full.held_bytes >= r->record.limit_bytes / 2);
}

static bool was_killed(const run_ram *r, int how) {
  return r->by_kernel || is_kill(how) ||
         (is_reported_kill(how) && r->over_ns != 0 && clock_ns() < r->over_ns + LATELY_NS);
}

/* Raises the peak to the kernel's figure for the largest process, which includes file pages and
 * moments between samples. */
static void add_kernel_peak(run_ram *r) {
  host_record *h = &r->record;
  struct rusage use;
  if (getrusage(RUSAGE_CHILDREN, &use) != 0 || use.ru_maxrss <= 0) return;
  uint64_t most = (uint64_t)use.ru_maxrss * 1024;
  uint64_t file = r->top.process_count > 0 ? r->top.processes[0].file_bytes : 0;
  most = most > file ? most - file : 0;
  if (most > h->peak_bytes) h->peak_bytes = r->top.largest_bytes = most;
}

/* Keeps the record of the peak, with the samples of the whole run. */
static void keep_top(run_ram *r) {
  host_record *h = &r->record, *top = &r->top;
  top->peak_bytes = h->peak_bytes;
  if (top->largest_bytes == 0 && top->process_count > 0)
    top->largest_bytes = top->processes[0].held_bytes;
  memcpy(top->samples, h->samples, sizeof h->samples);
  top->sample_count = h->sample_count;
  keep_record(r, top);
  if (r->lost[0] != '\0') *h = *top;
}

void run_ram_end(run_ram *r, int how) {
  host_record *h = &r->record;
  char left[STOW_SIZE_TEXT_MAX];
  r->by_kernel = by_kernel(r, how);
  const char *who = is_kill(how) ? "" : "a process of it was ";
  const char *by = r->by_kernel ? ", by the kernel, because host memory ran out" : "";
  if (!r->on) {
    if (r->by_kernel) output_error("stowage run: %skilled by SIGKILL%s\n", who, by);
    return;
  }
  if (r->ended && how == 0) { /* it ended by itself while it was asked what it holds */
    r->ended = false;
    h->ended[0] = '\0';
  }
  if (was_killed(r, how) && !r->ended) {
    if (r->full_ns != 0 && clock_ns() < r->full_ns + LATELY_NS) *h = r->full;
    await_answer(r);
    snprintf(h->ended, sizeof h->ended, "%s", r->by_kernel ? "kernel" : "killed");
    keep_record(r, h);
    if (r->by_kernel || !r->plain) {
      output_error("stowage run: %skilled by SIGKILL%s with %s of host memory left; when last "
                   "seen ",
                   who, by, stow_size_format(left, h->usable_bytes));
      say_state(r);
    }
  } else if (!r->ended) {
    add_kernel_peak(r);
    keep_top(r); /* not the last sample: workers have ended by then */
    /* A short command may have answered only at its exit. */
    if (r->trace != NULL && h->process_count > 0 &&
        host_record_read_inside(h, r->folder, h->processes[0].pid)) {
      if (h->inside_bytes > h->held_bytes) h->held_bytes = h->inside_bytes;
      run_host_trace_look(r->trace, h);
    }
  }
  run_request_close(&r->request);
}
