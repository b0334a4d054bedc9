/* Compares two recordings by content, not by ids. */
#ifndef RECORDINGS_SAME_H
#define RECORDINGS_SAME_H

#include "harness.h"
#include "recordings/recording.h"

static inline void check_same_stack(const recording *a, uint32_t a_id, const recording *b,
                                    uint32_t b_id) {
  CHECK((a_id == 0) == (b_id == 0));
  if (a_id == 0) return;
  const stack *s = &a->stacks[a_id - 1], *t = &b->stacks[b_id - 1];
  CHECK_U64(s->count, t->count);
  for (uint32_t i = 0; i < s->count; i++) {
    const frame *f = &a->frames[a->stack_frames[s->first + i] - 1];
    const frame *g = &b->frames[b->stack_frames[t->first + i] - 1];
    CHECK_TEXT(recording_text(a, f->name_id), recording_text(b, g->name_id));
    CHECK_TEXT(recording_text(a, f->file_id), recording_text(b, g->file_id));
    CHECK_U64(f->line, g->line);
  }
}

static inline void check_same_events(const recording *a, const recording *b) {
  CHECK_U64(a->event_count, b->event_count);
  for (size_t i = 0; i < a->event_count; i++) {
    const event *e = &a->events[i], *f = &b->events[i];
    CHECK(e->time_ns == f->time_ns && e->addr == f->addr && e->bytes == f->bytes);
    const origin *x = event_origin(a, e), *y = event_origin(b, f);
    CHECK(x->stream == y->stream && x->thread == y->thread && x->device == y->device);
    CHECK(e->kind == f->kind && x->tier == y->tier);
    CHECK_TEXT(recording_text(a, x->tag_id), recording_text(b, y->tag_id));
    check_same_stack(a, e->stack_id, b, f->stack_id);
  }
}

static inline void check_same_segments(const recording *a, const recording *b) {
  CHECK_U64(a->segment_count, b->segment_count);
  for (size_t i = 0; i < a->segment_count; i++) {
    const segment *s = &a->segments[i], *t = &b->segments[i];
    CHECK(s->addr == t->addr && s->bytes == t->bytes && s->stream == t->stream);
    CHECK(s->pool[0] == t->pool[0] && s->pool[1] == t->pool[1] && s->device == t->device);
    CHECK(s->small == t->small && s->expandable == t->expandable);
    CHECK_U64(s->block_count, t->block_count);
    check_same_stack(a, s->stack_id, b, t->stack_id);
    for (uint32_t k = 0; k < s->block_count; k++) {
      const block *x = &a->blocks[s->first_block + k], *y = &b->blocks[t->first_block + k];
      CHECK(x->addr == y->addr && x->bytes == y->bytes && x->state == y->state);
      CHECK_U64(x->requested_bytes, y->requested_bytes);
      check_same_stack(a, x->stack_id, b, y->stack_id);
    }
  }
}

static inline void check_same_settings(const recording *a, const recording *b) {
  CHECK_U64(a->setting_count, b->setting_count);
  for (size_t i = 0; i < a->setting_count; i++)
    CHECK_TEXT(recording_text(a, a->settings[i].value_id),
               recording_setting(b, recording_text(a, a->settings[i].key_id)));
}

#endif
