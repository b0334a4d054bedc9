/* Hdf5 library: the functions of libhdf5 that the worker uses, as its manual declares them (1.10
 * and later). */
#ifndef ARRAYS_HDF5_LIBRARY_H
#define ARRAYS_HDF5_LIBRARY_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef int64_t h5_id;              /* hid_t */
typedef unsigned long long h5_size; /* hsize_t */

/* H5L_info_t begins with the link's type; the rest differs between versions and is ignored.
 * */
typedef struct h5_link {
  int type;
} h5_link;

/* Room for all of it: 32 bytes in 1.8 to 1.14, 2.0. */
typedef union h5_link_room {
  h5_link link;
  uint64_t room[16];
} h5_link_room;

typedef int (*h5_visit)(h5_id group, const char *name, const h5_link *info, void *context);

/* H5E_error2_t */
typedef struct h5_error {
  h5_id class, major, minor;
  unsigned line;
  const char *function, *file, *text;
} h5_error;
typedef int (*h5_error_take)(unsigned number, const h5_error *error, void *context);

/* H5Dchunk_iter's. 1.12.3 passes `bytes` as 32 bits. */
typedef int (*h5_chunk_take)(const h5_size *offset, unsigned mask, uint64_t address, uint64_t bytes,
                             void *context);

enum { H5_LINK_HARD = 0, H5_LINK_SOFT = 1 };
enum { H5_KIND_DATASET = 5, H5_SPACE_NULL = 2 };
enum {
  H5_CLASS_INTEGER = 0,
  H5_CLASS_FLOAT = 1,
  H5_CLASS_STRING = 3,
  H5_CLASS_COMPOUND = 6,
  H5_CLASS_ENUM = 8,
  H5_CLASS_ARRAY = 10
};
enum { H5_LAYOUT_CONTIGUOUS = 1, H5_LAYOUT_CHUNKED = 2, H5_LAYOUT_VIRTUAL = 3 };
enum { H5_ORDER_LITTLE = 0, H5_ORDER_BIG = 1 };
enum { H5_CHUNK_EDGES_UNFILTERED = 2 };
enum { H5_FILL_UNDEFINED = 0, H5_FILL_TIME_NEVER = 1 };

/* name, result, parameters */
#define HDF5_FUNCTIONS(X)                                                                          \
  X(H5open, int, (void))                                                                           \
  X(H5get_libversion, int, (unsigned *, unsigned *, unsigned *))                                   \
  X(H5Eset_auto2, int, (h5_id, void *, void *))                                                    \
  X(H5Ewalk2, int, (h5_id, int, h5_error_take, void *))                                            \
  X(H5Fopen, h5_id, (const char *, unsigned, h5_id))                                               \
  X(H5Fclose, int, (h5_id))                                                                        \
  X(H5Oopen, h5_id, (h5_id, const char *, h5_id))                                                  \
  X(H5Oclose, int, (h5_id))                                                                        \
  X(H5Lget_val, int, (h5_id, const char *, void *, size_t, h5_id))                                 \
  X(H5Iget_type, int, (h5_id))                                                                     \
  X(H5Dget_type, h5_id, (h5_id))                                                                   \
  X(H5Dget_space, h5_id, (h5_id))                                                                  \
  X(H5Dget_create_plist, h5_id, (h5_id))                                                           \
  X(H5Dread, int, (h5_id, h5_id, h5_id, h5_id, h5_id, void *))                                     \
  X(H5Dget_storage_size, h5_size, (h5_id))                                                         \
  X(H5Pget_nfilters, int, (h5_id))                                                                 \
  X(H5Pget_filter2, int,                                                                           \
    (h5_id, unsigned, unsigned *, size_t *, unsigned *, size_t, char *, unsigned *))               \
  X(H5Zfilter_avail, int, (int))                                                                   \
  X(H5Pfill_value_defined, int, (h5_id, int *))                                                    \
  X(H5Pget_fill_value, int, (h5_id, h5_id, void *))                                                \
  X(H5Pget_fill_time, int, (h5_id, int *))                                                         \
  X(H5Pget_layout, int, (h5_id))                                                                   \
  X(H5Pget_chunk, int, (h5_id, int, h5_size *))                                                    \
  X(H5Pget_external_count, int, (h5_id))                                                           \
  X(H5Pclose, int, (h5_id))                                                                        \
  X(H5Tget_class, int, (h5_id))                                                                    \
  X(H5Tget_size, size_t, (h5_id))                                                                  \
  X(H5Tget_sign, int, (h5_id))                                                                     \
  X(H5Tget_precision, size_t, (h5_id))                                                             \
  X(H5Tget_fields, int, (h5_id, size_t *, size_t *, size_t *, size_t *, size_t *))                 \
  X(H5Tget_nmembers, int, (h5_id))                                                                 \
  X(H5Tenum_valueof, int, (h5_id, const char *, void *))                                           \
  X(H5Tget_super, h5_id, (h5_id))                                                                  \
  X(H5Tcopy, h5_id, (h5_id))                                                                       \
  X(H5Tset_order, int, (h5_id, int))                                                               \
  X(H5Tclose, int, (h5_id))                                                                        \
  X(H5Sget_simple_extent_type, int, (h5_id))                                                       \
  X(H5Sget_simple_extent_ndims, int, (h5_id))                                                      \
  X(H5Sget_simple_extent_dims, int, (h5_id, h5_size *, h5_size *))                                 \
  X(H5Screate_simple, h5_id, (int, const h5_size *, const h5_size *))                              \
  X(H5Sselect_hyperslab, int,                                                                      \
    (h5_id, int, const h5_size *, const h5_size *, const h5_size *, const h5_size *))              \
  X(H5Sclose, int, (h5_id))

typedef struct hdf5_library {
#define HDF5_FIELD(name, result, parameters) result(*name) parameters;
  HDF5_FUNCTIONS(HDF5_FIELD)
#undef HDF5_FIELD
  /* H5Lget_info, H5Lget_info1 from 1.12 on. */
  int (*link_info)(h5_id group, const char *name, h5_link_room *info, h5_id access);
  /* H5Lvisit, H5Lvisit1 from 1.12 on. */
  int (*visit)(h5_id group, int index, int order, h5_visit take, void *context);
  /* Optional. */
  uint64_t (*H5Dget_offset)(h5_id);
  int (*H5Tget_order)(h5_id);
  /* NULL in older versions. */
  int (*H5Pget_chunk_opts)(h5_id, unsigned *);
  int (*read_chunk)(h5_id, h5_id, const h5_size *, uint32_t *, void *); /* H5Dread_chunk, 1.10.3 */
  int (*H5Dget_chunk_storage_size)(h5_id, const h5_size *, h5_size *);  /* 1.10.2 */
  int (*H5Dget_num_chunks)(h5_id, h5_id, h5_size *);                    /* 1.10.5 */
  int (*H5Dget_chunk_info)(h5_id, h5_id, h5_size, h5_size *, unsigned *, uint64_t *,
                           h5_size *);                       /* 1.10.5 */
  int (*H5Dchunk_iter)(h5_id, h5_id, h5_chunk_take, void *); /* 1.14 */
} hdf5_library;

/* Finds and opens the library once: $STOWAGE_HDF5_LIBRARY; the system's; the one that h5py brings
 * (h5py.libs) in the Python environments on PATH; conda's. STOW_ERR_UNSUPPORTED if there is none,
 * with what to install. */
stow_status hdf5_library_get(const hdf5_library **library, const char *path);

#endif
