/* npy: NumPy's array files, versions 1.0 to 3.0. Parses the header from any bytes and writes it
 * byte for byte as NumPy does.
 *
 *   \x93NUMPY major minor length {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } … \n
 *   values
 *
 * The whole header is checked before any value is used: each key exactly once, no negative or
 * overflowing sizes, and no more bytes declared than the file has. Object arrays, which contain
 * pickles, are rejected. */
#ifndef ARRAYS_NPY_H
#define ARRAYS_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/dtype.h"

#define NPY_DIMS_MAX   64    /* NumPy 2's limit */
#define NPY_HEADER_MAX 10000 /* NumPy's limit on the header text */
#define NPY_PREFIX_MAX 12    /* magic, version, and the longer form of the length */

typedef struct npy_header {
  dtype type;     /* DTYPE_NONE: not a number (complex, text, time, raw bytes); descr says what */
  char descr[64]; /* as in the file, truncated to fit; "[…]" for a structured type */
  uint64_t item_bytes; /* bytes of one element */
  bool big_endian, fortran_order;
  uint32_t dims;
  uint64_t shape[NPY_DIMS_MAX];
  uint64_t count;       /* product of shape; 1 for a 0-d array */
  uint64_t data_offset; /* offset of the values in the file */
  uint64_t data_bytes;  /* count * item_bytes */
} npy_header;

/* Returns how many bytes from the start of the file hold the prefix and header, given its first
 * NPY_PREFIX_MAX bytes (or all of a shorter file). Fails with STOW_ERR_FORMAT and the offset if it
 * is not an npy file. */
stow_status npy_header_bytes(uint64_t *bytes, const void *start, size_t count, const char *name);

/* Parses the header from the file's first `count` bytes (at least npy_header_bytes). `file_bytes`
 * is the size of the file or archive member, UINT64_MAX if unknown. `name` is for messages. */
stow_status npy_read_header(npy_header *header, const void *start, size_t count,
                            uint64_t file_bytes, const char *name);

/* Appends the prefix and header of an array as numpy.lib.format writes them. */
stow_status npy_write_header(buffer *out, dtype type, bool fortran_order, const uint64_t *shape,
                             uint32_t dims);

/* Writes a header for a type given by its descr ("|S3", "<U12"). */
stow_status npy_write_header_as(buffer *out, const char *descr, bool fortran_order,
                                const uint64_t *shape, uint32_t dims);

/* Returns the descr of a type ("<f4", "|b1"); NULL for bfloat16, which NumPy does not have. */
const char *npy_descr(dtype type);

/* Returns what an npy file holds that is not read: "structured" or "objects", by the start of its
 * header; NULL for anything else. */
const char *npy_other(const void *start, size_t count);

#endif
