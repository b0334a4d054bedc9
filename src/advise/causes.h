/* Causes: the reasons for running out of memory that explain distinguishes, and the confidence of
 * each for one recording.
 *
 * A cause is one function over the evidence, in causes/; causes.c calls all of them and ranks the
 * results. A specific cause ranks above a general one (a kept graph is also a leak; a leak also
 * makes the batch too big), and the confidences express that: they are not probabilities of
 * independent events, but an order with a scale, checked with the recordings under
 * tests/samples/causes. */
#ifndef ADVISE_CAUSES_H
#define ADVISE_CAUSES_H

#include "advise/evidence.h"
#include "advise/need.h"
#include "advise/outlook.h"
#include "base/buffer.h"

typedef enum cause_id {
  CAUSE_OTHER_PROCESS,
  CAUSE_OUTSIDE_FRAMEWORK,
  CAUSE_CACHE_HELD,
  CAUSE_LIMIT,
  CAUSE_FRAGMENTATION,
  CAUSE_GRAPH_KEPT,
  CAUSE_NO_GRAD_MISSING,
  CAUSE_LEAK,
  CAUSE_LOADED_TWICE,
  CAUSE_EVAL_BATCH_BIGGER,
  CAUSE_ONE_SPIKE,
  CAUSE_WEIGHTS_TOO_BIG,
  CAUSE_OPTIMIZER_STATE,
  CAUSE_BATCH_TOO_BIG,
  CAUSE_HOST_DATASET_WHOLE,
  CAUSE_HOST_LEAK,
  CAUSE_HOST_OBJECTS,
  CAUSE_HOST_COPIES,
  CAUSE_HOST_WORKERS,
  CAUSE_HOST_SHARED,
  CAUSE_HOST_PINNED,
  CAUSE_HOST_NATIVE,
  CAUSE_HOST_LIMIT,
  CAUSE_UNKNOWN,
  CAUSE_COUNT
} cause_id;

/* Returns "graph_kept", …, as in --json. */
const char *cause_name(cause_id id);
/* Returns the cause in plain words: "Evaluation without no_grad". */
const char *cause_title(cause_id id);

typedef struct cause {
  cause_id id;
  double confidence; /* 0: the cause does not apply */
  bool names_line;   /* the headline names the line that makes what is held, not a variable */
  buffer headline;   /* one sentence, without its full stop */
  buffer evidence;   /* lines of text */
} cause;

/* Weights, and allocations that look like copies of them. */
typedef struct copies {
  uint64_t weight_bytes, copy_bytes; /* copy_bytes: live allocations of the same sizes beside the
                                      * weights */
  uint64_t more_bytes;               /* further bytes of the same sizes, beyond one copy */
  uint32_t copy_count, stack_id;     /* where the copies came from */
  bool twice_built;                  /* the model itself was created twice */
  uint32_t *list;                    /* the copy_count lifetimes that are copies */
} copies;

/* One request that is far larger than the rest. */
typedef struct spike {
  uint64_t bytes, next_bytes; /* next_bytes: the largest other request that is not a weight */
  uint32_t stack_id;
  bool refused; /* it is the request that failed; otherwise it was live at that time */
} spike;

/* What the functions of the causes found; the fixes use it again. */
typedef struct findings {
  growth growth;
  copies copies;
  spike spike;
  outlook outlook;           /* what the recording shows after the failure */
  need need;                 /* needs of training, if the program reported what it does */
  uint64_t batch_bytes;      /* live at the failure and proportional to the batch */
  double bigger;             /* how many times larger than before at the same place; 0: unknown */
  bool grew_before;          /* it had also grown in the iteration before */
  double held_to_end;        /* fraction of what a pass allocates that is held to its end, without
                              * growth (evidence.h) */
  double eval_bigger;        /* evaluation batch divided by training batch; 0: not larger */
  bool eval_guessed;         /* known only from how it is called, or from sizes */
  bool fits_expandable;      /* found by replay */
  uint64_t expandable_bytes; /* the smallest limit with expandable segments; 0: not searched */
  cause list[CAUSE_COUNT];   /* ranked; causes that do not apply are left out */
  uint32_t count;
} findings;

stow_status causes_find(findings *f, const evidence *e);
/* Returns STOW_OK, or why a line or a headline of a finding could not be stored. Findings that
 * failed must not be used as an answer. */
stow_status findings_status(const findings *f);
/* Sorts by confidence; equal ones keep the order in which they were found. */
void findings_rank(findings *f);
void findings_free(findings *f);

/* Add a line of evidence, and set the headline. */
void cause_say(cause *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cause_head(cause *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Sums over the complete iterations, without the first if there are others. */
typedef struct iteration_sums {
  double n;
  uint32_t similar, backward, scalar, loss, pieces, own_pieces, back_pieces;
  uint64_t forward, kept_forward, own, kept_own, later;
} iteration_sums;

/* ---- causes/ ---- */
void growth_say(cause *c, const evidence *e, const growth *g);
stow_status graph_judge(growth *g, const evidence *e, const iteration_sums *t);
void cause_graph_kept(cause *c, const evidence *e, const findings *f);
void cause_no_grad_missing(cause *c, const evidence *e, const findings *f);
void cause_leak(cause *c, const evidence *e, const findings *f);

stow_status copies_find(copies *c, const evidence *e);
/* Returns the bytes of one model's weights if it was created twice; 0: it was not. */
static inline uint64_t copies_weights(const copies *c) {
  return c->twice_built ? c->weight_bytes : 0;
}
/* Returns whether there are three or more copies, which no checkpoint with an optimizer's state
 * explains. */
bool copies_piled_up(const copies *c, const evidence *e);
void cause_loaded_twice(cause *c, const evidence *e, const findings *f);
void cause_weights_too_big(cause *c, const evidence *e, const findings *f);
void cause_optimizer_state(cause *c, const evidence *e, const findings *f);

stow_status batch_find(findings *f, const evidence *e);
stow_status cause_eval_batch_bigger(cause *c, const evidence *e, findings *f);
/* Returns whether it is far larger than anything else, wherever it came from. */
bool spike_stands_alone(const evidence *e, const spike *s);
void cause_one_spike(cause *c, const evidence *e, const findings *f);
void cause_batch_too_big(cause *c, const evidence *e, const findings *f);

/* Adjusts the confidences by what comes after the failure (causes/outlook.c). */
void cause_of_outlook(cause *all, const evidence *e, const findings *f);
/* Adjusts the confidences by what the program reported about itself (causes/need.c). */
void cause_of_program(cause *all, const evidence *e, const findings *f);
/* Writes "2.0 GiB of weights + 2.0 GiB of gradients + … = 8.0 GiB". */
void need_sum(const need *n, const char *optimizer, char *text, size_t size);

/* If more than this fraction of PyTorch's memory is free in pieces that are too small, they are the
 * cause. */
#define CAUSE_HOLES 0.36
stow_status fragmentation_find(findings *f, const evidence *e);
void cause_fragmentation(cause *c, const evidence *e, const findings *f);
void cause_cache_held(cause *c, const evidence *e);
void cause_other_process(cause *c, const evidence *e);
void cause_outside_framework(cause *c, const evidence *e);
void cause_limit(cause *c, const evidence *e);

/* Returns "3.9 GiB"; valid until eight more calls. */
const char *cause_size(uint64_t bytes);

#endif
