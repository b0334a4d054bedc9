/* Shard: see shard.h. */
#include "data/shard.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

static stow_status read_number(uint32_t *number, const char *name, const char *text) {
  char *end;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno != 0 || value > UINT32_MAX)
    return stow_fail(STOW_ERR_INVALID,
                     "%s=%.40s in the environment: must be a whole number; or give rank and world",
                     name, text);
  *number = (uint32_t)value;
  return STOW_OK;
}

/* The script that sbatch starts sees the job's task count but is one process: only srun makes
 * tasks, and says so with a step. */
static bool inside_batch_script(void) {
  return getenv("SLURM_JOB_ID") != NULL && getenv("SLURM_STEP_ID") == NULL &&
         getenv("SLURM_STEPID") == NULL;
}

stow_status shard_find(shard *s) {
  static const struct {
    const char *rank, *world;
  } known[] = {{"RANK", "WORLD_SIZE"},
               {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
               {"PMI_RANK", "PMI_SIZE"},
               {"SLURM_PROCID", "SLURM_NTASKS"}};
  enum { SLURM = 3 }; /* last: under mpirun its numbers are those of MPI's helpers, one a node */
  *s = (shard){0, 1};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    const char *rank = getenv(known[i].rank), *world = getenv(known[i].world);
    if (rank == NULL || world == NULL || (i == SLURM && inside_batch_script())) continue;
    STOW_TRY(read_number(&s->rank, known[i].rank, rank));
    STOW_TRY(read_number(&s->world, known[i].world, world));
    if (s->rank < s->world) return STOW_OK;
    return stow_fail(STOW_ERR_INVALID,
                     "%s=%u and %s=%u in the environment: ranks count from 0 to one less than the "
                     "world; or give rank and world",
                     known[i].rank, s->rank, known[i].world, s->world);
  }
  return STOW_OK;
}

stow_status shard_check(const shard *s) {
  if (s->world > 0 && s->rank < s->world) return STOW_OK;
  return stow_fail(STOW_ERR_INVALID, "rank %u of %u: ranks count from 0 to one less than the world",
                   s->rank, s->world);
}

void shard_range(const shard *s, uint64_t rows, uint64_t *first, uint64_t *end) {
  unsigned __int128 all = rows;
  *first = (uint64_t)(all * s->rank / s->world);
  *end = (uint64_t)(all * (s->rank + 1) / s->world);
}
