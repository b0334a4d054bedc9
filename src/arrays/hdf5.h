/* Hdf5: the datasets of an HDF5 file, through libhdf5 found at run time.
 *
 *   hdf5 *h; hdf5_open(&h, "x.h5", max_bytes); … hdf5_source(&s, h, 0, max_bytes); … hdf5_close(h);
 *
 * Called by the array reader and by inspect. The library is declared here, not built against;
 * without it opening is STOW_ERR_UNSUPPORTED and says which package has it. $STOWAGE_HDF5_LIBRARY
 * names another one. Values are read by hyperslabs, a band of chunks at a time, whatever their
 * filters; no other file is opened because one names it. Not safe from several threads: the library
 * is not. */
#ifndef ARRAYS_HDF5_H
#define ARRAYS_HDF5_H

#include "base/dtype.h"
#include "files/source.h"

#define HDF5_NAME_MAX 512
#define HDF5_DIMS_MAX 32 /* the library's own bound */

typedef struct hdf5_dataset {
  char name[HDF5_NAME_MAX]; /* its path: "group/data" */
  dtype type;               /* DTYPE_NONE: not numbers; type_name says what */
  char type_name[32];
  uint64_t item_bytes, count;
  uint32_t dims;
  uint64_t shape[HDF5_DIMS_MAX];
} hdf5_dataset;

typedef struct hdf5 hdf5;

/* Does an HDF5 file begin here, or behind a block of the user's own? */
stow_status hdf5_find(bool *found, source *from);

/* Opens the file and lists its datasets, using at most `max_bytes` of memory for the list. */
stow_status hdf5_open(hdf5 **h, const char *path, uint64_t max_bytes);
void hdf5_close(hdf5 *h);

size_t hdf5_count(const hdf5 *h);
const hdf5_dataset *hdf5_get(const hdf5 *h, size_t number);

/* The values of dataset `number`, item after item in C order and the machine's byte order, as a
 * source that lives no longer than `h`; with `owns_file` closing it closes `h`. STOW_ERR_BUDGET if
 * a chunk is larger than `max_bytes`. */
stow_status hdf5_source(source *s, hdf5 *h, size_t number, uint64_t max_bytes, bool owns_file);

#endif
