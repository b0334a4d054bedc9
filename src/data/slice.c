/* Slice: stow_array, an array opened for lazy reading. */
#include <stowage/array.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/growing.h"
#include "base/status.h"
#include "data/rows.h"
#include "data/slice.h"

/* Pieces closer than this are read together: reading 32 KiB costs about as much as a seek. */
enum { NEAR_BYTES = 32 << 10, WINDOW_BYTES = 1 << 20 };

struct stow_array {
  origin origin;
  rows rows;
  char *window; /* rows read together, allocated at first use */
};

static stow_status open_slice(stow_array **out, const stow_array_options *options, source *shared,
                              const zip_entry *entry) {
  *out = NULL;
  stow_array *a = calloc(1, sizeof *a);
  if (a == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for an array");
  stow_status status = origin_open(&a->origin, options);
  a->origin.shared = shared;
  a->origin.entry = entry;
  if (status == STOW_OK) status = rows_open(&a->rows, &a->origin);
  if (status != STOW_OK) {
    stow_array_close(a);
    return status;
  }
  a->rows.scratch_bytes = WINDOW_BYTES;
  *out = a;
  return STOW_OK;
}

stow_status stow_array_open(stow_array **out, const stow_array_options *options) {
  if (out == NULL) return stow_fail(STOW_ERR_INVALID, "stow_array_open: array is NULL");
  return open_slice(out, options, NULL, NULL);
}

stow_status slice_open_member(stow_array **out, source *from, const zip_entry *entry) {
  stow_array_options options = STOW_ARRAY_OPTIONS_INIT;
  options.path = from->name;
  return open_slice(out, &options, from, entry);
}

void stow_array_close(stow_array *a) {
  if (a == NULL) return;
  if (a->rows.opened_from != NULL) rows_close(&a->rows);
  origin_close(&a->origin);
  free(a->window);
  free(a);
}

stow_status stow_array_get_info(const stow_array *a, stow_array_info *info) {
  stow_array_info full;
  rows_info(&a->rows, &full);
  return growing_write(info, &full, sizeof full, "stow_array_info");
}

/* Reads whole rows into the window and copies the requested part. */
static stow_status read_near(stow_array *a, uint64_t first, uint64_t count, uint64_t step,
                             uint64_t item, uint64_t items, char *to) {
  rows *r = &a->rows;
  uint64_t held = WINDOW_BYTES / r->row_bytes;
  if (held == 0) held = 1;
  if (a->window == NULL) a->window = malloc((size_t)(held * r->row_bytes));
  if (a->window == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory for a row of %" PRIu64 " bytes",
                     r->from.name, r->row_bytes);
  size_t bytes = (size_t)(items * r->item_bytes);
  for (uint64_t done = 0; done < count;) {
    uint64_t part = (held - 1) / step + 1;
    if (part > count - done) part = count - done;
    uint64_t start = first + done * step;
    STOW_TRY(rows_read(r, start, (part - 1) * step + 1, a->window));
    for (uint64_t i = 0; i < part; i++, to += bytes)
      memcpy(to, a->window + i * step * r->row_bytes + item * r->item_bytes, bytes);
    done += part;
  }
  return STOW_OK;
}

/* Reads each row's part separately. */
static stow_status read_far(stow_array *a, uint64_t first, uint64_t count, uint64_t step,
                            uint64_t item, uint64_t items, char *to) {
  for (uint64_t i = 0; i < count; i++, to += items * a->rows.item_bytes)
    STOW_TRY(rows_read_items(&a->rows, first + i * step, item, items, to));
  return STOW_OK;
}

stow_status stow_array_read(stow_array *a, uint64_t first, uint64_t count, uint64_t step,
                            uint64_t item, uint64_t items, void *to) {
  rows *r = &a->rows;
  if (items == 0) item = 0, items = r->items;
  if (count == 0 || items == 0) return STOW_OK;
  if (step == 0 || item > r->items || items > r->items - item)
    return stow_fail(STOW_ERR_INVALID,
                     "%s: items %" PRIu64 " to %" PRIu64 " requested with step %" PRIu64
                     ", but a row has %" PRIu64 " items; the step must be at least 1",
                     r->from.name, item, item + items, step, r->items);
  if (first >= r->count || (count - 1) > (r->count - 1 - first) / step)
    return stow_fail(STOW_ERR_INVALID,
                     "%s: %" PRIu64 " rows from row %" PRIu64 " in steps of %" PRIu64
                     " requested, but it has %" PRIu64,
                     r->from.name, count, first, step, r->count);
  bool whole = items == r->items, ordered = !r->from.fortran_order || r->from.dims < 2;
  if (whole && step == 1) return rows_read(r, first, count, to);
  uint64_t gap = (step * r->items - items) * r->from.item_bytes;
  if (ordered && (gap >= NEAR_BYTES || r->row_bytes > WINDOW_BYTES))
    return read_far(a, first, count, step, item, items, to);
  if (whole && !ordered && step * r->file_row_bytes >= NEAR_BYTES) {
    for (uint64_t i = 0; i < count; i++)
      STOW_TRY(rows_read(r, first + i * step, 1, (char *)to + i * r->row_bytes));
    return STOW_OK;
  }
  return read_near(a, first, count, step, item, items, to);
}
