/* The public recording: opening, making, facts, saving. */
#include "recordings/recording_api.h"

#include <stdlib.h>
#include <string.h>

#include "base/growing.h"
#include "recordings/recording_file.h"

/* 16 GiB of tables hold five hundred million events. */
#define RECORD_BYTES_MAX (UINT64_C(16) << 30)

static stow_status new_recording(stow_recording **out, const char *path, uint64_t max_bytes) {
  stow_recording *r = calloc(1, sizeof *r);
  char *copy = strdup(path);
  if (r == NULL || copy == NULL) {
    free(r);
    free(copy);
    return stow_fail(STOW_ERR_HOST_MEMORY, "stow_recording: no host memory");
  }
  r->path = copy;
  recording_init(&r->data, max_bytes);
  *out = r;
  return STOW_OK;
}

stow_status stow_recording_open(stow_recording **out, const char *path,
                                const stow_recording_options *given) {
  if (out == NULL) return stow_fail(STOW_ERR_INVALID, "stow_recording_open: recording is NULL");
  *out = NULL;
  if (path == NULL) return stow_fail(STOW_ERR_INVALID, "stow_recording_open: path is NULL");
  stow_recording_options options = STOW_RECORDING_OPTIONS_INIT;
  STOW_TRY(growing_read(&options, sizeof options, given, "stow_recording_options"));
  stow_recording *r;
  STOW_TRY(new_recording(&r, path, options.max_bytes != 0 ? options.max_bytes : RECORD_BYTES_MAX));
  stow_status status = recording_read(&r->data, path, KIND_AUTO, NULL);
  if (status != STOW_OK) {
    stow_recording_close(r);
    return status;
  }
  *out = r;
  return STOW_OK;
}

/* Adds one event of stow_recording_make. Its index is its time. */
static stow_status add_record(recording *r, const stow_trace_record *given, uint64_t index) {
  if (given->kind > STOW_TRACE_FREE)
    return stow_fail(STOW_ERR_INVALID,
                     "stow_recording_make: event %llu: kind %u: only allocations and frees",
                     (unsigned long long)index, given->kind);
  if (given->stack != 0 || given->tag != 0 || given->reserved != 0)
    return stow_fail(STOW_ERR_INVALID,
                     "stow_recording_make: event %llu: stack, tag and reserved must be 0",
                     (unsigned long long)index);
  event e = {.time_ns = index, .addr = given->addr, .bytes = given->bytes, .kind = given->kind & 3};
  origin of = {.stream = given->stream, .device = given->device, .tier = given->tier};
  return recording_add_event(r, &e, &of);
}

stow_status stow_recording_make(stow_recording **out, const stow_trace_record *events,
                                uint64_t count) {
  if (out == NULL) return stow_fail(STOW_ERR_INVALID, "stow_recording_make: recording is NULL");
  *out = NULL;
  if (events == NULL || count == 0)
    return stow_fail(STOW_ERR_INVALID, "stow_recording_make: no events");
  stow_recording *r;
  STOW_TRY(new_recording(&r, "events in memory", RECORD_BYTES_MAX));
  r->data.source = SOURCE_STOW;
  r->data.ended = true;
  stow_status status = STOW_OK;
  for (uint64_t i = 0; i < count && status == STOW_OK; i++)
    status = add_record(&r->data, &events[i], i);
  if (status != STOW_OK) {
    stow_recording_close(r);
    return status;
  }
  *out = r;
  return STOW_OK;
}

void stow_recording_close(stow_recording *r) {
  if (r == NULL) return;
  recording_free(&r->data);
  free(r->path);
  free(r);
}

stow_status stow_recording_get_info(const stow_recording *r, stow_recording_info *info) {
  if (r == NULL) return stow_fail(STOW_ERR_INVALID, "stow_recording_get_info: recording is NULL");
  const recording *data = &r->data;
  stow_recording_info full = {
      .struct_bytes = sizeof full,
      .complete = data->ended,
      .events = data->event_count,
      .skipped_events = data->skipped_events,
      .damaged_chunks = data->damaged_chunks,
      .device_bytes = data->device_bytes,
      .device_name = recording_text(data, data->device_name_id),
      .error = recording_text(data, data->error_id),
  };
  for (size_t i = 0; i < data->event_count; i++)
    if (data->events[i].kind == EVENT_FAIL) full.failures++;
  return growing_write(info, &full, sizeof full, "stow_recording_info");
}

stow_status stow_recording_save(const stow_recording *r, const char *path) {
  if (r == NULL || path == NULL)
    return stow_fail(STOW_ERR_INVALID, "stow_recording_save: recording or path is NULL");
  recording_kind kind = recording_kind_of_path(path);
  if (kind == KIND_AUTO)
    return stow_fail(
        STOW_ERR_INVALID,
        "stow_recording_save: %s: unknown ending; write .stow, .pickle, .json, .csv or "
        ".tfevents",
        path);
  return recording_write(&r->data, path, kind, NULL);
}
