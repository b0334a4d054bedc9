/* Team: MPI, loaded at run time. The two families have different handles: Open MPI's are addresses
 * of its own objects, MPICH's (and Intel's, Cray's, MVAPICH's) are fixed integers. Everything is
 * sent as bytes, so one communicator and one type suffice. */
#include "data/team.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/library.h"

#define SHARE_BYTES ((size_t)1 << 30) /* MPI counts in int */
#define FEW_RANKS   4096
#define MPICH_WORLD 0x44000000
#define MPICH_BYTE  0x4c00010d

static struct {
  int (*init)(int *, char ***);
  int (*initialized)(int *);
  int (*finalize)(void);
  int (*gather)(const void *, int, void *, void *, int, void *, void *);
  int (*gather_mpich)(const void *, int, int, void *, int, int, int);
  int (*share)(void *, int, void *, int, void *);
  int (*share_mpich)(void *, int, int, int, int);
  int (*rank)(void *, int *);
  int (*size)(void *, int *);
  int (*rank_mpich)(int, int *);
  int (*size_mpich)(int, int *);
  void *world, *byte; /* Open MPI's objects; NULL: an MPICH */
} mpi;

/* Returns how many ranks the launcher reports. */
static unsigned launched(const char **by) {
  static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE",
                                      "MPI_LOCALNRANKS"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    const char *text = getenv(names[i]);
    *by = names[i];
    if (text != NULL && strtoul(text, NULL, 10) > 1) return (unsigned)strtoul(text, NULL, 10);
  }
  return 1;
}

static bool load(bool open_mpi) {
  static const char *const open_names[] = {"libmpi.so.40", "libmpi.so.20", "libmpi.so.12",
                                           "libmpi.so", NULL};
  static const char *const mpich_names[] = {"libmpich.so.12", "libmpi.so.12", "libmpich.so",
                                            "libmpi.so", NULL};
  const library_symbol symbols[] = {
      {"MPI_Init", &mpi.init},        {"MPI_Finalize", &mpi.finalize},
      {"MPI_Allgather", &mpi.gather}, {"MPI_Initialized", &mpi.initialized},
      {"MPI_Bcast", &mpi.share},      {"MPI_Comm_rank", &mpi.rank},
      {"MPI_Comm_size", &mpi.size},
  };
  char reason[LIBRARY_REASON_BYTES];
  /* Global: MPI loads plugins that look for its symbols. */
  void *library = library_open(NULL, open_mpi ? open_names : mpich_names, true, reason);
  if (library == NULL) return false;
  bool fine = library_find_all(library, symbols, sizeof symbols / sizeof symbols[0], reason);
  memcpy(&mpi.gather_mpich, &mpi.gather, sizeof mpi.gather);
  memcpy(&mpi.share_mpich, &mpi.share, sizeof mpi.share);
  memcpy(&mpi.rank_mpich, &mpi.rank, sizeof mpi.rank);
  memcpy(&mpi.size_mpich, &mpi.size, sizeof mpi.size);
  if (library_find(library, "ompi_mpi_comm_world", &mpi.world))
    fine = fine && library_find(library, "ompi_mpi_byte", &mpi.byte);
  return fine;
}

static int gather(const void *mine, void *all, size_t bytes) {
  if (mpi.world != NULL)
    return mpi.gather(mine, (int)bytes, mpi.byte, all, (int)bytes, mpi.byte, mpi.world);
  return mpi.gather_mpich(mine, (int)bytes, MPICH_BYTE, all, (int)bytes, MPICH_BYTE, MPICH_WORLD);
}

stow_status team_join(team *t) {
  const char *by;
  int rank = 0, size = 1, running = 0;
  *t = (team){.size = 1};
  if (launched(&by) <= 1) return STOW_OK;
  if (!load(strncmp(by, "OMPI", 4) == 0))
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "%s says that there are several ranks, but no MPI library was found; install "
                     "it, or add its folder to LD_LIBRARY_PATH",
                     by);
  mpi.initialized(&running);
  if (!running && mpi.init(NULL, NULL) != 0)
    return stow_fail(STOW_ERR_UNSUPPORTED, "MPI could not be initialized");
  if (mpi.world != NULL) {
    mpi.rank(mpi.world, &rank);
    mpi.size(mpi.world, &size);
  } else {
    mpi.rank_mpich(MPICH_WORLD, &rank);
    mpi.size_mpich(MPICH_WORLD, &size);
  }
  t->rank = (unsigned)rank;
  t->size = (unsigned)size;
  return STOW_OK;
}

void team_leave(team *t) {
  char mine = 0, *all = t->size > 1 ? malloc(t->size) : NULL;
  if (all != NULL) gather(&mine, all, 1);
  free(all);
  if (t->size > 1) mpi.finalize();
  t->size = 1;
}

/* Agrees on a status. A failed rank agrees one more time, which matches the others' next agreement;
 * after a failure no rank waits again. */
stow_status team_agree(team *t, stow_status status) {
  if (t == NULL || t->size <= 1 || t->broken) return status;
  int32_t mine = status, *all = calloc(t->size, sizeof *all);
  if (all == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to query the other ranks");
  int code = gather(&mine, all, sizeof mine);
  int32_t failed = code != 0 ? STOW_ERR_IO : STOW_OK;
  unsigned who = t->rank;
  for (unsigned i = 0; i < t->size && failed == STOW_OK; i++)
    if (all[i] != STOW_OK) failed = all[i], who = i;
  free(all);
  t->broken = failed != STOW_OK;
  t->failed = who;
  if (status != STOW_OK || failed == STOW_OK) return status;
  return stow_fail((stow_status)failed, "rank %u of %u failed: %s", who, t->size,
                   stow_status_name((stow_status)failed));
}

stow_status team_gather(team *t, const void *mine, void *all, size_t bytes) {
  if (t == NULL || t->size <= 1) return memcpy(all, mine, bytes), STOW_OK;
  return gather(mine, all, bytes) == 0
             ? STOW_OK
             : stow_fail(STOW_ERR_IO, "MPI could not gather from all ranks");
}

stow_status team_share(team *t, void *bytes, size_t count, unsigned from) {
  char *at = bytes;
  if (team_alone(t)) return STOW_OK;
  for (size_t part; count > 0; at += part, count -= part) {
    part = count < SHARE_BYTES ? count : SHARE_BYTES;
    int code = mpi.world != NULL
                   ? mpi.share(at, (int)part, mpi.byte, (int)from, mpi.world)
                   : mpi.share_mpich(at, (int)part, MPICH_BYTE, (int)from, MPICH_WORLD);
    if (code != 0) return stow_fail(STOW_ERR_IO, "MPI could not broadcast from rank %u", from);
  }
  return STOW_OK;
}

bool team_all(team *t, bool mine) {
  if (team_alone(t)) return mine;
  char few[FEW_RANKS], *all = t->size <= FEW_RANKS ? few : malloc(t->size);
  bool fine = all != NULL && gather(&(char){mine}, all, 1) == 0;
  for (unsigned i = 0; i < t->size && fine; i++) fine = all[i] != 0;
  if (all != few) free(all);
  return fine;
}
