/* Checkpoint: the progress of a long job, in a file next to its output, so that --resume continues
 * there.
 *
 * A job has a few steps, each with a position and a state of plain bytes (what was scanned so far).
 * The file is OUT.resume. It is rewritten and renamed at most every two seconds, and only after the
 * files it describes are flushed: OUT.partial, and OUT.scratch, where a job keeps what it will read
 * again. It is used only for the same input (size, time, inode), the same options, the same build,
 * and the same two files.
 *
 * Each of several ranks has its own, OUT.ranks/RANK.resume next to RANK.scratch, used
 * independently: a rank without a checkpoint starts over while the others continue. So nothing that
 * decides which steps the ranks take together is read from one rank's checkpoint. A run that does
 * not resume removes all checkpoints, of any run, before it writes. */
#ifndef DATA_CHECKPOINT_H
#define DATA_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/team.h"

#define CHECKPOINT_STATE_MAX (16u << 20)
#define CHECKPOINT_STEPS_MAX 16

/* The steps. Those of arrays belong to one array: `item` is its number in the file. */
enum {
  STEP_SCAN = 1,    /* scanning an array's values */
  STEP_TABLE = 2,   /* reading a table */
  STEP_TEXTS = 3,   /* reading the columns that are text from the start again */
  STEP_FACTS = 4,   /* scans of the earlier arrays */
  STEP_PLAN = 5,    /* what they become */
  STEP_ARCHIVE = 6, /* progress of the output's members */
  STEP_KEEP = 7,    /* collecting an array's nonzero values */
  STEP_PLACES = 8,  /* sparse matrix: its indices are checked */
  STEP_RANGE = 9,   /* one rank: where its rows of a table begin, and which columns it reads as
                     * text */
  STEP_OWN = 10,    /* one rank: how many of its rows are in the output */
  STEP_CASTS = 16   /* plus the type to cast to */
};
#define STEP_OF(step, item) ((uint64_t)(step) | (uint64_t)(item) << 16)

typedef struct checkpoint_step {
  uint64_t step; /* 0: none */
  uint64_t place;
  uint64_t bytes, capacity;
  char *state;
} checkpoint_step;

/* A file that a checkpoint describes. */
typedef struct checkpoint_file {
  uint64_t inode, bytes; /* when it was saved; 0: there was none */
} checkpoint_file;

typedef struct checkpoint {
  const char *out; /* owned by the caller */
  char *path, *scratch_path;
  uint64_t key[8];   /* identifies the job and the rank's part of it */
  bool leads;        /* the first rank removes the files */
  bool resumed;      /* a checkpoint of this job was found, of this rank or another */
  int file, scratch; /* the output and the scratch, which must be flushed first; -1: none yet */
  checkpoint_file files[2]; /* these two, as a resumed run finds them until it opens them */
  uint64_t every_ns, saved_ns;
  uint64_t count; /* written so far */
  checkpoint_step steps[CHECKPOINT_STEPS_MAX];
} checkpoint;

/* Opens the checkpoint. With `resume`, reads an existing one; otherwise ignores it. Every rank of a
 * team calls it, and all fail if one does. STOW_ERR_STATE: another run is writing the output. */
stow_status checkpoint_open(checkpoint *c, const char *out, const uint64_t key[7], team *t,
                            bool resume);
/* Frees it. With `done`, which all ranks must reach, removes the checkpoints and scratch files. */
void checkpoint_close(checkpoint *c, bool done);
/* Returns true if a resumed run would find something done. */
bool checkpoint_held(const checkpoint *c);

/* Reads the progress of `step` into the state, which must have that many bytes. Returns false if
 * the step had not begun. `c` may be NULL, here and below. */
bool checkpoint_find(const checkpoint *c, uint64_t step, uint64_t *place, void *state,
                     size_t bytes);
/* Returns a state of unknown length; NULL if the step had not begun. Valid until the step is noted
 * again. */
const void *checkpoint_get(const checkpoint *c, uint64_t step, uint64_t *place, size_t *bytes);
/* Records that `step` has reached `place`. Writes the file if it is due. A state above
 * CHECKPOINT_STATE_MAX is not kept: a resumed run repeats that step. */
stow_status checkpoint_note(checkpoint *c, uint64_t step, uint64_t place, const void *state,
                            size_t bytes);
/* Appends one record to those of the step, whose position is their number. */
stow_status checkpoint_append(checkpoint *c, uint64_t step, const void *record, size_t bytes);
/* Omits a step from the next write, because it is complete and recorded by another step. */
void checkpoint_clear(checkpoint *c, uint64_t step);
/* Writes the file now. */
stow_status checkpoint_save(checkpoint *c);
/* Discards everything recorded, also in the file. */
stow_status checkpoint_drop(checkpoint *c);
/* Returns whether the file is due to be written. */
bool checkpoint_due(const checkpoint *c);
/* Returns whether the job has run long enough for resuming to save time. */
bool checkpoint_worth(const checkpoint *c);

#endif
