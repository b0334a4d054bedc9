/* Dense: see dense.h. A run is a row of a csr or a column of a csc. */
#include "data/dense.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data/sparse.h"
#include "numbers/cast.h"

enum { WINDOW_ITEMS = 8 << 10, DIRECTORY_BYTES_MAX = 4 << 20 };

/* Items `at` to `at + count` of one member, converted to int64 or as they are. */
typedef struct window {
  array from;
  bool opened, places;
  uint64_t at, count;
  char *items;
} window;

typedef struct dense {
  source file;
  zip archive;
  sparse s;
  window starts, indices, values;
  uint64_t runs, minor;
  char path[];
} dense;

static stow_status open_window(window *w, source *from, const zip *z, const char *name,
                               bool places) {
  STOW_TRY(array_open_member(&w->from, from, zip_find(z, name)));
  w->opened = true;
  w->places = places;
  w->items = malloc((size_t)WINDOW_ITEMS * (places ? 2 * sizeof(int64_t) : w->from.item_bytes));
  return w->items != NULL ? STOW_OK
                          : stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", from->name);
}

static void close_window(window *w) {
  if (w->opened) array_close(&w->from);
  free(w->items);
}

/* Makes item `number` the first one of the window, unless the window has it. Sets *have to the
 * number of items from it on. */
static stow_status reach(window *w, uint64_t number, const void **item, uint64_t *have) {
  size_t width = w->places ? sizeof(int64_t) : w->from.item_bytes;
  if (number < w->at || number >= w->at + w->count) {
    uint64_t left = w->from.count - number;
    w->count = 0;
    size_t count = left < WINDOW_ITEMS ? (size_t)left : WINDOW_ITEMS;
    char *raw = w->places ? w->items + (size_t)WINDOW_ITEMS * sizeof(int64_t) : w->items;
    STOW_TRY(array_read(&w->from, number, raw, count));
    if (w->places) STOW_TRY(cast_values(w->items, DTYPE_I64, raw, w->from.type, count));
    w->at = number;
    w->count = count;
  }
  *item = w->items + (number - w->at) * width;
  *have = w->at + w->count - number;
  return STOW_OK;
}

static stow_status read_start(dense *d, uint64_t run, uint64_t *start) {
  const void *item;
  uint64_t have;
  int64_t value;
  STOW_TRY(reach(&d->starts, run, &item, &have));
  memcpy(&value, item, sizeof value);
  if (value < 0 || (uint64_t)value > d->s.stored)
    return stow_fail(STOW_ERR_FORMAT, "%s: run %" PRIu64 " begins at %" PRId64 " of %" PRIu64,
                     d->starts.from.name, run, value, d->s.stored);
  *start = (uint64_t)value;
  return STOW_OK;
}

/* Puts the stored items at positions `first` to `end` of one run into `to`, which is 0. */
static stow_status scatter(dense *d, uint64_t run, uint64_t first, uint64_t end, char *to) {
  uint64_t at, stop;
  int64_t before = -1;
  size_t width = d->values.from.item_bytes;
  STOW_TRY(read_start(d, run, &at));
  STOW_TRY(read_start(d, run + 1, &stop));
  while (at < stop) {
    const void *places, *values;
    uint64_t have, more;
    STOW_TRY(reach(&d->indices, at, &places, &have));
    STOW_TRY(reach(&d->values, at, &values, &more));
    if (more < have) have = more;
    if (stop - at < have) have = stop - at;
    for (uint64_t i = 0; i < have; i++) {
      int64_t place;
      memcpy(&place, (const char *)places + i * sizeof place, sizeof place);
      if (place < 0 || (uint64_t)place >= d->minor)
        return stow_fail(STOW_ERR_FORMAT, "%s: index %" PRId64 " of %" PRIu64, d->indices.from.name,
                         place, d->minor);
      if (place <= before)
        return stow_fail(
            STOW_ERR_UNSUPPORTED,
            "%s: indices are not sorted, or repeat; call .sum_duplicates() and save it "
            "again",
            d->indices.from.name);
      before = place;
      if ((uint64_t)place >= first && (uint64_t)place < end)
        memcpy(to + ((uint64_t)place - first) * width, (const char *)values + i * width, width);
    }
    at += have;
  }
  return STOW_OK;
}

/* Reads rows as dense values. The array reads whole items. */
static stow_status read_dense(void *user, uint64_t offset, void *to, size_t count) {
  dense *d = user;
  size_t width = d->values.from.item_bytes;
  char *out = to;
  memset(to, 0, count);
  for (uint64_t at = offset / width, left = count / width; left > 0;) {
    uint64_t place = at % d->minor, part = d->minor - place < left ? d->minor - place : left;
    STOW_TRY(scatter(d, at / d->minor, place, place + part, out));
    out += part * width;
    at += part;
    left -= part;
  }
  return STOW_OK;
}

static stow_status check_dense(void *user) {
  const dense *d = user;
  return source_check(&d->file);
}

static void close_dense(void *user) {
  dense *d = user;
  close_window(&d->starts);
  close_window(&d->indices);
  close_window(&d->values);
  zip_close(&d->archive);
  source_close(&d->file);
  free(d);
}

static stow_status begin(dense *d, array_spec *spec, bool *by_columns) {
  sparse *s = &d->s;
  STOW_TRY(sparse_begin(s, &d->file, &d->archive));
  *by_columns = strcmp(s->layout, "csc") == 0;
  if ((strcmp(s->layout, "csr") != 0 && !*by_columns) || s->dims != 2)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "%s: a sparse matrix of format %s; csr and csc are read as rows: save it with "
                     ".tocsr()",
                     d->file.name, s->layout);
  STOW_TRY(open_window(&d->starts, &d->file, &d->archive, "indptr.npy", true));
  STOW_TRY(open_window(&d->indices, &d->file, &d->archive, "indices.npy", true));
  STOW_TRY(open_window(&d->values, &d->file, &d->archive, "data.npy", false));
  d->minor = s->shape[*by_columns ? 0 : 1];
  d->runs = s->shape[*by_columns ? 1 : 0];
  *spec = (array_spec){.type = d->values.from.type, .dims = 2, .has_shape = true};
  spec->shape[0] = s->shape[0];
  spec->shape[1] = s->shape[1];
  if (spec->type == DTYPE_NONE)
    return stow_fail(STOW_ERR_UNSUPPORTED, "%s: values of type %s are not read as rows",
                     d->file.name, d->values.from.descr);
  return STOW_OK;
}

static stow_status build(array *a, dense *d) {
  array_spec spec;
  bool by_columns;
  uint64_t bytes = 0;
  STOW_TRY(begin(d, &spec, &by_columns));
  if (__builtin_mul_overflow(d->runs, d->minor, &bytes) ||
      __builtin_mul_overflow(bytes, d->values.from.item_bytes, &bytes) || bytes > INT64_MAX)
    return stow_fail(STOW_ERR_OVERFLOW, "%s: the number of bytes in its shape exceeds 63 bits",
                     d->file.name);
  source *from = malloc(sizeof *from);
  if (from == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", d->file.name);
  source_reader reader = {
      .read = read_dense, .check = check_dense, .close = close_dense, .user = d};
  source_open_reader(from, &reader, bytes, d->file.name);
  from->device = d->file.device;
  from->inode = d->file.inode;
  from->changed_ns = d->file.changed_ns;
  stow_status status = array_open_raw(a, from, &spec);
  if (status != STOW_OK) {
    free(from);
    return status;
  }
  a->fortran_order = by_columns;
  a->owns_source = true;
  return STOW_OK;
}

stow_status dense_open(array *a, const char *path, bool *is) {
  struct stat st;
  uint8_t start[4] = {0};
  *is = false;
  if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return STOW_OK; /* the caller opens it */
  dense *d = calloc(1, sizeof *d + strlen(path) + 1);
  if (d == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", path);
  memcpy(d->path, path, strlen(path) + 1);
  if (source_open_file(&d->file, d->path) != STOW_OK) return free(d), STOW_OK;
  if (d->file.bytes < sizeof start || source_read(&d->file, 0, start, sizeof start) != STOW_OK ||
      memcmp(start, "PK\x03\x04", sizeof start) != 0 ||
      zip_open(&d->archive, &d->file, DIRECTORY_BYTES_MAX) != STOW_OK || !sparse_is(&d->archive)) {
    close_dense(d);
    return STOW_OK;
  }
  *is = true;
  stow_status status = build(a, d);
  if (status != STOW_OK) close_dense(d);
  return status;
}
