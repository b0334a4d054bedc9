/* Initial state: what existed before the first event of a recording that starts late.
 *
 * PyTorch's history is a ring, and recording is often switched on after the model was loaded, so
 * most recordings miss their beginning. Two sources remain: the events (a free without an
 * allocation: the block existed before) and the segments at the end (what no event touches existed
 * all along). Called by replay and report. Guarantees: n log n in the number of events; every guess
 * is counted. */
#ifndef REPLAY_INITIAL_H
#define REPLAY_INITIAL_H

#include "recordings/recording.h"

typedef struct initial_state {
  /* Sorted by device and address. The blocks of a segment fill it without gaps, as in a snapshot:
   * free blocks are included. */
  segment *segments;
  size_t segment_count;
  block *blocks;
  size_t block_count;
  /* Live blocks outside any segment known at the start; all of them if the recording has no
   * segments. loose_devices[i] is the device of loose[i]. */
  block *loose;
  uint16_t *loose_devices;
  size_t loose_count;
  uint64_t live_bytes, live_blocks; /* blocks of both kinds */
  /* Counts of guesses and conflicts. */
  uint64_t guessed_sizes;    /* blocks assumed to be the request rounded up: they were freed later,
                              * and nothing shows where they ended */
  uint64_t guessed_segments; /* segments whose pool was guessed from their size */
  uint64_t conflicts;        /* blocks or segments that would overlap: the later one is cut */
} initial_state;

/* Returns STOW_OK with everything zero if nothing existed before the recording. */
stow_status recording_initial_state(initial_state *state, const recording *r);
void initial_state_free(initial_state *state);

#endif
