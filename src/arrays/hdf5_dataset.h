/* Hdf5 dataset: what libhdf5 says about one dataset: its type, shape, chunks and where it is. */
#ifndef ARRAYS_HDF5_DATASET_H
#define ARRAYS_HDF5_DATASET_H

#include "base/dtype.h"

#define HDF5_NAME_MAX 512
#define HDF5_TYPE_MAX 64
#define HDF5_DIMS_MAX 32 /* H5S_MAX_RANK */
#define HDF5_NO_PLACE UINT64_MAX

typedef struct hdf5_dataset {
  char name[HDF5_NAME_MAX];      /* its path: "group/data" */
  dtype type;                    /* DTYPE_NONE: not read; type_name says why */
  char type_name[HDF5_TYPE_MAX]; /* "float64", "text", "packed with lzf" */
  uint64_t item_bytes, count;
  uint32_t dims;
  bool filtered; /* chunks pass through a filter: each is decoded as a whole */
  uint64_t shape[HDF5_DIMS_MAX];
  uint64_t chunk[HDF5_DIMS_MAX]; /* chunk[0] 0: not chunked */
  uint64_t place; /* file offset of the values, stored as they are read; HDF5_NO_PLACE: they are not
                   * contiguous, or are stored in another form */
} hdf5_dataset;

#endif
