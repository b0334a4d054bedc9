/* Stand-in libcuda: queues of operations and the threads that run them. See queue.h. */
#include "standin/queue.h"

#include <execinfo.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 3, QUEUES_MAX = 512, GRAPH_MAX = 64 };
enum { PAGE = 4096 };

typedef enum op_kind { OP_KERNEL, OP_COPY, OP_SET, OP_RECORD, OP_WAIT } op_kind;

typedef struct op {
  struct op *next;
  op_kind kind;
  uint64_t seq;
  bool after_all; /* after everything that was submitted to its context before */
  const standin_kernel *kernel;
  uint64_t arguments[3];
  unsigned grid_x, grid_y;
  uint64_t to, from, bytes;
  unsigned char value;
  void *staged; /* the contents of `from` when it was submitted */
  standin_event *event;
  uint64_t record;
} op;

struct standin_graph {
  op ops[GRAPH_MAX];
  int count;
  standin_graph *next;
};

struct standin_queue {
  bool here; /* the slot is in use */
  cu_context context;
  bool blocking, legacy, gone, running;
  op *first, *last;
  standin_graph *graph; /* set while it is captured */
  standin_range ranges[RANGES_MAX];
  int range_count; /* for the running operation */
};

pthread_mutex_t standin_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static standin_queue queues[QUEUES_MAX];
static int queue_top;
static uint64_t next_seq = 1;
static uint64_t seed;
static bool beside; /* operations run on threads of their own; otherwise when submitted */
static _Thread_local standin_queue *own_queue;

static uint64_t draw(void) {
  seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
  return seed;
}

static void fault(const char *what, const char *who, uint64_t addr) {
  fprintf(stderr, "standin: %s: %s 0x%llx\n", who, what, (unsigned long long)addr);
  fflush(stderr);
  void *frames[32];
  backtrace_symbols_fd(frames, backtrace(frames, 32), STDERR_FILENO);
  _exit(STANDIN_FAULT);
}

bool queue_async(void) {
  return beside;
}

/* ---- events ---- */

standin_event *event_new(void) {
  standin_event *e = calloc(1, sizeof *e);
  if (e != NULL) e->users = 1;
  return e;
}
void event_drop(standin_event *e) {
  if (e != NULL && --e->users == 0) free(e);
}

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- memory that an operation accesses ---- */

static const char *name_of(const op *o) {
  return o->kind == OP_KERNEL ? o->kernel->name : o->kind == OP_COPY ? "copy" : "fill";
}

static int ranges_of(const op *o, bool list, standin_range *out) {
  int n = 0;
  if (o->kind == OP_KERNEL) return o->kernel->ranges(o->arguments, o->grid_x, o->grid_y, list, out);
  if (o->kind == OP_COPY || o->kind == OP_SET) out[n++] = (standin_range){o->to, o->bytes};
  if (o->kind == OP_COPY && o->staged == NULL) out[n++] = (standin_range){o->from, o->bytes};
  return n;
}

static void check_reachable(const op *o, const standin_range *r) {
  for (uint64_t at = r->addr, end = 0; at < r->addr + r->bytes; at = end) {
    int place = standin_place(at, &end);
    if (place == 1) continue;
    if (place == 0 && o->kind == OP_COPY) return; /* memory of the host */
    fault("reaches an address that is not mapped:", name_of(o), at);
  }
}

static bool overlap(const standin_range *r, uint64_t addr, uint64_t bytes) {
  return r->addr < addr + bytes && addr < r->addr + r->bytes;
}

static void in_use(const char *call, const char *state, const char *user, uint64_t addr) {
  char text[96];
  snprintf(text, sizeof text, "changes what a %s that %s uses:", user, state);
  fault(text, call, addr);
}

void queue_check_unused(const char *call, uint64_t addr, uint64_t bytes) {
  static standin_range ranges[RANGES_MAX];
  for (int i = 0; i < queue_top; i++) {
    standin_queue *q = &queues[i];
    for (int k = 0; q->running && k < q->range_count; k++)
      if (overlap(&q->ranges[k], addr, bytes)) in_use(call, "runs", name_of(q->first), addr);
    for (const op *o = q->first; q->here && o != NULL; o = o->next) {
      int n = ranges_of(o, false, ranges);
      for (int k = 0; k < n; k++)
        if (overlap(&ranges[k], addr, bytes)) in_use(call, "is queued", name_of(o), addr);
    }
  }
}

/* ---- running ---- */

void standin_move_words(void *to, const void *from, uint64_t bytes) {
  uint64_t at = 0;
  if ((((uintptr_t)to | (uintptr_t)from) & 7) == 0)
    for (; at + 8 <= bytes; at += 8)
      __atomic_store_n((uint64_t *)(void *)((char *)to + at),
                       __atomic_load_n((const uint64_t *)(const void *)((const char *)from + at),
                                       __ATOMIC_RELAXED),
                       __ATOMIC_RELAXED);
  for (; at < bytes; at++)
    __atomic_store_n((char *)to + at, __atomic_load_n((const char *)from + at, __ATOMIC_RELAXED),
                     __ATOMIC_RELAXED);
}

/* Copies from one page to another only what was ever written: tests use a few KiB of each page.
 * `locked`: the caller holds standin_mutex. Returns false if these are no two pages. */
static bool move_sparse(uint64_t to, uint64_t from, uint64_t bytes, bool locked) {
  uint64_t to_at, from_at, to_left, from_left;
  if (bytes < 16 * PAGE || ((to | from | bytes) & (PAGE - 1)) != 0) return false;
  if (!locked) pthread_mutex_lock(&standin_mutex);
  int to_file = standin_file(to, &to_at, &to_left);
  int from_file = standin_file(from, &from_at, &from_left);
  if (!locked) pthread_mutex_unlock(&standin_mutex);
  if (to_file < 0 || from_file < 0 || to_left < bytes || from_left < bytes) return false;
  for (uint64_t at = 0; at < bytes;) {
    off_t data = lseek(from_file, (off_t)(from_at + at), SEEK_DATA);
    uint64_t start = data < 0 ? bytes : (uint64_t)data - from_at;
    if (start > bytes) start = bytes;
    if (start > at && fallocate(to_file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                (off_t)(to_at + at), (off_t)(start - at)) != 0)
      return false;
    if (start == bytes) break;
    off_t hole = lseek(from_file, data, SEEK_HOLE);
    uint64_t end = hole < 0 ? bytes : (uint64_t)hole - from_at;
    if (end > bytes) end = bytes;
    for (at = start; at < end; at += PAGE) {
      standin_move_words((void *)(uintptr_t)(to + at), (const void *)(uintptr_t)(from + at), PAGE);
      if (beside) sched_yield(); /* kernels write at the same time */
    }
  }
  return true;
}

static void run_now(const op *o) {
  if (o->kind == OP_KERNEL)
    o->kernel->run(o->arguments, o->grid_x, o->grid_y);
  else if (o->kind == OP_SET)
    memset((void *)(uintptr_t)o->to, o->value, o->bytes);
  else if (o->kind == OP_COPY && o->staged != NULL)
    standin_move_words((void *)(uintptr_t)o->to, o->staged, o->bytes);
  else if (o->kind == OP_COPY && !move_sparse(o->to, o->from, o->bytes, false))
    standin_move_words((void *)(uintptr_t)o->to, (const void *)(uintptr_t)o->from, o->bytes);
}

static void finish(const op *o) {
  if (o->kind == OP_RECORD) {
    if (o->record > o->event->reached) o->event->reached = o->record;
    o->event->ns = now_ns();
  }
}

static void free_op(op *o) {
  event_drop(o->event);
  free(o->staged);
  free(o);
}

static bool before(const standin_queue *q, uint64_t seq) {
  return q->here && q->first != NULL && q->first->seq < seq;
}

static bool runnable(const standin_queue *q) {
  const op *o = q->first;
  if (!q->here || o == NULL || q->running || standin_held()) return false;
  if (o->kind == OP_WAIT && o->event->reached < o->record) return false;
  for (int i = 0; i < queue_top; i++) {
    const standin_queue *other = &queues[i];
    if (other == q || other->context != q->context || !before(other, o->seq)) continue;
    if (o->after_all || (q->legacy && other->blocking) || (q->blocking && other->legacy))
      return false;
  }
  return true;
}

static standin_queue *pick(void) {
  standin_queue *found = NULL;
  uint64_t count = 0;
  for (int i = 0; i < queue_top; i++)
    if (runnable(&queues[i]) && draw() % ++count == 0) found = &queues[i];
  return found;
}

/* Waits a random time: a device is sometimes fast, sometimes slow; half of the operations follow
 * immediately. */
static void dawdle(uint64_t chance) {
  if (chance % 2 == 0) return;
  if (chance % 8 < 6)
    sched_yield();
  else
    nanosleep(&(struct timespec){.tv_nsec = (long)(chance >> 8) % 150000}, NULL);
}

static void run_first(standin_queue *q) {
  op *o = q->first;
  uint64_t chance = draw();
  q->running = true;
  q->range_count = 0;
  pthread_mutex_unlock(&standin_mutex);
  dawdle(chance);
  pthread_mutex_lock(&standin_mutex);
  if (o->kind <= OP_SET) {
    int direct = ranges_of(o, false, q->ranges);
    for (int i = 0; i < direct; i++) check_reachable(o, &q->ranges[i]);
    q->range_count = ranges_of(o, true, q->ranges);
    for (int i = direct; i < q->range_count; i++) check_reachable(o, &q->ranges[i]);
    pthread_mutex_unlock(&standin_mutex);
    run_now(o);
    dawdle(chance >> 3);
    pthread_mutex_lock(&standin_mutex);
  }
  finish(o);
  q->first = o->next;
  if (q->first == NULL) q->last = NULL;
  q->running = false;
  q->range_count = 0;
  free_op(o);
  if (q->gone && q->first == NULL) q->here = false;
  pthread_cond_broadcast(&changed);
}

static void *work(void *nothing) {
  pthread_mutex_lock(&standin_mutex);
  for (;;) {
    standin_queue *q = pick();
    if (q == NULL)
      pthread_cond_wait(&changed, &standin_mutex);
    else
      run_first(q);
  }
  return nothing;
}

void queue_start(void) {
  const char *text = getenv("STANDIN_ASYNC");
  if (text == NULL || beside) return;
  seed = strtoull(text, NULL, 10) * 2 + 0x9e3779b97f4a7c15u;
  beside = true;
  for (int i = 0; i < WORKERS; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, NULL) == 0) pthread_detach(thread);
  }
}

void queue_wake(void) {
  pthread_cond_broadcast(&changed);
}

/* ---- queues ---- */

standin_queue *queue_new(cu_context context, bool blocking) {
  for (int i = 0; i < QUEUES_MAX; i++) {
    if (queues[i].here) continue;
    queues[i].here = true;
    queues[i].context = context;
    queues[i].blocking = blocking;
    queues[i].legacy = queues[i].gone = queues[i].running = false;
    queues[i].first = queues[i].last = NULL;
    queues[i].graph = NULL;
    queues[i].range_count = 0;
    if (i >= queue_top) queue_top = i + 1;
    return &queues[i];
  }
  fault("has no room for more:", "queues", QUEUES_MAX);
  return NULL;
}

void queue_destroy(standin_queue *q) {
  q->gone = true;
  if (q->first == NULL) q->here = false;
}

standin_queue *queue_of(cu_stream stream, bool per_thread) {
  cu_context context = standin_context();
  uintptr_t number = (uintptr_t)stream;
  if (number > 2) return standin_stream_queue(stream);
  if (number == 2 || (number == 0 && per_thread)) {
    if (own_queue == NULL) own_queue = queue_new(context, true);
    return own_queue;
  }
  for (int i = 0; i < queue_top; i++)
    if (queues[i].here && queues[i].legacy && queues[i].context == context) return &queues[i];
  standin_queue *q = queue_new(context, false);
  q->legacy = true;
  return q;
}

static void append(standin_queue *q, const op *like) {
  op *o = malloc(sizeof *o);
  if (o == NULL) abort();
  *o = *like;
  o->next = NULL;
  o->seq = next_seq++;
  *(q->first == NULL ? &q->first : &q->last->next) = o;
  q->last = o;
  pthread_cond_broadcast(&changed);
}

static void submit(standin_queue *q, const op *o) {
  if (q->graph != NULL) {
    if (q->graph->count == GRAPH_MAX) fault("is too long:", "graph", GRAPH_MAX);
    q->graph->ops[q->graph->count++] = *o;
  } else if (beside)
    append(q, o);
  else {
    /* Copies and fills are atomic with respect to calls of other threads. */
    if (o->kind == OP_KERNEL) {
      pthread_mutex_unlock(&standin_mutex);
      run_now(o);
      pthread_mutex_lock(&standin_mutex);
    } else if (o->kind == OP_SET)
      memset((void *)(uintptr_t)o->to, o->value, o->bytes);
    else if (o->kind == OP_COPY && !move_sparse(o->to, o->from, o->bytes, true))
      memcpy((void *)(uintptr_t)o->to, (const void *)(uintptr_t)o->from, o->bytes);
    finish(o);
    event_drop(o->event);
    free(o->staged);
  }
}

void queue_kernel(standin_queue *q, const standin_kernel *kernel, const uint64_t *arguments,
                  unsigned grid_x, unsigned grid_y) {
  op o = {.kind = OP_KERNEL, .kernel = kernel, .grid_x = grid_x, .grid_y = grid_y};
  memcpy(o.arguments, arguments, sizeof o.arguments);
  submit(q, &o);
}

void queue_copy(standin_queue *q, uint64_t to, uint64_t from, uint64_t bytes) {
  op o = {.kind = OP_COPY, .to = to, .from = from, .bytes = bytes};
  uint64_t end;
  if (beside && standin_place(from, &end) == 0) {
    o.staged = malloc(bytes);
    if (o.staged == NULL) abort();
    memcpy(o.staged, (const void *)(uintptr_t)from, bytes);
  }
  submit(q, &o);
  if (beside && q->graph == NULL && standin_place(to, &end) == 0) queue_sync(q);
}

void queue_set(standin_queue *q, uint64_t to, unsigned char value, uint64_t bytes) {
  submit(q, &(op){.kind = OP_SET, .to = to, .value = value, .bytes = bytes});
}

void queue_record(standin_queue *q, standin_event *event) {
  if (q->graph != NULL) return;
  event->users++;
  submit(q, &(op){.kind = OP_RECORD, .event = event, .record = ++event->recorded});
}

void queue_record_all(cu_context context, standin_event *event) {
  standin_queue *q = queue_new(context, false);
  event->users++;
  submit(q,
         &(op){.kind = OP_RECORD, .after_all = true, .event = event, .record = ++event->recorded});
  queue_destroy(q);
}

void queue_wait_event(standin_queue *q, standin_event *event) {
  if (q->graph != NULL || event->reached >= event->recorded) return;
  event->users++;
  submit(q, &(op){.kind = OP_WAIT, .event = event, .record = event->recorded});
}

/* ---- waiting ---- */

static bool any_before(const standin_queue *q, cu_context context, uint64_t seq) {
  for (int i = 0; i < queue_top; i++)
    if ((q == NULL || &queues[i] == q) && (context == NULL || queues[i].context == context) &&
        before(&queues[i], seq))
      return true;
  return false;
}

void queue_sync(const standin_queue *q) {
  uint64_t seq = next_seq;
  while (any_before(q, NULL, seq)) pthread_cond_wait(&changed, &standin_mutex);
}
void queue_sync_context(cu_context context) {
  uint64_t seq = next_seq;
  while (any_before(NULL, context, seq)) pthread_cond_wait(&changed, &standin_mutex);
}
void queue_sync_event(const standin_event *event) {
  uint64_t record = event->recorded;
  while (event->reached < record) pthread_cond_wait(&changed, &standin_mutex);
}

/* ---- graphs ---- */

/* Graphs are never freed. The list holds those that the program has dropped, so that a sanitizer
 * does not report them. */
static standin_graph *all_graphs;

standin_graph *graph_new(void) {
  standin_graph *graph = calloc(1, sizeof *graph);
  if (graph == NULL) abort();
  graph->next = all_graphs;
  return all_graphs = graph;
}

void queue_capture(standin_queue *q, standin_graph *graph) {
  q->graph = graph;
}

void graph_launch(standin_queue *q, const standin_graph *graph) {
  for (int i = 0; i < graph->count; i++) {
    op o = graph->ops[i];
    if (o.staged != NULL) {
      o.staged = malloc(o.bytes);
      if (o.staged == NULL) abort();
      memcpy(o.staged, graph->ops[i].staged, o.bytes);
    }
    submit(q, &o);
  }
}

int graph_nodes(standin_graph *graph, void **nodes) {
  for (int i = 0; nodes != NULL && i < graph->count; i++) nodes[i] = &graph->ops[i];
  return graph->count;
}

const standin_kernel *graph_node(void *node, uint64_t **arguments, uint64_t *to, uint64_t *from) {
  op *o = node;
  *arguments = o->arguments;
  *to = o->to;
  *from = o->kind == OP_COPY ? o->from : 0;
  return o->kind == OP_KERNEL ? o->kernel : NULL;
}
