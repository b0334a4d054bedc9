/* Rank: which process of a job this is, by the variables its launcher sets: torchrun, Open MPI,
 * MPICH, Slurm. Used by whoever shares data out (data/shard) or names files (the shim, stowage
 * run).
 */
#ifndef BASE_RANK_H
#define BASE_RANK_H

#include <stdbool.h>

typedef struct rank_names {
  const char *rank, *world;
} rank_names;

/* The variables that speak of this process; NULL: none does. With `world_too` both must be there.
 */
const rank_names *rank_find(bool world_too);

/* Its number in digits, "" if there is none. */
const char *rank_text(void);

/* Is it one of several, whether or not its number is told? */
bool rank_of_many(void);

#endif
