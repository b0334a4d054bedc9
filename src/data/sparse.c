/* Sparse: see sparse.h. Indices are checked in chunks, so a matrix of any size costs one buffer. */
#include "data/sparse.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "numbers/cast.h"
#include "numbers/csr.h"

enum { CHUNK_ITEMS = 16 << 10 };

static bool has(const zip *z, const char *a, const char *b) {
  return zip_find(z, a) != NULL && zip_find(z, b) != NULL;
}

/* The places of csr, csc and bsr; of coo; of coo in other dimensions; of dia. */
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

/* "csr" or "csc", as bytes (today) or as UTF-32 text (older SciPy). */
static stow_status read_format(sparse *s, source *from, const zip *z) {
  array a;
  char bytes[64] = {0}, word[17] = {0};
  STOW_TRY(array_open_member(&a, from, zip_find(z, "format.npy")));
  stow_status status = STOW_OK;
  bool wide = a.descr[1] == 'U';
  if (a.count != 1 || a.item_bytes > sizeof bytes || (a.descr[1] != 'S' && !wide))
    status = stow_fail(STOW_ERR_FORMAT, "%s: not one word of at most 16 letters", a.name);
  if (status == STOW_OK) status = array_read(&a, 0, bytes, 1);
  size_t step = wide ? 4 : 1, letter = wide && a.big_endian ? 3 : 0;
  for (size_t i = 0; i < 16 && i * step < sizeof bytes; i++) word[i] = bytes[i * step + letter];
  array_close(&a);
  STOW_TRY(status);
  s->columns_first = strcmp(word, "csc") == 0;
  if (!s->columns_first && strcmp(word, "csr") != 0)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "%s: a sparse matrix of format \"%.8s\"; csr and csc are read: save it with "
                     ".tocsr()",
                     from->name, word);
  return STOW_OK;
}

static bool is_integer(dtype type) {
  return type != DTYPE_NONE && type != DTYPE_BOOL && dtype_kind(type) != CLASS_FLOAT;
}

/* A one-dimensional array of integers. */
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
  char bytes[16];
  int64_t shape[2] = {-1, -1};
  stow_status status = a.count == 2 ? array_read(&a, 0, bytes, 2)
                                    : stow_fail(STOW_ERR_FORMAT, "%s: not two dimensions", a.name);
  if (status == STOW_OK) status = cast_values(shape, DTYPE_I64, bytes, a.type, 2);
  if (status == STOW_OK && (shape[0] < 0 || shape[1] < 0))
    status = stow_fail(STOW_ERR_FORMAT, "%s: a negative dimension", a.name);
  s->shape[0] = (uint64_t)shape[0];
  s->shape[1] = (uint64_t)shape[1];
  array_close(&a);
  return status;
}

/* Hands every value, as int64, to `check` with its number; bytes read are counted. */
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
    /* A uint64 past int64 turns negative here and is refused as such. */
    if (status == STOW_OK) status = cast_values(values, DTYPE_I64, raw, a->type, count);
    if (status == STOW_OK) status = check(context, a, first, values, count);
    first += count;
    *w->done += count * width;
    if (status == STOW_OK) status = budget_tell(w->budget, *w->done, w->total);
  }
  free(raw);
  return status;
}

static stow_status check_starts(void *context, const array *a, uint64_t first,
                                const int64_t *values, size_t count) {
  int64_t *last = context;
  for (size_t i = 0; i < count; i++) {
    if (first + i == 0 && values[0] != 0)
      return stow_fail(STOW_ERR_FORMAT, "%s: begins with %" PRId64 ", not 0", a->name, values[0]);
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
  const uint64_t *bound = context;
  for (size_t i = 0; i < count; i++)
    if ((uint64_t)values[i] >= *bound)
      return stow_fail(STOW_ERR_FORMAT,
                       "%s: entry %" PRIu64 " is %" PRId64 "; the matrix allows 0 to %" PRId64,
                       a->name, first + i, values[i], (int64_t)*bound - 1);
  return STOW_OK;
}

static stow_status check_indptr(sparse *s, source *from, const walk *w) {
  array a;
  STOW_TRY(open_integers(&a, from, s->indptr));
  s->bytes += a.bytes;
  uint64_t major = s->shape[s->columns_first ? 1 : 0];
  int64_t last = 0;
  stow_status status = STOW_OK;
  if (a.count != major + 1)
    status = stow_fail(STOW_ERR_FORMAT,
                       "%s: has %" PRIu64 " entries; a matrix of %" PRIu64 " %s needs %" PRIu64,
                       a.name, a.count, major, s->columns_first ? "columns" : "rows", major + 1);
  if (status == STOW_OK) status = each_chunk(&a, w, check_starts, &last);
  if (status == STOW_OK && (uint64_t)last != s->nonzeros)
    status =
        stow_fail(STOW_ERR_FORMAT, "%s: ends with %" PRId64 ", but %" PRIu64 " values are stored",
                  a.name, last, s->nonzeros);
  array_close(&a);
  return status;
}

stow_status sparse_open(sparse *s, source *from, const zip *z, const budget *b, uint64_t *done,
                        uint64_t total) {
  *s = (sparse){.data = zip_find(z, "data.npy"),
                .indices = zip_find(z, "indices.npy"),
                .indptr = zip_find(z, "indptr.npy")};
  walk w = {b, done, total};
  STOW_TRY(read_format(s, from, z));
  if (s->indices == NULL || s->indptr == NULL)
    return stow_fail(STOW_ERR_FORMAT, "%s: a sparse matrix without indices.npy or indptr.npy",
                     from->name);
  STOW_TRY(read_shape(s, from, z));
  array data, indices;
  STOW_TRY(array_open_member(&data, from, s->data));
  s->nonzeros = data.count;
  s->bytes = data.bytes;
  bool flat = data.dims == 1;
  array_close(&data);
  if (!flat) return stow_fail(STOW_ERR_FORMAT, "%s: data.npy is not one-dimensional", from->name);
  STOW_TRY(open_integers(&indices, from, s->indices));
  uint64_t bound = s->shape[s->columns_first ? 0 : 1];
  s->bytes += indices.bytes;
  stow_status status =
      indices.count == s->nonzeros
          ? each_chunk(&indices, &w, check_indices, &bound)
          : stow_fail(STOW_ERR_FORMAT, "%s: %" PRIu64 " indices for %" PRIu64 " stored values",
                      indices.name, indices.count, s->nonzeros);
  array_close(&indices);
  STOW_TRY(status);
  return check_indptr(s, from, &w);
}
