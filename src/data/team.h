/* Team: the processes of one MPI job, if there is one.
 *
 *   team t; team_join(&t); … status = team_agree(&t, status); … team_leave(&t);
 *
 * MPI (Open MPI or an MPICH) is loaded at run time, and only if a launcher reports several ranks.
 * Then every rank runs the same job, takes its part of the rows, and agrees with the others after
 * each step. Called by shrink. */
#ifndef DATA_TEAM_H
#define DATA_TEAM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct team {
  unsigned rank, size; /* 0 of 1: alone */
  bool broken;         /* a rank failed: no rank waits any more */
  unsigned failed;     /* the first rank that failed */
} team;

/* Joins the ranks that the launcher started; a team of one if it started none. STOW_ERR_UNSUPPORTED
 * if it did and MPI cannot be loaded. */
stow_status team_join(team *t);
/* Leaves once every rank is here: a launcher that sees one rank fail ends the others, even if they
 * are about to report why. */
void team_leave(team *t);

/* Returns the same result on all ranks: STOW_OK if every rank passes it; a failed rank's own
 * status, or on the others that another failed. For NULL and a team of one: `status`. */
stow_status team_agree(team *t, stow_status status);
/* Gathers every rank's `bytes`, by rank, into `all`. Only after an agreement on STOW_OK. */
stow_status team_gather(team *t, const void *mine, void *all, size_t bytes);
/* Broadcasts `bytes` of rank `from` to every rank. */
stow_status team_share(team *t, void *bytes, size_t count, unsigned from);
/* Returns whether it is true on every rank; does not count as a failure. False if MPI fails. */
bool team_all(team *t, bool mine);

static inline bool team_leads(const team *t) {
  return t == NULL || t->rank == 0;
}

static inline bool team_alone(const team *t) {
  return t == NULL || t->size <= 1;
}

#endif
