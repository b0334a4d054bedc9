/* Checkpoint: how far a long job is, in a file beside its output, so that --resume goes on from
 * there.
 *
 * A job is a few steps, each with a place it has reached and a state of plain bytes (what was
 * scanned so far). The file is OUT.resume; it is written anew and renamed, at most every two
 * seconds and only after what it speaks of is on the disk. It is believed only for the same input
 * (size, time, inode), the same options and the same build. */
#ifndef DATA_CHECKPOINT_H
#define DATA_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define CHECKPOINT_STATE_MAX (16u << 20)
#define CHECKPOINT_STEPS_MAX 8

typedef struct checkpoint_step {
  uint64_t step; /* the job's own number; 0: none */
  uint64_t place;
  uint64_t bytes;
  char *state;
} checkpoint_step;

typedef struct checkpoint {
  char *path;
  uint64_t key[8]; /* what the job is */
  bool resumed;    /* there was one, and it is of this job */
  int file;        /* what must be on the disk first; -1: nothing yet */
  uint64_t every_ns, saved_ns;
  uint64_t count; /* written so far */
  checkpoint_step steps[CHECKPOINT_STEPS_MAX];
} checkpoint;

/* `resume`: read what is there; otherwise it is as if nothing were. */
stow_status checkpoint_open(checkpoint *c, const char *out, const uint64_t key[8], bool resume);
/* Frees it; with `done` the file is removed. */
void checkpoint_close(checkpoint *c, bool done);

/* How far `step` was: fills the state, which has that many bytes, and returns true; false if it had
 * not begun. NULL is fine. */
bool checkpoint_find(const checkpoint *c, uint64_t step, uint64_t *place, void *state,
                     size_t bytes);
/* `step` has reached `place`. Writes the file if it is time. NULL is fine. */
/* Nothing noted holds any longer; what is in the file neither. */
stow_status checkpoint_drop(checkpoint *c);
/* Is it time? */
bool checkpoint_due(const checkpoint *c);
stow_status checkpoint_note(checkpoint *c, uint64_t step, uint64_t place, const void *state,
                            size_t bytes);

#endif
