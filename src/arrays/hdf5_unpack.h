/* Hdf5 unpack: undoes the filters of one stored chunk: gzip (deflate), shuffle and Fletcher32.
 *
 * libhdf5 does not check that a chunk unpacks to as many bytes as it holds. It returns what its
 * memory held before in place of the missing ones, and refuses to replace its own filters
 * (H5Zregister). So the worker reads chunks as they are stored and unpacks them here. */
#ifndef ARRAYS_HDF5_UNPACK_H
#define ARRAYS_HDF5_UNPACK_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define HDF5_FILTERS_MAX 32 /* bits of a chunk's mask */

/* Numbers of the HDF5 file format specification, IV.A.2.l. */
enum { HDF5_FILTER_DEFLATE = 1, HDF5_FILTER_SHUFFLE = 2, HDF5_FILTER_FLETCHER32 = 3 };

typedef struct hdf5_filter {
  int id;
  uint64_t item_bytes; /* shuffle: its unit */
} hdf5_filter;

typedef struct hdf5_unpack hdf5_unpack;

/* Makes an unpacker for chunks of `chunk_bytes` with these filters, in the order in which they
 * packed. *made is NULL if there are too many. */
stow_status hdf5_unpack_open(hdf5_unpack **made, const hdf5_filter *filters, unsigned count,
                             uint64_t chunk_bytes);
/* Returns the memory for a stored chunk of `bytes`; NULL if there is not enough. */
void *hdf5_unpack_stored(hdf5_unpack *u, uint64_t bytes);
/* Unpacks the chunk of `bytes` in that memory. Filters whose bit is set in `mask` did not pack it.
 * *values stay valid until the next call; NULL: a filter is not known, or packed twice. If the
 * chunk is damaged: STOW_ERR_FORMAT; the message completes "the chunk …". */
stow_status hdf5_unpack_chunk(hdf5_unpack *u, uint32_t mask, uint64_t bytes,
                              const uint8_t **values);
/* NULL is fine. */
void hdf5_unpack_close(hdf5_unpack *u);

#endif
