/* Saved: when the tensors that a step saves for its backward pass leave the device and come back.
 *
 * A copy of the policy in src/shim/activations.py (class Policy; docs/spill.md describes it), on a
 * simulated device. Names and order are the same as there. The policy decides when the host gets
 * to a point of the program, so its decisions do not depend on how long copies take. */
#ifndef REPLAY_SPILL_SAVED_H
#define REPLAY_SPILL_SAVED_H

#include "base/status.h"
#include "replay/spill_clock.h"

typedef struct saved_policy saved_policy;

/* `count`: tensors that a step saves. */
stow_status saved_open(saved_policy **out, spill_clock *clock, uint32_t count);
void saved_close(saved_policy *p);

void saved_set_target(saved_policy *p, int64_t bytes);
/* Returns what PyTorch had allocated when this step saved its first tensor; -1: it saved none. */
int64_t saved_base_bytes(const saved_policy *p);
/* Returns the most that the step before needed beside what it saved. */
int64_t saved_other_bytes(const saved_policy *p);

void saved_begin_step(saved_policy *p);
void saved_end_step(saved_policy *p);

/* Reports that a block was saved, and returns its number in this step. `free_after`: the last
 * launch before the backward pass that uses it. */
uint32_t saved_add(saved_policy *p, uint64_t bytes, uint32_t free_after);
/* Reports that the backward pass needs a block. */
void saved_use(saved_policy *p, uint32_t number);
/* Reports that the program has freed a block. */
void saved_remove(saved_policy *p, uint32_t number);

typedef struct saved_figures { /* of this step */
  uint64_t out_bytes, in_bytes;
  double wait_out_ns, wait_in_ns;
} saved_figures;
saved_figures saved_get_figures(const saved_policy *p);

#endif
