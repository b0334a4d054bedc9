/* Hdf5 file: one HDF5 file, through libhdf5. Runs in the worker only (hdf5_worker.c), because
 * libhdf5 may crash on a damaged file. */
#ifndef ARRAYS_HDF5_FILE_H
#define ARRAYS_HDF5_FILE_H

#include "arrays/hdf5.h"
#include "arrays/hdf5_library.h"
#include "arrays/hdf5_packed.h"

typedef struct hdf5_file {
  const hdf5_library *library;
  const char *path; /* for messages */
  h5_id id;
  hdf5_dataset d; /* the dataset read last; its name is "" if there is none */
  h5_id object, type, space;
  hdf5_packed packed;
  bool fills;      /* what was never written reads as `fill` */
  uint8_t fill[8]; /* 0 where `fills` is false */
} hdf5_file;

/* Opens the file `name`, called `path` in messages. */
stow_status hdf5_file_open(hdf5_file *f, const char *name, const char *path);

typedef stow_status (*hdf5_take)(void *context, const hdf5_dataset *d);
/* Calls `take` for each dataset. A status other than STOW_OK from it ends the walk. */
stow_status hdf5_file_list(hdf5_file *f, hdf5_take take, void *context);

/* Calls `take` for the dataset that the path leads to over soft links, with its own path.
 * STOW_ERR_NOT_FOUND if there is none; STOW_ERR_UNSUPPORTED if the path leads into another file. */
stow_status hdf5_file_find(hdf5_file *f, const char *path, hdf5_take take, void *context);

/* Reads the values at `start`, `count` of dataset `name` into `to`, which holds `bytes`. */
stow_status hdf5_file_read(hdf5_file *f, const char *name, const uint64_t *start,
                           const uint64_t *count, void *to, uint64_t bytes);

/* Lists the rows of chunks that have a chunk in the file (row / chunk[0], ascending), at most
 * `most`, and returns the value of the others. Also the number of values at the start of a row
 * behind which no chunk of the file has one. `known` is false if the list is not useful: most of
 * the dataset is in the file, it has too many chunks, or libhdf5 cannot list them. */
stow_status hdf5_file_written(hdf5_file *f, const char *name, uint64_t *rows, uint64_t most,
                              uint64_t *count, uint64_t *row_items, bool *known, uint8_t fill[8]);

/* Writes the file offset of each chunk of dataset `name`, HDF5_NO_PLACE for one that is missing,
 * and their number to `count`. Sets `known` to false if chunks are not stored as they are read,
 * if there are more than `most` chunks, or if libhdf5 cannot list them. */
stow_status hdf5_file_places(hdf5_file *f, const char *name, uint64_t *places, uint64_t most,
                             uint64_t *count, bool *known);

#endif
