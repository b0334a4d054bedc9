/* Hdf5 packed: reads chunks that passed through filters and unpacks them itself (hdf5_unpack.h).
 * Runs in the worker only. */
#ifndef ARRAYS_HDF5_PACKED_H
#define ARRAYS_HDF5_PACKED_H

#include <stdbool.h>

#include "arrays/hdf5_dataset.h"
#include "arrays/hdf5_library.h"
#include "arrays/hdf5_unpack.h"

/* A box of values, and where it starts in the memory of the read. */
typedef struct hdf5_box {
  h5_size from[HDF5_DIMS_MAX], items[HDF5_DIMS_MAX], at[HDF5_DIMS_MAX];
} hdf5_box;

typedef struct hdf5_packed {
  const hdf5_library *library;
  h5_id object;
  const hdf5_dataset *d;
  uint64_t chunk_bytes;
  hdf5_unpack *unpack; /* NULL: libhdf5 must read the dataset */
  bool swapped;        /* the values are stored in the other byte order */
  bool plain_edges;    /* chunks that end outside the dataset are not packed */
} hdf5_packed;

/* Sets up `p` for dataset `d`, open as `object`, whose values are of `type` in the file. Both must
 * outlive it. */
stow_status hdf5_packed_open(hdf5_packed *p, const hdf5_library *library, h5_id object, h5_id type,
                             const hdf5_dataset *d);
/* Closing twice is fine. */
void hdf5_packed_close(hdf5_packed *p);

/* Checks the stored size of a chunk of `chunk_bytes`. A filter makes a chunk only slightly larger:
 * a chunk stored in more than twice its bytes is damaged, or crafted to exhaust memory when it is
 * unpacked. The message completes "the chunk …". */
stow_status hdf5_packed_check(uint64_t chunk_bytes, uint64_t stored);

/* Returns what the chunk at `chunk` and `box` share; `at` counts from the start of the box. */
hdf5_box hdf5_packed_shared(const hdf5_dataset *d, const h5_size *chunk, const hdf5_box *box);

/* Reads of the chunk at `chunk` what is in `box`, whose values go to `to` in C order. Sets *left if
 * H5Dread must read it: it was never written, cannot be read, or has an unknown filter. The message
 * of an error completes "the chunk …". */
stow_status hdf5_packed_read(hdf5_packed *p, const h5_size *chunk, const hdf5_box *box, uint8_t *to,
                             bool *left);

#endif
