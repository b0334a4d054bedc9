/* Checkpoint: how far a long job is, in a file beside its output, so that --resume goes on from
 * there.
 *
 * A job is a few steps, each with a place it has reached and a state of plain bytes (what was
 * scanned so far). The file is OUT.resume; it is written anew and renamed, at most every two
 * seconds and only after what it speaks of is on the disk: OUT.partial, and OUT.scratch, where a
 * job keeps what it will read again. It is believed only for the same input (size, time, inode),
 * the same options, the same build, and the same two files.
 *
 * Each of several ranks keeps one of its own rows, OUT.ranks/RANK.resume beside RANK.scratch, and
 * is believed alone: a rank whose notes are not there does its part from the start while the others
 * go on. What decides which steps the ranks take together is therefore never read from the notes of
 * one. A run that goes on with nothing takes all notes away, of whatever run, before it writes. */
#ifndef DATA_CHECKPOINT_H
#define DATA_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/team.h"

#define CHECKPOINT_STATE_MAX (16u << 20)
#define CHECKPOINT_STEPS_MAX 16

/* The steps there are: the job's own numbers. Those of arrays are of one of them: `item` is its
 * number in the file. */
enum {
  STEP_SCAN = 1,    /* of an array's values */
  STEP_TABLE = 2,   /* reading a table */
  STEP_TEXTS = 3,   /* its columns that are text from the start, once it is read again for them */
  STEP_FACTS = 4,   /* scans of the arrays before the one at hand */
  STEP_PLAN = 5,    /* what they become */
  STEP_ARCHIVE = 6, /* how far the members of the output are */
  STEP_KEEP = 7,    /* what is not zero of an array */
  STEP_PLACES = 8,  /* of a sparse matrix: they are checked */
  STEP_RANGE = 9,   /* of a rank: where its rows of a table begin, and what it reads as text */
  STEP_OWN = 10,    /* of a rank: how much of its rows stands in the output */
  STEP_CASTS = 16   /* and the types to cast to behind it */
};
#define STEP_OF(step, item) ((uint64_t)(step) | (uint64_t)(item) << 16)

typedef struct checkpoint_step {
  uint64_t step; /* 0: none */
  uint64_t place;
  uint64_t bytes, capacity;
  char *state;
} checkpoint_step;

/* A file that a checkpoint speaks of. */
typedef struct checkpoint_file {
  uint64_t inode, bytes; /* when it was saved; 0: there was none */
} checkpoint_file;

typedef struct checkpoint {
  const char *out; /* the caller's */
  char *path, *scratch_path;
  uint64_t key[8];   /* what the job is, and whose part of it */
  bool leads;        /* the first rank takes the files away */
  bool resumed;      /* there was one, of this rank or another, and it is of this job */
  int file, scratch; /* the output and the scratch, which must be on the disk first; -1: none yet */
  checkpoint_file files[2]; /* these two, as a resumed run finds them until it opens them */
  uint64_t every_ns, saved_ns;
  uint64_t count; /* written so far */
  checkpoint_step steps[CHECKPOINT_STEPS_MAX];
} checkpoint;

/* `resume`: read what is there; otherwise it is as if nothing were. Every rank of a team calls it,
 * and all fail where one does. STOW_ERR_STATE if another run is writing the output. */
stow_status checkpoint_open(checkpoint *c, const char *out, const uint64_t key[7], team *t,
                            bool resume);
/* Frees it; with `done`, which all ranks have come to, the files and the scratches are removed. */
void checkpoint_close(checkpoint *c, bool done);
/* Returns true if a resumed run would find something done. */
bool checkpoint_held(const checkpoint *c);

/* How far `step` was: fills the state, which has that many bytes, and returns true; false if it had
 * not begun. NULL is fine, here and below. */
bool checkpoint_find(const checkpoint *c, uint64_t step, uint64_t *place, void *state,
                     size_t bytes);
/* The same where its length is not known before; NULL if it had not begun. Good until the step is
 * noted again. */
const void *checkpoint_get(const checkpoint *c, uint64_t step, uint64_t *place, size_t *bytes);
/* `step` has reached `place`. Writes the file if it is time. A state past CHECKPOINT_STATE_MAX is
 * not kept: a resumed run does that step again. */
stow_status checkpoint_note(checkpoint *c, uint64_t step, uint64_t place, const void *state,
                            size_t bytes);
/* One more record behind those of the step, whose place is how many there are. */
stow_status checkpoint_append(checkpoint *c, uint64_t step, const void *record, size_t bytes);
/* The step is behind us, and said to be by another: the next writing leaves it out. */
void checkpoint_clear(checkpoint *c, uint64_t step);
/* Writes the file now. */
stow_status checkpoint_save(checkpoint *c);
/* Nothing noted holds any longer; what is in the file neither. */
stow_status checkpoint_drop(checkpoint *c);
/* Is it time? */
bool checkpoint_due(const checkpoint *c);
/* Has the job run so long that going on with it would save something? */
bool checkpoint_worth(const checkpoint *c);

#endif
