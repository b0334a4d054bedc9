/* Spool: a deflated member inflated once into a file that has no name, so that it can be read in
 * any order. In $TMPDIR, or /var/tmp: not in memory. Called by batches for shuffles of what does
 * not fit the budget; gone when it is closed, or when the process ends however it ends. */
#ifndef DATA_SPOOL_H
#define DATA_SPOOL_H

#include "data/rows.h"

typedef struct spool {
  int fd; /* -1: none */
  dtype type;
  uint32_t dims;
  uint64_t shape[ARRAY_DIMS_MAX];
} spool;

/* Reads all of the array, which is in C order and of numbers. STOW_ERR_IO says how many bytes the
 * folder must have free. */
stow_status spool_make(spool *s, array *from);
/* Turns the origin to the spool. */
stow_status spool_origin(const spool *s, origin *o);
void spool_close(spool *s);

#endif
