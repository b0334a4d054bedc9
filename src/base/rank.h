/* Rank: the number of this process in a job, from the variables of its launcher: torchrun, Open
 * MPI, MPICH, Slurm. Used to divide data (data/shard) and to name files (the shim, stowage run).
 */
#ifndef BASE_RANK_H
#define BASE_RANK_H

#include <stdbool.h>

typedef struct rank_names {
  const char *rank, *world;
} rank_names;

/* Returns the variables that describe this process, or NULL. With `world_too` both must be set.
 */
const rank_names *rank_find(bool world_too);

/* Returns the rank in digits, "" if there is none. */
const char *rank_text(void);

/* Returns true if this process is one of several, even if its rank is unknown. */
bool rank_of_many(void);

#endif
