/* Record: opens and closes traces and records events in the ring.
 *
 * An event costs a clock read, a thread-local lookup and six stores. Each thread has a lane: its
 * current chunk and its position in it. After 340 events it takes the next chunk, without a lock.
 * Handles point into a static table, so a call with a closed handle is harmless. */
#include "record/record.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/growing.h"
#include "base/log.h"
#include "base/text.h"

enum { TRACES_MAX = 16 };
#define RING_BYTES_DEFAULT (UINT64_C(32) << 20)
#define TEXT_BYTES_DEFAULT (UINT64_C(32) << 20)
/* How long an event waits for the file when the whole ring is full. On a machine with more busy
 * threads than processors, waits of some hundred milliseconds were seen. */
#define WAIT_FOR_FILE_NS UINT64_C(2000000000)

/* The state of one thread for one trace. Only that thread uses it. */
typedef struct lane {
  uint64_t serial; /* serial of the trace; if it differs from *alive, the lane is stale */
  stow_trace *trace;
  ring_chunk *chunk; /* NULL: no chunk is open */
  uint64_t ticket;
  uint64_t seq;     /* number of this thread's next event */
  uint64_t last_ns; /* times increase strictly within a thread, because readers join ring and file
                     * by them */
  uint32_t place;   /* position of the next record in the chunk */
  uint32_t thread;
  struct lane *next;
} lane;

static stow_trace traces[TRACES_MAX];
static lock registry = LOCK_INIT(LOCK_REGISTRY);
static uint64_t last_serial;          /* guarded by the registry lock */
static _Atomic uint64_t *alive_words; /* guarded by the registry lock; one per trace, in a page of
                                       * their own */
static pthread_key_t lane_key;        /* frees a thread's lanes when the thread ends */

static _Thread_local struct {
  lane *lanes; /* the most recently used first */
  volatile bool
      inside; /* an event is being recorded; a signal handler that finds it set records nothing */
  bool muted;
} self;

/* Stops all recording on the calling thread. */
static void mute_thread(void) {
  self.muted = true;
}

static uint64_t serial_of(const stow_trace *t) {
  return atomic_load_explicit(t->alive, memory_order_relaxed);
}

/* ---- lanes ---- */

static void lane_publish_chunk(lane *l) {
  ASSERT(l->trace != NULL);
  if (l->chunk == NULL) return;
  stow_trace *t = l->trace;
  bool for_file = atomic_load_explicit(&t->recording, memory_order_relaxed);
  ring_seal(&t->ring, l->chunk, l->ticket, for_file);
  l->chunk = NULL;
  /* A quarter of the ring is waiting, so wake the file's thread now. */
  if (for_file &&
      atomic_fetch_add_explicit(&t->sealed, 1, memory_order_relaxed) + 1 >= t->ring.chunk_count / 4)
    drain_wake(t);
}

static void lanes_end(void *list) {
  for (lane *l = list, *next; l != NULL; l = next) {
    next = l->next;
    if (serial_of(l->trace) == l->serial) lane_publish_chunk(l);
    free(l);
  }
  self.lanes = NULL;
}

/* Adds a fact; the caller holds the lock. Truncates a fact that is longer than readers accept. */
static stow_status trace_add_fact(stow_trace *t, const char *key, const char *value) {
  ASSERT(lock_held(&t->lock));
  ASSERT(key != NULL && value != NULL);
  char text[4096];
  int length = snprintf(text, sizeof text, "%s%c%s", key, '\0', value);
  if (length >= (int)sizeof text) length = (int)sizeof text - 1;
  return ring_text(&t->ring, TEXT_FACT, text, (uint32_t)length);
}

/* Records the system's ID of the thread behind a lane's number. If there is no space for it, the
 * events remain valid. */
static void lane_record_thread(stow_trace *t, uint64_t serial, uint32_t thread) {
  char name[16] = "", key[32], value[48];
  prctl(PR_GET_NAME, name, 0, 0, 0);
  snprintf(key, sizeof key, "thread.%u", thread);
  snprintf(value, sizeof value, "%ld %s", syscall(SYS_gettid), name);
  lock_acquire(&t->lock);
  if (serial_of(t) == serial) trace_add_fact(t, key, value);
  lock_release(&t->lock);
}

static lane *lane_make(stow_trace *t, uint64_t serial) {
  ASSERT(serial != 0);
  lane *l = calloc(1, sizeof *l);
  if (l == NULL) return NULL;
  l->serial = serial;
  l->trace = t;
  l->thread = atomic_fetch_add(&t->threads, 1) + 1;
  lane_record_thread(t, serial, l->thread);
  return l;
}

/* Returns this thread's lane for this trace and moves it to the front; drops stale lanes on the
 * way. Returns NULL if the trace is closed, the thread is muted, or there is no memory
 * (counted). */
static lane *lane_find(stow_trace *t) {
  ASSERT(t->alive != NULL);
  uint64_t serial = serial_of(t);
  if (serial == 0 || self.muted) return NULL;
  lane *found = NULL;
  for (lane **at = &self.lanes; *at != NULL;) {
    lane *l = *at;
    bool mine = l->trace == t && l->serial == serial;
    if (!mine && serial_of(l->trace) == l->serial) {
      at = &l->next;
      continue;
    }
    *at = l->next;
    if (mine)
      found = l;
    else
      free(l);
  }
  if (found == NULL && (found = lane_make(t, serial)) == NULL) {
    atomic_fetch_add_explicit(&t->ring.header->skipped_events, 1, memory_order_relaxed);
    return NULL;
  }
  found->next = self.lanes;
  self.lanes = found;
  pthread_setspecific(lane_key, found);
  return found;
}

/* Opens the next chunk for a lane that has none. If a file is written and every chunk waits for it,
 * the program waits too, because a recording with a gap cannot be replayed. It waits only once:
 * after a wait that failed (a disk that hangs) no event waits until the file has advanced again. */
static bool lane_open_chunk(lane *l) {
  ASSERT(l->chunk == NULL);
  stow_trace *t = l->trace;
  for (uint64_t until = 0;;) {
    bool recording = atomic_load_explicit(&t->recording, memory_order_relaxed);
    l->chunk = ring_take(&t->ring, l->thread, l->seq, !recording, &l->ticket);
    l->place = 0;
    if (l->chunk != NULL) return true;
    if (!recording || serial_of(t) != l->serial || atomic_load(&t->stalled)) return false;
    uint64_t now = clock_ns();
    if (until == 0) until = now + WAIT_FOR_FILE_NS;
    if (now >= until) {
      atomic_store(&t->stalled, true);
      return false;
    }
    drain_wake(t);
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
  }
}

/* ---- the event ---- */

static void lane_put(lane *l, const stow_trace_record *e) {
  ASSERT(l->trace != NULL);
  ASSERT(l->chunk == NULL || l->place < RING_CHUNK_RECORDS);
  stow_trace *t = l->trace;
  if (l->chunk == NULL && !lane_open_chunk(l)) {
    atomic_fetch_add_explicit(&t->ring.header->skipped_events, 1, memory_order_relaxed);
    return;
  }
  uint64_t now = clock_ns();
  if (now <= l->last_ns) now = l->last_ns + 1;
  l->last_ns = now;
  uint64_t words[RING_RECORD_WORDS] = {
      now,
      e->addr,
      e->bytes,
      e->stream,
      e->stack | (uint64_t)e->tag << 32,
      e->device | (uint32_t)e->kind << 16 | (uint32_t)e->tier << 24,
  };
  ring_put(l->chunk, l->ticket, l->place, words);
  l->place++;
  l->seq++;
  if (l->place == RING_CHUNK_RECORDS) lane_publish_chunk(l);
}

void stow_trace_event(stow_trace *t, const stow_trace_record *record) {
  if (t == NULL || t->alive == NULL) return;
  if (__builtin_expect(self.inside, 0)) {
    if (serial_of(t) != 0)
      atomic_fetch_add_explicit(&t->ring.header->skipped_events, 1, memory_order_relaxed);
    return;
  }
  self.inside = true;
  atomic_signal_fence(memory_order_seq_cst);
  lane *l = self.lanes;
  if (__builtin_expect(l == NULL || l->serial != serial_of(t), 0)) l = lane_find(t);
  if (l != NULL) lane_put(l, record);
  atomic_signal_fence(memory_order_seq_cst);
  self.inside = false;
}

stow_status stow_trace_launch(stow_trace *t, const stow_trace_launch_info *given) {
  stow_trace_launch_info launch = STOW_TRACE_LAUNCH_INFO_INIT;
  STOW_TRY(growing_read(&launch, sizeof launch, given, "stow_trace_launch_info"));
  if (launch.touches == NULL && launch.touch_count > 0)
    return stow_fail(STOW_ERR_INVALID, "stow_trace_launch: %zu touches: touches is NULL",
                     launch.touch_count);
  /* A first touch without a size is stored in the launch itself. */
  size_t i = launch.touch_count > 0 && launch.touches[0].bytes == 0;
  stow_trace_record e = {.addr = i > 0 ? launch.touches[0].addr : 0,
                         .bytes = launch.device_ns,
                         .stream = launch.stream,
                         .tag = launch.function,
                         .device = launch.device,
                         .kind = STOW_TRACE_LAUNCH};
  stow_trace_event(t, &e);
  e.kind = STOW_TRACE_TOUCH;
  for (; i < launch.touch_count; i++) {
    e.addr = launch.touches[i].addr;
    e.bytes = launch.touches[i].bytes;
    stow_trace_event(t, &e);
  }
  return STOW_OK;
}

/* ---- texts ---- */

static stow_status trace_not_open(void) {
  return stow_fail(STOW_ERR_STATE, "the trace is not open in this process (closed, or inherited "
                                   "by a child, which opens its own)");
}

/* Locks an open trace. */
static stow_status trace_enter(stow_trace *t) {
  if (t == NULL) return stow_fail(STOW_ERR_INVALID, "no trace given");
  if (t->alive == NULL || serial_of(t) == 0) return trace_not_open();
  lock_acquire(&t->lock);
  if (serial_of(t) != 0) return STOW_OK;
  lock_release(&t->lock);
  return trace_not_open();
}

stow_status stow_trace_tag(stow_trace *t, const char *name, uint32_t *tag) {
  *tag = 0;
  if (name == NULL) return stow_fail(STOW_ERR_INVALID, "a tag needs a name");
  STOW_TRY(trace_enter(t));
  stow_status status = stackset_name(&t->texts, name, tag);
  lock_release(&t->lock);
  return status;
}

stow_status stow_trace_fact(stow_trace *t, const char *key, const char *value) {
  if (key == NULL || value == NULL)
    return stow_fail(STOW_ERR_INVALID, "a fact needs a key and a value");
  STOW_TRY(trace_enter(t));
  stow_status status = trace_add_fact(t, key, value);
  lock_release(&t->lock);
  return status;
}

uint32_t stow_trace_stack_find(stow_trace *t, uint64_t key) {
  return t != NULL && key != 0 ? stackset_find(&t->texts, key) : 0;
}

stow_status stow_trace_stack(stow_trace *t, uint64_t key, const stow_trace_frame *frames,
                             size_t count, uint32_t *stack) {
  *stack = stow_trace_stack_find(t, key);
  if (*stack != 0) return STOW_OK;
  if (frames == NULL && count > 0) return stow_fail(STOW_ERR_INVALID, "a stack needs its frames");
  STOW_TRY(trace_enter(t));
  stow_status status = stackset_stack(&t->texts, key, frames, count, stack);
  lock_release(&t->lock);
  return status;
}

static stow_status trace_mark(stow_trace *t, const char *name, stow_trace_kind kind) {
  stow_trace_record e = {.kind = (uint8_t)kind};
  STOW_TRY(stow_trace_tag(t, name, &e.tag));
  stow_trace_event(t, &e);
  return STOW_OK;
}

stow_status stow_trace_mark_begin(stow_trace *t, const char *name) {
  return trace_mark(t, name, STOW_TRACE_MARK_BEGIN);
}

stow_status stow_trace_mark_end(stow_trace *t, const char *name) {
  return trace_mark(t, name, STOW_TRACE_MARK_END);
}

/* ---- opening and closing ---- */

/* Closes all traces in a child of fork. Its view of the ring becomes private memory, so not even a
 * stray store reaches the parent's ring. */
static void child_after_fork(void) {
  lock_init(&registry, LOCK_REGISTRY);
  for (int i = 0; i < TRACES_MAX; i++) {
    stow_trace *t = &traces[i];
    if (!t->used) continue;
    atomic_store(t->alive, 0);
    ring_detach(&t->ring);
    lock_init(&t->lock, LOCK_TRACE);
    t->drain = NULL; /* the thread does not exist in the child; its memory and file belong to the
                      * parent */
    t->used = false;
  }
}

/* Initializes what the process shares, when the first trace is opened. */
static stow_status registry_start(void) {
  ASSERT(lock_held(&registry));
  if (alive_words != NULL) return STOW_OK;
  if (pthread_key_create(&lane_key, lanes_end) != 0)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no thread-specific key is left for a trace");
  void *page = mmap(NULL, RING_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED || pthread_atfork(NULL, NULL, child_after_fork) != 0) {
    if (page != MAP_FAILED) munmap(page, RING_PAGE);
    pthread_key_delete(lane_key);
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a trace");
  }
  /* Kernels before 4.14 do not support this; there, only the handler above does it. */
  madvise(page, RING_PAGE, MADV_WIPEONFORK);
  alive_words = page;
  for (int i = 0; i < TRACES_MAX; i++) traces[i].alive = &alive_words[i];
  return STOW_OK;
}

/* Returns an unused slot, the one closed longest ago, and unmaps its old addresses. */
static stow_trace *registry_take(void) {
  ASSERT(lock_held(&registry));
  stow_trace *best = NULL;
  for (int i = 0; i < TRACES_MAX; i++)
    if (!traces[i].used && (best == NULL || traces[i].closed_at < best->closed_at))
      best = &traces[i];
  if (best == NULL) return NULL;
  if (best->ring.header != NULL) munmap(best->ring.header, best->ring.mapped_bytes);
  best->ring = (ring){.file = DESCRIPTOR_NONE};
  best->used = true;
  return best;
}

static stow_status options_check(stow_trace_options *o, const stow_trace_options *given) {
  ASSERT(o != NULL);
  *o = (stow_trace_options)STOW_TRACE_OPTIONS_INIT;
  STOW_TRY(growing_read(o, sizeof *o, given, "stow_trace_options"));
  if (o->ring_bytes == 0) o->ring_bytes = RING_BYTES_DEFAULT;
  if (o->text_bytes == 0) o->text_bytes = TEXT_BYTES_DEFAULT;
  if (o->ring_bytes < RING_BYTES_MIN || o->ring_bytes > RING_BYTES_MAX)
    return stow_fail(STOW_ERR_INVALID, "ring_bytes of %" PRIu64 ": must be 64 KiB to 64 GiB",
                     o->ring_bytes);
  if (o->text_bytes < TEXT_BYTES_MIN || o->text_bytes > TEXT_BYTES_MAX)
    return stow_fail(STOW_ERR_INVALID, "text_bytes of %" PRIu64 ": must be 64 KiB to 1 GiB",
                     o->text_bytes);
  return STOW_OK;
}

/* Records facts about the process and the clock that readers need. */
static void trace_record_process(stow_trace *t) {
  char text[4096];
  const ring_header *h = t->ring.header;
  stow_trace_fact(t, "source", "stow");
  snprintf(text, sizeof text, "%016" PRIx64 "%016" PRIx64, h->id[0], h->id[1]);
  stow_trace_fact(t, "trace_id", text);
  snprintf(text, sizeof text, "%" PRIu64, h->pid);
  stow_trace_fact(t, "pid", text);
  stow_trace_fact(t, "clock", "monotonic");
  snprintf(text, sizeof text, "%" PRId64, (int64_t)(h->start_wall_ns - h->start_ns));
  stow_trace_fact(t, "clock_wall_offset_ns", text);
  FILE *f = fopen("/proc/self/cmdline", "re");
  if (f == NULL) return;
  size_t n = fread(text, 1, sizeof text - 1, f);
  fclose(f);
  if (n == sizeof text - 1) /* drop the last word, which is cut: half a URL could show half a
                             * password */
    while (n > 0 && text[n - 1] != '\0') n--;
  while (n > 0 && text[n - 1] == '\0') n--;
  text[n] = '\0';
  text_hide_command(text, &n); /* recordings are shared with others */
  for (size_t i = 0; i < n; i++)
    if (text[i] == '\0') text[i] = ' ';
  text[n < 1023 ? n : 1023] = '\0';
  stow_trace_fact(t, "command", text);
}

static stow_status trace_start(stow_trace *t, const stow_trace_options *o, uint64_t serial) {
  ASSERT(serial != 0);
  ASSERT(t->used);
  lock_init(&t->lock, LOCK_TRACE);
  atomic_store(&t->recording, false);
  atomic_store(&t->has_file, false);
  atomic_store(&t->threads, 0);
  atomic_store(&t->sealed, 0);
  atomic_store(&t->stalled, false);
  ring_quiet quiet;
  ring_quiet_begin(&quiet);
  stow_status status = ring_create(&t->ring, o->ring_path, o->ring_bytes, o->text_bytes);
  if (status == STOW_OK) {
    stackset_start(&t->texts, &t->ring);
    atomic_store_explicit(t->alive, serial, memory_order_release);
    trace_record_process(t);
    t->mute_thread = mute_thread;
    if (o->record_path != NULL) status = drain_start(t, o->record_path);
    if (status != STOW_OK) {
      stackset_stop(&t->texts);
      if (o->ring_path != NULL) unlink(o->ring_path);
    }
  }
  ring_quiet_end(&quiet);
  return status;
}

stow_status stow_trace_open(stow_trace **trace, const stow_trace_options *given) {
  if (trace == NULL)
    return stow_fail(STOW_ERR_INVALID, "stow_trace_open: the result pointer is NULL");
  *trace = NULL;
  stow_trace_options o;
  STOW_TRY(options_check(&o, given));
  lock_acquire(&registry);
  stow_status status = registry_start();
  stow_trace *t = status == STOW_OK ? registry_take() : NULL;
  uint64_t serial = ++last_serial;
  lock_release(&registry);
  if (status != STOW_OK) return status;
  if (t == NULL)
    return stow_fail(STOW_ERR_STATE, "%d traces are already open; close one first", TRACES_MAX);

  status = trace_start(t, &o, serial);
  if (status != STOW_OK) {
    atomic_store(t->alive, 0);
    ring_detach(&t->ring);
    lock_acquire(&registry);
    t->used = false;
    t->closed_at = serial;
    lock_release(&registry);
    return status;
  }
  *trace = t;
  return STOW_OK;
}

stow_status stow_trace_close(stow_trace *t) {
  if (t == NULL) return STOW_OK;
  if (t->alive == NULL) return trace_not_open();
  lock_acquire(&registry);
  uint64_t serial = t->used ? atomic_exchange(t->alive, 0) : 0;
  lock_release(&registry);
  if (serial == 0) return trace_not_open();
  /* From here on no event finds a lane. An event in progress ends in the ring, or in the plain
   * memory that replaces it. */
  ring_quiet quiet;
  ring_quiet_begin(&quiet);
  stow_status status = atomic_load(&t->has_file) ? drain_stop(t) : STOW_OK;
  ring_quiet_end(&quiet);
  lock_acquire(&t->lock);
  atomic_store(&t->ring.header->closed, 1);
  stackset_stop(&t->texts);
  ring_detach(&t->ring);
  lock_release(&t->lock);
  lock_acquire(&registry);
  t->used = false;
  t->closed_at = ++last_serial;
  lock_release(&registry);
  return status;
}

stow_status stow_trace_flush(stow_trace *t) {
  if (t == NULL) return stow_fail(STOW_ERR_INVALID, "no trace given");
  if (t->alive == NULL || serial_of(t) == 0) return trace_not_open();
  return atomic_load(&t->has_file) ? drain_flush(t) : STOW_OK;
}

stow_status stow_trace_get_stats(stow_trace *t, stow_trace_stats *to) {
  stow_trace_stats full = STOW_TRACE_STATS_INIT, *stats = &full;
  STOW_TRY(growing_write(to, &full, sizeof full, "stow_trace_stats")); /* zeros on failure */
  STOW_TRY(trace_enter(t));
  const ring_header *h = t->ring.header;
  stats->skipped_events = atomic_load_explicit(&h->skipped_events, memory_order_relaxed);
  stats->text_bytes = atomic_load_explicit(&h->text_length, memory_order_relaxed);
  stats->ring_bytes = t->ring.chunk_count * RING_CHUNK_BYTES;
  stats->threads = atomic_load(&t->threads);
  stats->recording = atomic_load(&t->recording);
  if (atomic_load(&t->has_file)) stats->written_events = drain_written(t);
  lock_release(&t->lock);
  return growing_write(to, &full, sizeof full, "stow_trace_stats");
}
