/* Rank: reading the environment. */
#include "base/rank.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Slurm last: under mpirun its numbers are those of MPI's helper processes, one per node. */
static const rank_names KNOWN[] = {{"RANK", "WORLD_SIZE"},
                                   {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                   {"PMI_RANK", "PMI_SIZE"},
                                   {"SLURM_PROCID", "SLURM_NTASKS"}};
enum { KNOWN_COUNT = sizeof KNOWN / sizeof KNOWN[0], SLURM = 3 };

static const char *value(const char *name) {
  const char *text = secure_getenv(name);
  return text != NULL && text[0] != '\0' ? text : NULL;
}

/* The script that sbatch starts sees the job's task count but is one process: only srun starts
 * tasks, and sets a step. */
static bool inside_batch_script(void) {
  return value("SLURM_JOB_ID") != NULL && value("SLURM_STEP_ID") == NULL &&
         value("SLURM_STEPID") == NULL;
}

const rank_names *rank_find(bool world_too) {
  for (int i = 0; i < KNOWN_COUNT; i++)
    if (value(KNOWN[i].rank) != NULL && (!world_too || value(KNOWN[i].world) != NULL) &&
        (i != SLURM || !inside_batch_script()))
      return &KNOWN[i];
  return NULL;
}

const char *rank_text(void) {
  enum { DIGITS_MAX = 10 };
  const rank_names *names = rank_find(false);
  const char *text = names != NULL ? value(names->rank) : "";
  size_t length = strlen(text);
  return length <= DIGITS_MAX && strspn(text, "0123456789") == length ? text : "";
}

bool rank_of_many(void) {
  for (int i = 0; i < KNOWN_COUNT; i++) {
    const char *world = value(KNOWN[i].world);
    if (world != NULL && strtol(world, NULL, 10) > 1 && (i != SLURM || !inside_batch_script()))
      return true;
  }
  return false;
}
