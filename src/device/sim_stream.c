/* Streams and events of the simulated device: simulated time, and the order of work.
 *
 * Time: a stream does its work in sequence, streams run in parallel. So the time at which a stream
 * has finished everything is known when the work is submitted (ready_ns); nothing runs.
 *
 * Order: one vector clock per stream, per recorded event and for the host. Recording copies the
 * stream's clock into the event; waiting on a stream merges it in; a host that waits for an event,
 * or sees it completed, merges its clock. Everything the host submits later is ordered after all it
 * knows. All threads of the process count as one host. The mere passing of time orders nothing:
 * work that happens to be finished, but that nobody queried, can still race.
 *
 * The default stream is a stream like the others and synchronizes with none of them, like a GPU's
 * with the non-blocking streams that stream_create makes. */
#include "base/assert.h"
#include "device/sim_state.h"

#include <stdlib.h>
#include <string.h>

/* ---- clocks ---- */

static stow_status clock_grow(sim_clock *clock, uint32_t count) {
  if (count <= clock->count) return STOW_OK;
  uint64_t *at = realloc(clock->at, count * sizeof *at);
  if (at == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to track the order of %u streams",
                     count);
  memset(at + clock->count, 0, (count - clock->count) * sizeof *at);
  clock->at = at;
  clock->count = count;
  return STOW_OK;
}

static stow_status clock_join(sim_clock *to, const sim_clock *from, bool *changed) {
  ASSERT(to != NULL && from != NULL && changed != NULL);
  STOW_TRY(clock_grow(to, from->count));
  for (uint32_t i = 0; i < from->count; i++) {
    if (from->at[i] <= to->at[i]) continue;
    to->at[i] = from->at[i];
    *changed = true;
  }
  return STOW_OK;
}

/* Records that the host knows all of `clock` to be done. */
static stow_status host_learns(sim *s, const sim_clock *clock) {
  ASSERT(lock_held(&s->lock));
  bool changed = false;
  stow_status status = clock_join(&s->host, clock, &changed);
  if (changed) s->host_version++;
  return status;
}

/* Waits on the host until `until_ns`. */
static void wait_until(sim *s, uint64_t until_ns) {
  ASSERT(lock_held(&s->lock));
  if (until_ns <= s->counts.now_ns) return;
  s->counts.event_waits++;
  s->counts.wait_ns += until_ns - s->counts.now_ns;
  s->counts.now_ns = until_ns;
}

stow_status sim_wait_all(sim *s) {
  ASSERT(lock_held(&s->lock));
  for (uint32_t i = 0; i < s->stream_count; i++) STOW_TRY(host_learns(s, &s->streams[i].clock));
  wait_until(s, s->busy_ns);
  return STOW_OK;
}

/* ---- streams ---- */

static stow_stream stream_handle(const sim *s, uint32_t slot) {
  ASSERT(slot < s->stream_count);
  return (void *)(uintptr_t)((uint64_t)s->streams[slot].generation << 16 | slot);
}

static stow_status stream_find(const sim *s, uint32_t *slot, stow_stream stream) {
  ASSERT(slot != NULL);
  uint64_t handle = (uint64_t)(uintptr_t)stream, at = handle & 0xffff;
  if (stream == NULL) {
    *slot = 0;
    return STOW_OK;
  }
  if (at == 0 || at >= s->stream_count || !s->streams[at].live ||
      s->streams[at].generation != handle >> 16)
    return stow_fail(STOW_ERR_STATE,
                     "stream %p is not a live stream of this simulated device; it was destroyed, "
                     "or belongs to another device",
                     stream);
  *slot = (uint32_t)at;
  return STOW_OK;
}

stow_status sim_stream_slot(sim *s, uint32_t *slot, stow_stream stream) {
  ASSERT(lock_held(&s->lock));
  STOW_TRY(stream_find(s, slot, stream));
  sim_stream *found = &s->streams[*slot];
  if (found->host_version == s->host_version) return STOW_OK;
  bool changed = false;
  STOW_TRY(clock_join(&found->clock, &s->host, &changed));
  found->host_version = s->host_version;
  return STOW_OK;
}

/* A slot may be reused once the host knows that all its work is done. Otherwise the work of the new
 * stream could not be distinguished from the old one's. */
static uint32_t stream_free_slot(const sim *s) {
  for (uint32_t i = 1; i < s->stream_count; i++)
    if (!s->streams[i].live && sim_clock_at(&s->host, i) >= s->streams[i].seq) return i;
  return s->stream_count;
}

static stow_status stream_create(sim *s, stow_stream *stream) {
  ASSERT(lock_held(&s->lock));
  if (stream == NULL)
    return stow_fail(STOW_ERR_INVALID, "creating a stream: the result pointer is NULL");
  uint32_t slot = stream_free_slot(s);
  if (slot == SIM_STREAMS_MAX)
    return stow_fail(
        STOW_ERR_DEVICE,
        "the simulated device has %u streams; wait for the work of destroyed ones, or use fewer",
        slot);
  if (slot == s->stream_count) {
    sim_stream *streams = realloc(s->streams, (slot + 1) * sizeof *streams);
    if (streams == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a stream");
    s->streams = streams;
    s->streams[slot] = (sim_stream){0};
  }
  sim_stream *made = &s->streams[slot];
  STOW_TRY(clock_grow(&made->clock, slot + 1)); /* a slot past the count has not been seen */
  if (slot == s->stream_count) s->stream_count++;
  /* The host's clock is merged in at the first use. */
  memset(made->clock.at, 0, made->clock.count * sizeof *made->clock.at);
  made->clock.at[slot] = made->seq;
  made->host_version = 0;
  made->ready_ns = 0;
  made->generation++;
  made->live = true;
  s->streams_live++;
  *stream = stream_handle(s, slot);
  return STOW_OK;
}

stow_status sim_stream_open(sim *s) {
  ASSERT(s->streams == NULL);
  s->streams = calloc(1, sizeof *s->streams);
  if (s->streams == NULL || clock_grow(&s->streams[0].clock, 1) != STOW_OK) {
    free(s->streams);
    s->streams = NULL;
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for the default stream");
  }
  s->streams[0].live = true;
  s->stream_count = 1;
  s->host_version = 1;
  return STOW_OK;
}

void sim_stream_free_all(sim *s) {
  for (uint32_t i = 0; i < s->stream_count; i++) free(s->streams[i].clock.at);
  for (uint32_t i = 0; i < s->event_count; i++) free(s->events[i].clock.at);
  free(s->streams);
  free(s->events);
  free(s->host.at);
}

stow_status sim_stream_create(stow_device *device, stow_stream *stream) {
  sim *s = sim_lock(device);
  return sim_unlock(s, stream_create(s, stream));
}

static stow_status stream_destroy(sim *s, stow_stream stream) {
  ASSERT(lock_held(&s->lock));
  if (stream == NULL) return stow_fail(STOW_ERR_INVALID, "the default stream cannot be destroyed");
  uint32_t slot;
  STOW_TRY(stream_find(s, &slot, stream));
  s->streams[slot].live = false;
  s->streams_live--;
  return STOW_OK;
}

stow_status sim_stream_destroy(stow_device *device, stow_stream stream) {
  sim *s = sim_lock(device);
  return sim_unlock(s, stream_destroy(s, stream));
}

stow_status sim_stream_sync(stow_device *device, stow_stream stream) {
  sim *s = sim_lock(device);
  uint32_t slot;
  stow_status status = stream_find(s, &slot, stream);
  if (status == STOW_OK) status = host_learns(s, &s->streams[slot].clock);
  if (status == STOW_OK) wait_until(s, s->streams[slot].ready_ns);
  return sim_unlock(s, status);
}

/* ---- events ---- */

static stow_event event_handle(const sim *s, uint32_t index) {
  ASSERT(index < s->event_count);
  return (void *)(uintptr_t)((uint64_t)s->events[index].generation << 24 | (index + 1));
}

static stow_status event_find(const sim *s, sim_event **found, stow_event event) {
  ASSERT(found != NULL);
  uint64_t handle = (uint64_t)(uintptr_t)event, at = (handle & 0xffffff) - 1;
  if (event == NULL)
    return stow_fail(STOW_ERR_INVALID, "the event is NULL; pass one from event_create");
  if (at >= s->event_count || !s->events[at].live || s->events[at].generation != handle >> 24)
    return stow_fail(STOW_ERR_STATE,
                     "event %p is not a live event of this simulated device; it was destroyed, or "
                     "belongs to another device",
                     event);
  *found = &s->events[at];
  return STOW_OK;
}

static stow_status event_create(sim *s, stow_event *event) {
  ASSERT(lock_held(&s->lock));
  if (event == NULL)
    return stow_fail(STOW_ERR_INVALID, "creating an event: the result pointer is NULL");
  if (s->event_free == 0 && s->event_count == s->event_capacity) {
    uint32_t capacity = s->event_capacity == 0 ? 64 : s->event_capacity * 2;
    sim_event *events = capacity > 0xffffff ? NULL : realloc(s->events, capacity * sizeof *events);
    if (events == NULL)
      return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %u events; destroy some",
                       s->event_count + 1);
    s->events = events;
    s->event_capacity = capacity;
  }
  uint32_t at;
  if (s->event_free != 0) {
    at = s->event_free - 1;
    s->event_free = s->events[at].next_free;
  } else {
    at = s->event_count++;
    s->events[at] = (sim_event){0};
  }
  sim_event *made = &s->events[at];
  if (made->clock.count > 0) memset(made->clock.at, 0, made->clock.count * sizeof *made->clock.at);
  made->ready_ns = 0;
  made->generation++;
  made->live = true;
  s->events_live++;
  *event = event_handle(s, at);
  return STOW_OK;
}

stow_status sim_event_create(stow_device *device, stow_event *event) {
  sim *s = sim_lock(device);
  return sim_unlock(s, event_create(s, event));
}

stow_status sim_event_destroy(stow_device *device, stow_event event) {
  sim *s = sim_lock(device);
  sim_event *found;
  stow_status status = event_find(s, &found, event);
  if (status == STOW_OK) {
    found->live = false;
    found->next_free = s->event_free;
    s->event_free = (uint32_t)(found - s->events) + 1;
    s->events_live--;
  }
  return sim_unlock(s, status);
}

static stow_status event_record(sim *s, stow_event event, stow_stream stream) {
  ASSERT(lock_held(&s->lock));
  sim_event *found;
  uint32_t slot;
  STOW_TRY(event_find(s, &found, event));
  STOW_TRY(stream_find(s, &slot, stream));
  const sim_stream *from = &s->streams[slot];
  STOW_TRY(clock_grow(&found->clock, from->clock.count));
  for (uint32_t i = 0; i < found->clock.count; i++)
    found->clock.at[i] = sim_clock_at(&from->clock, i);
  found->ready_ns = from->ready_ns;
  return STOW_OK;
}

stow_status sim_event_record(stow_device *device, stow_event event, stow_stream stream) {
  sim *s = sim_lock(device);
  return sim_unlock(s, event_record(s, event, stream));
}

static stow_status stream_wait(sim *s, stow_stream stream, stow_event event) {
  ASSERT(lock_held(&s->lock));
  sim_event *found;
  uint32_t slot;
  STOW_TRY(event_find(s, &found, event));
  STOW_TRY(stream_find(s, &slot, stream));
  bool changed = false;
  STOW_TRY(clock_join(&s->streams[slot].clock, &found->clock, &changed));
  if (found->ready_ns > s->streams[slot].ready_ns) s->streams[slot].ready_ns = found->ready_ns;
  return STOW_OK;
}

stow_status sim_stream_wait(stow_device *device, stow_stream stream, stow_event event) {
  sim *s = sim_lock(device);
  return sim_unlock(s, stream_wait(s, stream, event));
}

stow_status sim_event_query(stow_device *device, stow_event event) {
  sim *s = sim_lock(device);
  sim_event *found;
  stow_status status = event_find(s, &found, event);
  if (status == STOW_OK && found->ready_ns > s->counts.now_ns)
    status = STOW_ERR_NOT_READY; /* not an error, so no message */
  else if (status == STOW_OK)
    status = host_learns(s, &found->clock);
  return sim_unlock(s, status);
}

stow_status sim_event_wait(stow_device *device, stow_event event) {
  sim *s = sim_lock(device);
  sim_event *found;
  stow_status status = event_find(s, &found, event);
  if (status == STOW_OK) status = host_learns(s, &found->clock);
  if (status == STOW_OK) wait_until(s, found->ready_ns);
  return sim_unlock(s, status);
}
