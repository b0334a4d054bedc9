/* Hdf5 unpack. See hdf5_unpack.h. */
#include "arrays/hdf5_unpack.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define CHECKSUM_BYTES 4 /* Fletcher32, behind the bytes that it checks */

/* Memory that grows. */
typedef struct block {
  uint8_t *at;
  uint64_t bytes;
} block;

struct hdf5_unpack {
  hdf5_filter filters[HDF5_FILTERS_MAX];
  unsigned count;
  uint64_t chunk_bytes;
  block stored, inflated, sorted;
  z_stream stream;
  bool started; /* `stream` */
};

static bool make_room(block *b, uint64_t bytes) {
  if (bytes <= b->bytes) return true;
  free(b->at);
  b->bytes = 0;
  b->at = bytes <= SIZE_MAX ? malloc((size_t)bytes) : NULL;
  if (b->at != NULL) b->bytes = bytes;
  return b->at != NULL;
}

static stow_status no_memory(void) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "needs more memory to be unpacked; raise --memory");
}

stow_status hdf5_unpack_open(hdf5_unpack **made, const hdf5_filter *filters, unsigned count,
                             uint64_t chunk_bytes) {
  *made = NULL;
  if (count == 0 || count > HDF5_FILTERS_MAX || chunk_bytes > UINT32_MAX) return STOW_OK;
  hdf5_unpack *u = calloc(1, sizeof *u);
  if (u == NULL) return no_memory();
  memcpy(u->filters, filters, count * sizeof *filters);
  u->count = count;
  u->chunk_bytes = chunk_bytes;
  *made = u;
  return STOW_OK;
}

void hdf5_unpack_close(hdf5_unpack *u) {
  if (u == NULL) return;
  if (u->started) inflateEnd(&u->stream);
  free(u->stored.at);
  free(u->inflated.at);
  free(u->sorted.at);
  free(u);
}

void *hdf5_unpack_stored(hdf5_unpack *u, uint64_t bytes) {
  return make_room(&u->stored, bytes > 0 ? bytes : 1) ? u->stored.at : NULL;
}

/* ---- the filters ---- */

static stow_status wrong_size(uint64_t bytes, const char *more, uint64_t needed) {
  return stow_fail(STOW_ERR_FORMAT,
                   "unpacks to %" PRIu64 "%s bytes but holds %" PRIu64
                   ": the file is damaged; copy it again, or write the dataset again",
                   bytes, more, needed);
}

/* Inflates *bytes at *at to exactly `needed` bytes. */
static stow_status inflate_chunk(hdf5_unpack *u, uint8_t **at, uint64_t *bytes, uint64_t needed) {
  if (!make_room(&u->inflated, needed + 1)) return no_memory();
  z_stream *z = &u->stream;
  if ((u->started ? inflateReset(z) : inflateInit(z)) != Z_OK) return no_memory();
  u->started = true;
  z->next_in = *at;
  z->avail_in = (uInt)*bytes;
  z->next_out = u->inflated.at;
  z->avail_out = (uInt)(needed + 1 < UINT32_MAX ? needed + 1 : UINT32_MAX);
  uInt room = z->avail_out;
  int code = inflate(z, Z_FINISH);
  uint64_t got = room - z->avail_out;
  if (got > needed) return wrong_size(needed, " or more", needed);
  if (code == Z_MEM_ERROR) return no_memory();
  if (code != Z_STREAM_END)
    return stow_fail(
        STOW_ERR_FORMAT,
        "does not unpack: %s: the file is damaged; copy it again, or write the dataset "
        "again",
        z->msg != NULL ? z->msg : "its gzip stream has no end");
  if (got != needed) return wrong_size(got, "", needed);
  *at = u->inflated.at;
  *bytes = got;
  return STOW_OK;
}

/* The compiler vectorizes it for a constant `item` (-O3, 15 GB/s or more). */
static inline void put_together(uint8_t *restrict to, const uint8_t *restrict from, size_t items,
                                size_t item) {
  for (size_t i = 0; i < items; i++)
    for (size_t byte = 0; byte < item; byte++) to[i * item + byte] = from[byte * items + i];
}

/* Puts the bytes of each value together: stored are the first bytes of all values, then the second
 * ones, and so on. A rest behind the last whole value is not shuffled. */
static stow_status sort_bytes(hdf5_unpack *u, uint8_t **at, uint64_t bytes, uint64_t item_bytes) {
  if (item_bytes <= 1 || bytes / item_bytes <= 1) return STOW_OK;
  if (!make_room(&u->sorted, bytes)) return no_memory();
  size_t items = (size_t)(bytes / item_bytes), item = (size_t)item_bytes;
  const uint8_t *from = *at;
  uint8_t *to = u->sorted.at;
  switch (item) {
  case 2: put_together(to, from, items, 2); break;
  case 4: put_together(to, from, items, 4); break;
  case 8: put_together(to, from, items, 8); break;
  default: put_together(to, from, items, item);
  }
  memcpy(to + items * item, from + items * item, (size_t)bytes - items * item);
  *at = to;
  return STOW_OK;
}

/* H5_checksum_fletcher32: the sums are folded before they overflow, every 360 words. */
static uint32_t fletcher32(const uint8_t *at, uint64_t bytes) {
  uint32_t one = 0, two = 0;
  uint64_t words = bytes / 2;
  while (words > 0) {
    uint64_t some = words < 360 ? words : 360;
    words -= some;
    for (; some > 0; some--, at += 2) two += one += (uint32_t)at[0] << 8 | at[1];
    one = (one & 0xffff) + (one >> 16);
    two = (two & 0xffff) + (two >> 16);
  }
  if (bytes % 2 != 0) {
    two += one += (uint32_t)at[0] << 8;
    one = (one & 0xffff) + (one >> 16);
    two = (two & 0xffff) + (two >> 16);
  }
  one = (one & 0xffff) + (one >> 16);
  two = (two & 0xffff) + (two >> 16);
  return two << 16 | one;
}

/* Checks the checksum and drops it. libhdf5 before 1.6.3 wrote it with swapped bytes. */
static stow_status check_sum(const uint8_t *at, uint64_t *bytes) {
  if (*bytes < CHECKSUM_BYTES) return wrong_size(*bytes, "", CHECKSUM_BYTES);
  *bytes -= CHECKSUM_BYTES;
  const uint8_t *end = at + *bytes;
  uint32_t stored =
      end[0] | (uint32_t)end[1] << 8 | (uint32_t)end[2] << 16 | (uint32_t)end[3] << 24;
  uint32_t sum = fletcher32(at, *bytes);
  uint32_t swapped = (sum & 0x00ff00ff) << 8 | (sum & 0xff00ff00) >> 8;
  if (stored == sum || stored == swapped) return STOW_OK;
  return stow_fail(STOW_ERR_FORMAT,
                   "has other bytes than its checksum (Fletcher32): the file is damaged; copy it "
                   "again, or write the dataset again");
}

/* Returns how many bytes filter `number` was given when the chunk was written. */
static uint64_t bytes_before(const hdf5_unpack *u, unsigned number, uint32_t mask) {
  uint64_t bytes = u->chunk_bytes;
  for (unsigned i = 0; i < number; i++)
    if ((mask >> i & 1) == 0 && u->filters[i].id == HDF5_FILTER_FLETCHER32) bytes += CHECKSUM_BYTES;
  return bytes;
}

/* Returns whether all filters of a chunk are known. If gzip packed it twice, the first unpacking
 * may give any size. */
static bool can_unpack(const hdf5_unpack *u, uint32_t mask) {
  unsigned deflates = 0, shuffles = 0;
  for (unsigned i = 0; i < u->count; i++) {
    int id = u->filters[i].id;
    if ((mask >> i & 1) != 0) continue;
    if (id < HDF5_FILTER_DEFLATE || id > HDF5_FILTER_FLETCHER32) return false;
    deflates += id == HDF5_FILTER_DEFLATE;
    shuffles += id == HDF5_FILTER_SHUFFLE;
  }
  return deflates <= 1 && shuffles <= 1;
}

stow_status hdf5_unpack_chunk(hdf5_unpack *u, uint32_t mask, uint64_t bytes,
                              const uint8_t **values) {
  uint8_t *at = u->stored.at;
  *values = NULL;
  if (!can_unpack(u, mask)) return STOW_OK;
  for (unsigned i = u->count; i-- > 0;) {
    const hdf5_filter *filter = &u->filters[i];
    if ((mask >> i & 1) != 0) continue;
    if (filter->id == HDF5_FILTER_DEFLATE)
      STOW_TRY(inflate_chunk(u, &at, &bytes, bytes_before(u, i, mask)));
    else if (filter->id == HDF5_FILTER_SHUFFLE)
      STOW_TRY(sort_bytes(u, &at, bytes, filter->item_bytes));
    else
      STOW_TRY(check_sum(at, &bytes));
  }
  if (bytes != u->chunk_bytes) return wrong_size(bytes, "", u->chunk_bytes);
  *values = at;
  return STOW_OK;
}
