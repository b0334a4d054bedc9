/* stowage replay --spill: replays a recorded step on a smaller device with spilling to host
 * memory. */
#ifndef CLI_REPLAY_SPILL_H
#define CLI_REPLAY_SPILL_H

#include "cli/verb.h"

/* Runs the replay and prints the result. Returns the exit code. */
int replay_spill(verb_call *call);

#endif
