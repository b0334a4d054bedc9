/* Shrink to sparse: the members SciPy's load_npz reads, in the order its save_npz writes them.
 *
 * How many values are kept is known from the scan, so every member has its place before the pass
 * that fills all of them side by side. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/shrink_parts.h"
#include "data/sparse.h"
#include "numbers/cast.h"
#include "numbers/csr.h"

enum { CHUNK_ITEMS = 16 << 10, STARTS = 2048 };

typedef struct matrix {
  sink indices, indptr, data;
  dtype index_type, start_type, value_type;
  int64_t starts[STARTS]; /* not yet written */
  size_t start_count;
  uint64_t kept;
} matrix;

static stow_status flush_starts(matrix *m) {
  int32_t narrow[STARTS];
  size_t count = m->start_count;
  m->start_count = 0;
  if (m->start_type == DTYPE_I64) return sink_write(&m->indptr, m->starts, count * 8);
  STOW_TRY(cast_values(narrow, DTYPE_I32, m->starts, DTYPE_I64, count));
  return sink_write(&m->indptr, narrow, count * 4);
}

static stow_status add_start(matrix *m) {
  m->starts[m->start_count++] = (int64_t)m->kept;
  return m->start_count == STARTS ? flush_starts(m) : STOW_OK;
}

static stow_status text_member(zip_out *z, const char *name, const char *text) {
  sink s;
  char descr[32];
  size_t length = strlen(text);
  snprintf(descr, sizeof descr, "|S%zu", length);
  STOW_TRY(shrink_member(z, &s, name, descr, false, NULL, 0, length, false));
  return sink_write(&s, text, length);
}

static stow_status begin_matrix(matrix *m, zip_out *z, const array_facts *facts, bool columns_first,
                                uint64_t nonzeros) {
  uint64_t starts = facts->shape[columns_first ? 1 : 0] + 1, two = 2;
  sink shape;
  STOW_TRY(shrink_member(z, &m->indices, "indices.npy", npy_descr(m->index_type), false, &nonzeros,
                         1, dtype_bytes(m->index_type), false));
  STOW_TRY(shrink_member(z, &m->indptr, "indptr.npy", npy_descr(m->start_type), false, &starts, 1,
                         dtype_bytes(m->start_type), false));
  STOW_TRY(text_member(z, "format.npy", columns_first ? "csc" : "csr"));
  STOW_TRY(shrink_member(z, &shape, "shape.npy", "<i8", false, &two, 1, 8, false));
  STOW_TRY(sink_write(&shape, facts->shape, 16));
  return shrink_member(z, &m->data, "data.npy", npy_descr(m->value_type), false, &nonzeros, 1,
                       dtype_bytes(m->value_type), false);
}

typedef struct room {
  void *read, *cast, *values, *indices;
} room;

static bool room_make(room *r) {
  *r = (room){aligned_alloc(64, CHUNK_ITEMS * 8), aligned_alloc(64, CHUNK_ITEMS * 8),
              aligned_alloc(64, CHUNK_ITEMS * 8), aligned_alloc(64, CHUNK_ITEMS * 8)};
  return r->read != NULL && r->cast != NULL && r->values != NULL && r->indices != NULL;
}

static void room_free(room *r) {
  free(r->read), free(r->cast), free(r->values), free(r->indices);
}

/* `count` items from `first` on, which may be several runs, parts of runs, or both. */
static stow_status compress_chunk(matrix *m, room *r, const char *items, uint64_t first,
                                  size_t count, uint64_t minor) {
  size_t kept = 0, value = dtype_bytes(m->value_type), index = dtype_bytes(m->index_type);
  for (size_t i = 0; i < count;) {
    uint64_t column = (first + i) % minor;
    uint64_t part = minor - column < count - i ? minor - column : count - i;
    size_t more =
        csr_compress((char *)r->values + kept * value, (char *)r->indices + kept * index,
                     m->index_type, items + i * value, m->value_type, (size_t)part, column);
    kept += more;
    m->kept += more;
    i += part;
    if (column + part == minor) STOW_TRY(add_start(m));
  }
  STOW_TRY(sink_write(&m->data, r->values, kept * value));
  return sink_write(&m->indices, r->indices, kept * index);
}

static stow_status compress_all(job *j, array *a, matrix *m, room *r, uint64_t minor) {
  STOW_TRY(add_start(m));
  for (uint64_t first = 0; first < a->count;) {
    size_t count = a->count - first < CHUNK_ITEMS ? (size_t)(a->count - first) : CHUNK_ITEMS;
    const char *items = r->read;
    STOW_TRY(array_read(a, first, r->read, count));
    if (a->type != m->value_type) {
      STOW_TRY(cast_values(r->cast, m->value_type, r->read, a->type, count));
      items = r->cast;
    }
    STOW_TRY(compress_chunk(m, r, items, first, count, minor));
    first += count;
    j->done += count * a->item_bytes;
    STOW_TRY(budget_tell(j->budget, j->done, j->total));
  }
  return m->start_count > 0 ? flush_starts(m) : STOW_OK;
}

stow_status shrink_to_sparse(job *j, array *a, const array_facts *facts, dtype to, zip_out *z) {
  bool columns_first = facts->fortran_order;
  uint64_t minor = facts->shape[columns_first ? 0 : 1], nonzeros = facts->count - facts->zeros;
  matrix *m = calloc(1, sizeof *m);
  room r;
  bool made = room_make(&r) && m != NULL;
  stow_status status =
      made ? STOW_OK : stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", j->in);
  if (made) {
    m->index_type = csr_index_type(minor);
    m->start_type = sparse_start_type(nonzeros);
    m->value_type = to;
    status = begin_matrix(m, z, facts, columns_first, nonzeros);
    if (status == STOW_OK) status = compress_all(j, a, m, &r, minor);
  }
  room_free(&r);
  free(m);
  return status;
}

/* ---- a matrix that is sparse already ---- */

static stow_status cast_member(job *j, zip_out *z, const zip_entry *entry, dtype to, bool deflate) {
  array a;
  sink s;
  STOW_TRY(array_open_member(&a, j->from, entry));
  stow_status status = shrink_member(z, &s, entry->name, npy_descr(to), false, a.shape, a.dims,
                                     dtype_bytes(to), deflate);
  if (status == STOW_OK) status = shrink_values(j, &a, to, &s, NULL, NULL);
  array_close(&a);
  return status;
}

/* Narrower where that is possible, never wider than it was. */
static stow_status index_member(job *j, zip_out *z, const zip_entry *entry, dtype wanted,
                                bool deflate) {
  array a;
  STOW_TRY(array_open_member(&a, j->from, entry));
  dtype to = a.item_bytes < dtype_bytes(wanted) ? a.type : wanted;
  array_close(&a);
  return cast_member(j, z, entry, to, deflate);
}

stow_status shrink_sparse(job *j, const zip *from, const array_facts *facts, dtype to, zip_out *z) {
  bool columns_first = strcmp(facts->layout, "csc") == 0;
  const zip_entry *data = zip_find(from, "data.npy");
  bool deflate = data->method == ZIP_DEFLATED;
  uint64_t minor = facts->shape[columns_first ? 0 : 1], two = 2;
  sink shape;
  STOW_TRY(index_member(j, z, zip_find(from, "indices.npy"), csr_index_type(minor), deflate));
  STOW_TRY(index_member(j, z, zip_find(from, "indptr.npy"), sparse_start_type(facts->values.count),
                        deflate));
  STOW_TRY(text_member(z, "format.npy", facts->layout));
  STOW_TRY(shrink_member(z, &shape, "shape.npy", "<i8", false, &two, 1, 8, false));
  STOW_TRY(sink_write(&shape, facts->shape, 16));
  return cast_member(j, z, data, to, deflate);
}
