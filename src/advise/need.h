/* Need: how much memory a training step needs before its first sample, and how many samples then
 * fit.
 *
 * A recording ends at the failure, most often in the first forward pass: gradients and the
 * optimizer's state are still to come. If the program reported its model and its optimizer
 * (program.h), they are counted here. */
#ifndef ADVISE_NEED_H
#define ADVISE_NEED_H

#include "advise/evidence.h"

/* One way to train, as fractions of what the program does now. */
typedef struct need_change {
  double weights; /* 0.5: in 16 bits */
  double trained; /* 0.01: adapters only */
  double state;   /* fraction of the state's bytes; 0: on the host */
  bool no_scratch;
} need_change;
#define NEED_AS_IT_IS ((need_change){.weights = 1, .trained = 1, .state = 1})

typedef struct need {
  bool known; /* the program reported enough */
  bool trains;
  uint64_t capacity_bytes;
  uint64_t weight_bytes, gradient_bytes;
  uint64_t state_bytes;   /* size when every weight has its state */
  bool state_known;       /* the state size of this optimizer is known */
  uint64_t scratch_bytes; /* temporaries of the optimizer's step */
  uint64_t copy_bytes;    /* 16-bit copies that autocast keeps during a pass */
  uint64_t later_bytes;   /* what the process takes beside its tensors after a first forward pass */
  uint64_t work_bytes;    /* for the whole pass at the batch that failed: activations and loss */
  uint64_t work_now_bytes; /* at the failure */
  uint64_t batch;
} need;

void need_find(need *n, const evidence *e);
/* Returns how many times more memory a whole first forward pass needs than the part that was
 * reached. Estimated from the number of layers (a weight and a bias each) and of calls; without
 * stacks, each of the larger requests of the pass counts as one. */
double need_whole_pass(const evidence *e);
/* Returns how often a layer with weights was called, as far as stacks show it. */
uint32_t need_layer_calls(const evidence *e);
/* Returns what a process takes beside its tensors when kernels first run. */
uint64_t need_kernels_bytes(const need *n);
/* Returns the bytes of weights, gradients, state and temporaries, which no batch size reduces. */
uint64_t need_fixed_bytes(const need *n, need_change change);
/* Returns the largest batch whose pass fits beside that; 0: not even one sample. `work`: the
 * fraction of the activations that another change leaves. */
uint64_t need_batch(const need *n, need_change change, double work);

#endif
