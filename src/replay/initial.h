/* Initial state: what was there before the first event of a recording that starts late.
 *
 * PyTorch's history is a ring, and recording is often switched on after the model was loaded: the
 * beginning is missing in ordinary recordings. What is known lies in the events themselves (a free
 * of what was never allocated was there before) and in the segments at the end (what no event
 * touches was there all along). Called by replay and report. Guarantees: n log n in the number of
 * events; what cannot be known is counted, never invented silently. */
#ifndef REPLAY_INITIAL_H
#define REPLAY_INITIAL_H

#include "recordings/recording.h"

typedef struct initial_state {
  /* Sorted by device and address. The blocks of a segment fill it without holes, as in a snapshot:
   * free blocks are there too. */
  segment *segments;
  size_t segment_count;
  block *blocks;
  size_t block_count;
  /* Live blocks that lie in no segment known at the start; all of them where the recording has no
   * segments. loose_devices[i] is the device of loose[i]. */
  block *loose;
  uint16_t *loose_devices;
  size_t loose_count;
  uint64_t live_bytes, live_blocks; /* over both */
  /* What is not known. */
  uint64_t guessed_sizes;    /* blocks taken as the request rounded up: they were freed later, and
                                nothing showed whether they ended there */
  uint64_t guessed_segments; /* segments whose pool was told by their size alone */
  uint64_t conflicts; /* blocks that would overlap, or segments that would: the later is cut */
} initial_state;

/* STOW_OK with everything zero where the recording begins with nothing. */
stow_status recording_initial_state(initial_state *state, const recording *r);
void initial_state_free(initial_state *state);

#endif
