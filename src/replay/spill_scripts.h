/* Scripts: a step of a PyTorch program as the scripts inside PyTorch run it (docs/spill.md).
 *
 * Saved tensors, state of optimizers and weights without gradient cross the bus beside the kernels,
 * without page calls. All three follow the order in which the host submits work, so one pass over
 * the operations of the step gives its times. */
#ifndef REPLAY_SPILL_SCRIPTS_H
#define REPLAY_SPILL_SCRIPTS_H

#include "replay/spill.h"

/* Repeats the step until its time is steady. `capacity_bytes`: vram for pages. `out->used`: what is
 * allocated then fits; otherwise pages have to move too, and the times mean nothing. */
stow_status spill_scripts_run(spill_scripted *out, spill_times *times, uint32_t *steps,
                              const spill_program *p, const spill_options *options,
                              uint64_t capacity_bytes);

#endif
