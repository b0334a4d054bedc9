/* Run trace: the recording of one process of a run, from its file and its ring (run_trace.h). */
#include "recordings/run_trace.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/status.h"
#include "recordings/recording_file.h"
#include "recordings/ring_read.h"
#include "run/protocol.h"

stow_status run_trace_file(recording *r, const char *path, recording_kind kind) {
  struct stat info;
  if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
    return stow_fail(STOW_ERR_FORMAT, "%.400s: not a regular file; remove it", path);
  return recording_read(r, path, kind, NULL);
}

stow_status run_trace_read(recording *r, const char *folder, const char *name) {
  char ring[PATH_MAX], file[PATH_MAX];
  struct stat info;
  if (!run_process_path(ring, folder, name, RUN_RING) ||
      !run_process_path(file, folder, name, RUN_STOW))
    return stow_fail(STOW_ERR_IO, "the path of the run's folder is too long: %.200s", folder);
  bool has_file = stat(file, &info) == 0;
  if (!has_file && errno != ENOENT)
    return stow_fail(STOW_ERR_IO, "%s: cannot stat: %s", file, strerror(errno));
  if (has_file) STOW_TRY(run_trace_file(r, file, KIND_STOW));
  /* The ring has what the file does not have yet. */
  return has_file && stat(ring, &info) != 0 && errno == ENOENT ? STOW_OK : ring_read(r, ring);
}

/* ---- joining PyTorch's view ---- */

/* Returns the event at which the view was taken; 0 if there is no common moment. */
static size_t view_moment(const recording *trace) {
  size_t at = trace->event_count;
  bool blocks = false, failed = false;
  while (at > 0 && trace->events[at - 1].kind != EVENT_SNAPSHOT) at--;
  for (size_t i = 0; i < at; i++) {
    blocks = blocks || trace->events[i].kind == EVENT_ALLOC;
    failed = failed || trace->events[i].kind == EVENT_FAIL;
  }
  return blocks && failed ? at - 1 : 0;
}

static uint64_t key_of(uint16_t device, uint64_t addr) {
  return addr ^ (uint64_t)device << 57; /* device addresses have at most 57 bits */
}

/* Finds the events that made what is live at the end, by address. */
static stow_status find_makers(map *makers, const recording *trace) {
  for (size_t i = 0; i < trace->event_count; i++) {
    const event *e = &trace->events[i];
    uint64_t key = key_of(event_origin(trace, e)->device, e->addr);
    if (e->kind == EVENT_ALLOC) STOW_TRY(map_put(makers, key, i));
    if (e->kind == EVENT_FREE) map_remove(makers, key, NULL);
  }
  return STOW_OK;
}

static stow_status join_segment(recording *trace, const recording *view, const segment *from,
                                const map *makers) {
  segment s = *from;
  s.first_block = trace->block_count;
  s.stack_id = 0;
  STOW_TRY(recording_add_segment(trace, &s));
  for (uint32_t i = 0; i < from->block_count; i++) {
    block b = view->blocks[from->first_block + i];
    const uint64_t *made = b.state == BLOCK_FREE ? NULL : map_get(makers, key_of(s.device, b.addr));
    event *maker = made != NULL ? &trace->events[*made] : NULL;
    b.stack_id = maker != NULL ? maker->stack_id : 0;
    /* PyTorch reports rounded sizes to its profiler. */
    if (maker != NULL && b.requested_bytes > 0 && b.requested_bytes < maker->bytes)
      maker->bytes = b.requested_bytes;
    STOW_TRY(recording_add_block(trace, &b));
  }
  return STOW_OK;
}

/* Drops memory that other libraries of the process allocated: it is not in PyTorch's segments. */
static stow_status drop_foreign(recording *trace, const recording *view) {
  map known = {0}; /* segments that stay or are freed later, scanning from the end */
  stow_status status = STOW_OK;
  size_t kept = trace->event_count;
  for (size_t i = 0; status == STOW_OK && i < view->segment_count; i++)
    status = map_put(&known, key_of(view->segments[i].device, view->segments[i].addr), 1);
  for (size_t i = trace->event_count; status == STOW_OK && i > 0; i--) {
    const event *e = &trace->events[i - 1];
    uint64_t key = key_of(event_origin(trace, e)->device, e->addr);
    if (e->kind == EVENT_SEGMENT_FREE) status = map_put(&known, key, 1);
    if (e->kind == EVENT_SEGMENT_ALLOC && !map_remove(&known, key, NULL)) continue;
    trace->events[--kept] = *e;
  }
  map_free(&known);
  if (status != STOW_OK) return status;
  trace->event_count -= kept;
  memmove(trace->events, trace->events + kept, trace->event_count * sizeof *trace->events);
  return STOW_OK;
}

static stow_status join_words(recording *trace, const recording *view) {
  const char *error = recording_text(view, view->error_id);
  const char *said = recording_text(view, recording_fact_id(view, RECORDING_PROGRAM));
  for (size_t i = 0; i < view->setting_count; i++)
    STOW_TRY(recording_add_setting(trace, recording_text(view, view->settings[i].key_id),
                                   recording_text(view, view->settings[i].value_id)));
  if (said[0] != '\0') STOW_TRY(recording_add_fact(trace, RECORDING_PROGRAM, said));
  return error[0] == '\0' ? STOW_OK : recording_name(trace, &trace->error_id, error, strlen(error));
}

stow_status run_trace_join(recording *trace, const recording *view, bool *joined) {
  size_t moment = view_moment(trace);
  map makers = {0};
  *joined = moment > 0 && trace->segment_count == 0;
  if (!*joined) return STOW_OK;
  trace->event_count = moment;
  trace->skipped_events = 0; /* the state at the end covers what the ring has lost */
  stow_status status = drop_foreign(trace, view);
  if (status == STOW_OK) status = find_makers(&makers, trace);
  for (size_t i = 0; status == STOW_OK && i < view->segment_count; i++)
    status = join_segment(trace, view, &view->segments[i], &makers);
  map_free(&makers);
  return status == STOW_OK ? join_words(trace, view) : status;
}
