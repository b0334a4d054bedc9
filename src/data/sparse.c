/* Sparse: see sparse.h. Indices are checked in chunks, so a matrix of any size costs one buffer. */
#include "data/sparse.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "numbers/cast.h"
#include "numbers/csr.h"
#include "numbers/scan.h"

enum { CHUNK_ITEMS = 16 << 10 };

static bool has(const zip *z, const char *a, const char *b) {
  return zip_find(z, a) != NULL && zip_find(z, b) != NULL;
}

/* The index members of csr, csc and bsr; of coo; of coo in other dimensions; of dia. */
bool sparse_is(const zip *z) {
  return has(z, "data.npy", "shape.npy") && zip_find(z, "format.npy") != NULL &&
         (has(z, "indices.npy", "indptr.npy") || has(z, "row.npy", "col.npy") ||
          zip_find(z, "coords.npy") != NULL || zip_find(z, "offsets.npy") != NULL);
}

dtype sparse_value_type(dtype type) {
  return type == DTYPE_F16 || type == DTYPE_BF16 ? DTYPE_F32 : type;
}

dtype sparse_start_type(uint64_t nonzeros) {
  return nonzeros <= INT32_MAX ? DTYPE_I32 : DTYPE_I64;
}

uint64_t sparse_bytes(uint64_t rows, uint64_t columns, uint64_t nonzeros, dtype type) {
  return nonzeros * (dtype_bytes(sparse_value_type(type)) + dtype_bytes(csr_index_type(columns))) +
         (rows + 1) * dtype_bytes(sparse_start_type(nonzeros));
}

/* Reads the format, stored as bytes (today) or as UTF-32 text (older SciPy). */
static stow_status read_format(sparse *s, source *from, const zip *z) {
  array a;
  char bytes[64] = {0}, word[17] = {0};
  STOW_TRY(array_open_member(&a, from, zip_find(z, "format.npy")));
  stow_status status = STOW_OK;
  bool wide = a.descr[1] == 'U';
  if (a.count != 1 || a.item_bytes > sizeof bytes || (a.descr[1] != 'S' && !wide))
    status = stow_fail(STOW_ERR_FORMAT, "%s: not a single word of at most 16 characters", a.name);
  if (status == STOW_OK) status = array_read(&a, 0, bytes, 1);
  size_t step = wide ? 4 : 1, letter = wide && a.big_endian ? 3 : 0;
  for (size_t i = 0; i < 16 && i * step < sizeof bytes; i++) word[i] = bytes[i * step + letter];
  array_close(&a);
  STOW_TRY(status);
  static const char known[][4] = {"csr", "csc", "bsr", "coo", "dia"};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(word, known[i]) == 0) return memcpy(s->layout, known[i], 4), STOW_OK;
  return stow_fail(STOW_ERR_UNSUPPORTED,
                   "%s: a sparse matrix of format \"%.8s\" cannot be read, only csr, csc, bsr, coo "
                   "and dia: save it with .tocsr()",
                   from->name, word);
}

static bool is_integer(dtype type) {
  return type != DTYPE_NONE && type != DTYPE_BOOL && dtype_kind(type) != CLASS_FLOAT;
}

/* Opens a one-dimensional array of integers. */
static stow_status open_integers(array *a, source *from, const zip_entry *entry) {
  STOW_TRY(array_open_member(a, from, entry));
  if (a->dims == 1 && is_integer(a->type)) return STOW_OK;
  char type[ARRAY_DTYPE_MAX];
  stow_status status =
      stow_fail(STOW_ERR_FORMAT, "%s: %s in %u dimensions; a sparse matrix has integers in one",
                a->name, array_dtype(a, type), a->dims);
  array_close(a);
  return status;
}

static stow_status read_shape(sparse *s, source *from, const zip *z) {
  array a;
  STOW_TRY(open_integers(&a, from, zip_find(z, "shape.npy")));
  char bytes[ARRAY_DIMS_MAX * sizeof(int64_t)];
  int64_t shape[ARRAY_DIMS_MAX];
  stow_status status = STOW_OK;
  if (a.count == 0 || a.count > ARRAY_DIMS_MAX)
    status = stow_fail(STOW_ERR_FORMAT, "%s: %" PRIu64 " dimensions; must be 1 to %d", a.name,
                       a.count, ARRAY_DIMS_MAX);
  if (status == STOW_OK) status = array_read(&a, 0, bytes, (size_t)a.count);
  if (status == STOW_OK) status = cast_values(shape, DTYPE_I64, bytes, a.type, (size_t)a.count);
  for (uint32_t i = 0; status == STOW_OK && i < a.count; i++) {
    if (shape[i] < 0) status = stow_fail(STOW_ERR_FORMAT, "%s: a negative dimension", a.name);
    s->shape[i] = (uint64_t)shape[i];
  }
  s->dims = (uint32_t)a.count;
  array_close(&a);
  return status;
}

/* Passes every value, as int64, to `check` with its number; counts the bytes read. */
typedef struct walk {
  const budget *budget;
  uint64_t *done, total;
} walk;

typedef stow_status (*check_values)(void *context, const array *a, uint64_t first,
                                    const int64_t *values, size_t count);

static stow_status each_chunk(array *a, const walk *w, check_values check, void *context) {
  size_t width = a->item_bytes;
  char *raw = malloc(CHUNK_ITEMS * (width + sizeof(int64_t)));
  if (raw == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", a->name);
  int64_t *values = (int64_t *)(void *)(raw + CHUNK_ITEMS * width);
  stow_status status = STOW_OK;
  for (uint64_t first = 0; first < a->count && status == STOW_OK;) {
    size_t count = a->count - first < CHUNK_ITEMS ? (size_t)(a->count - first) : CHUNK_ITEMS;
    status = array_read(a, first, raw, count);
    /* A uint64 above INT64_MAX becomes negative here and is rejected as such. */
    if (status == STOW_OK) status = cast_values(values, DTYPE_I64, raw, a->type, count);
    if (status == STOW_OK) status = check(context, a, first, values, count);
    first += count;
    *w->done += count * width;
    if (status == STOW_OK) status = budget_report(w->budget, *w->done, w->total);
  }
  free(raw);
  return status;
}

static stow_status check_starts(void *context, const array *a, uint64_t first,
                                const int64_t *values, size_t count) {
  int64_t *last = context;
  for (size_t i = 0; i < count; i++) {
    if (first + i == 0 && values[0] != 0)
      return stow_fail(STOW_ERR_FORMAT, "%s: the first entry is %" PRId64 ", not 0", a->name,
                       values[0]);
    if (values[i] < *last)
      return stow_fail(STOW_ERR_FORMAT,
                       "%s: entry %" PRIu64 " is %" PRId64 ", less than the %" PRId64 " before it",
                       a->name, first + i, values[i], *last);
    *last = values[i];
  }
  return STOW_OK;
}

static stow_status check_indices(void *context, const array *a, uint64_t first,
                                 const int64_t *values, size_t count) {
  const sparse_places *p = context;
  for (size_t i = 0; i < count; i++)
    if (values[i] < p->least || values[i] >= p->bound)
      return stow_fail(STOW_ERR_FORMAT,
                       "%s: entry %" PRIu64 " is %" PRId64 "; the matrix allows %" PRId64
                       " to %" PRId64,
                       a->name, first + i, values[i], p->least, p->bound - 1);
  return STOW_OK;
}

/* Checks the entries of `p` alone. */
static stow_status check_places(const sparse_places *p, source *from, const walk *w) {
  array a;
  int64_t last = 0;
  STOW_TRY(open_integers(&a, from, p->entry));
  stow_status status = p->starts ? each_chunk(&a, w, check_starts, &last)
                                 : each_chunk(&a, w, check_indices, (void *)(uintptr_t)p);
  if (status == STOW_OK && p->starts && last != p->bound)
    status =
        stow_fail(STOW_ERR_FORMAT, "%s: ends with %" PRId64 ", but %" PRId64 " values are stored",
                  a.name, last, p->bound);
  array_close(&a);
  return status;
}

/* ---- duplicate positions ---- */

/* If the indices of a csr increase within each run, or the entries of a coo increase by row or by
 * column, there are no duplicates. Otherwise they are read once more, recording the run that last
 * had each index, or a bit for each position of the matrix, if the budget has room for that. */
typedef struct order {
  const sparse_places *places; /* positions of the current indices */
  array other;                 /* their starts, or the rows of these columns */
  bool runs, in_rows, in_columns;
  int64_t last, last_other;
  uint64_t starts_read;
  size_t have, at;
  int64_t *values; /* CHUNK_ITEMS values of `other` */
  char *raw;
  uint64_t *notes; /* NULL: only the order is checked; else a run for each index, or bits */
  uint64_t run, columns;
} order;

static stow_status read_other(order *o, uint64_t first, size_t count) {
  STOW_TRY(array_read(&o->other, first, o->raw, count));
  return cast_values(o->values, DTYPE_I64, o->raw, o->other.type, count);
}

/* Returns whether entry `number` is the first of its run. Runs may be empty. */
static stow_status begins_run(order *o, uint64_t number, bool *begins) {
  for (*begins = false;; o->at++) {
    if (o->at == o->have) {
      uint64_t left = o->other.count - o->starts_read;
      o->have = left < CHUNK_ITEMS ? (size_t)left : CHUNK_ITEMS;
      o->at = 0;
      if (o->have == 0) return STOW_OK;
      STOW_TRY(read_other(o, o->starts_read, o->have));
      o->starts_read += o->have;
    }
    if ((uint64_t)o->values[o->at] > number) return STOW_OK;
    *begins = true;
  }
}

/* Records a position; false if it was recorded before. */
static bool note_place(order *o, int64_t row, int64_t column) {
  if (o->runs) {
    uint64_t *last = &o->notes[column];
    if (*last == o->run) return false;
    *last = o->run;
    return true;
  }
  uint64_t place = (uint64_t)row * o->columns + (uint64_t)column, bit = UINT64_C(1) << place % 64;
  if (o->notes[place / 64] & bit) return false;
  o->notes[place / 64] |= bit;
  return true;
}

static stow_status check_order(void *context, const array *a, uint64_t first, const int64_t *values,
                               size_t count) {
  order *o = context;
  STOW_TRY(check_indices((void *)(uintptr_t)o->places, a, first, values, count));
  if (!o->in_rows && !o->in_columns) return STOW_OK;
  if (!o->runs) STOW_TRY(read_other(o, first, count));
  for (size_t i = 0; i < count; i++) {
    int64_t column = values[i], row = o->runs ? 0 : o->values[i];
    bool begins = first + i == 0;
    if (o->runs) STOW_TRY(begins_run(o, first + i, &begins));
    o->run += begins;
    if (o->notes != NULL) {
      o->in_rows = o->in_rows && note_place(o, row, column);
    } else if (!begins) {
      o->in_rows =
          o->in_rows && (row > o->last_other || (row == o->last_other && column > o->last));
      o->in_columns =
          o->in_columns && (column > o->last || (column == o->last && row > o->last_other));
    }
    o->last = column;
    o->last_other = row;
  }
  return STOW_OK;
}

static stow_status look_beside(order *o, source *from, const walk *w, const sparse_places *other) {
  array a;
  STOW_TRY(open_integers(&a, from, o->places->entry));
  stow_status status = open_integers(&o->other, from, other->entry);
  if (status == STOW_OK) {
    size_t width = o->other.item_bytes;
    o->raw = malloc(CHUNK_ITEMS * (width + sizeof(int64_t)));
    o->values = (int64_t *)(void *)(o->raw + CHUNK_ITEMS * width);
    if (o->raw == NULL) status = stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", a.name);
    if (status == STOW_OK) status = each_chunk(&a, w, check_order, o);
    free(o->raw);
    array_close(&o->other);
  }
  array_close(&a);
  return status;
}

/* Returns how many words note_place needs; 0 if they do not fit. */
static uint64_t note_words(const sparse *s, const sparse_places *p, bool runs, const budget *b) {
  uint64_t words = (uint64_t)p->bound, places;
  if (!runs) words = checked_mul(&places, s->shape[0], s->shape[1]) ? places / 64 + 1 : UINT64_MAX;
  return words <= b->bytes / 8 / sizeof(uint64_t) ? words : 0;
}

/* Checks the entries of `p` together with those of `other`: indices and their starts, or columns
 * and their rows. */
static stow_status check_beside(sparse *s, source *from, const walk *w, const sparse_places *p,
                                const sparse_places *other) {
  bool runs = other->starts;
  order o = {.places = p, .runs = runs, .in_rows = true, .in_columns = !runs};
  STOW_TRY(look_beside(&o, from, w, other));
  s->repeats = !o.in_rows && !o.in_columns;
  uint64_t words = s->repeats ? note_words(s, p, runs, w->budget) : 0;
  uint64_t again = 0; /* the progress starts again */
  if (words == 0) return STOW_OK;
  o = (order){.places = p, .runs = runs, .in_rows = true, .columns = s->shape[1]};
  o.notes = calloc((size_t)words, sizeof *o.notes);
  if (o.notes == NULL) return STOW_OK; /* unknown, so assume duplicates */
  stow_status status = look_beside(&o, from, &(walk){w->budget, &again, w->total}, other);
  s->repeats = !o.in_rows;
  free(o.notes);
  return status;
}

/* ---- the index members of each format ---- */

static stow_status add_places(sparse *s, source *from, const zip *z, const sparse_places *p) {
  sparse_places *to = &s->places[s->places_count++];
  *to = *p;
  to->entry = zip_find(z, p->name);
  if (to->entry == NULL)
    return stow_fail(STOW_ERR_FORMAT, "%s: a sparse matrix of format %s has no %s", from->name,
                     s->layout, p->name);
  array a;
  STOW_TRY(open_integers(&a, from, to->entry));
  s->bytes += a.bytes;
  s->places_bytes += to->count * dtype_bytes(to->type);
  stow_status status = STOW_OK;
  if (a.count != p->count && p->starts)
    status = stow_fail(STOW_ERR_FORMAT,
                       "%s: has %" PRIu64 " entries, but a matrix of that shape needs %" PRIu64,
                       a.name, a.count, p->count);
  else if (a.count != p->count)
    status = stow_fail(STOW_ERR_FORMAT, "%s: %" PRIu64 " indices for %" PRIu64 " stored values",
                       a.name, a.count, p->count);
  array_close(&a);
  return status;
}

static stow_status add_indices(sparse *s, source *from, const zip *z, const char *name,
                               uint64_t count, uint64_t bound) {
  return add_places(
      s, from, z,
      &(sparse_places){
          .name = name, .count = count, .bound = (int64_t)bound, .type = csr_index_type(bound)});
}

/* Adds the index members of csr, csc or bsr: `count` indices below `minor`, in `major` runs. */
static stow_status add_runs(sparse *s, source *from, const zip *z, uint64_t count, uint64_t major,
                            uint64_t minor) {
  STOW_TRY(add_indices(s, from, z, "indices.npy", count, minor));
  return add_places(s, from, z,
                    &(sparse_places){.name = "indptr.npy",
                                     .count = major + 1,
                                     .bound = (int64_t)count,
                                     .starts = true,
                                     .type = sparse_start_type(count)});
}

static stow_status refuse_data(const array *data, const char *why) {
  return stow_fail(STOW_ERR_FORMAT, "%s: %s", data->name, why);
}

static stow_status list_blocks(sparse *s, source *from, const zip *z, const array *data) {
  if (data->dims != 3) return refuse_data(data, "not blocks of rows and columns");
  uint64_t high = data->shape[1], wide = data->shape[2];
  if (high == 0 || wide == 0 || s->shape[0] % high != 0 || s->shape[1] % wide != 0)
    return refuse_data(data, "the blocks do not divide the matrix");
  return add_runs(s, from, z, data->shape[0], s->shape[0] / high, s->shape[1] / wide);
}

static stow_status list_diagonals(sparse *s, source *from, const zip *z, const array *data) {
  if (data->dims != 2) return refuse_data(data, "not a row for each diagonal");
  bool narrow = s->shape[0] <= INT32_MAX && s->shape[1] <= INT32_MAX;
  s->width = data->shape[1];
  return add_places(s, from, z,
                    &(sparse_places){.name = "offsets.npy",
                                     .count = data->shape[0],
                                     .least = s->shape[0] > 0 ? 1 - (int64_t)s->shape[0] : 0,
                                     .bound = (int64_t)s->shape[1],
                                     .type = narrow ? DTYPE_I32 : DTYPE_I64});
}

static stow_status list_coords(sparse *s, source *from, const zip *z) {
  array a;
  uint64_t most = 0;
  for (uint32_t i = 0; i < s->dims; i++) most = s->shape[i] > most ? s->shape[i] : most;
  sparse_places *to = &s->places[s->places_count++];
  *to = (sparse_places){.name = "coords.npy", .coords = true, .type = csr_index_type(most)};
  to->entry = zip_find(z, to->name);
  STOW_TRY(array_open_member(&a, from, to->entry));
  stow_status status = STOW_OK;
  if (!is_integer(a.type) || a.dims != 2 || a.shape[0] != s->dims || a.shape[1] != s->stored ||
      (a.fortran_order && s->dims > 1))
    status = stow_fail(STOW_ERR_FORMAT,
                       "%s: not %u rows of %" PRIu64 " integers, one for each stored value", a.name,
                       s->dims, s->stored);
  to->count = a.count;
  s->bytes += a.bytes;
  s->places_bytes += a.count * dtype_bytes(to->type);
  array_close(&a);
  return status;
}

static stow_status list_places(sparse *s, source *from, const zip *z, const array *data) {
  bool coo = strcmp(s->layout, "coo") == 0, one = s->dims == 1 && strcmp(s->layout, "csr") == 0;
  if (coo && data->dims == 1 && zip_find(z, "coords.npy") != NULL) return list_coords(s, from, z);
  if (s->dims != 2 && !one)
    return stow_fail(STOW_ERR_FORMAT, "%s: a sparse matrix of format %s has two dimensions, not %u",
                     from->name, s->layout, s->dims);
  if (strcmp(s->layout, "bsr") == 0) return list_blocks(s, from, z, data);
  if (strcmp(s->layout, "dia") == 0) return list_diagonals(s, from, z, data);
  if (data->dims != 1) return refuse_data(data, "not one-dimensional");
  if (one) return add_runs(s, from, z, s->stored, 1, s->shape[0]);
  if (coo) {
    STOW_TRY(add_indices(s, from, z, "row.npy", s->stored, s->shape[0]));
    return add_indices(s, from, z, "col.npy", s->stored, s->shape[1]);
  }
  bool columns_first = strcmp(s->layout, "csc") == 0;
  return add_runs(s, from, z, s->stored, s->shape[columns_first ? 1 : 0],
                  s->shape[columns_first ? 0 : 1]);
}

stow_status sparse_begin(sparse *s, source *from, const zip *z) {
  *s = (sparse){.data = zip_find(z, "data.npy")};
  STOW_TRY(read_format(s, from, z));
  STOW_TRY(read_shape(s, from, z));
  array data;
  STOW_TRY(array_open_member(&data, from, s->data));
  s->stored = data.count;
  s->bytes = data.bytes;
  stow_status status = list_places(s, from, z, &data);
  array_close(&data);
  return status;
}

/* ---- the ends of diagonals that lie outside ---- */

/* Counts the nonzero values [from, to) of diagonal `i`. */
static stow_status count_kept(uint64_t *kept, array *data, const sparse *s, uint64_t i,
                              uint64_t from, uint64_t to) {
  char values[512 * sizeof(double)];
  scan found;
  STOW_TRY(scan_begin(&found, data->type));
  uint64_t diagonals = s->places[0].count, step = data->fortran_order ? 1 : 512;
  for (uint64_t at = from; at < to; at += step) {
    size_t count = to - at < step ? (size_t)(to - at) : (size_t)step;
    uint64_t first = data->fortran_order ? at * diagonals + i : i * s->width + at;
    STOW_TRY(array_read(data, first, values, count));
    scan_add(&found, values, count);
  }
  *kept += found.count - found.zeros;
  return STOW_OK;
}

typedef struct diagonals {
  sparse *s;
  array *data;
} diagonals;

/* Counts values outside the matrix. Column j of diagonal k is the position (j - k, j). */
static stow_status count_outside(void *context, const array *a, uint64_t first,
                                 const int64_t *offsets, size_t count) {
  diagonals *d = context;
  sparse *s = d->s;
  STOW_TRY(check_indices(&s->places[0], a, first, offsets, count));
  for (size_t i = 0; i < count; i++) {
    int64_t k = offsets[i], rows = (int64_t)s->shape[0], columns = (int64_t)s->shape[1];
    uint64_t begin = k > 0 ? (uint64_t)k : 0;
    uint64_t end = (uint64_t)(k < columns - rows ? rows + k : columns);
    STOW_TRY(
        count_kept(&s->outside, d->data, s, first + i, 0, begin < s->width ? begin : s->width));
    STOW_TRY(count_kept(&s->outside, d->data, s, first + i, end, s->width));
  }
  return STOW_OK;
}

static stow_status check_diagonals(sparse *s, source *from, const walk *w) {
  array data, offsets;
  STOW_TRY(array_open_member(&data, from, s->data));
  stow_status status = open_integers(&offsets, from, s->places[0].entry);
  if (status == STOW_OK) {
    diagonals d = {s, &data};
    bool numbers = data.type != DTYPE_NONE;
    status = each_chunk(&offsets, w, numbers ? count_outside : check_indices,
                        numbers ? (void *)&d : (void *)&s->places[0]);
    array_close(&offsets);
  }
  array_close(&data);
  return status;
}

/* ---- coords ---- */

static stow_status check_coords(void *context, const array *a, uint64_t first,
                                const int64_t *values, size_t count) {
  const sparse *s = context;
  for (size_t i = 0; i < count; i++) {
    uint64_t dimension = (first + i) / s->stored;
    if (values[i] < 0 || (uint64_t)values[i] >= s->shape[dimension])
      return stow_fail(
          STOW_ERR_FORMAT,
          "%s: entry %" PRIu64 " of row %" PRIu64 " is %" PRId64 "; the array allows 0 to %" PRId64,
          a->name, (first + i) % s->stored, dimension, values[i], (int64_t)s->shape[dimension] - 1);
  }
  return STOW_OK;
}

enum { BESIDE_MOST = 8 }; /* rows of coords read in parallel, each at its own offset */

/* Checks for duplicate positions. None are certain if the positions increase, or if there is memory
 * for a bit per position of the array. */
typedef struct coords {
  array rows[BESIDE_MOST];
  uint64_t places[CHUNK_ITEMS]; /* linear positions in the array, for one chunk */
  int64_t values[CHUNK_ITEMS];
  char raw[CHUNK_ITEMS * sizeof(int64_t)];
  uint64_t last;
} coords;

static stow_status read_coords(coords *c, const sparse *s, uint64_t first, size_t count) {
  memset(c->places, 0, count * sizeof *c->places);
  for (uint32_t d = 0; d < s->dims; d++) {
    STOW_TRY(array_read(&c->rows[d], d * s->stored + first, c->raw, count));
    STOW_TRY(cast_values(c->values, DTYPE_I64, c->raw, c->rows[d].type, count));
    for (size_t i = 0; i < count; i++)
      c->places[i] = c->places[i] * s->shape[d] + (uint64_t)c->values[i];
  }
  return STOW_OK;
}

static stow_status look_at_coords(coords *c, sparse *s, const budget *b, uint64_t *bits) {
  s->repeats = false;
  for (uint64_t first = 0; first < s->stored && !s->repeats;) {
    size_t count = s->stored - first < CHUNK_ITEMS ? (size_t)(s->stored - first) : CHUNK_ITEMS;
    STOW_TRY(read_coords(c, s, first, count));
    for (size_t i = 0; i < count && !s->repeats; i++) {
      uint64_t place = c->places[i], bit = UINT64_C(1) << place % 64;
      if (bits == NULL)
        s->repeats = first + i > 0 && place <= c->last;
      else
        s->repeats = (bits[place / 64] & bit) != 0;
      if (bits != NULL) bits[place / 64] |= bit;
      c->last = place;
    }
    first += count;
    STOW_TRY(budget_report(b, first, s->stored));
  }
  return STOW_OK;
}

static stow_status find_repeats(coords *c, sparse *s, const budget *b, uint64_t places) {
  STOW_TRY(look_at_coords(c, s, b, NULL));
  uint64_t words = places / 64 + 1;
  if (!s->repeats || words > b->bytes / 8 / sizeof(uint64_t)) return STOW_OK;
  uint64_t *bits = calloc((size_t)words, sizeof *bits);
  if (bits == NULL) return STOW_OK; /* unknown, so assume duplicates */
  stow_status status = look_at_coords(c, s, b, bits);
  free(bits);
  return status;
}

static stow_status check_all_coords(sparse *s, source *from, const walk *w) {
  array a;
  STOW_TRY(array_open_member(&a, from, s->places[0].entry));
  stow_status status = each_chunk(&a, w, check_coords, s);
  array_close(&a);
  STOW_TRY(status);
  uint64_t places = 1;
  s->repeats = s->dims > BESIDE_MOST;
  for (uint32_t i = 0; i < s->dims && !s->repeats; i++)
    s->repeats = !checked_mul(&places, places, s->shape[i]);
  if (s->repeats) return STOW_OK; /* unknown, so assume duplicates */
  coords *c = calloc(1, sizeof *c);
  if (c == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", from->name);
  uint32_t opened = 0;
  while (status == STOW_OK && opened < s->dims) {
    status = array_open_member(&c->rows[opened], from, s->places[0].entry);
    opened += status == STOW_OK;
  }
  if (status == STOW_OK) status = find_repeats(c, s, w->budget, places);
  while (opened > 0) array_close(&c->rows[--opened]);
  free(c);
  return status;
}

stow_status sparse_check(sparse *s, source *from, const budget *b, uint64_t *done, uint64_t total) {
  walk w = {b, done, total};
  if (s->places[0].coords) return check_all_coords(s, from, &w);
  if (strcmp(s->layout, "dia") == 0) return check_diagonals(s, from, &w);
  size_t other = s->places[1].starts ? 1 : 0; /* indices with their starts, columns with their
                                               * rows */
  STOW_TRY(check_places(&s->places[other], from, &w));
  return check_beside(s, from, &w, &s->places[1 - other], &s->places[other]);
}
