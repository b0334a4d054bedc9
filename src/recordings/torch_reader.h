/* Torch reader: the state that the files of the snapshot's reader share (torch_snapshot.h). */
#ifndef RECORDINGS_TORCH_READER_H
#define RECORDINGS_TORCH_READER_H

#include "files/pickle.h"
#include "recordings/recording.h"

/* Tags for converted containers. Those with a range have first << 32 | count in `v`. */
enum torch_tag {
  TORCH_FRAME = PICKLE_SINK_FIRST, /* frame id */
  TORCH_STACK,                     /* stack id */
  TORCH_EVENT,                     /* range of events: one, or none if skipped */
  TORCH_EVENTS,                    /* a list of events */
  TORCH_TRACES,                    /* range of torch_reader.traces */
  TORCH_BLOCK,
  TORCH_BLOCKS,
  TORCH_SEGMENT,
  TORCH_SEGMENTS,
  TORCH_NOTE, /* range of torch_reader.notes */
  TORCH_NOTES,
  TORCH_HISTORY,  /* index into torch_reader.histories */
  TORCH_SETTINGS, /* range of torch_reader.pairs */
  TORCH_PAIR,     /* two 32-bit integers: a pool id */
  TORCH_ROOT,
};

static inline uint64_t torch_range(uint64_t first, uint64_t count) {
  return first << 32 | count;
}
static inline size_t range_first(uint64_t range) {
  return (size_t)(range >> 32);
}
static inline size_t range_count(uint64_t range) {
  return (size_t)(range & UINT32_MAX);
}

typedef struct torch_pair {
  uint32_t key; /* string of the machine */
  pickle_value value;
} torch_pair;

typedef struct torch_history { /* a block's history in PyTorch before 2.1 */
  uint32_t stack_id;
  uint64_t bytes;
} torch_history;

/* Recently seen frames: (name, file, line) by the machine's ids. The same few recur in separate
 * dicts. */
#define TORCH_FRAME_CACHE 1024
typedef struct torch_frame {
  uint32_t name, file, line, id; /* id 0: empty */
} torch_frame;

/* A table of `size`-byte elements charged to the machine's budget. */
typedef struct torch_table {
  void *data;
  size_t count, capacity;
} torch_table;

typedef struct torch_reader {
  recording *r;
  pickle_machine machine;
  torch_table traces;    /* uint64_t: a range of events for each device list */
  torch_table notes;     /* event: annotations */
  torch_table pairs;     /* torch_pair */
  torch_table histories; /* torch_history; emptied at each block */
  torch_table names;     /* per string: name id + 1 in the recording, or 0; top bit: unknown,
                          * already counted */
  /* the root's members */
  uint64_t segments, device_traces, annotations, settings; /* ranges */
  bool has_root;
  torch_frame frames[TORCH_FRAME_CACHE];
} torch_reader;

/* Converts a container to one of the tags above; the sink of the pickle machine. */
stow_status torch_take_dict(void *reader, pickle_value *value, const pickle_value *pairs,
                            size_t count);
stow_status torch_take_list(void *reader, pickle_value *value, const pickle_value *items,
                            size_t count);
stow_status torch_take_tuple(void *reader, pickle_value *value, const pickle_value *items,
                             size_t count);
stow_status torch_finish(torch_reader *t);
/* Adds one element and returns it in *element. */
stow_status torch_table_add(torch_reader *t, torch_table *table, size_t size, void **element);

#endif
