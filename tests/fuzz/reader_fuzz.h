/* Runs one input through a reader of recordings. Whatever it returns must be consistent, and must
 * be rebuilt, written (choice.h) and read back with the same number of events. */
#ifndef READER_FUZZ_H
#define READER_FUZZ_H

#include <stdlib.h>

#include "base/buffer.h"
#include "fuzz/choice.h"
#include "recordings/recording_file.h"
#include "recordings/recording_write.h"
#include "recordings/stow_recording.h"
#include "replay/initial.h"

enum { FUZZ_WRITERS = 5 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void fuzz_insist(bool so) {
  if (!so) abort();
}

/* Checks that every ID and range points into its table. */
static inline void fuzz_check(const recording *r) {
  for (size_t i = 0; i < r->event_count; i++) {
    const event *e = &r->events[i];
    fuzz_insist(e->kind < EVENT_KIND_COUNT && e->stack_id <= r->stack_count);
    fuzz_insist(e->origin_id > 0 && e->origin_id <= r->origin_count);
    const origin *of = event_origin(r, e);
    fuzz_insist(of->tier < 3 && of->tag_id <= r->names.count);
  }
  for (size_t i = 0; i < r->stack_count; i++)
    fuzz_insist(r->stacks[i].first + r->stacks[i].count <= r->stack_frame_count);
  for (size_t i = 0; i < r->stack_frame_count; i++)
    fuzz_insist(r->stack_frames[i] <= r->frame_count);
  for (size_t i = 0; i < r->frame_count; i++)
    fuzz_insist(r->frames[i].name_id <= r->names.count && r->frames[i].file_id <= r->names.count);
  for (size_t i = 0; i < r->segment_count; i++)
    fuzz_insist(r->segments[i].first_block + r->segments[i].block_count <= r->block_count);
}

static inline void fuzz_initial(const recording *r) {
  initial_state s;
  if (recording_initial_state(&s, r) != STOW_OK) return;
  for (size_t i = 0; i < s.segment_count; i++) {
    uint64_t at = s.segments[i].addr;
    for (uint32_t k = 0; k < s.segments[i].block_count; k++) {
      const block *b = &s.blocks[s.segments[i].first_block + k];
      fuzz_insist(b->addr == at);
      at += b->bytes;
    }
    fuzz_insist(at == s.segments[i].addr + s.segments[i].bytes);
  }
  initial_state_free(&s);
}

static inline stow_status fuzz_sink(void *context, const void *bytes, size_t count) {
  return buffer_append(context, bytes, count);
}

static inline void fuzz_round_trip(const recording *r) {
  buffer file = BUFFER_INIT;
  recording again;
  input in;
  recording_init(&again, 0);
  fuzz_insist(recording_write_stow(r, fuzz_sink, &file) == STOW_OK);
  fuzz_insist(input_open_memory(&in, file.data, file.length, "again", NULL) == STOW_OK);
  fuzz_insist(recording_read_input(&again, &in, KIND_STOW, 0) == STOW_OK);
  fuzz_insist(again.event_count == r->event_count && again.segment_count == r->segment_count);
  fuzz_insist(again.damaged_chunks == 0 && again.torn_bytes == 0 && again.ended);
  input_close(&in);
  recording_free(&again);
  buffer_free(&file);
}

/* Runs one writer into memory; a snapshot must read back. */
static inline void fuzz_writer(const recording *r, unsigned which) {
  stow_status (*const writers[])(const recording *, outfile *, uint64_t *) = {
      perfetto_write, pftrace_write, tensorboard_write, csv_trace_write, torch_snapshot_write};
  char *bytes = NULL;
  size_t count = 0;
  uint64_t left_out;
  outfile out = {.file = open_memstream(&bytes, &count)};
  fuzz_insist(out.file != NULL && which < FUZZ_WRITERS);
  fuzz_insist(writers[which](r, &out, &left_out) == STOW_OK);
  fclose(out.file);
  if (writers[which] == torch_snapshot_write) {
    recording again;
    input in;
    recording_init(&again, 0);
    fuzz_insist(input_open_memory(&in, bytes, count, "again", NULL) == STOW_OK);
    fuzz_insist(recording_read_input(&again, &in, KIND_SNAPSHOT, 0) == STOW_OK);
    fuzz_insist(again.event_count + left_out == r->event_count);
    input_close(&in);
    recording_free(&again);
  }
  free(bytes);
}

/* The limits are small: a memo of 64 MiB costs a thousand other inputs. */
static inline int fuzz_reader(const uint8_t *data, size_t size, recording_kind kind) {
  recording r;
  input in;
  recording_init(&r, UINT64_C(16) << 20);
  input_limits limits = {.max_bytes = UINT64_C(1) << 20};
  if (input_open_memory(&in, data, size, "fuzz", &limits) != STOW_OK) return 0;
  stow_status status = recording_read_input(&r, &in, kind, UINT64_C(1) << 20);
  input_close(&in);
  if (status == STOW_OK) {
    fuzz_check(&r);
    fuzz_initial(&r);
    for (unsigned i = 0; i < FUZZ_WRITERS; i++)
      if (fuzz_does(i, FUZZ_WRITERS + 1, data, size)) fuzz_writer(&r, i);
    if (fuzz_does(FUZZ_WRITERS, FUZZ_WRITERS + 1, data, size)) fuzz_round_trip(&r);
  }
  recording_free(&r);
  return 0;
}

#endif
