/* Recording to a file: every event is in the file, once and in order, even if a process was killed;
 * failures are reported and do no harm. */
#include <stowage/log.h>
#include <stowage/trace.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "harness.h"
#include "recordings/recording.h"
#include "recordings/ring_read.h"
#include "recordings/stow_recording.h"

enum { WRITERS = 4 };

static const char *path_of(const char *name) {
  static char paths[4][512];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, 512, "%s/%s", harness_folder(), name);
  return path;
}

static stow_status read_file(recording *r) {
  input in;
  STOW_TRY(input_open(&in, path_of("t.stow"), NULL));
  stow_status status = recording_read_stow(r, &in, 64 << 20);
  input_close(&in);
  return status;
}

static stow_trace *open_trace(uint64_t ring_bytes) {
  stow_trace_options options = STOW_TRACE_OPTIONS_INIT;
  options.record_path = path_of("t.stow");
  options.ring_path = path_of("ring");
  options.ring_bytes = ring_bytes;
  stow_trace *trace;
  CHECK_OK(stow_trace_open(&trace, &options));
  return trace;
}

static stow_trace_record numbered(uint64_t who, uint64_t i) {
  return (stow_trace_record){
      .addr = hash_u64(i, who), .bytes = i, .stream = who, .kind = (uint8_t)(i % 3)};
}

/* Checks that every writer's events are 0, 1, 2, … without gaps or duplicates, and all in order of
 * time. Counts the events of each. */
static void check_whole(const recording *r, uint64_t counts[WRITERS]) {
  memset(counts, 0, WRITERS * sizeof *counts);
  for (size_t i = 0; i < r->event_count; i++) {
    const event *e = &r->events[i];
    uint64_t who = event_origin(r, e)->stream;
    CHECK(who < WRITERS);
    CHECK_U64(e->bytes, counts[who]);
    CHECK_U64(e->addr, hash_u64(e->bytes, who));
    CHECK_U64(e->kind, e->bytes % 3);
    counts[who]++;
    CHECK(i == 0 || r->events[i - 1].time_ns <= e->time_ns);
  }
}

/* ---- threads ---- */

typedef struct writer {
  stow_trace *trace;
  uint64_t who, count;
  _Atomic uint64_t *done;
} writer;

static void *write_many(void *argument) {
  writer *w = argument;
  for (uint64_t i = 0; i < w->count; i++) {
    stow_trace_record e = numbered(w->who, i);
    stow_trace_event(w->trace, &e);
    if (w->done != NULL) atomic_store(w->done, i + 1);
  }
  return NULL;
}

TEST(a_recording_holds_every_event_of_every_thread_in_order)
{
  const uint64_t events = harness_rounds(60000, 20000);
  stow_trace *trace = open_trace(1 << 20); /* far smaller than what is recorded */
  pthread_t threads[WRITERS];
  writer writers[WRITERS];
  for (uint64_t i = 0; i < WRITERS; i++) {
    writers[i] = (writer){trace, i, events, NULL};
    CHECK(pthread_create(&threads[i], NULL, write_many, &writers[i]) == 0);
  }
  for (int i = 0; i < WRITERS; i++) pthread_join(threads[i], NULL);
  CHECK_OK(stow_trace_flush(trace));
  stow_trace_stats stats = STOW_TRACE_STATS_INIT;
  CHECK_OK(stow_trace_get_stats(trace, &stats));
  CHECK(stats.recording);
  CHECK_U64(stats.written_events + stats.skipped_events, WRITERS * events);
  CHECK_U64(stats.skipped_events, 0);
  CHECK_OK(stow_trace_close(trace));

  recording r;
  recording_init(&r, 256 << 20);
  CHECK_OK(read_file(&r));
  CHECK(r.ended);
  CHECK_U64(r.torn_bytes + r.damaged_chunks, 0);
  uint64_t counts[WRITERS];
  check_whole(&r, counts);
  for (int i = 0; i < WRITERS; i++) CHECK_U64(counts[i], events);
  /* The ring adds nothing to a closed recording. */
  CHECK_OK(ring_read(&r, path_of("ring")));
  CHECK_U64(r.event_count, WRITERS * events);
  CHECK_U64(r.skipped_events, 0);
  struct stat info;
  CHECK(stat(path_of("t.stow"), &info) == 0);
  harness_note("%.1f bytes an event", (double)info.st_size / (double)(WRITERS * events));
  recording_free(&r);
}

TEST(what_is_older_than_a_tenth_of_a_second_is_in_the_file)
{
  stow_trace *trace = open_trace(0);
  stow_trace_record e = numbered(0, 0);
  stow_trace_event(trace, &e);
  uint64_t from = clock_ns(), took = 0;
  stow_trace_stats stats = STOW_TRACE_STATS_INIT;
  while (stats.written_events == 0 && took < UINT64_C(5000000000)) {
    CHECK_OK(stow_trace_get_stats(trace, &stats));
    took = clock_ns() - from;
    sched_yield();
  }
  CHECK_U64(stats.written_events, 1);
  harness_note("%.0f ms", (double)took / 1e6);
  CHECK_OK(stow_trace_close(trace));
}

typedef struct shared {
  _Atomic uint64_t done[WRITERS];
} shared;

static void write_until_killed(shared *progress) {
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* must not outlive a test that failed */
  stow_trace *trace = open_trace(1 << 20);
  pthread_t threads[WRITERS];
  static writer writers[WRITERS];
  for (uint64_t i = 0; i < WRITERS; i++) {
    writers[i] = (writer){trace, i, UINT64_MAX, &progress->done[i]};
    pthread_create(&threads[i], NULL, write_many, &writers[i]);
  }
  for (;;) pause();
}

static uint64_t total_of(shared *progress) {
  uint64_t total = 0;
  for (int i = 0; i < WRITERS; i++) total += atomic_load(&progress->done[i]);
  return total;
}

TEST(file_and_ring_of_a_killed_process_join_to_everything_once)
{
  const uint64_t rounds = harness_rounds(25, 4);
  harness_deadline(120);
  shared *progress =
      mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(progress != MAP_FAILED);
  uint64_t in_file = 0, in_both = 0, seed = 11;
  for (uint64_t round = 0; round < rounds; round++) {
    memset(progress, 0, sizeof *progress);
    unlink(path_of("ring"));
    unlink(path_of("t.stow"));
    pid_t child = fork();
    if (child == 0) write_until_killed(progress);
    seed = hash_u64(seed, round);
    while (total_of(progress) < seed % 150000) sched_yield();
    kill(child, SIGKILL);
    int how;
    CHECK(waitpid(child, &how, 0) == child && WIFSIGNALED(how));
    recording r;
    recording_init(&r, 256 << 20);
    /* Killed before the file was created: only the ring is left. */
    if (access(path_of("t.stow"), F_OK) == 0) {
      stow_status status = read_file(&r);
      CHECK(status == STOW_OK || status == STOW_ERR_FORMAT);
      CHECK(!r.ended);
    }
    in_file += r.event_count;
    if (access(path_of("ring"), F_OK) == 0 && total_of(progress) > 0)
      CHECK_OK(ring_read(&r, path_of("ring")));
    uint64_t counts[WRITERS];
    check_whole(&r, counts);
    CHECK_U64(r.skipped_events, 0);
    for (int w = 0; w < WRITERS; w++) {
      uint64_t done = atomic_load(&progress->done[w]);
      CHECK(counts[w] == done || counts[w] == done + 1);
    }
    in_both += r.event_count;
    recording_free(&r);
  }
  CHECK(in_both > in_file);
  harness_note("%" PRIu64 " kills, %" PRIu64 " events, %" PRIu64 " of them from the ring", rounds,
               in_both, in_both - in_file);
}

TEST(a_ring_of_another_trace_is_refused)
{
  stow_trace *trace = open_trace(0);
  stow_trace_record e = numbered(0, 0);
  stow_trace_event(trace, &e);
  CHECK_OK(stow_trace_close(trace));
  recording r;
  recording_init(&r, 0);
  CHECK_OK(read_file(&r));
  CHECK(rename(path_of("t.stow"), path_of("old.stow")) == 0 && unlink(path_of("ring")) == 0);
  trace = open_trace(0);
  stow_trace_event(trace, &e);
  CHECK_OK(stow_trace_close(trace));
  CHECK_STATUS(ring_read(&r, path_of("ring")), STOW_ERR_INVALID);
  CHECK_MESSAGE("cannot be joined");
  recording_free(&r);
}

static void *write_until_closed(void *argument) {
  writer *w = argument;
  for (uint64_t i = 0; !atomic_load(w->done); i++) {
    stow_trace_record e = numbered(w->who, i);
    stow_trace_event(w->trace, &e);
    stow_trace_stack_find(w->trace, i);
    if (i % 64 == 0) stow_trace_mark_begin(w->trace, "mark");
  }
  return NULL;
}

TEST(closing_while_threads_record_is_harmless)
{
  for (uint64_t round = 0; round < harness_rounds(30, 8); round++) {
    stow_trace_options options = STOW_TRACE_OPTIONS_INIT;
    options.record_path = path_of("t.stow");
    options.ring_bytes = 1 << 20;
    unlink(options.record_path);
    stow_trace *trace;
    CHECK_OK(stow_trace_open(&trace, &options));
    pthread_t threads[WRITERS];
    writer writers[WRITERS];
    _Atomic uint64_t stop = 0;
    for (uint64_t i = 0; i < WRITERS; i++) {
      writers[i] = (writer){trace, i, 0, &stop};
      CHECK(pthread_create(&threads[i], NULL, write_until_closed, &writers[i]) == 0);
    }
    stow_trace_stats stats = STOW_TRACE_STATS_INIT;
    while (stats.threads < 2) CHECK_OK(stow_trace_get_stats(trace, &stats));
    CHECK_OK(stow_trace_close(trace));
    atomic_store(&stop, 1);
    for (int i = 0; i < WRITERS; i++) pthread_join(threads[i], NULL);
    CHECK_STATUS(stow_trace_close(trace), STOW_ERR_STATE);
  }
}

/* ---- stacks and tags ---- */

TEST(a_stack_has_one_number_by_key_and_by_content)
{
  stow_trace *trace = open_trace(0);
  stow_trace_frame frames[] = {{"f", "a.py", 1, 0, NULL}, {"g", "a.py", 2, 0, NULL}};
  uint32_t first, again, by_content, other;
  CHECK_U64(stow_trace_stack_find(trace, 5), 0);
  CHECK_OK(stow_trace_stack(trace, 5, frames, 2, &first));
  CHECK_OK(stow_trace_stack(trace, 5, NULL, 0, &again)); /* the frames are not read */
  CHECK_OK(stow_trace_stack(trace, 0, frames, 2, &by_content));
  CHECK_OK(stow_trace_stack(trace, 6, frames, 1, &other));
  CHECK(first != 0 && again == first && by_content == first && other != first);
  CHECK_U64(stow_trace_stack_find(trace, 5), first);
  for (uint64_t key = 100; key < 20100; key++) { /* the table of keys grows */
    stow_trace_frame f = {"h", "b.py", (uint32_t)key, 0, NULL};
    uint32_t id;
    CHECK_OK(stow_trace_stack(trace, key, &f, 1, &id));
  }
  CHECK_U64(stow_trace_stack_find(trace, 5), first);
  stow_trace_frame native = {.address = (const void *)(uintptr_t)&stow_trace_open};
  uint32_t id;
  CHECK_OK(stow_trace_stack(trace, 0, &native, 1, &id));
  stow_trace_record e = {.kind = STOW_TRACE_ALLOC, .stack = id};
  stow_trace_event(trace, &e);
  CHECK_OK(stow_trace_close(trace));
  recording r;
  recording_init(&r, 0);
  CHECK_OK(read_file(&r));
  const stack *s = &r.stacks[r.events[0].stack_id - 1];
  const frame *f = &r.frames[r.stack_frames[s->first] - 1];
  CHECK(recording_text(&r, f->name_id)[0] != '\0' && recording_text(&r, f->file_id)[0] != '\0');
  recording_free(&r);
}

typedef struct stacker {
  stow_trace *trace;
  uint32_t ids[2000];
} stacker;

static void *intern_many(void *argument) {
  stacker *s = argument;
  for (uint32_t i = 0; i < 2000; i++) {
    stow_trace_frame f = {"f", "a.py", i, 0, NULL};
    stow_trace_stack(s->trace, i + 1, &f, 1, &s->ids[i]);
  }
  return NULL;
}

TEST(threads_that_meet_in_the_stacks_agree)
{
  stow_trace *trace = open_trace(0);
  pthread_t threads[WRITERS];
  stacker *stackers = calloc(WRITERS, sizeof *stackers);
  CHECK(stackers != NULL);
  for (int i = 0; i < WRITERS; i++) {
    stackers[i].trace = trace;
    CHECK(pthread_create(&threads[i], NULL, intern_many, &stackers[i]) == 0);
  }
  for (int i = 0; i < WRITERS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < 2000; i++)
    for (int w = 0; w < WRITERS; w++)
      CHECK(stackers[w].ids[i] != 0 && stackers[w].ids[i] == stackers[0].ids[i]);
  free(stackers);
  CHECK_OK(stow_trace_close(trace));
}

TEST(texts_past_their_bound_are_refused_and_events_go_on)
{
  stow_trace_options options = STOW_TRACE_OPTIONS_INIT;
  options.text_bytes = 64 << 10;
  stow_trace *trace;
  CHECK_OK(stow_trace_open(&trace, &options));
  stow_status status = STOW_OK;
  uint32_t tag = 1, first;
  CHECK_OK(stow_trace_tag(trace, "tag 0", &first));
  for (int i = 1; i < 10000 && status == STOW_OK; i++) {
    char name[32];
    snprintf(name, sizeof name, "tag %d", i);
    status = stow_trace_tag(trace, name, &tag);
  }
  CHECK_STATUS(status, STOW_ERR_BUDGET);
  CHECK_MESSAGE("64 KiB");
  CHECK_U64(tag, 0);
  CHECK_OK(stow_trace_tag(trace, "tag 0", &tag)); /* existing texts stay */
  CHECK_U64(tag, first);
  stow_trace_record e = numbered(0, 0);
  stow_trace_event(trace, &e);
  CHECK_OK(stow_trace_close(trace));
}

/* ---- failures ---- */

static int lines;
static char last_line[512];
static void keep_line(void *user, stow_log_level level, const char *line) {
  (void)user, (void)level;
  lines++;
  snprintf(last_line, sizeof last_line, "%s", line);
}

TEST(a_full_disk_switches_the_file_off_once_and_the_ring_continues)
{
  stow_log_set(keep_line, NULL, STOW_LOG_WARNING);
  stow_trace *trace = open_trace(1 << 20);
  CHECK_OK(stow_trace_flush(trace));
  struct rlimit limit = {16384, 16384};
  CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0); /* SIGXFSZ keeps its default action, so it must not
                                                * be raised */
  enum { EVENTS = 50000 };
  for (uint64_t i = 0; i < EVENTS; i++) {
    stow_trace_record e = numbered(0, i);
    stow_trace_event(trace, &e);
  }
  CHECK_STATUS(stow_trace_flush(trace), STOW_ERR_IO);
  CHECK_MESSAGE("t.stow");
  stow_trace_stats stats = STOW_TRACE_STATS_INIT;
  CHECK_OK(stow_trace_get_stats(trace, &stats));
  CHECK(!stats.recording);
  for (uint64_t i = EVENTS; i < 2 * EVENTS; i++) {
    stow_trace_record e = numbered(0, i);
    stow_trace_event(trace, &e);
  }
  CHECK_STATUS(stow_trace_close(trace), STOW_ERR_IO);
  CHECK_U64(lines, 1);
  CHECK(strstr(last_line, "the trace file is stopped") != NULL);
  recording file, rest;
  recording_init(&file, 0);
  recording_init(&rest, 0);
  CHECK_OK(read_file(&file));
  CHECK_OK(ring_read(&rest, path_of("ring")));
  CHECK(rest.event_count > 0);
  CHECK_U64(rest.events[rest.event_count - 1].bytes, 2 * EVENTS - 1);
  recording_free(&file);
  recording_free(&rest);
}

TEST(what_cannot_be_opened_is_reported_and_leaves_nothing)
{
  stow_trace_options options = STOW_TRACE_OPTIONS_INIT;
  stow_trace *trace;
  options.record_path = "/nowhere/t.stow";
  options.ring_path = path_of("ring");
  CHECK_STATUS(stow_trace_open(&trace, &options), STOW_ERR_IO);
  CHECK_MESSAGE("/nowhere/t.stow");
  CHECK(access(options.ring_path, F_OK) != 0);
  options.record_path = "/dev/full";
  CHECK_STATUS(stow_trace_open(&trace, &options), STOW_ERR_IO);
  options.record_path = NULL;
  options.ring_path = "/nowhere/ring";
  CHECK_STATUS(stow_trace_open(&trace, &options), STOW_ERR_IO);
  CHECK_MESSAGE("/nowhere/ring");
  options.ring_path = NULL;
  options.ring_bytes = 1;
  CHECK_STATUS(stow_trace_open(&trace, &options), STOW_ERR_INVALID);
  options.struct_bytes = 1;
  CHECK_STATUS(stow_trace_open(&trace, &options), STOW_ERR_INVALID);
  CHECK(trace == NULL);
  stow_trace_event(NULL, NULL);
  CHECK_OK(stow_trace_close(NULL));
}

TEST(a_limit_on_file_sizes_is_an_error_and_not_the_end)
{
  struct rlimit limit = {65536, 65536};
  CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  stow_trace_options options = STOW_TRACE_OPTIONS_INIT;
  options.ring_path = path_of("ring");
  stow_trace *trace;
  CHECK_STATUS(stow_trace_open(&trace, &options), STOW_ERR_IO);
  CHECK(access(options.ring_path, F_OK) != 0);
}

TEST(a_closed_trace_answers_and_does_nothing)
{
  stow_trace *trace = open_trace(0);
  CHECK_OK(stow_trace_close(trace));
  CHECK_STATUS(stow_trace_close(trace), STOW_ERR_STATE);
  CHECK_MESSAGE("not open");
  CHECK_STATUS(stow_trace_flush(trace), STOW_ERR_STATE);
  uint32_t tag;
  CHECK_STATUS(stow_trace_tag(trace, "x", &tag), STOW_ERR_STATE);
  stow_trace_record e = numbered(0, 0);
  stow_trace_event(trace, &e);
}

TEST(sixteen_traces_may_be_open_and_slots_come_back)
{
  stow_trace_options options = STOW_TRACE_OPTIONS_INIT;
  options.ring_bytes = 64 << 10;
  for (int round = 0; round < 3; round++) {
    stow_trace *traces[16], *more;
    for (int i = 0; i < 16; i++) {
      CHECK_OK(stow_trace_open(&traces[i], &options));
      stow_trace_record e = numbered(0, 0);
      stow_trace_event(traces[i], &e);
    }
    CHECK_STATUS(stow_trace_open(&more, &options), STOW_ERR_STATE);
    for (int i = 0; i < 16; i++) CHECK_OK(stow_trace_close(traces[i]));
  }
}

TEST(a_launch_is_recorded_with_its_touches)
{
  stow_trace *trace = open_trace(1 << 20);
  uint32_t tag;
  CHECK_OK(stow_trace_tag(trace, "gemm", &tag));
  stow_trace_launch_info launch = STOW_TRACE_LAUNCH_INFO_INIT;
  const stow_trace_touch words[] = {{4096, 0}, {8192, 0}, {12288, 0}};
  const stow_trace_touch copy[] = {{4096, 512}, {8192, 512}};
  launch.function = tag;
  launch.device_ns = 7000;
  launch.touches = words;
  launch.touch_count = 3;
  CHECK_OK(stow_trace_launch(trace, &launch));
  launch.touches = copy;
  launch.touch_count = 2;
  CHECK_OK(stow_trace_launch(trace, &launch));
  launch.touch_count = 0;
  CHECK_OK(stow_trace_launch(trace, &launch));
  launch.touches = NULL;
  launch.touch_count = 1;
  CHECK_STATUS(stow_trace_launch(trace, &launch), STOW_ERR_INVALID);
  launch.struct_bytes = 2;
  CHECK_STATUS(stow_trace_launch(trace, &launch), STOW_ERR_INVALID);
  CHECK_OK(stow_trace_close(trace));
  static const struct {
    event_kind kind;
    uint64_t addr, bytes;
  } want[] = {{EVENT_LAUNCH, 4096, 7000}, {EVENT_TOUCH, 8192, 0},   {EVENT_TOUCH, 12288, 0},
              {EVENT_LAUNCH, 0, 7000},    {EVENT_TOUCH, 4096, 512}, {EVENT_TOUCH, 8192, 512},
              {EVENT_LAUNCH, 0, 7000}};
  recording r;
  recording_init(&r, 0);
  CHECK_OK(read_file(&r));
  CHECK_U64(r.event_count, 7);
  for (size_t i = 0; i < 7; i++) {
    CHECK_U64(r.events[i].kind, want[i].kind);
    CHECK_U64(r.events[i].addr, want[i].addr);
    CHECK_U64(r.events[i].bytes, want[i].bytes);
    CHECK_TEXT(recording_text(&r, event_origin(&r, &r.events[i])->tag_id), "gemm");
  }
  recording_free(&r);
}

TEST_MAIN
