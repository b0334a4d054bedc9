/* Run launcher: the process that started this one as one of several ranks (mpirun, torchrun,
 * Slurm's step), so that the ranks of one start find the same folder without speaking to each
 * other. */
#ifndef RUN_LAUNCHER_H
#define RUN_LAUNCHER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct run_launcher {
  pid_t pid;
  uint64_t start; /* of the process, in ticks since the machine started: with pid it is unique */
} run_launcher;

/* Returns false if this process is not one of several ranks, or no ancestor is known as a launcher.
 */
bool run_launcher_find(run_launcher *found);

#endif
