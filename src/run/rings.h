/* Rings: the traces of a run's processes, which stay in its folder until the run ends. Used by the
 * shim before it creates another one. */
#ifndef RUN_RINGS_H
#define RUN_RINGS_H

#include "run/ledger.h"

/* How many rings of processes that have ended a run keeps: about 300 MiB. */
#define RUN_RINGS_ENDED 16

/* Removes the oldest rings of processes that have ended, so that a run of many short processes does
 * not fill the disk. Keeps RUN_RINGS_ENDED of them, and those that explain a failure: their process
 * was refused memory, or left a file about it. `l` may be closed. Changes errno. */
void run_rings_tidy(const char *folder, const ledger *l);

#endif
