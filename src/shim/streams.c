/* Streams: a small table. See streams.h. */
#include "shim/streams.h"

#include <stddef.h>
#include <stdint.h>

#include "base/assert.h"
#include "shim/gate.h"
#include "shim/shim.h"

enum { STREAMS_MAX = 64 };

typedef struct entry {
  cu_stream stream;   /* NULL: the default one of `context` */
  cu_context context; /* NULL: the entry is free */
  cu_event event;
  bool used;    /* work was submitted since the last mark */
  bool pending; /* the event has been recorded and not been reached */
  bool gone;    /* destroyed: only its event is waited for */
} entry;

static entry table[STREAMS_MAX];
static size_t count;     /* entries in use are below it */
static size_t latest;    /* most calls use the same stream */
static bool lost = true; /* nothing is known about earlier work */

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
  table[free_slot] = (entry){.stream = stream, .context = context, .event = event, .used = true};
  if (free_slot == count) count++;
  latest = free_slot;
}

/* Records an event, for which its context must be current. A call that we have seen but that has
 * not reached the driver comes after the event, so its stream is still in use. */
static cu_result record(entry *e) {
  ASSERT(e->context != NULL && !e->gone);
  const cuda_driver *driver = shim_driver();
  cu_context here = current(), old;
  bool more_comes = gate_pending(); /* checked before the event is recorded */
  cu_result code = here == e->context ? CU_OK : driver->cuCtxPushCurrent_v2(e->context);
  if (code != CU_OK) return code;
  code = driver->cuEventRecord(e->event, e->stream);
  if (here != e->context) driver->cuCtxPopCurrent_v2(&old);
  if (code == CU_OK) {
    e->pending = true;
    e->used = more_comes;
  }
  return code;
}

bool streams_mark(void) {
  for (size_t i = 0; i < count; i++)
    if (table[i].context != NULL && table[i].used && record(&table[i]) != CU_OK) return false;
  return true;
}

cu_result streams_passed(void) {
  const cuda_driver *driver = shim_driver();
  for (size_t i = 0; i < count; i++) {
    entry *e = &table[i];
    if (e->context == NULL || !e->pending) continue;
    cu_result code = driver->cuEventQuery(e->event);
    if (code != CU_OK) return code;
    e->pending = false;
    if (!e->gone) continue;
    ASSERT(!e->used);
    driver->cuEventDestroy_v2(e->event);
    *e = (entry){.context = NULL};
  }
  return CU_OK;
}

void streams_destroyed(cu_stream stream) {
  for (size_t i = 0; i < count; i++) {
    entry *e = &table[i];
    if (stream == NULL || !is(e, stream, NULL)) continue;
    if (e->used && record(e) != CU_OK) lost = true;
    ASSERT(e->event != NULL);
    e->gone = true;
    e->used = false; /* no call to it can come */
    if (!e->pending) {
      shim_driver()->cuEventDestroy_v2(e->event);
      *e = (entry){.context = NULL};
    }
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
  lost = true;
}
SHIM_AFTER_FORK(after_fork);
