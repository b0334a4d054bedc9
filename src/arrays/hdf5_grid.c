/* Hdf5 grid: reads chunks without libhdf5. See hdf5_grid.h. */
#include "arrays/hdf5_grid.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"

/* Rows are put together this many bytes at a time, chunk after chunk: they stay in the cache. */
#define BLOCK_BYTES (UINT64_C(512) << 10)
/* If this process would read less of a chunk at a time, libhdf5 reads the chunks. */
#define PIECE_BYTES 1024

uint64_t hdf5_grid_chunk_bytes(const hdf5_dataset *d) {
  uint64_t bytes = d->item_bytes;
  for (uint32_t i = 0; i < d->dims; i++)
    if (!checked_mul(&bytes, bytes, d->chunk[i])) return UINT64_MAX;
  return bytes;
}

uint64_t hdf5_grid_chunks(const hdf5_dataset *d) {
  uint64_t count = 1;
  if (d->dims == 0 || d->chunk[0] == 0) return 0;
  for (uint32_t i = 0; i < d->dims; i++)
    if (d->shape[i] == 0 || !checked_mul(&count, count, (d->shape[i] - 1) / d->chunk[i] + 1))
      return 0;
  return count;
}

stow_status hdf5_grid_open(hdf5_grid *g, const hdf5_dataset *d, uint64_t *places, int file,
                           uint64_t file_bytes, const char *path, uint64_t memory_bytes,
                           bool *usable) {
  *g = (hdf5_grid){.d = d,
                   .file = file,
                   .file_bytes = file_bytes,
                   .path = path,
                   .places = places,
                   .in_band = hdf5_grid_chunks(d) / ((d->shape[0] - 1) / d->chunk[0] + 1),
                   .row_number = UINT64_MAX};
  *usable = true;
  uint64_t step = d->item_bytes, chunk_step = d->item_bytes;
  for (uint32_t i = d->dims; i-- > 0;) {
    g->step[i] = step;
    g->chunk_step[i] = chunk_step;
    if (i > 0 && g->cut == 0 && d->chunk[i] != d->shape[i]) g->cut = i;
    step *= d->shape[i]; /* hdf5.c has checked the product */
    if (!checked_mul(&chunk_step, chunk_step, d->chunk[i])) *usable = false;
  }
  if (g->cut == 0 || !*usable) return STOW_OK;
  g->rows_most = BLOCK_BYTES / (g->step[0] > g->chunk_step[0] ? g->step[0] : g->chunk_step[0]);
  if (g->rows_most == 0) g->rows_most = 1;
  if (g->rows_most > d->chunk[0]) g->rows_most = d->chunk[0];
  uint64_t rows_bytes = g->rows_most * g->chunk_step[0];
  *usable = rows_bytes >= PIECE_BYTES && rows_bytes <= memory_bytes &&
            g->step[0] <= memory_bytes - rows_bytes;
  if (!*usable) return STOW_OK;
  g->rows = malloc(rows_bytes);
  g->row = malloc(g->step[0]);
  if (g->rows != NULL && g->row != NULL) return STOW_OK;
  hdf5_grid_close(g);
  return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", path);
}

void hdf5_grid_close(hdf5_grid *g) {
  free(g->places);
  free(g->rows);
  free(g->row);
  *g = (hdf5_grid){0};
}

stow_status hdf5_read_at(int file, const char *path, uint64_t offset, char *to, size_t count) {
  while (count > 0) {
    ssize_t got = pread(file, to, count, (off_t)offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      return stow_fail(STOW_ERR_IO, "%s: cannot read at byte %" PRIu64 ": %s", path, offset,
                       got < 0 ? strerror(errno) : "the file was cut while it was read");
    to += got;
    offset += (uint64_t)got;
    count -= (size_t)got;
  }
  return STOW_OK;
}

/* Returns whether every chunk of the band is in the file. */
static bool has_band(const hdf5_grid *g, uint64_t band) {
  uint64_t bytes;
  if (!checked_mul(&bytes, g->chunk_step[0], g->d->chunk[0])) return false;
  for (uint64_t i = band * g->in_band; i < (band + 1) * g->in_band; i++)
    if (g->places[i] > g->file_bytes || bytes > g->file_bytes - g->places[i]) return false;
  return true;
}

/* Copies `count` runs of `bytes` bytes; those of narrow chunks without a call for each. */
static void copy_runs(char *to, uint64_t to_step, const char *from, uint64_t from_step,
                      uint64_t count, size_t bytes) {
#define COPY_RUNS(size)                                                                            \
  for (uint64_t i = 0; i < count; i++) memcpy(to + i * to_step, from + i * from_step, size)
  switch (bytes) {
  case 4: COPY_RUNS(4); break;
  case 8: COPY_RUNS(8); break;
  case 16: COPY_RUNS(16); break;
  case 32: COPY_RUNS(32); break;
  default: COPY_RUNS(bytes);
  }
#undef COPY_RUNS
}

/* Returns how many indexes of a chunk that begins at `start` are in the dataset. */
static uint64_t chunk_indexes(const hdf5_dataset *d, uint32_t axis, const uint64_t *start) {
  uint64_t left = d->shape[axis] - start[axis];
  return left < d->chunk[axis] ? left : d->chunk[axis];
}

/* Copies `indexes` indexes along `axis` of a chunk that begins at index `start` of the dataset. */
static void copy_block(const hdf5_grid *g, uint32_t axis, uint64_t indexes, const uint64_t *start,
                       const char *from, char *to) {
  uint32_t next = axis + 1;
  uint64_t count = chunk_indexes(g->d, next, start);
  to += start[next] * g->step[next];
  if (next == g->cut) {
    copy_runs(to, g->step[axis], from, g->chunk_step[axis], indexes, count * g->step[next]);
    return;
  }
  for (uint64_t i = 0; i < indexes; i++)
    copy_block(g, next, count, start, from + i * g->chunk_step[axis], to + i * g->step[axis]);
}

/* Reads `rows` rows from `row` on, all of them in one band, to `to`. */
static stow_status read_rows(const hdf5_grid *g, uint64_t row, uint64_t rows, char *to) {
  const hdf5_dataset *d = g->d;
  uint64_t start[HDF5_DIMS_MAX];
  const uint64_t *places = g->places + row / d->chunk[0] * g->in_band;
  for (uint64_t chunk = 0; chunk < g->in_band; chunk++) {
    uint64_t rest = chunk;
    for (uint32_t i = d->dims; i-- > 1;) {
      uint64_t across = (d->shape[i] - 1) / d->chunk[i] + 1;
      start[i] = rest % across * d->chunk[i];
      rest /= across;
    }
    STOW_TRY(hdf5_read_at(g->file, g->path, places[chunk] + row % d->chunk[0] * g->chunk_step[0],
                          g->rows, rows * g->chunk_step[0]));
    copy_block(g, 0, rows, start, g->rows, to);
  }
  return STOW_OK;
}

stow_status hdf5_grid_read(hdf5_grid *g, uint64_t offset, char *to, size_t count, size_t *done) {
  const hdf5_dataset *d = g->d;
  uint64_t row_bytes = g->step[0];
  uint64_t row = offset / row_bytes, in_row = offset % row_bytes, band = row / d->chunk[0];
  *done = 0;
  if (!has_band(g, band)) return STOW_OK;
  uint64_t rows_left = d->chunk[0] - row % d->chunk[0];
  if (rows_left > d->shape[0] - row) rows_left = d->shape[0] - row;
  if (g->cut == 0) {
    uint64_t left = rows_left * row_bytes - in_row;
    *done = count < left ? count : (size_t)left;
    return hdf5_read_at(g->file, g->path, g->places[band] + row % d->chunk[0] * row_bytes + in_row,
                        to, *done);
  }
  uint64_t rows = count / row_bytes;
  if (in_row == 0 && rows > 0) {
    if (rows > rows_left) rows = rows_left;
    if (rows > g->rows_most) rows = g->rows_most;
    *done = rows * row_bytes;
    return read_rows(g, row, rows, to);
  }
  if (g->row_number != row) {
    g->row_number = UINT64_MAX;
    STOW_TRY(read_rows(g, row, 1, g->row));
    g->row_number = row;
  }
  *done = count < row_bytes - in_row ? count : (size_t)(row_bytes - in_row);
  memcpy(to, g->row + in_row, *done);
  return STOW_OK;
}
