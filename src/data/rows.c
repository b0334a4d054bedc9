/* Rows: see rows.h. */
#include "data/rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/growing.h"
#include "data/dense.h"
#include "data/shards.h"
#include "files/remote.h"
#include "numbers/cast.h"

enum { READ_BYTES = 4 << 20 };

/* ---- origin ---- */

static size_t text_bytes(const char *text) {
  return text != NULL ? strlen(text) + 1 : 0;
}

static const char *keep_text(char **at, const char *text) {
  if (text == NULL) return NULL;
  size_t bytes = strlen(text) + 1;
  char *kept = memcpy(*at, text, bytes);
  *at += bytes;
  return kept;
}

/* Copies the texts: the list of headers first (it has pointers), then the text. */
static stow_status keep_texts(origin *o, const stow_array_options *from) {
  size_t headers = 0, text = text_bytes(from->path) + text_bytes(from->member);
  while (from->headers != NULL && from->headers[headers] != NULL)
    text += text_bytes(from->headers[headers++]);
  o->texts = malloc((headers + 1) * sizeof(char *) + text);
  if (o->texts == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", from->path);
  const char **list = (const char **)(void *)o->texts;
  char *at = o->texts + (headers + 1) * sizeof(char *);
  o->options.path = keep_text(&at, from->path);
  o->options.member = keep_text(&at, from->member);
  for (size_t i = 0; i < headers; i++) list[i] = keep_text(&at, from->headers[i]);
  list[headers] = NULL;
  o->options.headers = list;
  return STOW_OK;
}

stow_status origin_open(origin *o, const stow_array_options *given) {
  *o = (origin){.options = STOW_ARRAY_OPTIONS_INIT};
  stow_array_options full = STOW_ARRAY_OPTIONS_INIT;
  const stow_array_options *options = &full;
  STOW_TRY(growing_read(&full, sizeof full, given, "stow_array_options"));
  o->options = full;
  if (options->path == NULL) return stow_fail(STOW_ERR_INVALID, "an array has no path");
  if (options->raw_dtype != NULL) STOW_TRY(dtype_parse(&o->spec.type, options->raw_dtype));
  if (options->as_dtype != NULL) STOW_TRY(dtype_parse(&o->to, options->as_dtype));
  if (options->raw_shape != NULL) {
    if (options->raw_dtype == NULL || options->raw_dims > ARRAY_DIMS_MAX)
      return stow_fail(STOW_ERR_INVALID,
                       "%s: the shape of raw values needs a type, and at most %d dimensions",
                       options->path, ARRAY_DIMS_MAX);
    o->spec.has_shape = true;
    o->spec.dims = options->raw_dims;
    for (uint32_t i = 0; i < options->raw_dims; i++) o->spec.shape[i] = options->raw_shape[i];
  }
  return keep_texts(o, options);
}

void origin_close(origin *o) {
  zip_sums_close(o->sums);
  free(o->texts);
  *o = (origin){0};
}

stow_status origin_sum(origin *o, rows *first) {
  const array *a = &first->from;
  if (!a->in_zip || a->member.inflater != NULL || o->sums != NULL) return STOW_OK;
  STOW_TRY(zip_sums_open(&o->sums, a->member.entry->bytes, a->member.entry->crc));
  zip_member_share(&first->from.member, o->sums);
  return STOW_OK;
}

/* ---- the caller's reader ---- */

static stow_status read_user(void *user, uint64_t offset, void *to, size_t count) {
  const stow_array_options *o = user;
  int code = o->read(o->read_user, offset, to, count);
  if (code == 0) return STOW_OK;
  return stow_fail(code < 0 && code >= STOW_ERR_INTERRUPTED ? (stow_status)code : STOW_ERR_IO,
                   "%s: its reader failed (%d) at byte %" PRIu64 ", reading %zu bytes", o->path,
                   code, offset, count);
}

static stow_status open_reader(rows *r, const origin *o) {
  r->reader = malloc(sizeof *r->reader);
  if (r->reader == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", o->options.path);
  /* The reader is only read through, but needs a non-const pointer. */
  source_reader reader = {.read = read_user, .user = (void *)(uintptr_t)&o->options};
  source_open_reader(r->reader, &reader, o->options.read_bytes, o->options.path);
  return array_open_source(&r->from, r->reader, o->options.member,
                           o->spec.type != DTYPE_NONE ? &o->spec : NULL);
}

/* Values in the caller's memory. */
static stow_status open_memory(rows *r, const origin *o) {
  if (o->spec.type == DTYPE_NONE || o->options.read != NULL)
    return stow_fail(STOW_ERR_INVALID, "%s: values in memory need raw_dtype, and no reader",
                     o->options.path);
  r->reader = malloc(sizeof *r->reader);
  if (r->reader == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", o->options.path);
  source_open_memory(r->reader, o->options.data, (size_t)o->options.data_bytes, o->options.path);
  return array_open_raw(&r->from, r->reader, &o->spec);
}

/* ---- opening ---- */

static stow_status check_types(rows *r, const origin *o) {
  const array *a = &r->from;
  if (a->type == DTYPE_NONE && a->descr[0] == '[')
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "%s: its items are structures; save each field separately", a->name);
  if (o->to != DTYPE_NONE && a->type == DTYPE_NONE)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "%s: items of type %s are not numbers and cannot be converted to %s", a->name,
                     a->descr, dtype_name(o->to));
  return STOW_OK;
}

/* Opens several files as one array. Only one thread can read it. */
static stow_status open_shards(rows *r, const origin *o) {
  shards several;
  source *from = malloc(sizeof *from);
  if (from == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  stow_status status = shards_find(&several, o->options.path);
  if (status == STOW_OK) status = shards_open_arrays(from, &several, &o->spec);
  shards_free(&several);
  if (status != STOW_OK) {
    free(from);
    return status;
  }
  status = array_open_npy(&r->from, from);
  r->from.owns_source = true; /* also after a failure: rows_close closes it */
  r->serial = true;
  return status;
}

static stow_status open_path(rows *r, const origin *o) {
  bool sparse = false;
  if (o->entry != NULL) return array_open_member(&r->from, o->shared, o->entry);
  if (shards_are(o->options.path)) return open_shards(r, o);
  if (!remote_is(o->options.path) && o->spec.type == DTYPE_NONE)
    STOW_TRY(dense_open(&r->from, o->options.path, &sparse));
  stow_status status = sparse ? STOW_OK : array_open(&r->from, o->options.path, &o->spec);
  if (remote_is(o->options.path)) return status;
  r->serial = status == STOW_OK && r->from.from->fd < 0;
  return status;
}

stow_status rows_open(rows *r, const origin *o) {
  *r = (rows){.opened_from = o};
  const char *const *before = remote_set_headers(o->options.headers);
  uint64_t cache_before = remote_set_cache(o->options.cache_bytes);
  stow_status status = o->options.data != NULL   ? open_memory(r, o)
                       : o->options.read != NULL ? open_reader(r, o)
                                                 : open_path(r, o);
  remote_set_cache(cache_before);
  remote_set_headers(before);
  if (status == STOW_OK) status = check_types(r, o);
  if (status != STOW_OK) return rows_close(r), status;
  if (o->sums != NULL && r->from.in_zip) zip_member_share(&r->from.member, o->sums);
  const array *a = &r->from;
  r->to = o->to != DTYPE_NONE ? o->to : a->type;
  r->cast = r->to != a->type;
  r->count = array_rows(a);
  r->items = array_row_items(a);
  r->item_bytes = r->cast ? dtype_bytes(r->to) : a->item_bytes;
  r->row_bytes = r->items * r->item_bytes;
  r->file_row_bytes = r->items * a->item_bytes;
  return STOW_OK;
}

void rows_close(rows *r) {
  array_close(&r->from);
  if (r->reader != NULL) source_close(r->reader);
  free(r->reader);
  free(r->scratch);
  *r = (rows){0};
}

bool rows_forward_only(const rows *r) {
  return r->from.in_zip && r->from.member.inflater != NULL;
}

bool rows_one_reader(const rows *r) {
  return rows_forward_only(r) || r->serial;
}

bool rows_remote(const rows *r) {
  return r->from.from->fd < 0 && r->from.from->memory == NULL && !r->serial;
}

stow_status rows_same(const rows *r, const rows *first) {
  const source *a = r->from.from, *b = first->from.from;
  if (a->bytes == b->bytes && a->device == b->device && a->inode == b->inode &&
      a->changed_ns == b->changed_ns && r->count == first->count && r->items == first->items &&
      r->from.type == first->from.type)
    return STOW_OK;
  return stow_fail(
      STOW_ERR_IO,
      "%s: was replaced or modified while being read; wait for its writer, then open it again",
      first->from.name);
}

stow_status rows_check(const rows *r) {
  return source_check(r->from.from);
}

/* ---- reading ---- */

static bool in_file_order(const rows *r) {
  return !r->from.fortran_order || r->from.dims < 2;
}

uint64_t rows_scratch_least(const rows *r) {
  if (!r->cast || r->items == 0) return 0;
  return in_file_order(r) ? r->from.item_bytes : r->file_row_bytes;
}

static stow_status make_scratch(rows *r) {
  if (r->scratch != NULL) return STOW_OK;
  uint64_t least = rows_scratch_least(r);
  if (r->scratch_bytes < least) r->scratch_bytes = (size_t)least;
  r->scratch = aligned_alloc(64, (r->scratch_bytes + 63) / 64 * 64);
  if (r->scratch == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY,
                     "%s: no host memory to convert a row of %" PRIu64 " bytes", r->from.name,
                     r->file_row_bytes);
  return STOW_OK;
}

/* Names the value of the scratch buffer that does not fit. */
static stow_status refuse_value(const rows *r, uint64_t row, size_t at) {
  const char *value = r->scratch + at * r->from.item_bytes, *copied = r->opened_from->copy_of;
  char text[40], where[40] = "";
  dtype from = r->from.type;
  int64_t whole = 0;
  double real = 0;
  (void)cast_values(&whole, DTYPE_I64, value, from, 1);
  (void)cast_values(&real, DTYPE_F64, value, from, 1);
  if (dtype_kind(from) == CLASS_FLOAT)
    snprintf(text, sizeof text, "%.9g", real);
  else if (dtype_kind(from) == CLASS_UNSIGNED)
    snprintf(text, sizeof text, "%" PRIu64, (uint64_t)whole);
  else
    snprintf(text, sizeof text, "%" PRId64, whole);
  if (copied == NULL || r->opened_from->in_order)
    snprintf(where, sizeof where, "row %" PRIu64 ": ", row);
  return stow_fail(STOW_ERR_INVALID,
                   "%s: %s%s does not fit %s; give a larger dtype, or read %s and convert it "
                   "(astype of NumPy)",
                   copied != NULL ? copied : r->from.name, where, text, dtype_name(r->to),
                   dtype_name(from));
}

/* Converts `count` values of the scratch buffer; `row` is that of the first, and `item` its place
 * in the row. */
static stow_status convert(const rows *r, uint64_t row, uint64_t item, char *to, size_t count) {
  size_t fits = cast_fitting(to, r->to, r->scratch, r->from.type, count);
  return fits == count ? STOW_OK : refuse_value(r, row + (item + fits) / r->items, fits);
}

/* Reads items in file order and converts them. */
static stow_status read_items(rows *r, uint64_t first, uint64_t count, char *to) {
  size_t width = r->from.item_bytes;
  if (r->cast) STOW_TRY(make_scratch(r));
  size_t step = (r->cast ? r->scratch_bytes : READ_BYTES) / (width > 0 ? width : 1);
  if (step == 0) step = 1;
  for (uint64_t done = 0; done < count;) {
    size_t part = count - done < step ? (size_t)(count - done) : step;
    if (r->cast) {
      STOW_TRY(array_read(&r->from, first + done, r->scratch, part));
      uint64_t at = first + done;
      STOW_TRY(convert(r, at / r->items, at % r->items, to + done * r->item_bytes, part));
    } else {
      STOW_TRY(array_read(&r->from, first + done, to + done * width, part));
    }
    done += part;
  }
  return STOW_OK;
}

static stow_status read_rows(rows *r, uint64_t first, uint64_t count, char *to) {
  if (!r->cast) return array_read_rows(&r->from, first, count, to);
  STOW_TRY(make_scratch(r));
  uint64_t step = r->scratch_bytes / r->file_row_bytes;
  for (uint64_t done = 0; done < count;) {
    uint64_t part = count - done < step ? count - done : step;
    STOW_TRY(array_read_rows(&r->from, first + done, part, r->scratch));
    STOW_TRY(convert(r, first + done, 0, to + done * r->row_bytes, (size_t)(part * r->items)));
    done += part;
  }
  return STOW_OK;
}

stow_status rows_read(rows *r, uint64_t first, uint64_t count, void *to) {
  if (count > r->count || first > r->count - count)
    return stow_fail(STOW_ERR_INVALID,
                     "%s: rows %" PRIu64 " to %" PRIu64 " requested, but it has %" PRIu64,
                     r->from.name, first, first + count, r->count);
  if (count == 0 || r->items == 0) return STOW_OK;
  return in_file_order(r) ? read_items(r, first * r->items, count * r->items, to)
                          : read_rows(r, first, count, to);
}

bool rows_offset(const rows *r, uint64_t row, uint64_t *offset) {
  const array *a = &r->from;
  if (r->cast || r->serial || a->in_zip || a->from->fd < 0 || !in_file_order(r)) return false;
  *offset = a->offset + row * r->file_row_bytes;
  return true;
}

bool rows_reads_parts(const rows *r) {
  uint64_t offset;
  return r->items > 0 && !r->from.big_endian && r->from.from->views == NULL &&
         rows_offset(r, 0, &offset);
}

stow_status rows_read_parts(rows *r, uint64_t first, struct iovec *parts, size_t count) {
  uint64_t offset = r->from.offset + first * r->file_row_bytes;
  return source_read_parts(r->from.from, offset, parts, count);
}

stow_status rows_read_items(rows *r, uint64_t row, uint64_t item, uint64_t items, void *to) {
  return read_items(r, row * r->items + item, items, to);
}

/* ---- description ---- */

void rows_info(const rows *r, stow_array_info *info) {
  const array *a = &r->from;
  *info = (stow_array_info){.struct_bytes = sizeof *info,
                            .item_bytes = r->item_bytes,
                            .dims = a->dims,
                            .rows = r->count,
                            .row_items = r->items,
                            .fortran_order = a->fortran_order};
  memcpy(info->shape, a->shape, sizeof info->shape);
  array_dtype(a, info->file_dtype);
  snprintf(info->dtype, sizeof info->dtype, "%s",
           r->to != DTYPE_NONE ? dtype_name(r->to) : info->file_dtype);
}
