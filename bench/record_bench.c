/* The cost of recording: one event in the ring, with a file, with a cached stack, from several
 * threads; and for comparison the same record written with fprintf and fwrite, like a program's own
 * log. The first line is the clock alone, which is part of every figure. */
#include <stowage/trace.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

/* Rounds of about 3 ms: the best of them was not interrupted, even on a busy machine. */
enum { EVENTS = 2000000, STACKS = 512, ROUNDS = 50 };

static char folder[64];
static stow_trace *trace;
static uint64_t keys[STACKS];
static FILE *log_file;

static void must(stow_status status) {
  if (status == STOW_OK) return;
  fprintf(stderr, "record_bench: %s\n", stow_status_message());
  exit(1);
}

static stow_trace_record record_of(uint64_t i) {
  return (stow_trace_record){.addr = 0x7f0000000000 + (i * 512) % (1 << 30),
                             .bytes = 512 + i % 4096 * 512,
                             .stream = i & 3,
                             .kind = i & 1 ? STOW_TRACE_FREE : STOW_TRACE_ALLOC};
}

/* ---- what is measured, `count` times each ---- */

static void run_clock(uint64_t count) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < count; i++) sum += clock_ns();
  __asm__ volatile("" : : "r"(sum));
}

static void run_event(uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    stow_trace_record e = record_of(i);
    stow_trace_event(trace, &e);
  }
}

static void run_stack(uint64_t count) {
  stow_trace_frame frames[16] = {{0}};
  for (uint64_t i = 0; i < count; i++) {
    stow_trace_record e = record_of(i);
    stow_trace_stack(trace, keys[i % STACKS], frames, 16, &e.stack);
    stow_trace_event(trace, &e);
  }
}

static void run_fprintf(uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    stow_trace_record e = record_of(i);
    fprintf(log_file, "%llu,%u,%llx,%llu,%llu\n", (unsigned long long)clock_ns(), e.kind,
            (unsigned long long)e.addr, (unsigned long long)e.bytes, (unsigned long long)e.stream);
  }
}

static void run_fwrite(uint64_t count) {
  struct {
    uint64_t time_ns;
    stow_trace_record e;
  } line = {0};
  for (uint64_t i = 0; i < count; i++) {
    line.time_ns = clock_ns();
    line.e = record_of(i);
    fwrite(&line, sizeof line, 1, log_file);
  }
}

/* ---- measuring ---- */

static double best_ns(void (*run)(uint64_t)) {
  double best = 0;
  for (int round = 0; round < ROUNDS; round++) {
    uint64_t from = clock_ns();
    run(EVENTS / ROUNDS);
    double ns = (double)(clock_ns() - from) / ((double)EVENTS / ROUNDS);
    if (round == 0 || ns < best) best = ns;
  }
  return best;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

/* Measures at the rate of a busy program: bursts of 2000 events, 2 ms apart, so that the file keeps
 * up. Returns the median burst. */
static double burst_ns(void) {
  enum { BURSTS = 200, BURST = 2000 };
  double all[BURSTS];
  for (int i = 0; i < BURSTS; i++) {
    uint64_t from = clock_ns();
    run_event(BURST);
    all[i] = (double)(clock_ns() - from) / BURST;
    usleep(2000);
  }
  qsort(all, BURSTS, sizeof *all, by_value);
  return all[BURSTS / 2];
}

/* Two threads that record all the time; the better rounds of the slower one count. */
typedef struct runner {
  void (*run)(uint64_t);
  double ns;
} runner;

static void *thread_run(void *argument) {
  runner *r = argument;
  r->ns = best_ns(r->run);
  return NULL;
}

static double threads_ns(void (*run)(uint64_t)) {
  pthread_t threads[2];
  runner runners[2] = {{run, 0}, {run, 0}};
  for (int i = 0; i < 2; i++)
    if (pthread_create(&threads[i], NULL, thread_run, &runners[i]) != 0) exit(1);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  return runners[0].ns > runners[1].ns ? runners[0].ns : runners[1].ns;
}

static void say(const char *what, double ns, const char *bound) {
  printf("%-52s %8.1f ns  %s\n", what, ns, bound);
}

static void open_trace(const char *file) {
  stow_trace_options options = STOW_TRACE_OPTIONS_INIT;
  char record_path[96], ring_path[96];
  snprintf(record_path, sizeof record_path, "%s/%s", folder, file);
  snprintf(ring_path, sizeof ring_path, "%s/%s.ring", folder, file);
  options.ring_path = ring_path;
  if (file[0] == 't') options.record_path = record_path;
  must(stow_trace_open(&trace, &options));
  stow_trace_frame frames[16];
  for (uint32_t i = 0; i < STACKS; i++) {
    for (uint32_t k = 0; k < 16; k++)
      frames[k] = (stow_trace_frame){"forward", "model.py", i * 16 + k, 0, NULL};
    keys[i] = (uint64_t)(i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    uint32_t id;
    must(stow_trace_stack(trace, keys[i], frames, 16, &id));
  }
}

static uint64_t close_trace(void) {
  stow_trace_stats stats = STOW_TRACE_STATS_INIT;
  must(stow_trace_get_stats(trace, &stats));
  must(stow_trace_close(trace));
  return stats.skipped_events;
}

int main(void) {
  snprintf(folder, sizeof folder, "%s/stowage-bench-XXXXXX",
           access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
  if (mkdtemp(folder) == NULL) return 1;
  say("the clock alone", best_ns(run_clock), "");
  open_trace("a");
  say("event into the ring", best_ns(run_event), "(at most 100)");
  say("event with a known stack of 16 frames", best_ns(run_stack), "(at most 500)");
  say("event into the ring, 2 threads at once", threads_ns(run_event), "(at most 100)");
  close_trace();
  open_trace("t.stow");
  say("event with a file behind it, 1 million a second", burst_ns(), "(at most 100)");
  say("event with a file behind it, as fast as it goes", best_ns(run_event), "");
  uint64_t skipped = close_trace();
  printf("%-52s %8llu\n", "events lost with a file behind it", (unsigned long long)skipped);
  char path[96];
  snprintf(path, sizeof path, "%s/log", folder);
  log_file = fopen(path, "w");
  if (log_file == NULL) return 1;
  say("the same line with fprintf", best_ns(run_fprintf), "");
  say("the same record with fwrite", best_ns(run_fwrite), "");
  fclose(log_file);
  char command[128];
  snprintf(command, sizeof command, "rm -r '%s'", folder);
  return system(command) == 0 ? 0 : 1;
}
