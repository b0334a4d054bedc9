/* Crew: the same work by several threads, each told its number.
 *
 * Called by the jobs of this folder. The caller is member 0; what fails first in any of them is the
 * crew's status, with its message. */
#ifndef DATA_CREW_H
#define DATA_CREW_H

#include "base/status.h"

#define CREW_MAX 64

typedef stow_status (*crew_work)(void *context, unsigned member);

/* Returns when all have ended. Where a thread cannot be started its work is done by the caller. */
stow_status crew_run(unsigned members, crew_work work, void *context);

/* Processors this process may use, at most CREW_MAX. */
unsigned crew_default(void);

#endif
