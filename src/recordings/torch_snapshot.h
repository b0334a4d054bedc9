/* PyTorch memory snapshot: torch.cuda.memory._snapshot(), pickled, into a recording.
 *
 * torch_rows.c and torch_lists.c turn the pickle's dicts and lists into tables as they stream by;
 * torch_finish.c puts the tables in order once the whole is known. */
#ifndef RECORDINGS_TORCH_SNAPSHOT_H
#define RECORDINGS_TORCH_SNAPSHOT_H

#include "files/pickle.h"
#include "recordings/recording.h"

/* Reads one snapshot into the empty recording. Beyond the recording it needs at most
 * `max_work_bytes`. What is not understood is counted in the recording, not refused. */
stow_status torch_snapshot_read(recording *r, input *in, uint64_t max_work_bytes);

/* ---- between its files ---- */

/* What a pickle container was worth. Those with a range carry first << 32 | count in `v`. */
enum torch_tag {
  TORCH_FRAME = PICKLE_SINK_FIRST, /* frame id */
  TORCH_STACK,                     /* stack id */
  TORCH_EVENT,                     /* range of events: one, or none if it was skipped */
  TORCH_EVENTS,                    /* a list of them */
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

typedef struct torch_history { /* a block's in PyTorch before 2.1 */
  uint32_t stack_id;
  uint64_t bytes;
} torch_history;

/* Frames as they were last seen: (name, file, line) by the machine's numbers. The same few come
 * again and again, in dicts of their own. */
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
  torch_table names;     /* per string: name id + 1 in the recording, or 0; top bit: seen unknown */
  /* the root's members */
  uint64_t segments, device_traces, annotations, settings; /* ranges */
  bool has_root;
  torch_frame frames[TORCH_FRAME_CACHE];
} torch_reader;

/* The pickle machine's sink: what a container is worth, in tags from above. */
stow_status torch_take_dict(void *reader, pickle_value *value, const pickle_value *pairs,
                            size_t count);
stow_status torch_take_list(void *reader, pickle_value *value, const pickle_value *items,
                            size_t count);
stow_status torch_take_tuple(void *reader, pickle_value *value, const pickle_value *items,
                             size_t count);
stow_status torch_finish(torch_reader *t);
/* Room for one more element at *element. */
stow_status torch_table_add(torch_reader *t, torch_table *table, size_t size, void **element);

#endif
