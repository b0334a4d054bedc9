/* Author: recordings made by hand, event by event. */
#ifndef TESTS_ADVISE_AUTHOR_H
#define TESTS_ADVISE_AUTHOR_H

#include "advise/explain.h"
#include "harness.h"

/* A recording in the making. Addresses are used once. */
typedef struct author {
  recording r;
  uint64_t next;
} author;

static inline uint32_t line_stack(author *a, const char *file, uint32_t line) {
  uint32_t name_id, file_id, frame_id, stack_id;
  CHECK_OK(recording_name(&a->r, &name_id, "main", 4));
  CHECK_OK(recording_name(&a->r, &file_id, file, strlen(file)));
  CHECK_OK(recording_frame(&a->r, &frame_id, name_id, file_id, line));
  CHECK_OK(recording_stack(&a->r, &stack_id, &frame_id, 1));
  return stack_id;
}

static inline void add_event(author *a, event_kind kind, uint64_t addr, uint64_t bytes,
                             uint32_t stack_id) {
  event e = {.kind = (uint8_t)kind, .addr = addr, .bytes = bytes, .stack_id = stack_id};
  CHECK_OK(recording_add_event(&a->r, &e, &(origin){0}));
}

static inline uint64_t take(author *a, uint64_t bytes, uint32_t line) {
  uint64_t addr = a->next;
  a->next += (bytes + 511) / 512 * 512;
  add_event(a, EVENT_ALLOC, addr, bytes, line_stack(a, "train.py", line));
  return addr;
}

static inline void give(author *a, uint64_t addr, uint64_t bytes) {
  add_event(a, EVENT_FREE, addr, bytes, 0);
}

typedef struct frame_text {
  const char *name, *file;
  uint32_t line;
} frame_text;

/* Adds a stack, innermost frame first. */
static inline uint32_t frames_stack(author *a, const frame_text *frames, size_t count) {
  uint32_t ids[8], name_id, file_id, stack_id;
  CHECK(count <= 8);
  for (size_t i = 0; i < count; i++) {
    CHECK_OK(recording_name(&a->r, &name_id, frames[i].name, strlen(frames[i].name)));
    CHECK_OK(recording_name(&a->r, &file_id, frames[i].file, strlen(frames[i].file)));
    CHECK_OK(recording_frame(&a->r, &ids[i], name_id, file_id, frames[i].line));
  }
  CHECK_OK(recording_stack(&a->r, &stack_id, ids, count));
  return stack_id;
}

#define MODULE     "site-packages/torch/nn/modules/module.py"
#define LINEAR     "site-packages/torch/nn/modules/linear.py"
#define CONTAINER  "site-packages/torch/nn/modules/container.py"
#define LAYERS     8
#define LAYER_SIZE (UINT64_C(32) << 20)

/* Returns the stack that all layers of a Sequential share. */
static inline uint32_t layer_stack(author *a, uint32_t line) {
  const frame_text frames[] = {{"forward", LINEAR, 134},
                               {"_call_impl", MODULE, 1786},
                               {"forward", CONTAINER, 253},
                               {"_call_impl", MODULE, 1786},
                               {"main", "train.py", line}};
  return frames_stack(a, frames, sizeof frames / sizeof *frames);
}

static inline uint64_t take_at(author *a, uint64_t bytes, uint32_t stack_id) {
  uint64_t addr = a->next;
  a->next += (bytes + 511) / 512 * 512;
  add_event(a, EVENT_ALLOC, addr, bytes, stack_id);
  return addr;
}

static inline void build_layers(author *a, uint32_t count) {
  const frame_text frames[] = {{"__init__", LINEAR, 110}, {"main", "train.py", 3}};
  uint32_t stack_id = frames_stack(a, frames, 2);
  for (uint32_t i = 0; i < count; i++) {
    take_at(a, 16 << 20, stack_id);
    take_at(a, 8192, stack_id);
  }
}

#endif
