/* Workers: runs the same work on several threads, each with its number.
 *
 * Called by the jobs of this folder. The caller is member 0. The first failure of any thread is the
 * result, with its message. */
#ifndef DATA_WORKERS_H
#define DATA_WORKERS_H

#include "base/status.h"

#define WORKERS_MAX 64

typedef stow_status (*worker_task)(void *context, unsigned member);

/* Returns when all have ended. If a thread cannot be started, the caller does its work. */
stow_status workers_run(unsigned members, worker_task work, void *context);

/* Returns the number of processors this process may use, at most WORKERS_MAX. */
unsigned workers_default(void);

#endif
