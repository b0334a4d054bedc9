/* Drain: the thread that copies a trace's events from the ring to its .stow file.
 *
 * Every 50 ms, or when a quarter of the ring is waiting, it merges the threads' chunks in order of
 * time, writes them, and only then lets the chunks be reused: an event is always in the file or in
 * the ring. It leaves the last 10 ms for the next pass, because another thread may have stamped an
 * event that it has not committed yet. So events older than 100 ms are in the file. The ring's
 * texts are written before the events that refer to them. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/newfile.h"
#include "record/record.h"
#include "trace/stow_file.h"

#define PERIOD_NS UINT64_C(50000000)
#define HOLD_NS   UINT64_C(10000000)
/* Returns chunks to the ring after at most this many events, so that threads waiting for a chunk do
 * not wait for the whole backlog. */
#define EVENTS_PER_COMMIT 65536

/* The records of one chunk that a pass has to write. */
typedef struct span {
  uint64_t chunk, ticket, first_seq;
  uint32_t thread;
  uint32_t next, end; /* positions in the chunk */
  bool sealed;        /* no record follows `end` */
  bool early;         /* an earlier event of its thread was not seen: left for the next pass */
} span;

/* The spans of one thread, in order. */
typedef struct queue {
  span *at, *end;
  ring_record head; /* the record at at->next */
} queue;

struct drain {
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t wake, answer;
  bool stop;                /* guarded by mutex */
  uint64_t asked, answered; /* guarded by mutex: numbers of flushes */
  stow_status status;       /* guarded by mutex: why the file was stopped */
  char message[STATUS_MESSAGE_MAX];
  _Atomic bool wake_requested;
  _Atomic uint64_t written;
  /* Used only by the thread: */
  stowfile_writer writer;
  descriptor file;
  char *path;
  uint64_t text_at;   /* how far the ring's texts are in the file */
  uint64_t *tickets;  /* per chunk of the ring: the ticket that `done` belongs to */
  uint32_t *done;     /* per chunk of the ring: how many of its records are in the file */
  uint64_t *next_seq; /* per thread: number of its first event that is not in the file */
  size_t thread_capacity;
  span *spans;
  queue *heap; /* ordered by the time of the head */
  size_t span_count, heap_count;
  uint64_t damaged; /* records whose check word was wrong */
};

/* ---- texts ---- */

/* Returns the maximum length of a text of that kind, which record.c never exceeds. */
static uint32_t text_longest(uint32_t kind) {
  return kind == TEXT_STACK   ? STACK_FRAMES_MAX * (uint32_t)sizeof(uint32_t)
         : kind == TEXT_FRAME ? 3 * (uint32_t)sizeof(uint32_t)
                              : 4096;
}

/* Copies one text. The writer numbers texts as the ring does: both count from 1 in the same
 * order. */
static stow_status carry_text(drain *d, const text_entry *entry, const char *payload) {
  ASSERT(entry->length <= text_longest(entry->kind));
  uint32_t words[STACK_FRAMES_MAX];
  char fact[4096 + 1];
  switch (entry->kind) {
  case TEXT_NAME: stowfile_add_name(&d->writer, payload, entry->length); break;
  case TEXT_FRAME:
    memcpy(words, payload, 3 * sizeof *words);
    stowfile_add_frame(&d->writer, &(frame){words[0], words[1], words[2]});
    break;
  case TEXT_STACK:
    memcpy(words, payload, entry->length);
    stowfile_add_stack(&d->writer, words, entry->length / (uint32_t)sizeof *words);
    break;
  case TEXT_FACT:
    memcpy(fact, payload, entry->length);
    memset(fact + entry->length, 0, sizeof fact - entry->length);
    stowfile_add_fact(&d->writer, fact, fact + strlen(fact) + 1);
    break;
  }
  return d->writer.status;
}

static stow_status carry_texts(stow_trace *t, drain *d) {
  ASSERT(d->text_at % 8 == 0);
  uint64_t end = atomic_load_explicit(&t->ring.header->text_length, memory_order_acquire);
  while (d->text_at < end) {
    text_entry entry;
    memcpy(&entry, t->ring.texts + d->text_at, sizeof entry);
    if (entry.length > end - d->text_at - sizeof entry || entry.length > text_longest(entry.kind))
      return stow_fail(STOW_ERR_STATE, "the program overwrote the trace's texts");
    STOW_TRY(carry_text(d, &entry, t->ring.texts + d->text_at + sizeof entry));
    d->text_at += sizeof entry + round_up(entry.length, 8);
  }
  return STOW_OK;
}

/* ---- events ---- */

static int by_thread(const void *a, const void *b) {
  const span *x = a, *y = b;
  if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
  return x->first_seq < y->first_seq ? -1 : x->first_seq > y->first_seq;
}

static stow_status know_thread(drain *d, uint32_t thread) {
  ASSERT(thread > 0);
  if (thread < d->thread_capacity) return STOW_OK;
  size_t capacity = (size_t)thread + 64;
  uint64_t *bigger = realloc(d->next_seq, capacity * sizeof *bigger);
  if (bigger == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to write a trace");
  memset(bigger + d->thread_capacity, 0, (capacity - d->thread_capacity) * sizeof *bigger);
  d->next_seq = bigger;
  d->thread_capacity = capacity;
  return STOW_OK;
}

/* Postpones events that come after a gap. While the chunks were visited one by one, a thread may
 * have filled a chunk already visited and moved on to one not yet visited. The file must always
 * hold the beginning of a thread's events without a gap, because readers rely on that to join it
 * with the ring. Each thread's spans are in order. */
static stow_status leave_early(drain *d) {
  uint64_t expected = 0;
  for (size_t i = 0; i < d->span_count; i++) {
    span *s = &d->spans[i];
    STOW_TRY(know_thread(d, s->thread));
    if (i == 0 || s->thread != s[-1].thread) expected = d->next_seq[s->thread];
    s->early = s->first_seq + s->next != expected;
    if (!s->early) expected = s->first_seq + s->end;
  }
  return STOW_OK;
}

/* Collects everything that is committed and not yet in the file. */
static stow_status gather(stow_trace *t, drain *d) {
  ASSERT(d->spans != NULL);
  d->span_count = 0;
  for (uint64_t i = 0; i < t->ring.chunk_count; i++) {
    uint64_t control = atomic_load_explicit(&t->ring.control[i], memory_order_acquire);
    if ((control & 3) == CHUNK_FREE) continue;
    const ring_chunk *c = &t->ring.chunks[i];
    uint64_t ticket = atomic_load_explicit(&c->ticket, memory_order_acquire);
    if (ticket != control >> 2) continue; /* being opened: still empty */
    if (d->tickets[i] != ticket) d->done[i] = 0;
    d->tickets[i] = ticket;
    uint32_t count = atomic_load_explicit(&c->count, memory_order_acquire);
    uint32_t thread = atomic_load_explicit(&c->thread, memory_order_relaxed);
    if (count > RING_CHUNK_RECORDS || thread == 0 || thread > atomic_load(&t->threads)) {
      d->damaged++; /* the program overwrote it */
      continue;
    }
    d->spans[d->span_count++] =
        (span){.chunk = i,
               .ticket = ticket,
               .first_seq = atomic_load_explicit(&c->first_seq, memory_order_relaxed),
               .thread = thread,
               .next = d->done[i],
               .end = count,
               .sealed = (control & 3) == CHUNK_SEALED};
  }
  qsort(d->spans, d->span_count, sizeof *d->spans, by_thread);
  return leave_early(d);
}

/* Moves the queue's next valid record to its head. Returns false at the end. Skips and counts
 * records that a stray store of the program damaged. */
static bool queue_next(stow_trace *t, drain *d, queue *q) {
  ASSERT(q->at <= q->end);
  for (; q->at < q->end; q->at++) {
    for (; q->at->next < q->at->end; q->at->next++) {
      if (ring_get(&t->ring.chunks[q->at->chunk], q->at->ticket, q->at->next, &q->head) &&
          q->head.kind < EVENT_KIND_COUNT)
        return true;
      d->damaged++;
    }
  }
  return false;
}

static void heap_sink(drain *d, size_t i) {
  ASSERT(i <= d->heap_count);
  for (;;) {
    size_t least = i;
    for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < d->heap_count; child++)
      if (d->heap[child].head.time_ns < d->heap[least].head.time_ns) least = child;
    if (least == i) return;
    queue moved = d->heap[i];
    d->heap[i] = d->heap[least];
    d->heap[least] = moved;
    i = least;
  }
}

static void heap_build(stow_trace *t, drain *d) {
  d->heap_count = 0;
  for (size_t i = 0, end; i < d->span_count; i = end) {
    size_t whole = i;
    for (end = i; end < d->span_count && d->spans[end].thread == d->spans[i].thread; end++)
      if (whole == end && !d->spans[end].early) whole++;
    queue q = {.at = d->spans + i, .end = d->spans + whole};
    if (queue_next(t, d, &q)) d->heap[d->heap_count++] = q;
  }
  for (size_t i = d->heap_count / 2; i-- > 0;) heap_sink(d, i);
}

/* Flushes the writer to the file, then frees the sealed chunks that are completely written. */
static stow_status commit(stow_trace *t, drain *d) {
  ASSERT(d->span_count <= t->ring.chunk_count);
  STOW_TRY(stowfile_flush(&d->writer));
  atomic_store_explicit(&d->written, d->writer.event_count, memory_order_relaxed);
  for (size_t i = 0; i < d->span_count; i++) {
    span *s = &d->spans[i];
    if (s->early) continue;
    d->done[s->chunk] = s->next;
    /* Spans are in order: a span that is not reached yet has nothing in the file. */
    if (s->first_seq <= d->next_seq[s->thread]) d->next_seq[s->thread] = s->first_seq + s->next;
    if (!s->sealed || s->next < s->end) continue;
    s->sealed = false; /* count it only once */
    atomic_store_explicit(&t->ring.control[s->chunk], s->ticket << 2 | CHUNK_FREE,
                          memory_order_release);
    atomic_fetch_sub_explicit(&t->sealed, 1, memory_order_relaxed);
    atomic_store_explicit(&t->stalled, false, memory_order_relaxed);
  }
  return STOW_OK;
}

/* Writes every event stamped before `limit_ns`. */
static stow_status pass(stow_trace *t, drain *d, uint64_t limit_ns) {
  STOW_TRY(gather(t, d));
  STOW_TRY(carry_texts(t, d)); /* read after the events, so their texts are there */
  heap_build(t, d);
  uint64_t carried = 0;
  while (d->heap_count > 0 && d->heap[0].head.time_ns < limit_ns) {
    queue *q = &d->heap[0];
    const ring_record *w = &q->head;
    event e = {w->time_ns, w->addr, w->bytes, w->stack, 0, w->kind};
    origin of = {w->stream, q->at->thread, w->tag, w->device, w->tier};
    STOW_TRY(stowfile_add_event(&d->writer, &e, &of));
    q->at->next++;
    if (!queue_next(t, d, q)) d->heap[0] = d->heap[--d->heap_count];
    heap_sink(d, 0);
    if (++carried % EVENTS_PER_COMMIT == 0) STOW_TRY(commit(t, d));
  }
  return commit(t, d);
}

/* ---- the thread ---- */

/* Stops the file for good; the ring continues alone. Logs this once. */
static void switch_off(stow_trace *t, drain *d, stow_status status) {
  pthread_mutex_lock(&d->mutex);
  d->status = status;
  snprintf(d->message, sizeof d->message, "%s", stow_status_message());
  pthread_mutex_unlock(&d->mutex);
  atomic_store(&t->recording, false);
  stow_log_line(STOW_LOG_WARNING, "the trace file is stopped, the ring continues: %s", d->message);
}

/* Sleeps until the next pass is due, requested, or the last one. Returns whether to end, and the
 * flush to answer. */
static bool drain_wait(drain *d, uint64_t *flush) {
  struct timespec until;
  uint64_t at = clock_ns() + PERIOD_NS;
  until.tv_sec = (time_t)(at / UINT64_C(1000000000));
  until.tv_nsec = (long)(at % UINT64_C(1000000000));
  pthread_mutex_lock(&d->mutex);
  while (!d->stop && d->asked == d->answered &&
         !atomic_exchange_explicit(&d->wake_requested, false, memory_order_relaxed))
    if (pthread_cond_timedwait(&d->wake, &d->mutex, &until) == ETIMEDOUT) break;
  *flush = d->asked;
  bool stop = d->stop;
  pthread_mutex_unlock(&d->mutex);
  return stop;
}

static void *drain_run(void *trace) {
  stow_trace *t = trace;
  drain *d = t->drain;
  t->mute_thread();
  for (bool stop = false; !stop;) {
    uint64_t flush;
    stop = drain_wait(d, &flush);
    if (atomic_load(&t->recording)) {
      bool all = stop || flush != d->answered;
      stow_status status = pass(t, d, all ? UINT64_MAX : clock_ns() - HOLD_NS);
      if (status != STOW_OK) switch_off(t, d, status);
    }
    pthread_mutex_lock(&d->mutex);
    d->answered = flush;
    pthread_cond_broadcast(&d->answer);
    pthread_mutex_unlock(&d->mutex);
  }
  return NULL;
}

/* ---- the file ---- */

/* Reopens the file after the program closed our descriptor, if the file still exists. */
static bool file_again(drain *d) {
  descriptor again =
      descriptor_keep(open(d->path, O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (again.fd >= 0 && again.device == d->file.device && again.inode == d->file.inode) {
    d->file = again;
    return true;
  }
  descriptor_close(&again);
  return false;
}

/* Writes a chunk in one call. If it fails, the partial chunk is a torn end, which readers drop. */
static stow_status file_put(void *context, const void *bytes, size_t count) {
  drain *d = context;
  if (!descriptor_ours(&d->file) && !file_again(d))
    return stow_fail(STOW_ERR_IO,
                     "the trace %s was closed by the program after %llu bytes and no longer "
                     "exists; what was written can be read",
                     d->path, (unsigned long long)d->writer.written_bytes);
  for (const char *at = bytes; count > 0;) {
    ssize_t done = write(d->file.fd, at, count);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0)
      return stow_fail(STOW_ERR_IO,
                       "cannot write the trace %s past %llu bytes: %s; what was written can be "
                       "read; free disk space, or record to another disk",
                       d->path, (unsigned long long)d->writer.written_bytes,
                       done < 0 ? strerror(errno) : "nothing was written");
    at += done;
    count -= (size_t)done;
  }
  return STOW_OK;
}

static stow_status file_open(drain *d, const char *path) {
  d->path = strdup(path);
  if (d->path == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a path");
  d->file = descriptor_keep(newfile_own(AT_FDCWD, path, 0, 0666));
  struct stat info;
  if (d->file.fd < 0 || fstat(d->file.fd, &info) != 0)
    return stow_fail(STOW_ERR_IO, "cannot create the trace %s: %s", path, newfile_reason(errno));
  if (S_ISREG(info.st_mode) && info.st_size != 0)
    return stow_fail(
        STOW_ERR_STATE,
        "the trace %s already exists, with %lld bytes; remove it, or choose another name", path,
        (long long)info.st_size);
  stow_status status = stowfile_begin(&d->writer, file_put, d, NULL);
  if (status != STOW_OK && S_ISREG(info.st_mode)) unlink(path); /* not even the header fit */
  STOW_TRY(status);
  return STOW_OK;
}

static stow_status file_close(drain *d) {
  stow_status status = STOW_OK;
  if (descriptor_close(&d->file) != 0)
    status = stow_fail(STOW_ERR_IO, "cannot finish the trace %s: %s", d->path, strerror(errno));
  stowfile_free(&d->writer);
  free(d->path);
  d->path = NULL;
  return status;
}

/* ---- called by record.c ---- */

static stow_status drain_make(drain **made) {
  drain *d = calloc(1, sizeof *d);
  pthread_condattr_t monotonic;
  if (d == NULL || pthread_condattr_init(&monotonic) != 0) {
    free(d);
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to write a trace");
  }
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_mutex_init(&d->mutex, NULL);
  pthread_cond_init(&d->wake, &monotonic);
  pthread_cond_init(&d->answer, NULL);
  pthread_condattr_destroy(&monotonic);
  *made = d;
  return STOW_OK;
}

static void drain_free_tables(drain *d) {
  free(d->tickets);
  free(d->done);
  free(d->spans);
  free(d->heap);
  free(d->next_seq);
  d->thread_capacity = 0;
  d->next_seq = NULL;
  d->tickets = NULL;
  d->done = NULL;
  d->spans = NULL;
  d->heap = NULL;
}

/* Starts a thread with a small stack that receives none of the program's signals. */
static stow_status drain_start_thread(stow_trace *t) {
  sigset_t all, before;
  pthread_attr_t attributes;
  sigfillset(&all);
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 << 10);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int why = pthread_create(&t->drain->thread, &attributes, drain_run, t);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  if (why != 0)
    return stow_fail(STOW_ERR_HOST_MEMORY, "cannot start the thread that writes the trace: %s",
                     strerror(why));
  pthread_setname_np(t->drain->thread, "stowage-trace");
  return STOW_OK;
}

stow_status drain_start(stow_trace *t, const char *path) {
  if (t->drain == NULL) STOW_TRY(drain_make(&t->drain));
  drain *d = t->drain;
  uint64_t chunks = t->ring.chunk_count;
  d->file = DESCRIPTOR_NONE;
  d->path = NULL;
  d->writer = (stowfile_writer){0};
  d->stop = false;
  d->asked = d->answered = 0;
  d->status = STOW_OK;
  d->text_at = d->damaged = 0;
  atomic_store(&d->wake_requested, false);
  atomic_store(&d->written, 0);
  d->tickets = calloc(chunks, sizeof *d->tickets);
  d->done = calloc(chunks, sizeof *d->done);
  d->spans = calloc(chunks, sizeof *d->spans);
  d->heap = calloc(chunks, sizeof *d->heap);
  stow_status status = STOW_OK;
  if (d->tickets == NULL || d->done == NULL || d->spans == NULL || d->heap == NULL)
    status = stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to write a trace");
  if (status == STOW_OK) status = file_open(d, path);
  if (status == STOW_OK) {
    atomic_store(&t->recording, true);
    atomic_store(&t->has_file, true);
    status = drain_start_thread(t);
    if (status != STOW_OK) {
      atomic_store(&t->recording, false);
      atomic_store(&t->has_file, false);
      unlink(path);
    }
  }
  if (status != STOW_OK) {
    char why[STATUS_MESSAGE_MAX];
    snprintf(why, sizeof why, "%s", stow_status_message());
    file_close(d);
    drain_free_tables(d);
    return stow_fail(status, "%s", why);
  }
  return status;
}

void drain_wake(stow_trace *t) {
  drain *d = t->drain;
  if (atomic_exchange_explicit(&d->wake_requested, true, memory_order_relaxed)) return;
  pthread_mutex_lock(&d->mutex);
  pthread_cond_signal(&d->wake);
  pthread_mutex_unlock(&d->mutex);
}

static stow_status drain_status(drain *d) {
  return d->status == STOW_OK ? STOW_OK : stow_fail(d->status, "%s", d->message);
}

stow_status drain_flush(stow_trace *t) {
  drain *d = t->drain;
  pthread_mutex_lock(&d->mutex);
  uint64_t mine = ++d->asked;
  pthread_cond_signal(&d->wake);
  while (d->answered < mine && !d->stop) pthread_cond_wait(&d->answer, &d->mutex);
  stow_status status = drain_status(d);
  pthread_mutex_unlock(&d->mutex);
  return status;
}

stow_status drain_stop(stow_trace *t) {
  drain *d = t->drain;
  pthread_mutex_lock(&d->mutex);
  d->stop = true;
  pthread_cond_signal(&d->wake);
  pthread_cond_broadcast(&d->answer);
  pthread_mutex_unlock(&d->mutex);
  pthread_join(d->thread, NULL);
  atomic_store(&t->recording, false);
  if (d->status == STOW_OK) {
    uint64_t lost = atomic_load(&t->ring.header->skipped_events) + d->damaged;
    stow_status ended = stowfile_end(&d->writer, lost);
    if (ended != STOW_OK) switch_off(t, d, ended);
  }
  stow_status closed = file_close(d);
  drain_free_tables(d);
  pthread_mutex_lock(&d->mutex);
  stow_status status = d->status == STOW_OK ? closed : drain_status(d);
  pthread_mutex_unlock(&d->mutex);
  return status;
}

uint64_t drain_written(stow_trace *t) {
  return atomic_load_explicit(&t->drain->written, memory_order_relaxed);
}
