/* Fixes: what to change, what it saves, what it costs.
 *
 * Found for the causes that apply, most likely first; a change that is already in effect is never
 * suggested. The saving is the difference between two replays of the recording if the change can be
 * replayed (basis "replayed"), otherwise arithmetic on what was live (basis "estimated"). It is the
 * saving at the failure: later requests are not in the recording. */
#ifndef ADVISE_FIXES_H
#define ADVISE_FIXES_H

#include "advise/causes.h"
#include "advise/fix.h"

/* Finds the fixes. `device` is the name of the device ("Tesla T4"); "" if unknown. */
stow_status fixes_find(fixes *out, const evidence *e, const findings *f, const char *device);

#endif
