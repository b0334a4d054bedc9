/* Hdf5 packed. See hdf5_packed.h. */
#include "arrays/hdf5_packed.h"

#include <inttypes.h>
#include <string.h>

#include "arrays/hdf5_grid.h"
#include "base/dtype.h"

#define STORED_MORE (UINT64_C(64) << 10)

/* ---- the filters of a dataset ---- */

/* Reads the filters. Returns their number; 0 if there are too many. */
static unsigned read_filters(const hdf5_library *l, h5_id plist, hdf5_filter *filters) {
  int count = l->H5Pget_nfilters(plist);
  if (count < 0 || count > HDF5_FILTERS_MAX) return 0;
  for (int i = 0; i < count; i++) {
    unsigned flags, values[1] = {0}, config;
    size_t most = 1;
    filters[i] = (hdf5_filter){
        .id = l->H5Pget_filter2(plist, (unsigned)i, &flags, &most, values, 0, NULL, &config)};
    filters[i].item_bytes = values[0];
  }
  return (unsigned)count;
}

stow_status hdf5_packed_open(hdf5_packed *p, const hdf5_library *library, h5_id object, h5_id type,
                             const hdf5_dataset *d) {
  *p = (hdf5_packed){.library = library, .object = object, .d = d};
  p->chunk_bytes = hdf5_grid_chunk_bytes(d);
  if (!d->filtered || d->chunk[0] == 0 || p->chunk_bytes == UINT64_MAX ||
      library->read_chunk == NULL || library->H5Dget_chunk_storage_size == NULL ||
      library->H5Tget_order == NULL || library->H5Pget_chunk_opts == NULL)
    return STOW_OK;
  int order = d->item_bytes > 1 ? library->H5Tget_order(type) : H5_ORDER_LITTLE;
  if (order != H5_ORDER_LITTLE && order != H5_ORDER_BIG) return STOW_OK;
  p->swapped = order == H5_ORDER_BIG;
  h5_id plist = library->H5Dget_create_plist(object);
  if (plist < 0) return STOW_OK;
  hdf5_filter filters[HDF5_FILTERS_MAX];
  unsigned options = 0, count = read_filters(library, plist, filters);
  if (library->H5Pget_chunk_opts(plist, &options) < 0) count = 0;
  p->plain_edges = (options & H5_CHUNK_EDGES_UNFILTERED) != 0;
  library->H5Pclose(plist);
  return hdf5_unpack_open(&p->unpack, filters, count, p->chunk_bytes);
}

void hdf5_packed_close(hdf5_packed *p) {
  hdf5_unpack_close(p->unpack);
  p->unpack = NULL;
}

/* ---- one chunk ---- */

stow_status hdf5_packed_check(uint64_t chunk_bytes, uint64_t stored) {
  if (chunk_bytes >= INT64_MAX || stored <= chunk_bytes * 2 + STORED_MORE) return STOW_OK;
  return stow_fail(STOW_ERR_FORMAT, "is stored in %" PRIu64 " bytes but holds %" PRIu64 ": damaged",
                   stored, chunk_bytes);
}

hdf5_box hdf5_packed_shared(const hdf5_dataset *d, const h5_size *chunk, const hdf5_box *box) {
  hdf5_box part;
  for (uint32_t i = 0; i < d->dims; i++) {
    uint64_t chunk_end = chunk[i] + d->chunk[i], box_end = box->from[i] + box->items[i];
    part.from[i] = chunk[i] > box->from[i] ? chunk[i] : box->from[i];
    part.items[i] = (chunk_end < box_end ? chunk_end : box_end) - part.from[i];
    part.at[i] = part.from[i] - box->from[i];
  }
  return part;
}

/* Copies what the chunk and the box share. Both are in C order, so it is one piece from the last
 * dimension on in which it is not the whole width of both. */
static void copy_shared(const hdf5_packed *p, const h5_size *chunk, const hdf5_box *box,
                        const uint8_t *values, uint8_t *to) {
  const hdf5_dataset *d = p->d;
  hdf5_box part = hdf5_packed_shared(d, chunk, box);
  const h5_size *items = part.items;
  uint64_t at[HDF5_DIMS_MAX] = {0};
  uint64_t in_chunk = 0, in_box = 0, piece = d->item_bytes;
  uint64_t chunk_step[HDF5_DIMS_MAX], box_step[HDF5_DIMS_MAX];
  uint64_t chunk_wide = d->item_bytes, box_wide = d->item_bytes;
  for (uint32_t i = d->dims; i-- > 0;) {
    chunk_step[i] = chunk_wide;
    box_step[i] = box_wide;
    in_chunk += (part.from[i] - chunk[i]) * chunk_wide;
    in_box += part.at[i] * box_wide;
    chunk_wide *= d->chunk[i];
    box_wide *= box->items[i];
  }
  uint32_t outer = d->dims - 1; /* number of dimensions to step through */
  piece *= items[outer];
  while (outer > 0 && items[outer] == d->chunk[outer] && items[outer] == box->items[outer])
    piece *= items[--outer];
  for (;;) {
    memcpy(to + in_box, values + in_chunk, piece);
    if (p->swapped) dtype_swap_bytes(to + in_box, d->item_bytes, piece / d->item_bytes);
    uint32_t i = outer;
    while (i-- > 0) {
      in_chunk += chunk_step[i];
      in_box += box_step[i];
      if (++at[i] < items[i]) break;
      in_chunk -= items[i] * chunk_step[i];
      in_box -= items[i] * box_step[i];
      at[i] = 0;
    }
    if (i == UINT32_MAX) return;
  }
}

/* Returns whether the chunk ends outside the dataset. */
static bool at_edge(const hdf5_dataset *d, const h5_size *chunk) {
  for (uint32_t i = 0; i < d->dims; i++)
    if (d->shape[i] - chunk[i] < d->chunk[i]) return true;
  return false;
}

stow_status hdf5_packed_read(hdf5_packed *p, const h5_size *chunk, const hdf5_box *box, uint8_t *to,
                             bool *left) {
  const hdf5_library *l = p->library;
  const uint8_t *values;
  h5_size stored;
  uint32_t mask = 0;
  *left = l->H5Dget_chunk_storage_size(p->object, chunk, &stored) < 0;
  if (*left) return STOW_OK;
  STOW_TRY(hdf5_packed_check(p->chunk_bytes, stored));
  void *memory = hdf5_unpack_stored(p->unpack, stored);
  if (memory == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "needs more memory to be unpacked; raise --memory");
  *left = l->read_chunk(p->object, 0, chunk, &mask, memory) < 0;
  if (*left) return STOW_OK;
  if (p->plain_edges && at_edge(p->d, chunk)) mask = UINT32_MAX;
  STOW_TRY(hdf5_unpack_chunk(p->unpack, mask, stored, &values));
  *left = values == NULL;
  if (!*left) copy_shared(p, chunk, box, values, to);
  return STOW_OK;
}
