/* Writes a whole recording as a .stow file, compressed with zstd. */
#include <stdio.h>
#include <zstd.h>

#include "recordings/stow_recording.h"
#include "trace/stow_file.h"

#define ZSTD_LEVEL 3

static size_t compress(void *state, void *to, size_t to_bytes, const void *raw, size_t raw_bytes) {
  size_t stored = ZSTD_compressCCtx(state, to, to_bytes, raw, raw_bytes, ZSTD_LEVEL);
  return ZSTD_isError(stored) ? 0 : stored;
}

/* Writes what has its own field in the model as facts. */
static void add_fields(stowfile_writer *w, const recording *r) {
  static const char *const sources[] = {"unknown", "torch", "stow", "rmm", "minimalloc"};
  char number[24];
  stowfile_add_fact(w, "source", sources[r->source]);
  if (r->error_id != 0) stowfile_add_fact(w, "error", recording_text(r, r->error_id));
  if (r->device_name_id != 0)
    stowfile_add_fact(w, "device_name", recording_text(r, r->device_name_id));
  if (r->device_bytes != 0) {
    snprintf(number, sizeof number, "%llu", (unsigned long long)r->device_bytes);
    stowfile_add_fact(w, "device_bytes", number);
  }
}

static void add_tables(stowfile_writer *w, const recording *r) {
  for (size_t i = 0; i < r->fact_count; i++)
    stowfile_add_fact(w, recording_text(r, r->facts[i].key_id),
                      recording_text(r, r->facts[i].value_id));
  for (size_t i = 0; i < r->setting_count; i++)
    stowfile_add_setting(w, recording_text(r, r->settings[i].key_id),
                         recording_text(r, r->settings[i].value_id));
  for (uint32_t i = 0; i < r->names.count; i++) {
    size_t count;
    const char *text = intern_get(&r->names, i, &count);
    stowfile_add_name(w, text, count);
  }
  for (size_t i = 0; i < r->frame_count; i++) stowfile_add_frame(w, &r->frames[i]);
  for (size_t i = 0; i < r->stack_count; i++)
    stowfile_add_stack(w, r->stacks[i].count > 0 ? r->stack_frames + r->stacks[i].first : NULL,
                       r->stacks[i].count);
}

stow_status recording_write_stow(const recording *r, stowfile_sink sink, void *context) {
  stowfile_writer w;
  stowfile_codec codec = {ZSTD_createCCtx(), ZSTD_compressBound, compress};
  if (codec.state == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to write a trace");
  stow_status status = stowfile_begin(&w, sink, context, &codec);
  if (status == STOW_OK) {
    add_fields(&w, r);
    add_tables(&w, r);
    for (size_t i = 0; i < r->event_count; i++)
      stowfile_add_event(&w, &r->events[i], event_origin(r, &r->events[i]));
    for (size_t i = 0; i < r->segment_count; i++) {
      const segment *s = &r->segments[i];
      stowfile_add_segment(&w, s, s->block_count > 0 ? r->blocks + s->first_block : NULL);
    }
    status = stowfile_end(&w, r->skipped_events);
  }
  stowfile_free(&w);
  ZSTD_freeCCtx(codec.state);
  return status;
}
