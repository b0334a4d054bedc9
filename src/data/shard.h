/* Shard: which of several processes this is, and which places of the order are its own.
 *
 * Called by batches. Shares are runs of places, so that ranks read apart from one another; they
 * differ by at most one row, none overlaps, together they are everything. */
#ifndef DATA_SHARD_H
#define DATA_SHARD_H

#include <stdint.h>

#include "base/status.h"

typedef struct shard {
  uint32_t rank, world;
} shard;

/* From the environment: RANK and WORLD_SIZE (torchrun), OMPI_COMM_WORLD_RANK and _SIZE (Open MPI),
 * PMI_RANK and PMI_SIZE (MPICH), SLURM_PROCID and SLURM_NTASKS (srun), in this order; one
 * process of one where none is there. STOW_ERR_INVALID names the variable that makes no sense. */
stow_status shard_find(shard *s);
/* Given by the caller: `world` at least 1. */
stow_status shard_check(const shard *s);

/* The places of `rows` from *first to *end are this rank's. */
void shard_range(const shard *s, uint64_t rows, uint64_t *first, uint64_t *end);

#endif
