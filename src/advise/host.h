/* Host: why a run ran out of host memory, from its host record. explain calls it for a run that was
 * ended for host memory; it fills an explanation as explain_recording does. */
#ifndef ADVISE_HOST_H
#define ADVISE_HOST_H

#include "advise/explanation.h"
#include "recordings/recording.h"
#include "run/host_record.h"

stow_status explain_host(explanation *x, const host_record *r);

/* Returns whether a recording is of host memory (its fact `memory`). */
bool host_recording_is(const recording *r);
/* Explains one: its peak, and what held how much of it then. */
stow_status explain_host_recording(explanation *x, const recording *r);

#endif
