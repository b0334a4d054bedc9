/* Hdf5 grid: reads the chunks of a dataset that are stored as they are read, without a filter.
 *
 *   chunk[1] chunk[1]       A band is a row of chunks: chunk[0] rows of the dataset. The rows of a
 *   +-------+-------+--     chunk follow one another in the file. One read gets some rows of one
 *   | 0     | 1     | 2     chunk, and a copy puts each into its place. Chunks of
 *   +-------+-------+--     whole rows are read straight to where they are wanted.
 *   | 3     | 4     | 5
 *
 * libhdf5 only reports the offsets of the chunks. Called by hdf5.c. */
#ifndef ARRAYS_HDF5_GRID_H
#define ARRAYS_HDF5_GRID_H

#include "arrays/hdf5_dataset.h"
#include "base/status.h"

typedef struct hdf5_grid {
  const hdf5_dataset *d;
  int file;
  uint64_t file_bytes;
  const char *path; /* for messages */
  uint64_t *places; /* offset of each chunk, in C order, or HDF5_NO_PLACE */
  uint64_t in_band; /* chunks in a band */
  uint32_t cut;     /* the last dimension in which chunks are not whole; 0: they hold whole rows */
  uint64_t step[HDF5_DIMS_MAX];       /* bytes from one index to the next in the dataset */
  uint64_t chunk_step[HDF5_DIMS_MAX]; /* and in a chunk */
  char *rows;                         /* rows of one chunk, as they are stored */
  uint64_t rows_most;                 /* and how many fit */
  char *row;                          /* row `row_number` of the dataset */
  uint64_t row_number;                /* UINT64_MAX: none */
} hdf5_grid;

/* Returns the number of chunks of `d`; 0 if there are none or more than 64 bits count. */
uint64_t hdf5_grid_chunks(const hdf5_dataset *d);
/* Returns the bytes of a whole chunk; UINT64_MAX if they do not fit. */
uint64_t hdf5_grid_chunk_bytes(const hdf5_dataset *d);

/* Prepares to read dataset `d` of `file`. `places` has hdf5_grid_chunks(d) entries; the grid takes
 * it, also if this fails. Sets `usable` to false if `memory_bytes` is too little, or chunks are too
 * small. */
stow_status hdf5_grid_open(hdf5_grid *g, const hdf5_dataset *d, uint64_t *places, int file,
                           uint64_t file_bytes, const char *path, uint64_t memory_bytes,
                           bool *usable);
void hdf5_grid_close(hdf5_grid *g);

/* Reads values from byte `offset` of the dataset on, at most `count` bytes of them. Sets `done` to
 * the number of bytes read; 0 if libhdf5 must read there. */
stow_status hdf5_grid_read(hdf5_grid *g, uint64_t offset, char *to, size_t count, size_t *done);

/* Reads `count` bytes of `file` at `offset`. */
stow_status hdf5_read_at(int file, const char *path, uint64_t offset, char *to, size_t count);

#endif
