/* Evidence: facts about a failure, derived from a recording. The causes draw the conclusions.
 *
 *   timeline    every allocation with its end            (replay/timeline.h)
 *   phase       which part of a program requested it: building the model, forward, backward, the
 *               optimizer, loading a file, copying, or the program's own lines
 *   loop        the iterations of the loop in which the failure happened
 *   numbers     the memory figures of the device at that moment
 *
 * The causes (causes.h) read this and nothing else. Phases come from the stacks. Without stacks
 * they are derived from marks, order and sizes, which is less certain; has_stacks shows that.
 * Everything is as of the failure: memory that the program freed while the exception propagated is
 * still live here. */
#ifndef ADVISE_EVIDENCE_H
#define ADVISE_EVIDENCE_H

#include "advise/message.h"
#include "advise/program.h"
#include "base/hash.h"
#include "replay/steps.h"
#include "replay/timeline.h"

typedef enum phase {
  PHASE_UNKNOWN = 0,
  PHASE_BUILD,     /* parameters are created, or moved to the device */
  PHASE_LOAD,      /* a checkpoint is read */
  PHASE_COPY,      /* deepcopy, or the framework clones a state dict */
  PHASE_FORWARD,   /* inside a call of a module */
  PHASE_BACKWARD,  /* autograd */
  PHASE_OPTIMIZER, /* inside an optimizer's step */
  PHASE_USER,      /* the program's own line, outside all of these */
  PHASE_COUNT
} phase;

/* LAYER_NORM: a layer that normalizes rows, in 32 bits also under autocast. */
typedef enum layer_kind { LAYER_NONE = 0, LAYER, LAYER_NORM } layer_kind;

/* The purpose of a pass, from the name of a function of the program. */
typedef enum purpose { PURPOSE_UNKNOWN = 0, PURPOSE_EVALUATES, PURPOSE_TRAINS } purpose;

/* Memory figures; MESSAGE_UNKNOWN if unknown. */
typedef struct numbers {
  uint64_t asked_bytes, live_bytes, cached_bytes, hole_bytes, largest_hole_bytes;
  uint64_t other_process_bytes, outside_framework_bytes, limit_bytes, device_bytes, free_bytes;
  uint64_t unknown_bytes; /* memory of the device that is in none of the above */
  uint64_t reserved_bytes;
} numbers;

/* One iteration of the loop, complete unless it is the last. */
typedef struct loop_iteration {
  uint32_t start, end;    /* ticks */
  uint64_t kept_bytes;    /* allocated in it and live at the failure, without optimizer state and
                           * weights */
  uint64_t forward_bytes; /* allocated in its forward phase */
  uint64_t kept_forward_bytes;
  uint64_t user_bytes, kept_user_bytes; /* the same for the program's own lines */
  uint32_t kept_count, kept_forward_count, kept_user_count, kept_backward_count;
  bool backward; /* something was allocated by autograd */
  bool scalar;   /* a number allocated in it was live at its end */
  bool loss;     /* and that number was not made for later work */
} loop_iteration;

typedef struct loop_iterations {
  loop_iteration *list; /* the last iteration is the one that failed */
  uint32_t count;
  bool from_marks;
  bool turns;               /* they are the steps that the program or an estimate marks */
  uint32_t anchor_stack_id; /* stack of the allocation that occurs once per iteration */
} loop_iterations;

typedef struct evidence {
  const recording *source;
  const struct evidence *whole; /* for a failure of a replay: the evidence of the recording up to
                                 * its end. NULL: what comes after the failure is not known */
  message message;              /* the parsed error text */
  program_facts program;        /* what the program reported about itself */
  timeline time;
  bool failed;                    /* the recording contains an out-of-memory failure */
  bool elsewhere;                 /* the failure is that of a replay with another limit */
  uint32_t fits_part, fits_whole; /* … under which this part of the batch fits; 0: unknown */
  bool fits_samples;              /* … in samples */
  bool fits_expandable;           /* … with expandable segments alone */
  bool foreign;                   /* the request of another library failed, not PyTorch's … */
  bool refused;                   /* … and the recording shows when */
  bool survived;                  /* the program continued after the last failure */
  uint32_t fail_tick;             /* tick of the failure; without one, of the peak */
  uint32_t fail_stack_id;
  phase fail_phase;
  bool has_stacks, has_marks, expandable;
  numbers n;
  uint64_t other_library_bytes; /* segments in which PyTorch never had a block */
  uint64_t beside_bytes;        /* part of a run's limit that the driver and other libraries hold */
  uint64_t peak_live_bytes, peak_reserved_bytes; /* up to and including the failure */
  uint8_t *phase_of_stack;                       /* by stack ID */
  uint32_t *user_of_stack;   /* the program's own innermost frame (a frame ID); 0: none */
  uint32_t *helped_of_stack; /* for a line in a helper file: the first frame of another file;
                              * otherwise 0 */
  uint32_t *caller_of_stack; /* the program's frame that called the outermost module */
  uint64_t *inner_of_stack;  /* hash of the frames inside that call: the place within the model */
  uint64_t *outer_of_stack;  /* hash of the frames outside that call: the call path */
  uint8_t *purpose_of_stack; /* purpose, from the name of a function of the program on the call
                              * path */
  uint8_t *norm_of_stack;    /* whether it is inside a normalization layer, of rows or batches */
  uint8_t *layer_of_stack;   /* layer_kind: whether it is inside a layer with weights */
  uint8_t *phase_of;         /* by lifetime */
  uint64_t live_by_phase[PHASE_COUNT]; /* live bytes at the failure */
  uint32_t first_work_tick;            /* the first allocation after the model was built */
  uint32_t train_end_tick; /* the last optimizer step or backward pass before the failure; 0:
                            * none */
  loop_iterations loop;
  uint32_t iteration_tick; /* where the iteration that failed began; 0: no iteration was complete */
  bool recomputes;         /* the program uses torch.utils.checkpoint */
  map passed, saved;       /* by place in the model (inner_of_stack), bytes of all passes that ran
                            * backward: allocated there, and held until the backward pass */
  map ways, trained;       /* the same by call path (outer_of_stack) */
} evidence;

/* What comes with a recording. All zero: nothing. */
typedef struct evidence_given {
  const char *text; /* the error text, if the recording has none */
  size_t text_bytes;
  /* For a replay with another limit (elsewhere.h): the limit, and what was reserved when the
   * request was refused. The recording's own error text and device are then ignored. */
  uint64_t limit_bytes, reserved_bytes, largest_hole_bytes;
  uint32_t part, of;     /* the part of the batch that fits there; 0: unknown */
  bool samples;          /* they are numbers of samples */
  bool expandable;       /* it fits with expandable segments alone */
  bool to_end;           /* take the end of the recording for the failure */
  const evidence *whole; /* the same recording, gathered with to_end */
} evidence_given;

/* Gathers everything. `r` and the text must outlive it. Undo with evidence_free, also after a
 * failure. */
stow_status evidence_gather(evidence *e, const recording *r, const evidence_given *given);
void evidence_free(evidence *e);

/* Returns whether lifetime `l` is live at the failure. */
static inline bool evidence_live(const evidence *e, const lifetime *l) {
  return lifetime_live(l, e->fail_tick);
}

/* Returns true if nothing indicates a framework with a model: no stacks, no steps, no segments of a
 * cache. Then the purpose of the requests is unknown. */
static inline bool evidence_plain(const evidence *e) {
  return !e->has_stacks && !e->has_marks && !e->time.reserved_known;
}

/* Returns the bytes that the framework could have used: its limit, or what the device had left for
 * it. 0: unknown. */
uint64_t evidence_capacity(const evidence *e);
/* Returns whether the framework's limit, not the device, refused the request. */
bool evidence_limit_bound(const evidence *e);
/* Returns whether the stack has a function whose name begins with the first text, in a file whose
 * path contains the second. */
bool evidence_passes(const evidence *e, uint32_t stack_id, const char *name, const char *file);
/* Writes "train.py:31 in main". Returns `text`. */
const char *evidence_place(const evidence *e, char *text, size_t size, uint32_t frame_id);

/* Returns whether the program trains: somewhere a backward pass or an optimizer runs, or what comes
 * after the failure is not known. */
bool evidence_may_train(const evidence *e);
/* Returns whether passes on the call path of this stack run backward. */
bool evidence_trains(const evidence *e, uint32_t stack_id);
/* Whether the pass that failed builds a graph, as training did. Determined by whether it holds what
 * those passes held. */
typedef enum graph_built { GRAPH_UNKNOWN = 0, GRAPH_BUILT, GRAPH_NOT_BUILT } graph_built;
graph_built evidence_builds_graph(const evidence *e);
/* Computes how much of what the forward passes of complete iterations allocate is live at their
 * end: the median. 0 if there are too few iterations, or if any runs backward. */
stow_status evidence_held_to_end(const evidence *e, double *part);

/* ---- the parts ---- */

/* Fills what is known about each stack (phase.c). */
stow_status evidence_stacks(evidence *e);
/* Fills phase_of and what follows from it (phase.c). */
stow_status evidence_phases(evidence *e);
/* Finds the iterations of the loop (loop.c). */
stow_status evidence_loop(evidence *e);
/* Returns the tick of an iteration at which most was live. */
uint32_t evidence_peak_of(const evidence *e, const loop_iteration *r);
/* Fills saved (saved.c). */
stow_status evidence_saved(evidence *e);
void loop_free(loop_iterations *r);

/* Returns the size of the request that failed; 0 if unknown. */
static inline uint64_t evidence_requested_bytes(const evidence *e) {
  return e->n.asked_bytes != MESSAGE_UNKNOWN ? e->n.asked_bytes : 0;
}

/* Returns part / whole; 0 if whole is 0. */
static inline double evidence_share(uint64_t part, uint64_t whole) {
  return whole > 0 ? (double)part / (double)whole : 0;
}

#endif
