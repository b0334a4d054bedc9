/* Shard: which of several processes this is, and which positions of the order it owns.
 *
 * Called by batches. Shares are contiguous, so that ranks read in different places. They differ by
 * at most one row, do not overlap, and together cover everything. */
#ifndef DATA_SHARD_H
#define DATA_SHARD_H

#include <stdint.h>

#include "base/status.h"

typedef struct shard {
  uint32_t rank, world;
} shard;

/* Reads the environment: RANK and WORLD_SIZE (torchrun), OMPI_COMM_WORLD_RANK and _SIZE (Open MPI),
 * PMI_RANK and PMI_SIZE (MPICH), SLURM_PROCID and SLURM_NTASKS (srun), in this order; one process
 * if none is set. STOW_ERR_INVALID names the invalid variable. */
stow_status shard_find(shard *s);
/* Checks a shard given by the caller: `world` at least 1. */
stow_status shard_check(const shard *s);

/* Returns this rank's positions of `rows`: *first to *end. */
void shard_range(const shard *s, uint64_t rows, uint64_t *first, uint64_t *end);

#endif
