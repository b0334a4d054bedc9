/* Hdf5 spool: see hdf5_spool.h. */
#include "arrays/hdf5_spool.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "arrays/hdf5_grid.h"
#include "base/newfile.h"

/* A band: `indexes` along `axis`, each of `unit` bytes. */
typedef struct band {
  uint32_t axis;
  uint64_t unit, indexes;
} band;

static uint64_t least(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

/* The axis is the first along which a chunk holds more than one index. */
static band band_of(const hdf5_dataset *d) {
  band b = {.unit = d->item_bytes};
  while (b.axis + 1 < d->dims && d->chunk[b.axis] == 1) b.axis++;
  for (uint32_t i = b.axis + 1; i < d->dims; i++) b.unit *= d->shape[i];
  b.indexes = least(d->chunk[b.axis], d->shape[b.axis]);
  return b;
}

bool hdf5_spool_helps(const hdf5_dataset *d, uint32_t axis, uint64_t rows) {
  if (!d->filtered || d->chunk[0] == 0) return false;
  for (uint32_t i = 0; i < axis; i++)
    if (least(d->chunk[i], d->shape[i]) > 1) return true;
  return rows < least(d->chunk[axis], d->shape[axis]);
}

/* Returns the first byte of the band that holds `offset`, and where it ends. */
static uint64_t band_start(const hdf5_dataset *d, const band *b, uint64_t offset, uint64_t *stop) {
  uint64_t length = d->shape[b->axis], index = offset / b->unit, outer = index / length;
  uint64_t first = index % length / b->indexes * b->indexes;
  *stop = (outer * length + first + least(b->indexes, length - first)) * b->unit;
  return (outer * length + first) * b->unit;
}

bool hdf5_spool_in_one(const hdf5_dataset *d, uint64_t a, uint64_t b) {
  band one = band_of(d);
  uint64_t stop;
  return band_start(d, &one, a, &stop) <= b && b < stop;
}

/* ---- filling ---- */

/* Chooses the size of a box along each dimension: whole chunks, and as many along the last
 * dimensions as fit in `most` bytes, which hold one. */
static void choose_box(const hdf5_dataset *d, uint32_t axis, uint64_t most,
                       uint64_t size[HDF5_DIMS_MAX]) {
  uint64_t bytes = d->item_bytes;
  for (uint32_t i = 0; i < d->dims; i++) {
    size[i] = i < axis ? 1 : least(d->chunk[i], d->shape[i]);
    bytes *= size[i];
  }
  for (uint32_t i = d->dims; i-- > axis + 1;) {
    uint64_t one = size[i];
    size[i] = least(most / bytes * one, d->shape[i]);
    bytes = bytes / one * size[i];
    if (size[i] < d->shape[i]) return;
  }
}

static bool write_at(int file, const char *from, size_t count, uint64_t offset) {
  while (count > 0) {
    ssize_t put = pwrite(file, from, count, (off_t)offset);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    from += put;
    offset += (uint64_t)put;
    count -= (size_t)put;
  }
  return true;
}

/* Writes a box to its place in the band: one piece from the last dimension on in which it is not
 * the whole width. Returns false if there is no space. */
static bool put_box(const hdf5_spool *s, const hdf5_dataset *d, const hdf5_request *box,
                    const char *from) {
  uint64_t at[HDF5_DIMS_MAX] = {0}, step[HDF5_DIMS_MAX];
  uint64_t wide = d->item_bytes, piece = d->item_bytes, place = 0;
  for (uint32_t i = d->dims; i-- > 0; wide *= d->shape[i]) {
    step[i] = wide;
    place += box->start[i] * wide;
  }
  uint32_t outer = d->dims - 1;
  piece *= box->count[outer];
  while (outer > 0 && box->count[outer] == d->shape[outer]) piece *= box->count[--outer];
  for (;;) {
    if (!write_at(s->file, from, piece, place - s->at)) return false;
    from += piece;
    uint32_t i = outer;
    while (i-- > 0) {
      place += step[i];
      if (++at[i] < box->count[i]) break;
      place -= at[i] * step[i];
      at[i] = 0;
    }
    if (i == UINT32_MAX) return true;
  }
}

/* Moves the box to the next place in the band. Returns false behind the last. */
static bool next_box(const hdf5_dataset *d, uint32_t axis, const uint64_t *size,
                     hdf5_request *box) {
  for (uint32_t i = d->dims; i-- > axis + 1;) {
    box->start[i] += size[i];
    bool inside = box->start[i] < d->shape[i];
    if (!inside) box->start[i] = 0;
    box->count[i] = least(size[i], d->shape[i] - box->start[i]);
    if (inside) return true;
  }
  return false;
}

static stow_status fill_boxes(hdf5_spool *s, hdf5_child *child, const hdf5_dataset *d,
                              const band *b) {
  uint64_t size[HDF5_DIMS_MAX], outer = s->at / b->unit;
  hdf5_request box = {.what = HDF5_READ, .dims = d->dims};
  hdf5_reply reply;
  memcpy(box.name, d->name, sizeof box.name);
  choose_box(d, b->axis, child->shared_bytes, size);
  for (uint32_t i = 0; i < d->dims; i++) box.count[i] = least(size[i], d->shape[i]);
  for (uint32_t i = b->axis + 1; i-- > 0; outer /= d->shape[i]) box.start[i] = outer % d->shape[i];
  box.count[b->axis] = (s->stop - s->at) / b->unit;
  do {
    box.bytes = d->item_bytes;
    for (uint32_t i = 0; i < d->dims; i++) box.bytes *= box.count[i];
    STOW_TRY(hdf5_child_request(child, &box, &reply));
    s->refused = !put_box(s, d, &box, child->shared);
  } while (!s->refused && next_box(d, b->axis, size, &box));
  return STOW_OK;
}

stow_status hdf5_spool_fill(hdf5_spool *s, hdf5_child *child, const hdf5_dataset *d,
                            uint64_t offset) {
  band b = band_of(d);
  if (s->file >= 0 && s->owner != getpid()) hdf5_spool_close(s);
  if (s->file < 0) s->file = newfile_unnamed(newfile_folder());
  s->owner = getpid();
  s->at = s->stop = 0;
  s->refused = s->file < 0;
  if (s->refused) return STOW_OK;
  s->at = band_start(d, &b, offset, &s->stop);
  stow_status status = fill_boxes(s, child, d, &b);
  if (status != STOW_OK || s->refused) hdf5_spool_close(s);
  return status;
}

bool hdf5_spool_holds(const hdf5_spool *s, uint64_t offset) {
  return offset >= s->at && offset < s->stop && s->owner == getpid();
}

stow_status hdf5_spool_read(const hdf5_spool *s, const char *path, uint64_t offset, char *to,
                            size_t count) {
  return hdf5_read_at(s->file, path, offset - s->at, to, count);
}

void hdf5_spool_close(hdf5_spool *s) {
  if (s->file >= 0) close(s->file);
  s->file = -1;
  s->at = s->stop = 0;
}
