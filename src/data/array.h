/* Array: numbers on disk with a type and a shape: an .npy file, a member of an .npz (stored or
 * deflated), an HDF5 dataset, a safetensors tensor, or raw bytes that the caller describes.
 *
 *   array a; array_open(&a, "x.npz:weights", NULL);
 *   array_read_rows(&a, 0, 32, rows); array_close(&a);
 *
 * Called by inspect, shrink and batches. Guarantees: explicit reads only (never a mapping), values
 * in the machine's byte order, memory of one window however large the array is, every size checked
 * against the file before anything is allocated. Not thread-safe. */
#ifndef DATA_ARRAY_H
#define DATA_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arrays/hdf5.h"
#include "arrays/npy.h"
#include "base/dtype.h"
#include "files/source.h"
#include "files/zip.h"

#define ARRAY_DIMS_MAX  NPY_DIMS_MAX
#define ARRAY_NAME_MAX  1024
#define ARRAY_DTYPE_MAX 72

/* Describes raw bytes; not needed if the file describes itself. */
typedef struct array_spec {
  dtype type; /* DTYPE_NONE: from the file */
  uint32_t dims;
  uint64_t shape[ARRAY_DIMS_MAX];
  bool has_shape;        /* false: one dimension, as long as the file */
  uint64_t budget_bytes; /* for reading HDF5; 0: the default of a data job */
} array_spec;

typedef struct array {
  char name[ARRAY_NAME_MAX]; /* for messages */
  dtype type;                /* DTYPE_NONE: not numbers (text, complex, times); items are bytes */
  char descr[64];            /* NumPy's, as in the file: "<f8", "|S3" */
  uint64_t item_bytes;
  bool big_endian, fortran_order;
  uint32_t dims;
  uint64_t shape[ARRAY_DIMS_MAX];
  uint64_t count; /* items; 1 for 0-d */
  uint64_t bytes; /* size of all items */

  source *from;
  bool owns_source;
  bool in_zip; /* read through `member` */
  zip archive; /* only if array_open opened it */
  zip_member member;
  uint64_t offset;     /* offset of the first item, in the member or in the file */
  uint64_t chunk_rows; /* HDF5: rows that are unpacked together; 0 or 1: none */
  uint64_t held_bytes; /* HDF5: memory that reading needs in addition to the caller's */
} array;

/* Splits "file:member" where no file has that name and the part before a colon is a file: copies
 * the part into `file`, which holds `size` bytes, and points `member` behind the colon. Returns
 * false for a plain path. */
bool array_split(const char *path, char *file, size_t size, const char **member);

/* Opens `path`, or `path:member` for one array of a file that has several. `spec` describes raw
 * bytes and is rejected for a file that describes itself; NULL: none. STOW_ERR_INVALID: the file
 * has several arrays and none was named; the message lists them. */
stow_status array_open(array *a, const char *path, const array_spec *spec);
/* Opens what the caller has open: a whole .npy, or one member of a zip. */
stow_status array_open_npy(array *a, source *from);
stow_status array_open_member(array *a, source *from, const zip_entry *entry);
/* Opens a member that is not read as numbers, as bytes of type DTYPE_NONE, and sets *kind to what
 * it is: "structured", "objects", or "not an array" where its name does not end with .npy. *kind is
 * NULL, and nothing is open, for any other member. */
stow_status array_open_other(array *a, source *from, const zip_entry *entry, const char **kind);
/* Opens dataset `number` of an HDF5 file through `values`, which the caller closes after the
 * array. */
stow_status array_open_hdf5(array *a, source *values, hdf5 *h, size_t number, bool owns_file);
stow_status array_open_raw(array *a, source *from, const array_spec *spec);
/* Detects the kind of file from its first bytes; `member` is NULL for a file that is one array. */
stow_status array_open_source(array *a, source *from, const char *member, const array_spec *spec);
void array_close(array *a);
/* Leaves only the member called `name` (with or without .npy) in the list. STOW_ERR_NOT_FOUND. */
stow_status array_keep_member(zip *z, const char *name);

/* Makes another reader of the same values, for another thread: the same file with its own position,
 * starting at item `first`. Returns false if only one thread can read it: a member of an archive, a
 * caller's reader. `copy` must not outlive `a`, and is not closed. */
bool array_fork(array *copy, source *from, const array *a, uint64_t first);

/* Sets *count to the number of items from `first` on that are known to be equal without reading
 * them (chunks that were never written), and copies the value. 0: not known. */
stow_status array_repeats(array *a, uint64_t first, uint64_t *count, uint8_t value[8]);

/* Reads items `first` to `first + count` in file order. */
stow_status array_read(array *a, uint64_t first, void *to, size_t count);

/* Reads bytes of the items as stored, without converting the byte order. */
stow_status array_read_bytes(array *a, uint64_t offset, void *to, size_t count);

/* Returns the number of rows (first dimension); a 0-d array is one row of one item. */
uint64_t array_rows(const array *a);
uint64_t array_row_items(const array *a);
/* Reads rows `first` to `first + count` in C order, whatever the file's order. */
stow_status array_read_rows(array *a, uint64_t first, uint64_t count, void *to);

/* Writes the type in NumPy's spelling: "float64", ">f8", "complex128", "<U5". Returns `text`. */
const char *array_dtype(const array *a, char text[ARRAY_DTYPE_MAX]);

#endif
