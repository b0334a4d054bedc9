/* Run launcher: finds the process that started this one as one of several ranks (mpirun, torchrun,
 * Slurm's step). Ranks of one start then find the same folder without communicating. */
#ifndef RUN_LAUNCHER_H
#define RUN_LAUNCHER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct run_launcher {
  pid_t pid;
  uint64_t start; /* start time of the process in clock ticks since boot; pid and start identify
                   * it */
} run_launcher;

/* Finds the launcher. Returns false if this process is not one of several ranks, or no ancestor is
 * a launcher. */
bool run_launcher_find(run_launcher *found);

#endif
