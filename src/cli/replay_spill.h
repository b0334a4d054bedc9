/* stowage replay --spill: a recorded step on a smaller device, with host memory behind it. */
#ifndef CLI_REPLAY_SPILL_H
#define CLI_REPLAY_SPILL_H

#include "cli/verb.h"

/* Runs and prints; the exit code. */
int replay_spill(verb_call *call);

#endif
