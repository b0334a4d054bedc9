/* Hdf5 spool: one band of packed chunks, unpacked into a file without a name.
 *
 *   chunk 0 | chunk 1 | … | chunk n      A band is all chunks along an axis at one place of it:
 * here a part: a few rows of every chunk    chunk[0] rows. Its values follow one another in C
 * order.
 *
 * If a part of the values that memory holds is less than a band, each part would unpack all chunks
 * of the band again. A reader that reads the band in order unpacks each of them once, in boxes of
 * whole chunks, into the spool. The file is in $TMPDIR, or /var/tmp. Without space for it, parts
 * are read as before.
 *
 * Called by hdf5.c. */
#ifndef ARRAYS_HDF5_SPOOL_H
#define ARRAYS_HDF5_SPOOL_H

#include "arrays/hdf5_wire.h"

typedef struct hdf5_spool {
  int file;          /* -1: none */
  pid_t owner;       /* a forked process needs a file of its own */
  bool refused;      /* there is no space */
  uint64_t at, stop; /* the bytes of the dataset that it holds */
} hdf5_spool;

#define HDF5_SPOOL_INIT ((hdf5_spool){.file = -1})

/* Returns whether parts of `rows` indexes along `axis` unpack chunks more than once. */
bool hdf5_spool_helps(const hdf5_dataset *d, uint32_t axis, uint64_t rows);
/* Returns whether both bytes of the dataset, which has packed chunks, are in one band. */
bool hdf5_spool_in_one(const hdf5_dataset *d, uint64_t a, uint64_t b);
/* Fills the spool with the band that holds byte `offset` of the values. Uses the memory that is
 * shared with the child. Sets `refused`, and holds nothing, if the file cannot be written. */
stow_status hdf5_spool_fill(hdf5_spool *s, hdf5_child *child, const hdf5_dataset *d,
                            uint64_t offset);
/* Returns whether the spool holds byte `offset`. */
bool hdf5_spool_holds(const hdf5_spool *s, uint64_t offset);
/* Reads bytes that it holds. `path`: for messages. */
stow_status hdf5_spool_read(const hdf5_spool *s, const char *path, uint64_t offset, char *to,
                            size_t count);
void hdf5_spool_close(hdf5_spool *s);

#endif
