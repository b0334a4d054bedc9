/* Causes: the reasons why a program runs out of memory that explain distinguishes, and how surely
 * each holds for one recording.
 *
 * A cause is one function over the evidence, in causes/; causes.c asks them all and ranks them. The
 * particular beats the general (a kept graph is also a leak; a leak also makes the batch too big),
 * which the confidences are made to say: they are not probabilities of independent events but an
 * order with a scale, held to the recordings under tests/samples/causes. */
#ifndef ADVISE_CAUSES_H
#define ADVISE_CAUSES_H

#include "advise/evidence.h"
#include "advise/need.h"
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

/* "graph_kept", … as --json spells it. */
const char *cause_name(cause_id id);
/* The same in plain words: "Evaluation without no_grad". */
const char *cause_title(cause_id id);

typedef struct cause {
  cause_id id;
  double confidence; /* 0: it does not hold */
  buffer headline;   /* one sentence, without its full stop */
  buffer evidence;   /* lines */
} cause;

/* Bytes that stay from turn to turn. */
typedef struct growth {
  bool found;
  uint32_t whole; /* turns that came to their end */
  uint64_t per_round, total;
  bool graph;             /* it is what a forward pass keeps for its backward */
  bool like_graph;        /* …or might be: several things of it, and most of what stays */
  bool bare;              /* …of a program that calls no modules */
  bool backward;          /* the turns do run backward */
  bool scalar;            /* each leaves a number behind, as a sum of losses does */
  bool loss;              /* …that may be one, or something else of a loss */
  bool evaluates;         /* a function says so by its name, or dropout has gone since training */
  bool strange;           /* there was training, and it never came this way */
  bool swells;            /* nothing stays: one thing is made anew, larger each turn */
  uint64_t swollen_bytes; /* …found by its sizes alone: the last of it; else 0 */
  uint32_t stack_id;      /* the line that grows most … */
  uint64_t stack_bytes;   /* … and by how much */
  uint32_t stack_count;
  uint8_t *of_stack; /* by stack id: does it leave something in most turns? */
} growth;

/* Weights and what looks like them. */
typedef struct copies {
  uint64_t weight_bytes, copy_bytes; /* copy: live beside the weights, of the same sizes */
  uint64_t more_bytes;               /* of the same sizes, beyond one copy */
  uint32_t copy_count, stack_id;     /* where the copies came from */
  bool twice_built;                  /* the model itself was made twice */
  uint32_t *list;                    /* the lifetimes that are copies; copy_count of them */
} copies;

/* One request that dwarfs the rest. */
typedef struct spike {
  uint64_t bytes, next_bytes; /* next: the largest other one that is not a weight */
  uint32_t stack_id;
  bool refused; /* it is the request that failed; otherwise it was live then */
} spike;

/* What the causes found on their way; the fixes need it again. */
typedef struct findings {
  growth growth;
  copies copies;
  spike spike;
  need need;                 /* of training, where the program said what it does */
  uint64_t batch_bytes;      /* live at the failure and in proportion to the batch */
  double bigger;             /* how many times larger than before at the same place; 0 not known */
  bool grew_before;          /* it had grown the turn before, too */
  double held_to_end;        /* of what a pass allocates, without growth (evidence.h) */
  double eval_bigger;        /* how many times training's batch an evaluation's is; 0 it is not */
  bool eval_guessed;         /* …by the way it is called alone, or by sizes */
  bool fits_expandable;      /* by replay */
  uint64_t expandable_bytes; /* the smallest limit expandable segments need; 0 not looked for */
  cause list[CAUSE_COUNT];   /* ranked; those that do not hold are left out */
  uint32_t count;
} findings;

stow_status causes_find(findings *f, const evidence *e);
/* STOW_OK, or why a line or a headline of a finding could not be kept. Findings that failed are not
 * an answer. */
stow_status findings_status(const findings *f);
/* The surest first; alike ones stay in the order they were found in. */
void findings_rank(findings *f);
void findings_free(findings *f);

/* Lines of evidence, and the sentence. */
void cause_say(cause *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cause_head(cause *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What the whole turns did, the first left out where there are others. */
typedef struct turn_sums {
  double n;
  uint32_t similar, backward, scalar, loss, pieces, own_pieces, back_pieces;
  uint64_t forward, kept_forward, own, kept_own, later;
} turn_sums;

/* ---- causes/ ---- */
stow_status growth_find(growth *g, const evidence *e);
/* Is this lifetime a part of what grows? What only the first turn left (a workspace, gradients) is
 * not. */
bool growth_has(const growth *g, const evidence *e, uint32_t lifetime_number);
double growth_weight(const evidence *e, const growth *g);
void growth_say(cause *c, const evidence *e, const growth *g);
stow_status graph_judge(growth *g, const evidence *e, const turn_sums *t);
void cause_graph_kept(cause *c, const evidence *e, const findings *f);
void cause_no_grad_missing(cause *c, const evidence *e, const findings *f);
void cause_leak(cause *c, const evidence *e, const findings *f);

stow_status copies_find(copies *c, const evidence *e);
/* Three of them and more, which no checkpoint with an optimizer's state explains. */
bool copies_piled_up(const copies *c, const evidence *e);
void cause_loaded_twice(cause *c, const evidence *e, const findings *f);
void cause_weights_too_big(cause *c, const evidence *e, const findings *f);
void cause_optimizer_state(cause *c, const evidence *e, const findings *f);

stow_status batch_find(findings *f, const evidence *e);
stow_status cause_eval_batch_bigger(cause *c, const evidence *e, findings *f);
/* Beyond anything else by far, wherever it came from. */
bool spike_stands_alone(const evidence *e, const spike *s);
void cause_one_spike(cause *c, const evidence *e, const findings *f);
void cause_batch_too_big(cause *c, const evidence *e, const findings *f);

/* causes/need.c: raises and lowers what the program's own words decide. */
void cause_of_program(cause *all, const evidence *e, const findings *f);
/* "2.0 GiB of weights + 2.0 GiB of gradients + … = 8.0 GiB" */
void need_sum(const need *n, const char *optimizer, char *text, size_t size);

/* Of what PyTorch holds that is free in pieces too small: from here on they are the cause. */
#define CAUSE_HOLES 0.36
stow_status fragmentation_find(findings *f, const evidence *e);
void cause_fragmentation(cause *c, const evidence *e, const findings *f);
void cause_cache_held(cause *c, const evidence *e);
void cause_other_process(cause *c, const evidence *e);
void cause_outside_framework(cause *c, const evidence *e);
void cause_limit(cause *c, const evidence *e);

/* "3.9 GiB", good until eight more calls. */
const char *cause_size(uint64_t bytes);

#endif
