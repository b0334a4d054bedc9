/* Streams: a small table. See streams.h. */
#include "shim/streams.h"

#include <stddef.h>
#include <stdint.h>

#include "base/assert.h"
#include "shim/gate.h"
#include "shim/shim.h"

enum { STREAMS_MAX = 64, MARKS_MAX = 64 };

typedef struct entry {
  cu_stream stream;           /* NULL: the default one of `context` */
  cu_context context;         /* NULL: the entry is free */
  cu_event events[MARKS_MAX]; /* one per mark that is pending; NULL: not created yet */
  uint64_t pending;           /* bit i: events[i] has been recorded and not been reached */
  bool used;                  /* work was submitted since the last mark */
  bool gone;                  /* destroyed: only its events are waited for */
} entry;

static entry table[STREAMS_MAX];
static size_t count;                    /* entries in use are below it */
static size_t latest;                   /* most calls use the same stream */
static bool lost = true;                /* nothing is known about earlier work */
static uint64_t marked = 1, passed = 1; /* the last mark, and the last one that was reached */
static uint64_t base;                   /* the mark that uses the first event */

static cu_context current(void) {
  cu_context context = NULL;
  return shim_driver()->cuCtxGetCurrent(&context) == CU_OK ? context : NULL;
}

static bool is(const entry *e, cu_stream stream, cu_context context) {
  return e->context != NULL && !e->gone && e->stream == stream &&
         (stream != NULL || e->context == context);
}

void streams_used(cu_stream stream) {
  ASSERT(count <= STREAMS_MAX);
  cu_context context = stream == NULL || count == 0 ? current() : NULL;
  if (latest < count && is(&table[latest], stream, context)) {
    table[latest].used = true;
    return;
  }
  size_t free_slot = count;
  for (size_t i = 0; i < count; i++) {
    if (is(&table[i], stream, context)) {
      latest = i;
      table[i].used = true;
      return;
    }
    if (table[i].context == NULL) free_slot = i;
  }
  if (context == NULL) context = current();
  cu_event event;
  if (free_slot == STREAMS_MAX || context == NULL ||
      shim_driver()->cuEventCreate(&event, CU_EVENT_NO_TIMING) != CU_OK) {
    lost = true;
    return;
  }
  table[free_slot] = (entry){.stream = stream, .context = context, .events = {event}, .used = true};
  if (free_slot == count) count++;
  latest = free_slot;
}

static unsigned index_of(uint64_t mark) {
  ASSERT(mark >= base);
  return (unsigned)((mark - base) % MARKS_MAX);
}

/* Returns the index of the events of a new mark, or of the last one if too many are pending. */
static unsigned begin_mark(void) {
  ASSERT(passed <= marked);
  if (passed == marked) base = marked + 1; /* so that rare marks need few events */
  if (marked - passed < MARKS_MAX) marked++;
  return index_of(marked);
}

/* Records an event, for which its context must be current. A call that we have seen but that has
 * not reached the driver comes after the event, so its stream is still in use. */
static cu_result record(entry *e, unsigned index) {
  ASSERT(e->context != NULL && !e->gone);
  const cuda_driver *driver = shim_driver();
  cu_context here = current(), old;
  bool more_comes = gate_pending(); /* checked before the event is recorded */
  cu_result code = here == e->context ? CU_OK : driver->cuCtxPushCurrent_v2(e->context);
  if (code != CU_OK) return code;
  if (e->events[index] == NULL) code = driver->cuEventCreate(&e->events[index], CU_EVENT_NO_TIMING);
  if (code == CU_OK) code = driver->cuEventRecord(e->events[index], e->stream);
  if (here != e->context) driver->cuCtxPopCurrent_v2(&old);
  if (code == CU_OK) {
    e->pending |= UINT64_C(1) << index;
    e->used = more_comes;
  }
  return code;
}

uint64_t streams_mark(void) {
  bool begun = false;
  unsigned index = 0;
  for (size_t i = 0; i < count; i++) {
    if (table[i].context == NULL || !table[i].used) continue;
    if (!begun) index = begin_mark();
    begun = true;
    if (record(&table[i], index) != CU_OK) return 0;
  }
  return marked;
}

static void forget(entry *e) {
  ASSERT(e->pending == 0 && !e->used);
  for (int i = 0; i < MARKS_MAX; i++)
    if (e->events[i] != NULL) shim_driver()->cuEventDestroy_v2(e->events[i]);
  *e = (entry){.context = NULL};
}

cu_result streams_passed(uint64_t mark) {
  ASSERT(mark <= marked);
  for (; passed < mark; passed++) {
    unsigned index = index_of(passed + 1);
    uint64_t bit = UINT64_C(1) << index;
    for (size_t i = 0; i < count; i++) {
      entry *e = &table[i];
      if (e->context == NULL || !(e->pending & bit)) continue;
      cu_result code = shim_driver()->cuEventQuery(e->events[index]);
      if (code != CU_OK) return code;
      e->pending &= ~bit;
      if (e->gone && e->pending == 0) forget(e);
    }
  }
  return CU_OK;
}

uint64_t streams_last_passed(void) {
  streams_passed(marked);
  return passed;
}

void streams_destroyed(cu_stream stream) {
  for (size_t i = 0; i < count; i++) {
    entry *e = &table[i];
    if (stream == NULL || !is(e, stream, NULL)) continue;
    if (e->used && record(e, begin_mark()) != CU_OK) lost = true;
    e->gone = true;
    e->used = false; /* no call to it can come */
    if (e->pending == 0) forget(e);
  }
}

void streams_context_ended(cu_context context) {
  lost = true; /* for all streams, because it is unknown which */
  for (size_t i = 0; i < count; i++)
    if (context == NULL || table[i].context == context) table[i] = (entry){.context = NULL};
}

bool streams_lost(void) {
  return lost;
}

void streams_found(void) {
  lost = false;
}

void streams_lose(void) {
  lost = true;
}

static void after_fork(void) {
  for (size_t i = 0; i < STREAMS_MAX; i++) table[i] = (entry){.context = NULL};
  count = 0;
  marked = passed = 1;
  lost = true;
}
SHIM_AFTER_FORK(after_fork);
