/* The ring: exactly what was recorded is read back, whenever the writer was killed. */
#include <stowage/trace.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "recordings/recording.h"
#include "recordings/ring_read.h"
#include "trace/ring.h"

static const char *ring_path(void) {
  static char path[512];
  snprintf(path, sizeof path, "%s/ring", harness_folder());
  return path;
}

static stow_trace *open_ring(uint64_t ring_bytes) {
  stow_trace_options options = STOW_TRACE_OPTIONS_INIT;
  options.ring_path = ring_path();
  options.ring_bytes = ring_bytes;
  stow_trace *trace;
  CHECK_OK(stow_trace_open(&trace, &options));
  return trace;
}

/* Returns event i of writer `who`. Every field is derived from the two, so that an invalid event is
 * detected. */
static stow_trace_record numbered(uint64_t who, uint64_t i) {
  return (stow_trace_record){.addr = hash_u64(i, who),
                             .bytes = i,
                             .stream = who,
                             .device = (uint16_t)(i * 7),
                             .kind = (uint8_t)(i % STOW_TRACE_KIND_COUNT),
                             .tier = (uint8_t)(i % 3)};
}

static void check_numbered(const recording *from, const event *e) {
  const origin *of = event_origin(from, e);
  stow_trace_record r = numbered(of->stream, e->bytes);
  CHECK_U64(e->addr, r.addr);
  CHECK_U64(of->device, r.device);
  CHECK_U64(e->kind, r.kind);
  CHECK_U64(of->tier, r.tier);
}

/* Checks that every event is valid and each writer's events are in order, without gaps unless the
 * ring overflowed. Returns the last number of each. */
static void check_runs(const recording *r, uint64_t *last, size_t writers, bool gaps) {
  bool seen[64] = {false};
  CHECK(writers <= 64);
  for (size_t i = 0; i < r->event_count; i++) {
    const event *e = &r->events[i];
    uint64_t who = event_origin(r, e)->stream;
    CHECK(who < writers);
    check_numbered(r, e);
    CHECK(i == 0 || r->events[i - 1].time_ns <= e->time_ns);
    if (seen[who]) CHECK(gaps ? e->bytes > last[who] : e->bytes == last[who] + 1);
    seen[who] = true;
    last[who] = e->bytes;
  }
}

TEST(events_come_back_as_recorded)
{
  stow_trace *trace = open_ring(0);
  stow_trace_frame frames[2] = {{"forward", "model.py", 12, 0, NULL},
                                {"main", "train.py", 7, 0, NULL}};
  stow_trace_record e = {.addr = 0x7f0000000200,
                         .bytes = 4096,
                         .stream = 3,
                         .device = 1,
                         .kind = STOW_TRACE_ALLOC,
                         .tier = 1};
  CHECK_OK(stow_trace_stack(trace, 77, frames, 2, &e.stack));
  CHECK_OK(stow_trace_tag(trace, "optimizer", &e.tag));
  CHECK_OK(stow_trace_fact(trace, "device_name", "a device"));
  CHECK_OK(stow_trace_fact(trace, "device_bytes", "17179869184"));
  CHECK_OK(stow_trace_mark_begin(trace, "step 1"));
  stow_trace_event(trace, &e);
  CHECK_OK(stow_trace_mark_end(trace, "step 1"));
  CHECK_OK(stow_trace_close(trace));

  recording r;
  recording_init(&r, 64 << 20);
  CHECK_OK(ring_read(&r, ring_path()));
  CHECK_U64(r.event_count, 3);
  CHECK_U64(r.events[0].kind, EVENT_MARK_BEGIN);
  CHECK_TEXT(recording_text(&r, event_origin(&r, &r.events[0])->tag_id), "step 1");
  CHECK_U64(r.events[2].kind, EVENT_MARK_END);
  const event *got = &r.events[1];
  const origin *of = event_origin(&r, got);
  CHECK_U64(got->kind, EVENT_ALLOC);
  CHECK_U64(got->addr, e.addr);
  CHECK_U64(got->bytes, 4096);
  CHECK_U64(of->stream, 3);
  CHECK_U64(of->device, 1);
  CHECK_U64(of->tier, 1);
  CHECK_U64(of->thread, 1);
  CHECK_TEXT(recording_text(&r, of->tag_id), "optimizer");
  const stack *s = &r.stacks[got->stack_id - 1];
  CHECK_U64(s->count, 2);
  const frame *f = &r.frames[r.stack_frames[s->first] - 1];
  CHECK_TEXT(recording_text(&r, f->name_id), "forward");
  CHECK_TEXT(recording_text(&r, f->file_id), "model.py");
  CHECK_U64(f->line, 12);
  CHECK_TEXT(recording_text(&r, r.device_name_id), "a device");
  CHECK_U64(r.device_bytes, UINT64_C(17179869184));
  CHECK(recording_fact(&r, "pid") != NULL);
  CHECK(recording_fact(&r, "thread.1") != NULL);
  CHECK_U64(r.skipped_events, 0);
  CHECK_U64(r.bad_values, 0);
  recording_free(&r);
}

TEST(the_last_events_stay_and_the_overwritten_are_counted)
{
  enum { EVENTS = 20000 };
  stow_trace *trace = open_ring(256 << 10);
  for (uint64_t i = 0; i < EVENTS; i++) {
    stow_trace_record e = numbered(0, i);
    stow_trace_event(trace, &e);
  }
  CHECK_OK(stow_trace_close(trace));
  recording r;
  recording_init(&r, 64 << 20);
  CHECK_OK(ring_read(&r, ring_path()));
  uint64_t last = 0;
  check_runs(&r, &last, 1, false);
  CHECK_U64(last, EVENTS - 1);
  CHECK(r.event_count >= 15 * RING_CHUNK_RECORDS && r.event_count <= 16 * RING_CHUNK_RECORDS);
  CHECK_U64(r.skipped_events, EVENTS - r.event_count);
  recording_free(&r);
}

/* ---- killed writers ---- */

enum { WRITERS = 4, WRITES_MAX = 80000 }; /* all of them fit in 16 MiB */
typedef struct shared {
  _Atomic uint64_t done[WRITERS]; /* event i was recorded and its call has returned */
  _Atomic uint64_t total;
} shared;

static stow_trace *writer_trace;
static shared *progress;

static void *write_for_ever(void *argument) {
  uint64_t who = (uint64_t)(uintptr_t)argument;
  for (uint64_t i = 0; i < WRITES_MAX; i++) {
    stow_trace_record e = numbered(who, i);
    stow_trace_event(writer_trace, &e);
    atomic_store(&progress->done[who], i + 1);
    atomic_fetch_add(&progress->total, 1);
  }
  for (;;) pause();
  return NULL;
}

static void write_until_killed(uint64_t ring_bytes) {
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* must not outlive a test that failed */
  writer_trace = open_ring(ring_bytes);
  pthread_t threads[WRITERS];
  for (uint64_t i = 0; i < WRITERS; i++)
    pthread_create(&threads[i], NULL, write_for_ever, (void *)(uintptr_t)i);
  for (;;) pause();
}

TEST(a_ring_of_a_killed_process_holds_every_event_up_to_the_kill)
{
  const uint64_t rounds = harness_rounds(40, 8);
  harness_deadline(120);
  progress =
      mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(progress != MAP_FAILED);
  uint64_t read_events = 0, seed = 20240817;
  for (uint64_t round = 0; round < rounds; round++) {
    memset(progress, 0, sizeof *progress);
    unlink(ring_path());
    pid_t child = fork();
    /* Every other round uses a small ring that overflows many times: what is in it must be valid
     * and in order. The other rounds use one that holds everything: no recorded event may be
     * missing. */
    bool small = round % 2 == 0;
    if (child == 0) write_until_killed(small ? 128 << 10 : 16 << 20);
    /* The kill comes after a number of events that differs each time, at a random point in the
     * threads. */
    seed = hash_u64(seed, round);
    while (atomic_load(&progress->total) < 1 + seed % 30000) sched_yield();
    kill(child, SIGKILL);
    int how;
    CHECK(waitpid(child, &how, 0) == child && WIFSIGNALED(how));
    recording r;
    recording_init(&r, 64 << 20);
    CHECK_OK(ring_read(&r, ring_path()));
    uint64_t last[WRITERS] = {0};
    check_runs(&r, last, WRITERS, small);
    CHECK_U64(r.bad_values, 0);
    uint64_t counts[WRITERS] = {0};
    for (size_t i = 0; i < r.event_count; i++) counts[event_origin(&r, &r.events[i])->stream]++;
    for (int w = 0; w < WRITERS && !small; w++) {
      uint64_t done = atomic_load(&progress->done[w]);
      CHECK(counts[w] == done || counts[w] == done + 1); /* recorded, but its call has not returned
                                                          * yet */
      CHECK(counts[w] == 0 || last[w] + 1 == counts[w]);
    }
    read_events += r.event_count;
    recording_free(&r);
  }
  CHECK(read_events > 0);
  harness_note("%" PRIu64 " kills, %" PRIu64 " events read", rounds, read_events);
}

TEST(a_running_process_can_be_read)
{
  ring_path(); /* the folder is created here, not in the child */
  progress =
      mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(progress != MAP_FAILED);
  pid_t child = fork();
  if (child == 0) write_until_killed(128 << 10);
  while (atomic_load(&progress->total) < 5000) sched_yield();
  for (int i = 0; i < 20; i++) {
    recording r;
    recording_init(&r, 64 << 20);
    CHECK_OK(ring_read(&r, ring_path()));
    /* Chunks change while they are read: gaps are possible, invalid events are not. */
    for (size_t k = 0; k < r.event_count; k++) check_numbered(&r, &r.events[k]);
    CHECK(r.event_count > 0);
    recording_free(&r);
  }
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
}

/* ---- fork ---- */

static void check_child_ended(pid_t child) {
  int how;
  CHECK(waitpid(child, &how, 0) == child);
  CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

TEST(a_child_leaves_its_parents_trace_alone_and_may_open_its_own)
{
  stow_trace *trace = open_ring(0);
  stow_trace_record e = numbered(0, 0);
  stow_trace_event(trace, &e);
  char own_path[600];
  snprintf(own_path, sizeof own_path, "%s.child", ring_path());
  pid_t child = fork();
  if (child == 0) {
    uint32_t tag;
    stow_trace_record wrong = numbered(9, 9);
    stow_trace_event(trace, &wrong);
    if (stow_trace_tag(trace, "child", &tag) != STOW_ERR_STATE) _exit(1);
    if (stow_trace_close(trace) != STOW_ERR_STATE) _exit(2);
    stow_trace_options options = STOW_TRACE_OPTIONS_INIT;
    options.ring_path = own_path;
    stow_trace *own;
    if (stow_trace_open(&own, &options) != STOW_OK) _exit(3);
    for (uint64_t i = 0; i < 10; i++) {
      stow_trace_record mine = numbered(1, i);
      stow_trace_event(own, &mine);
    }
    _exit(stow_trace_close(own) == STOW_OK ? 0 : 4);
  }
  check_child_ended(child);
  e = numbered(0, 1);
  stow_trace_event(trace, &e);
  CHECK_OK(stow_trace_close(trace));
  recording r;
  recording_init(&r, 64 << 20);
  CHECK_OK(ring_read(&r, ring_path()));
  uint64_t last[2] = {0};
  check_runs(&r, last, 1, false);
  CHECK_U64(r.event_count, 2);
  recording_free(&r);
  CHECK_OK(ring_read(&r, own_path));
  CHECK_U64(r.event_count, 10);
  recording_free(&r);
}

TEST(a_child_made_past_the_fork_handlers_writes_nothing)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  SKIP("the sanitizers do not survive a bare clone");
#endif
  stow_trace *trace = open_ring(0);
  stow_trace_record e = numbered(0, 0);
  stow_trace_event(trace, &e);
  pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
  if (child == 0) {
    stow_trace_record wrong = numbered(9, 9);
    stow_trace_event(trace, &wrong);
    _exit(0);
  }
  CHECK(child > 0);
  check_child_ended(child);
  CHECK_OK(stow_trace_close(trace));
  recording r;
  recording_init(&r, 64 << 20);
  CHECK_OK(ring_read(&r, ring_path()));
  CHECK_U64(r.event_count, 1);
  recording_free(&r);
}

/* ---- signals, threads, limits ---- */

static stow_trace *signal_trace;
static void record_in_handler(int number) {
  (void)number;
  stow_trace_record e = numbered(1, 0);
  /* The test records in a signal handler. NOLINTNEXTLINE(bugprone-signal-handler) */
  stow_trace_event(signal_trace, &e);
}

TEST(a_handler_that_records_spoils_no_record)
{
  signal_trace = open_ring(0);
  /* A thread's first event allocates, which a handler must not do. */
  stow_trace_record first = numbered(0, 0);
  stow_trace_event(signal_trace, &first);
  signal(SIGUSR1, record_in_handler);
  pid_t self = getpid();
  pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 2000; i++) kill(self, SIGUSR1);
    _exit(0);
  }
  uint64_t made = 1;
  int how;
  for (bool ended = false; !ended || made < 20000; made++) {
    if (made % 256 == 0 && !ended) ended = waitpid(child, &how, WNOHANG) == child;
    if (made >= 500000) break;
    stow_trace_record e = numbered(0, made);
    stow_trace_event(signal_trace, &e);
  }
  CHECK_OK(stow_trace_close(signal_trace));
  recording r;
  recording_init(&r, 256 << 20);
  CHECK_OK(ring_read(&r, ring_path()));
  CHECK_U64(r.bad_values, 0);
  for (size_t i = 0; i < r.event_count; i++) check_numbered(&r, &r.events[i]);
  recording_free(&r);
}

static pthread_barrier_t together;
static void *write_one_and_wait(void *argument) {
  stow_trace_record e = numbered((uint64_t)(uintptr_t)argument, 0);
  stow_trace_event(writer_trace, &e);
  pthread_barrier_wait(&together);
  return NULL;
}

TEST(more_threads_than_chunks_lose_events_and_say_so)
{
  enum { THREADS = 12 };
  writer_trace = open_ring(64 << 10); /* 4 chunks */
  pthread_barrier_init(&together, NULL, THREADS);
  pthread_t threads[THREADS];
  for (uint64_t i = 0; i < THREADS; i++)
    CHECK(pthread_create(&threads[i], NULL, write_one_and_wait, (void *)(uintptr_t)i) == 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  stow_trace_stats stats = STOW_TRACE_STATS_INIT;
  CHECK_OK(stow_trace_get_stats(writer_trace, &stats));
  CHECK_U64(stats.skipped_events, THREADS - 4);
  CHECK_U64(stats.threads, THREADS);
  /* The threads that ended returned their chunks. */
  stow_trace_record e = numbered(0, 1);
  stow_trace_event(writer_trace, &e);
  CHECK_OK(stow_trace_get_stats(writer_trace, &stats));
  CHECK_U64(stats.skipped_events, THREADS - 4);
  CHECK_OK(stow_trace_close(writer_trace));
}

/* ---- refusals ---- */

TEST(a_ring_that_exists_is_not_overwritten)
{
  CHECK_OK(stow_trace_close(open_ring(0)));
  stow_trace_options options = STOW_TRACE_OPTIONS_INIT;
  options.ring_path = ring_path();
  stow_trace *trace;
  CHECK_STATUS(stow_trace_open(&trace, &options), STOW_ERR_STATE);
  CHECK_MESSAGE("already exists");
  CHECK(trace == NULL);
  recording r;
  recording_init(&r, 0);
  CHECK_OK(ring_read(&r, ring_path()));
  recording_free(&r);
}

TEST(a_ring_may_live_in_memory_another_process_made)
{
  int fd = memfd_create("ring", 0);
  CHECK(fd >= 0);
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  pid_t child = fork();
  if (child == 0) {
    stow_trace_options options = STOW_TRACE_OPTIONS_INIT;
    options.ring_path = path;
    stow_trace *trace;
    if (stow_trace_open(&trace, &options) != STOW_OK) _exit(1);
    stow_trace_record e = numbered(0, 0);
    stow_trace_event(trace, &e);
    raise(SIGKILL);
  }
  waitpid(child, NULL, 0);
  recording r;
  recording_init(&r, 0);
  CHECK_OK(ring_read(&r, path));
  CHECK_U64(r.event_count, 1);
  recording_free(&r);
}

/* ---- damaged rings ---- */

static void ring_with_texts(void) {
  stow_trace *trace = open_ring(64 << 10);
  for (uint64_t i = 0; i < 500; i++) {
    stow_trace_record e = numbered(0, i);
    char name[32];
    snprintf(name, sizeof name, "f%" PRIu64, i % 50);
    stow_trace_frame frames[] = {{name, "a.py", (uint32_t)i % 9, 0, NULL},
                                 {"main", "a.py", 1, 0, NULL}};
    CHECK_OK(stow_trace_stack(trace, 0, frames, 2, &e.stack));
    stow_trace_event(trace, &e);
  }
  CHECK_OK(stow_trace_close(trace));
}

TEST(flipped_bits_are_found_or_harmless)
{
  ring_with_texts();
  int fd = open(ring_path(), O_RDWR);
  struct stat info;
  CHECK(fd >= 0 && fstat(fd, &info) == 0);
  unsigned char *bytes =
      mmap(NULL, (size_t)info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(bytes != MAP_FAILED);
  uint64_t seed = 99, chunks = (uint64_t)info.st_size - (64 << 10);
  int refused = 0;
  for (uint64_t i = 0; i < harness_rounds(3000, 300); i++) {
    seed = hash_u64(seed, i);
    /* Damages the header, the first texts and the chunks in turn. */
    uint64_t at = i % 3 == 0   ? seed % sizeof(ring_header)
                  : i % 3 == 1 ? 2 * RING_PAGE + seed % 8192
                               : chunks + seed % (64 << 10);
    unsigned char bit = (unsigned char)(1u << (seed >> 40) % 8);
    bytes[at] ^= bit;
    recording r;
    recording_init(&r, 64 << 20);
    stow_status status = ring_read(&r, ring_path());
    refused += status != STOW_OK;
    CHECK(status == STOW_OK || stow_status_message()[0] != '\0');
    for (size_t k = 0; k < r.event_count; k++) check_numbered(&r, &r.events[k]);
    recording_free(&r);
    bytes[at] ^= bit;
  }
  CHECK(refused > 0);
  munmap(bytes, (size_t)info.st_size);
  close(fd);
}

TEST(a_cut_ring_is_refused_with_its_length)
{
  ring_with_texts();
  recording r;
  recording_init(&r, 64 << 20);
  CHECK(truncate(ring_path(), 100000) == 0);
  CHECK_STATUS(ring_read(&r, ring_path()), STOW_ERR_FORMAT);
  CHECK_MESSAGE("100000");
  CHECK(truncate(ring_path(), 3) == 0);
  CHECK_STATUS(ring_read(&r, ring_path()), STOW_ERR_FORMAT);
  CHECK_STATUS(ring_read(&r, "/nowhere/ring"), STOW_ERR_NOT_FOUND);
  recording_free(&r);
}

TEST_MAIN
