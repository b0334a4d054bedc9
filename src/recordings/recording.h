/* Recording: a trace in memory. Readers fill it; writers, replay and reports use it.
 *
 * Plain data that depends only on base/, so all of this runs without any device. Times are in
 * nanoseconds, sizes in bytes. A number called "…_id" is a 1-based index into a table of the
 * recording; 0 means none or unknown.
 *
 *   events   what happened, in order                    names    every text, once
 *   origins  (stream, thread, tag, device, tier), once each: whose event it was
 *   stacks   runs of frame ids, innermost first         frames   (function, file, line), once each
 *   segments the state at the end, with their blocks    settings the allocator's settings
 *   facts    about the process, the device and the clock (keys: docs/trace-format.md)
 *
 * Settings and facts are pairs of text. Numbers and booleans are written as Python prints them, a
 * nested setting as "[256:1,512:2]". */
#ifndef RECORDINGS_RECORDING_H
#define RECORDINGS_RECORDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"
#include "trace/event.h"

typedef struct setting {
  uint32_t key_id, value_id; /* names; numbers and booleans as Python prints them */
} setting;

typedef enum recording_source {
  SOURCE_UNKNOWN = 0,
  SOURCE_TORCH, /* a PyTorch memory snapshot */
  SOURCE_STOW,
  SOURCE_RMM,
  SOURCE_MINIMALLOC,
} recording_source;

typedef struct recording {
  event *events;
  size_t event_count, event_capacity;
  origin *origins;
  size_t origin_count, origin_capacity;
  intern names;
  frame *frames;
  size_t frame_count, frame_capacity;
  stack *stacks;
  size_t stack_count, stack_capacity;
  uint32_t *stack_frames; /* frame ids */
  size_t stack_frame_count, stack_frame_capacity;
  segment *segments;
  size_t segment_count, segment_capacity;
  block *blocks;
  size_t block_count, block_capacity;
  setting *settings;
  size_t setting_count, setting_capacity;
  setting *facts;
  size_t fact_count, fact_capacity;
  recording_source source;
  uint32_t error_id;       /* the error text recorded with it */
  uint32_t device_name_id; /* the device, if known */
  uint64_t device_bytes;   /* size of the device; 0: unknown */
  uint64_t max_bytes;      /* budget for all of the above; 0: no bound. Above it: STOW_ERR_BUDGET */
  uint64_t held_bytes;     /* current size of the tables */
  /* Counts of what was skipped, for the report. */
  uint64_t skipped_events; /* entries that could not be parsed or were lost before the file */
  uint64_t unknown_fields; /* distinct unknown field names */
  uint64_t unknown_frees;  /* frees of blocks whose allocation was not seen, if the reader can
                            * detect them */
  uint64_t bad_values;     /* values of the wrong type, negative, or out of range */
  uint64_t torn_bytes;     /* at the end of a file whose writer was interrupted */
  uint64_t damaged_chunks; /* chunks of a .stow file that were dropped; the rest was used */
  bool ended;              /* the writer finished (false only for a .stow file) */
  map origin_index, frame_index, stack_index; /* hash of content → id, for interning */
  uint64_t seed;        /* seed of those hashes, random so that collisions cannot be crafted */
  uint32_t origin_last; /* the last result: the next lookup is usually the same */
} recording;

/* recording_init zeroes the recording. recording_free frees it and leaves it zeroed (keeps
 * max_bytes). */
void recording_init(recording *r, uint64_t max_bytes);
void recording_free(recording *r);

/* Append functions. Each fails only for memory or budget and then leaves the recording
 * unchanged. */
/* Adds an event. `of` is its origin; NULL if origin_id is already set. */
stow_status recording_add_event(recording *r, const event *e, const origin *of);
stow_status recording_add_segment(recording *r, const segment *s);
stow_status recording_add_block(recording *r, const block *b);
stow_status recording_add_setting(recording *r, const char *key, const char *value);
stow_status recording_add_fact(recording *r, const char *key, const char *value);
/* Interns an origin: equal contents get the same ID. */
stow_status recording_origin(recording *r, uint32_t *id, const origin *of);
stow_status recording_name(recording *r, uint32_t *id, const char *bytes, size_t count);
stow_status recording_frame(recording *r, uint32_t *id, uint32_t name_id, uint32_t file_id,
                            uint32_t line);
stow_status recording_stack(recording *r, uint32_t *id, const uint32_t *frame_ids, uint32_t count);

/* Sorts the events by time, at equal times by thread. Costs one scan if they are sorted. */
void recording_sort(recording *r);

/* Returns the event's origin. */
static inline const origin *event_origin(const recording *r, const event *e) {
  return &r->origins[e->origin_id - 1];
}

/* Returns "" for id 0 or past the end. */
const char *recording_text(const recording *r, uint32_t name_id);
/* Returns NULL if the key was not set. */
const char *recording_setting(const recording *r, const char *key);
const char *recording_fact(const recording *r, const char *key);
/* Returns the name ID of the value added last for `key`; 0 if there is none. */
uint32_t recording_fact_id(const recording *r, const char *key);
/* The fact that describes what a Python program was doing when it ran out of memory
 * (advise/program.h). */
#define RECORDING_PROGRAM "program"

#endif
