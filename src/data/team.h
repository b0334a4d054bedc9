/* Team: the processes of one MPI job, where there is one.
 *
 *   team t; team_join(&t); … status = team_agree(&t, status); … team_leave(&t);
 *
 * MPI is found at run time (Open MPI or an MPICH) and only where a launcher says that there are
 * several ranks; then every rank runs the same job, takes its part of the rows, and agrees with the
 * others after each step. Called by shrink. */
#ifndef DATA_TEAM_H
#define DATA_TEAM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct team {
  unsigned rank, size; /* 0 of 1: alone */
  bool broken;         /* somebody failed: nobody waits for anybody again */
  unsigned failed;     /* the first rank that did, then */
} team;

/* Joins the ranks the launcher started; alone where none did. STOW_ERR_UNSUPPORTED if it did and
 * MPI cannot be loaded. */
stow_status team_join(team *t);
/* Ends it, once every rank has come here: a launcher that sees one fail ends the others, be they
 * about to say why. */
void team_leave(team *t);

/* The same for all: STOW_OK if every rank's is; its own where it failed, otherwise that another
 * did. NULL and a team of one: `status`. */
stow_status team_agree(team *t, stow_status status);
/* Every rank's `bytes`, by rank, into `all`. Only after an agreement that was STOW_OK. */
stow_status team_gather(team *t, const void *mine, void *all, size_t bytes);
/* What rank `from` has in `bytes`, there in every rank. */
stow_status team_share(team *t, void *bytes, size_t count, unsigned from);
/* True if it is true in every rank; nobody has failed by it. False where MPI fails. */
bool team_all(team *t, bool mine);

static inline bool team_leads(const team *t) {
  return t == NULL || t->rank == 0;
}

static inline bool team_alone(const team *t) {
  return t == NULL || t->size <= 1;
}

#endif
