/* Evidence: what a recording of a failure shows, before anybody draws a conclusion.
 *
 *   timeline    every allocation with its end            (replay/timeline.h)
 *   phase       what part of a program asked for it: building the model, forward, backward, the
 *               optimizer, loading a file, copying, or the program's own lines
 *   rounds      the loop the failure happened in, cut at each of its turns
 *   numbers     the arithmetic of the device at that moment
 *
 * The causes (causes.h) read this and nothing else. Phases come from the stacks; where the
 * recording has none they are found from marks, order and sizes alone, which is weaker, and
 * has_stacks says so. Everything is as of the failure: what the program freed while the exception
 * went up is still live here. */
#ifndef ADVISE_EVIDENCE_H
#define ADVISE_EVIDENCE_H

#include "advise/message.h"
#include "advise/program.h"
#include "base/hash.h"
#include "replay/steps.h"
#include "replay/timeline.h"

typedef enum phase {
  PHASE_UNKNOWN = 0,
  PHASE_BUILD,     /* parameters made, or moved to the device */
  PHASE_LOAD,      /* a checkpoint read */
  PHASE_COPY,      /* deepcopy, a state dict cloned by the framework */
  PHASE_FORWARD,   /* inside a call of a module */
  PHASE_BACKWARD,  /* autograd */
  PHASE_OPTIMIZER, /* inside an optimizer's step */
  PHASE_USER,      /* the program's own line, outside all of these */
  PHASE_COUNT
} phase;

/* LAYER_NORM: one that norms rows, in 32 bits also under autocast. */
typedef enum layer_kind { LAYER_NONE = 0, LAYER, LAYER_NORM } layer_kind;

/* What a pass is for, by the name of a function of the program. */
typedef enum purpose { PURPOSE_UNTOLD = 0, PURPOSE_EVALUATES, PURPOSE_TRAINS } purpose;

/* MESSAGE_UNKNOWN where not known. */
typedef struct numbers {
  uint64_t asked_bytes, live_bytes, cached_bytes, hole_bytes, largest_hole_bytes;
  uint64_t other_process_bytes, outside_framework_bytes, limit_bytes, device_bytes, free_bytes;
  uint64_t unknown_bytes; /* of the device, nowhere above */
  uint64_t reserved_bytes;
} numbers;

/* One turn of the loop, whole unless it is the last. */
typedef struct loop_round {
  uint32_t start, end;    /* ticks */
  uint64_t kept_bytes;    /* born in it, live at the failure; optimizer state and weights aside */
  uint64_t forward_bytes; /* allocated in its forward phase */
  uint64_t kept_forward_bytes;
  uint64_t user_bytes, kept_user_bytes; /* the same of the program's own lines */
  uint32_t kept_count, kept_forward_count, kept_user_count, kept_backward_count;
  bool backward; /* something was allocated by autograd */
  bool scalar;   /* a number born in it was live at its end … */
  bool loss;     /* … and was not made for work that follows it */
} loop_round;

typedef struct rounds {
  loop_round *list; /* the last is the one that failed */
  uint32_t count;
  bool from_marks;
  uint32_t anchor_stack_id; /* what comes once a turn */
} rounds;

typedef struct evidence {
  const recording *source;
  message message;       /* the error text, read */
  program_facts program; /* what the program said of itself */
  timeline time;
  bool failed;        /* an out-of-memory is in it */
  bool elsewhere;     /* the failure is a replay's, under another limit */
  bool foreign;       /* not PyTorch's: another library's request failed, beside this recording */
  bool survived;      /* the program went on after the last one */
  uint32_t fail_tick; /* of the failure; where there is none, of the peak */
  uint32_t fail_stack_id;
  phase fail_phase;
  bool has_stacks, has_marks, expandable;
  numbers n;
  uint64_t beside_bytes; /* of a run's limit: what the driver and other libraries hold */
  uint64_t peak_live_bytes, peak_reserved_bytes; /* up to and with the failure */
  uint8_t *phase_of_stack;                       /* by stack id */
  uint32_t *user_of_stack;   /* the program's own innermost frame; frame id, 0 none */
  uint32_t *helped_of_stack; /* of a line in a helper's file: the first frame of another; else 0 */
  uint32_t *caller_of_stack; /* the program's frame that called into the outermost module */
  uint64_t *inner_of_stack;  /* hash of the frames inside that call: the place within the model */
  uint64_t *outer_of_stack;  /* …and of those outside it: the way there */
  uint8_t *purpose_of_stack; /* purpose: what a function of the program on the way there says */
  uint8_t *norm_of_stack;    /* inside a layer that norms, rows or batches? */
  uint8_t *layer_of_stack;   /* layer_kind: inside a layer that has weights? */
  uint8_t *phase_of;         /* by lifetime */
  uint64_t live_by_phase[PHASE_COUNT]; /* at the failure */
  uint32_t first_work_tick;            /* the first allocation after the model was built */
  uint32_t train_end_tick; /* the last optimizer step or backward before the failure; 0 none */
  rounds loop;
  uint32_t turn_tick; /* where the turn that failed began; 0 where no turn came to its end */
  bool recomputes;    /* torch.utils.checkpoint is at work */
  map passed, saved;  /* by place in the model (inner_of_stack), bytes of all passes that ran
                         backward: allocated there, and held until then */
  map ways, trained;  /* the same by the way (outer_of_stack) */
} evidence;

/* What comes with a recording. All zero: nothing. */
typedef struct evidence_given {
  const char *text; /* the error text where the recording has none */
  size_t text_bytes;
  /* Of a replay under another limit (elsewhere.h): the limit, and what was reserved in it when the
   * request was refused. The recording's own error text and device are not used then. */
  uint64_t limit_bytes, reserved_bytes, largest_hole_bytes;
} evidence_given;

/* Reads everything; `r` and the text must outlive it. Undo with evidence_free, also after a
 * failure.
 */
stow_status evidence_gather(evidence *e, const recording *r, const evidence_given *given);
void evidence_free(evidence *e);

/* Is lifetime `l` there at the failure? */
static inline bool evidence_live(const evidence *e, const lifetime *l) {
  return lifetime_live(l, e->fail_tick);
}

/* Returns true if nothing shows a framework with a model: no stacks, no steps, no segments
 * of a cache? A plain program's own requests look so, and what they are for is not known. */
static inline bool evidence_plain(const evidence *e) {
  return !e->has_stacks && !e->has_marks && !e->time.reserved_known;
}

/* Bytes the framework could have had: its limit, or what the device had left for it. 0 not known.
 */
uint64_t evidence_capacity(const evidence *e);
/* Was it the framework's limit that said no, not the device? */
bool evidence_limit_bound(const evidence *e);
/* Does a function whose name begins so, in a file whose path contains that, lie on the way? */
bool evidence_passes(const evidence *e, uint32_t stack_id, const char *name, const char *file);
/* "train.py:31 in main". Returns `text`. */
const char *evidence_place(const evidence *e, char *text, size_t size, uint32_t frame_id);

/* Do the passes on the way of this stack run backward? */
bool evidence_trains(const evidence *e, uint32_t stack_id);
/* Does the pass that failed build a graph, as training's did? Found by whether it holds what they
 * held. */
typedef enum graph_built { GRAPH_UNKNOWN = 0, GRAPH_BUILT, GRAPH_NOT_BUILT } graph_built;
graph_built evidence_builds_graph(const evidence *e);
/* Of what the forward passes of the whole turns allocate, how much is there at their end? That of
 * the middle one; 0 where there are too few, or any runs backward. */
stow_status evidence_held_to_end(const evidence *e, double *part);

/* ---- the parts ---- */

/* phase.c: fills what is known of each stack. */
stow_status evidence_stacks(evidence *e);
/* phase.c: fills phase_of and what follows from it. */
stow_status evidence_phases(evidence *e);
/* rounds.c */
stow_status evidence_rounds(evidence *e);
/* The tick of a turn at which most was live. */
uint32_t evidence_peak_of(const evidence *e, const loop_round *r);
/* saved.c: fills saved. */
stow_status evidence_saved(evidence *e);
void rounds_free(rounds *r);

/* The bytes of the request that failed; 0 where they are not known. */
static inline uint64_t evidence_asked_bytes(const evidence *e) {
  return e->n.asked_bytes != MESSAGE_UNKNOWN ? e->n.asked_bytes : 0;
}

/* part / whole; 0 of nothing. */
static inline double evidence_share(uint64_t part, uint64_t whole) {
  return whole > 0 ? (double)part / (double)whole : 0;
}

#endif
