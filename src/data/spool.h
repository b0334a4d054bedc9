/* Spool: copies an array once into an unnamed file, so that it can be read in any order: a deflated
 * member, or a small array on a server. In $TMPDIR, or /var/tmp: not in memory. Called by batches
 * to shuffle. The file vanishes when it is closed or the process ends in any way. */
#ifndef DATA_SPOOL_H
#define DATA_SPOOL_H

#include "data/rows.h"

typedef struct spool {
  int fd;     /* -1: none */
  char *name; /* of the array */
  dtype type;
  uint32_t dims;
  uint64_t shape[ARRAY_DIMS_MAX];
} spool;

/* Returns whether the array is numbers in C order. */
bool spool_can(const array *from);
/* Reads all of the array, which spool_can. STOW_ERR_IO says how many bytes the
 * folder must have free. */
stow_status spool_make(spool *s, array *from);
/* Makes the origin read from the spool. */
stow_status spool_origin(const spool *s, origin *o);
void spool_close(spool *s);

#endif
