/* Fixes: what to change, what it saves, what it costs.
 *
 * Made for the causes that hold, most likely first, never one that is on already. The saving is the
 * difference of two replays of the recording wherever the change can be played (basis "replayed"),
 * else arithmetic on what was live (basis "estimated"). It is a saving at the failure: what the
 * program would have asked for afterwards is not in the recording. */
#ifndef ADVISE_FIXES_H
#define ADVISE_FIXES_H

#include "advise/causes.h"
#include "advise/fix.h"

/* `device` names the device where known ("Tesla T4"), else "". */
stow_status fixes_find(fixes *out, const evidence *e, const findings *f, const char *device);

#endif
