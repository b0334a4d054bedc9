/* Spool: inflates a deflated member once into an unnamed file, so that it can be read in any order.
 * In $TMPDIR, or /var/tmp: not in memory. Called by batches to shuffle what does not fit in the
 * budget. The file vanishes when it is closed or the process ends in any way. */
#ifndef DATA_SPOOL_H
#define DATA_SPOOL_H

#include "data/rows.h"

typedef struct spool {
  int fd; /* -1: none */
  dtype type;
  uint32_t dims;
  uint64_t shape[ARRAY_DIMS_MAX];
} spool;

/* Reads all of the array, which must be numbers in C order. STOW_ERR_IO says how many bytes the
 * folder must have free. */
stow_status spool_make(spool *s, array *from);
/* Makes the origin read from the spool. */
stow_status spool_origin(const spool *s, origin *o);
void spool_close(spool *s);

#endif
