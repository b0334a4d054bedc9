/* Run ram: when to look, what to say, what to keep, and whom to end. */
#include "cli/run_ram.h"

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
#include "cli/run_shim.h"

#define MS UINT64_C(1000000)
/* How long an answer from inside is waited for before a process is ended: little once it is far
 * past the limit, and not at all when the host itself has nothing more to give. */
#define ANSWER_NS       (1000 * MS)
#define ANSWER_SHORT_NS (300 * MS)
#define PAST(limit)     ((limit) + (limit) / 4)
/* As fast as memory can be filled: between two looks a quarter of what is left at most. */
#define FILL_BYTES_MS (UINT64_C(4) << 20)

stow_status run_ram_init(run_ram *r, const char *text) {
  *r = (run_ram){0};
  if (text == NULL) return STOW_OK;
  r->on = true;
  r->automatic = strcmp(text, "auto") == 0;
  hostmem memory;
  STOW_TRY(hostmem_read(&memory));
  host_record *h = &r->record;
  h->limit_bytes = h->total_bytes = memory.total_bytes;
  h->usable_bytes = memory.usable_bytes;
  snprintf(h->limit_from, sizeof h->limit_from, "%s",
           !r->automatic    ? "given"
           : memory.limited ? "cgroup"
                            : "machine");
  if (!r->automatic && stow_size_parse(&h->limit_bytes, text) != STOW_OK)
    return stow_fail(STOW_ERR_INVALID, "--ram-limit \"%.40s\": must be auto or a size such as 8G",
                     text);
  if (h->limit_bytes == 0)
    return stow_fail(STOW_ERR_INVALID, "--ram-limit 0: a limit of nothing lets nothing run");
  /* What a process of the command leaves behind comes to us, and is still counted. */
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  return STOW_OK;
}

stow_status run_ram_open(run_ram *r, const char *folder) {
  char path[PATH_MAX];
  if (!r->on) return STOW_OK;
  snprintf(r->folder, sizeof r->folder, "%s", folder);
  r->start_ns = clock_ns();
  if (snprintf(path, sizeof path, "%s/watch", folder) >= (int)sizeof path) return STOW_OK;
  STOW_TRY(ask_create(&r->ask, path));
  if (setenv("STOWAGE_WATCH", path, 1) != 0)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for the environment");
  run_shim_preload_host();
  return STOW_OK;
}

/* ---- looking ---- */

static void add_sample(host_record *h, uint64_t time_ms) {
  if (h->sample_count == HOST_SAMPLES_MAX) { /* every second one goes: the whole run stays */
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
  /* An ending process holds nothing any more: what it held before is kept, and what was left then.
   */
  if (tree_read(&t, getpid()) == STOW_OK && t.held_bytes > 0) {
    if (known) h->usable_bytes = memory.usable_bytes;
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
  }
  tree_free(&t);
  r->looked_ns = now;
}

/* Soon where little is left at the pace it grows, else at leisure. */
static uint64_t next_look(const run_ram *r) {
  const host_record *h = &r->record;
  uint64_t left = h->limit_bytes > h->held_bytes ? h->limit_bytes - h->held_bytes : 0;
  if (r->automatic && h->usable_bytes < left) left = h->usable_bytes;
  if (left < h->limit_bytes / 5 || r->growth_bytes_s * 2 > (double)left)
    return RUN_RAM_BEAT_MS * MS;
  uint64_t ms = left / 4 / FILL_BYTES_MS;
  if (ms < RUN_RAM_BEAT_MS) ms = RUN_RAM_BEAT_MS;
  return (ms < 250 ? ms : 250) * MS;
}

/* ---- what there is to say ---- */

static void say_state(const run_ram *r) {
  const host_record *h = &r->record;
  char held[STOW_SIZE_TEXT_MAX], rate[STOW_SIZE_TEXT_MAX], most[STOW_SIZE_TEXT_MAX];
  fprintf(stderr, "the command holds %s", stow_size_format(held, h->held_bytes));
  if (h->growth_bytes_s > 1 << 20)
    fprintf(stderr, ", growing by %s a second",
            stow_size_format(rate, (uint64_t)h->growth_bytes_s));
  if (h->process_count > 0)
    fprintf(stderr, "; %s (process %d) holds most, %s", h->processes[0].name,
            (int)h->processes[0].pid, stow_size_format(most, h->processes[0].held_bytes));
  fputc('\n', stderr);
}

static void warn(run_ram *r) {
  const host_record *h = &r->record;
  char limit[STOW_SIZE_TEXT_MAX], left[STOW_SIZE_TEXT_MAX];
  if (r->automatic)
    fprintf(stderr, "stowage run: host memory runs out: %s left; ",
            stow_size_format(left, h->usable_bytes));
  else
    fprintf(stderr, "stowage run: nine tenths of the %s of host memory are used; ",
            stow_size_format(limit, h->limit_bytes));
  say_state(r);
  r->warned = true;
}

/* Asks the largest process what it holds; again when it holds a tenth more. */
static void ask_inside(run_ram *r, uint64_t now) {
  const host_record *h = &r->record;
  if (r->ask == NULL || h->process_count == 0) return;
  uint64_t bytes = h->processes[0].held_bytes;
  if (r->asked == h->processes[0].pid && bytes < r->largest_bytes + r->largest_bytes / 10) return;
  if (r->asked != h->processes[0].pid) r->asked_ns = now;
  r->asked = h->processes[0].pid;
  r->largest_bytes = bytes;
  ask_post(r->ask, r->asked);
}

static void tell_inside(run_ram *r) {
  host_record *h = &r->record;
  char size[STOW_SIZE_TEXT_MAX];
  if (r->told || r->asked == 0 || !host_record_read_inside(h, r->folder, r->asked)) return;
  r->told = true;
  if (h->object_count == 0) return;
  const host_object *o = &h->objects[0];
  fprintf(stderr, "stowage run: the largest in it is %s, %s%s%s, about %s, in %s\n", o->name,
          o->type, o->of[0] != '\0' ? " of " : "", o->of, stow_size_format(size, o->bytes),
          o->where);
}

/* Reading all mappings takes milliseconds for each GiB: not at every look. */
static void take_details(run_ram *r, uint64_t now) {
  host_record *h = &r->record;
  if (h->process_count == 0 || (r->detail_ns != 0 && now < r->detail_ns + 500 * MS)) return;
  pid_t pid = h->processes[0].pid;
  uint64_t kinds[TREE_MAP_KINDS];
  tree_map maps[HOST_MAPS_MAX];
  size_t count = tree_maps(pid, kinds, maps, HOST_MAPS_MAX);
  if (count > 0) {
    memcpy(h->kinds, kinds, sizeof kinds);
    memcpy(h->maps, maps, count * sizeof *maps);
    h->map_count = count;
    h->file_count = tree_files(pid, h->files, HOST_FILES_MAX);
  }
  r->detail_ns = clock_ns();
}

/* Over a limit that was given: everything the command started is ended. One process alone would
 * leave others waiting for it (a pool of workers does, for ever). */
static void end_all(run_ram *r, uint64_t now) {
  host_record *h = &r->record;
  char limit[STOW_SIZE_TEXT_MAX];
  if (r->ended || h->process_count == 0) return;
  uint64_t wait_ns = h->held_bytes < PAST(h->limit_bytes) ? ANSWER_NS : ANSWER_SHORT_NS;
  bool waiting = r->asked != 0 && !r->told && now < r->asked_ns + wait_ns;
  if (waiting && h->usable_bytes > h->total_bytes / 20) return;
  r->ended = true;
  snprintf(h->ended, sizeof h->ended, "limit");
  host_record_write(h, r->folder);
  fprintf(stderr, "stowage run: the command passed the %s of --ram-limit: ",
          stow_size_format(limit, h->limit_bytes));
  say_state(r);
  for (size_t i = 0; i < h->process_count; i++) kill(h->processes[i].pid, SIGKILL);
}

void run_ram_look(void *user) {
  run_ram *r = user;
  host_record *h = &r->record;
  uint64_t now = clock_ns();
  if (!r->on || now < r->next_ns) return;
  take_stock(r, now);
  r->next_ns = now + next_look(r);
  uint64_t tenth = h->limit_bytes / 10;
  /* One that will be there within two seconds is asked before: it may be long about to answer. */
  if (h->held_bytes >= 6 * tenth &&
      (double)h->held_bytes + 2 * r->growth_bytes_s >= (double)h->limit_bytes)
    ask_inside(r, now);
  if (h->held_bytes >= h->limit_bytes - tenth || (r->automatic && h->usable_bytes < tenth)) {
    if (!r->warned) warn(r);
    ask_inside(r, now);
    take_details(r, now);
    tell_inside(r);
    host_record_write(h, r->folder);
    if (!r->automatic && h->held_bytes > h->limit_bytes) end_all(r, now);
  } else if (h->held_bytes < h->limit_bytes / 2 && (!r->automatic || h->usable_bytes > 3 * tenth))
    r->warned = false; /* said again only after it was over */
}

void run_ram_end(run_ram *r, int how) {
  host_record *h = &r->record;
  char peak[STOW_SIZE_TEXT_MAX], left[STOW_SIZE_TEXT_MAX];
  if (!r->on) return;
  if (WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL && !r->ended) {
    snprintf(h->ended, sizeof h->ended, "killed");
    host_record_write(h, r->folder);
    fprintf(stderr, "stowage run: killed by SIGKILL with %s of host memory left; when last seen ",
            stow_size_format(left, h->usable_bytes));
    say_state(r);
  }
  fprintf(stderr, "stowage run: host memory: at the peak %s\n",
          stow_size_format(peak, h->peak_bytes));
  ask_close(r->ask);
}
