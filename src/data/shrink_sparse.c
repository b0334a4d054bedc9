/* Shrink to sparse: writes the members that SciPy's load_npz reads, in the order of its save_npz.
 *
 * A dense array is read once. Its nonzero values go unchanged to streams of values, columns and row
 * starts, and only they determine the smallest type (zeros fit every type). The members are written
 * from the streams when their sizes and types are known. If too much is kept for a sparse matrix to
 * be smaller, the caller continues with the dense path. With a checkpoint the threads run in
 * rounds; between two rounds everything kept is in the scratch file and recorded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "data/ranges.h"
#include "data/shrink_parts.h"
#include "data/sparse.h"
#include "data/stream.h"
#include "data/workers.h"
#include "numbers/cast.h"
#include "numbers/csr.h"

enum { CHUNK_BYTES = 256 << 10, PIECE_BYTES = 256 << 10 };
#define LOOK_ITEMS (UINT64_C(1) << 20) /* enough to see that an array is not sparse */

/* The nonzero values that one thread kept. */
typedef struct kept_part {
  stream values, indices, counts; /* counts: per row, uint32 */
  scan scanned;                   /* scan of the kept values */
  uint64_t kept, looked;
  uint64_t row_kept; /* values kept of the current row */
  bool dense;        /* gave up: too many values are kept */
} kept_part;

struct sparse_kept {
  kept_part parts[WORKERS_MAX];
  unsigned count;
  stream_file file;
  checkpoint *checkpoint;
  bool gave_up;   /* too many values are kept; set between rounds */
  uint64_t minor; /* items of a row (of a column, for Fortran order) */
  dtype index_type;
};

static stow_status text_member(archive *z, const char *name, const char *text) {
  sink s;
  char descr[32];
  size_t length = strlen(text);
  snprintf(descr, sizeof descr, "|S%zu", length);
  STOW_TRY(shrink_member(z, &s, name, descr, false, NULL, 0, length, false));
  return sink_write(&s, text, length);
}

/* ---- reading ---- */

static stow_status end_row(kept_part *p) {
  void *room;
  uint32_t count = (uint32_t)p->row_kept;
  STOW_TRY(stream_room(&p->counts, sizeof count, &room));
  memcpy(room, &count, sizeof count);
  stream_took(&p->counts, sizeof count);
  p->row_kept = 0;
  return STOW_OK;
}

/* Takes `count` items from `first` on: several rows, parts of rows, or both. */
static stow_status keep_chunk(const struct sparse_kept *k, kept_part *p, const array *a,
                              const char *items, uint64_t first, size_t count) {
  size_t width = a->item_bytes, index = dtype_bytes(k->index_type);
  void *values, *indices;
  STOW_TRY(stream_room(&p->values, count * width, &values));
  STOW_TRY(stream_room(&p->indices, count * index, &indices));
  size_t kept = 0;
  for (size_t i = 0; i < count;) {
    uint64_t column = (first + i) % k->minor;
    uint64_t part = k->minor - column < count - i ? k->minor - column : count - i;
    size_t more =
        csr_compress((char *)values + kept * width, (char *)indices + kept * index, k->index_type,
                     items + i * width, a->type, (size_t)part, column, &p->scanned.minus_zeros);
    kept += more;
    p->row_kept += more;
    i += part;
    if (column + part == k->minor) STOW_TRY(end_row(p));
  }
  scan_add(&p->scanned, values, kept);
  stream_took(&p->values, kept * width);
  stream_took(&p->indices, kept * index);
  p->kept += kept;
  p->looked += count;
  return STOW_OK;
}

/* Reads row by row: a thread begins with a row. */
static stow_status keep_range(void *context, range *r) {
  struct sparse_kept *k = context;
  kept_part *p = &k->parts[r->number];
  array *a = r->a;
  uint64_t first = (r->first + k->minor - 1) / k->minor * k->minor;
  uint64_t end = r->end == a->count ? a->count : (r->end + k->minor - 1) / k->minor * k->minor;
  if (k->gave_up) return STOW_OK;
  char *chunk = aligned_alloc(64, CHUNK_BYTES);
  if (chunk == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", a->name);
  size_t step = CHUNK_BYTES / a->item_bytes;
  stow_status status = STOW_OK;
  while (first < end && status == STOW_OK && !p->dense) {
    size_t count = end - first < step ? (size_t)(end - first) : step;
    status = array_read(a, first, chunk, count);
    if (status == STOW_OK) status = keep_chunk(k, p, a, chunk, first, count);
    first += count;
    if (status == STOW_OK) status = range_report(r, count * a->item_bytes);
    p->dense = p->looked >= LOOK_ITEMS && p->kept > p->looked / 2;
  }
  free(chunk);
  return status;
}

/* ---- checkpoint ---- */

typedef struct kept_state {
  uint64_t count, dense;
} kept_state;

typedef struct part_state {
  scan scanned;
  uint64_t kept, looked;
  uint64_t runs[3]; /* lengths of values, indices, counts, which follow */
} part_state;

static stream *stream_of(kept_part *p, int i) {
  return i == 0 ? &p->values : i == 1 ? &p->indices : &p->counts;
}

static bool any_dense(const struct sparse_kept *k) {
  bool dense = false;
  for (unsigned i = 0; i < k->count; i++) dense = dense || k->parts[i].dense;
  return dense;
}

static stow_status put_part(buffer *b, kept_part *p) {
  part_state s = {.scanned = p->scanned, .kept = p->kept, .looked = p->looked};
  for (int i = 0; i < 3; i++) {
    STOW_TRY(stream_flush(stream_of(p, i)));
    s.runs[i] = stream_of(p, i)->run_count;
  }
  buffer_append(b, (const char *)&s, sizeof s);
  for (int i = 0; i < 3; i++)
    buffer_append(b, (const char *)stream_of(p, i)->runs, s.runs[i] * sizeof(stream_run));
  return b->status;
}

static stow_status note_kept(struct sparse_kept *k, uint64_t done) {
  buffer b = BUFFER_INIT;
  kept_state head = {k->count, any_dense(k)};
  buffer_append(&b, (const char *)&head, sizeof head);
  stow_status status = STOW_OK;
  for (unsigned i = 0; i < k->count && status == STOW_OK && !head.dense; i++)
    status = put_part(&b, &k->parts[i]);
  if (status == STOW_OK) status = b.status;
  if (status == STOW_OK) status = checkpoint_note(k->checkpoint, STEP_KEEP, done, b.data, b.length);
  buffer_free(&b);
  return status;
}

static stow_status between_rounds(void *context, uint64_t done) {
  struct sparse_kept *k = context;
  k->gave_up = any_dense(k);
  return checkpoint_due(k->checkpoint) ? note_kept(k, done) : STOW_OK;
}

static stow_status take_part(kept_part *p, const char **at) {
  part_state s;
  memcpy(&s, *at, sizeof s);
  *at += sizeof s;
  p->scanned = s.scanned;
  p->kept = s.kept;
  p->looked = s.looked;
  for (int i = 0; i < 3; i++) {
    STOW_TRY(stream_take_up(stream_of(p, i), (const stream_run *)(const void *)*at, s.runs[i]));
    *at += s.runs[i] * sizeof(stream_run);
  }
  return STOW_OK;
}

static stow_status take_up(struct sparse_kept *k) {
  uint64_t done;
  size_t bytes;
  const char *at = checkpoint_get(k->checkpoint, STEP_KEEP, &done, &bytes);
  stow_status status = STOW_OK;
  if (at == NULL) return STOW_OK;
  at += sizeof(kept_state);
  for (unsigned i = 0; i < k->count && status == STOW_OK; i++)
    status = take_part(&k->parts[i], &at);
  return status;
}

/* Restores the threads of an interrupted run and whether it gave up. */
static void remember(struct sparse_kept *k, uint64_t *done) {
  size_t bytes;
  kept_state head;
  const void *kept = checkpoint_get(k->checkpoint, STEP_KEEP, done, &bytes);
  if (kept == NULL) return;
  memcpy(&head, kept, sizeof head);
  k->count = (unsigned)head.count;
  k->gave_up = head.dense != 0;
}

static stow_status keep_all(job *j, array *a, struct sparse_kept *k, uint64_t done) {
  ranges_job work = {
      .budget = j->budget, .done = &j->done, .total = j->total, .work = keep_range, .context = k};
  STOW_TRY(ranges_rounds(a, &work, k->count, done, between_rounds));
  k->gave_up = k->gave_up || any_dense(k);
  /* The next step depends on this. A short job is not worth writing the scratch file. */
  return checkpoint_worth(k->checkpoint) ? note_kept(k, a->count) : STOW_OK;
}

static stow_status keep_begin(struct sparse_kept *k, const job *j, const array *a) {
  checkpoint *c = j->budget->checkpoint;
  if (c != NULL) {
    STOW_TRY(scratch_open_named(&k->file.file, c->scratch_path, c->resumed));
    c->scratch = k->file.file.fd;
  }
  /* A quarter of the budget holds values before they go to a file. */
  size_t most = (size_t)(j->budget->bytes / 4 / k->count / 3);
  if (most > (256u << 20)) most = 256u << 20;
  for (unsigned i = 0; i < k->count; i++) {
    kept_part *p = &k->parts[i];
    for (int s = 0; s < 3; s++) stream_begin(stream_of(p, s), &k->file, most);
    STOW_TRY(scan_begin(&p->scanned, a->type));
  }
  return take_up(k);
}

/* Adds the zeros to the scan; they fit every type. */
static stow_status add_up(struct sparse_kept *k, array_facts *facts, const array *a) {
  scan zeros;
  uint64_t none = 0, kept = 0;
  STOW_TRY(scan_begin(&facts->values, a->type));
  STOW_TRY(scan_begin(&zeros, a->type));
  for (unsigned i = 0; i < k->count; i++) {
    scan_join(&facts->values, &k->parts[i].scanned);
    kept += k->parts[i].kept;
  }
  if (kept == a->count) return STOW_OK;
  scan_add(&zeros, &none, 1);
  zeros.count = zeros.zeros = a->count - kept;
  scan_join(&facts->values, &zeros);
  /* -0 is not among the values kept, but no integer type holds it. */
  if (facts->values.minus_zeros > 0) facts->values.whole = false;
  return STOW_OK;
}

stow_status shrink_keep(job *j, array *a, array_facts *facts, struct sparse_kept **kept) {
  *kept = NULL;
  uint64_t minor = a->dims == 2 ? a->shape[a->fortran_order ? 0 : 1] : 0;
  if (a->type == DTYPE_NONE || a->count == 0 || minor == 0 || minor >= UINT32_MAX) return STOW_OK;
  struct sparse_kept *k = calloc(1, sizeof *k);
  if (k == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", j->in);
  k->count = ranges_threads(a, j->budget);
  k->minor = minor;
  k->index_type = csr_index_type(minor);
  k->checkpoint = j->budget->checkpoint;
  stream_file_begin(&k->file, j->out);
  uint64_t done = 0;
  remember(k, &done);
  stow_status status = k->gave_up ? STOW_OK : keep_begin(k, j, a);
  if (status == STOW_OK && !k->gave_up) status = keep_all(j, a, k, done);
  if (status == STOW_OK && !k->gave_up) status = add_up(k, facts, a);
  if (status != STOW_OK || k->gave_up) {
    shrink_forget(k);
    if (j->budget->checkpoint != NULL) j->budget->checkpoint->scratch = -1;
    j->done = 0;
    return status;
  }
  *kept = k;
  return STOW_OK;
}

void shrink_forget(struct sparse_kept *k) {
  if (k == NULL) return;
  for (unsigned i = 0; i < k->count; i++)
    for (int s = 0; s < 3; s++) stream_end(stream_of(&k->parts[i], s));
  stream_file_end(&k->file);
  free(k);
}

/* ---- writing ---- */

typedef struct casting {
  sink *to;
  dtype from_type, to_type;
  int64_t start; /* start of the next row */
  void *made;
} casting;

static stow_status cast_piece(void *context, const void *bytes, size_t count) {
  casting *c = context;
  if (c->from_type == c->to_type) return sink_write(c->to, bytes, count);
  size_t items = count / dtype_bytes(c->from_type);
  STOW_TRY(cast_values(c->made, c->to_type, bytes, c->from_type, items));
  return sink_write(c->to, c->made, items * dtype_bytes(c->to_type));
}

/* Converts counts to row starts. */
static stow_status start_piece(void *context, const void *bytes, size_t count) {
  casting *c = context;
  const uint32_t *counts = bytes;
  int32_t *narrow = c->made;
  int64_t *wide = c->made;
  size_t rows = count / sizeof *counts;
  for (size_t i = 0; i < rows; i++) {
    c->start += counts[i];
    if (c->to_type == DTYPE_I32)
      narrow[i] = (int32_t)c->start;
    else
      wide[i] = c->start;
  }
  return sink_write(c->to, c->made, rows * dtype_bytes(c->to_type));
}

static stow_status write_starts(struct sparse_kept *k, casting *c) {
  int64_t zero = 0;
  STOW_TRY(sink_write(c->to, &zero, dtype_bytes(c->to_type)));
  for (unsigned i = 0; i < k->count; i++)
    STOW_TRY(stream_each(&k->parts[i].counts, 0, PIECE_BYTES, start_piece, c));
  return STOW_OK;
}

/* Writes all values or indices, except those already in the output. */
static stow_status write_streams(struct sparse_kept *k, int which, casting *c) {
  size_t width = dtype_bytes(c->from_type), made = dtype_bytes(c->to_type);
  for (unsigned i = 0; i < k->count; i++) {
    uint64_t items = k->parts[i].kept, behind = sink_behind(c->to) / made;
    uint64_t skip = behind < items ? behind : items;
    sink_pass(c->to, skip * made);
    STOW_TRY(stream_each(stream_of(&k->parts[i], which), skip * width, PIECE_BYTES, cast_piece, c));
  }
  return STOW_OK;
}

static stow_status write_members(struct sparse_kept *k, const array_facts *facts, dtype to,
                                 archive *z, void *made) {
  bool columns_first = facts->fortran_order;
  uint64_t nonzeros = facts->count - facts->values.zeros, two = 2;
  uint64_t starts = facts->shape[columns_first ? 1 : 0] + 1;
  dtype start_type = sparse_start_type(nonzeros);
  sink s, shape;
  casting c = {.to = &s, .from_type = k->index_type, .to_type = k->index_type, .made = made};
  STOW_TRY(shrink_member(z, &s, "indices.npy", npy_descr(k->index_type), false, &nonzeros, 1,
                         dtype_bytes(k->index_type), false));
  STOW_TRY(write_streams(k, 1, &c));
  /* Row starts only increase: they deflate to a third even at the lowest level. */
  z->zip.level = 1;
  STOW_TRY(shrink_member(z, &s, "indptr.npy", npy_descr(start_type), false, &starts, 1,
                         dtype_bytes(start_type), true));
  c.to_type = start_type;
  STOW_TRY(write_starts(k, &c));
  STOW_TRY(text_member(z, "format.npy", columns_first ? "csc" : "csr"));
  STOW_TRY(shrink_member(z, &shape, "shape.npy", "<i8", false, &two, 1, 8, false));
  STOW_TRY(sink_write(&shape, facts->shape, 16));
  c.from_type = facts->type;
  c.to_type = to;
  STOW_TRY(
      shrink_member(z, &s, "data.npy", npy_descr(to), false, &nonzeros, 1, dtype_bytes(to), false));
  return write_streams(k, 0, &c);
}

stow_status shrink_write_kept(const job *j, struct sparse_kept *k, const array_facts *facts,
                              dtype to, archive *z) {
  void *made = malloc(PIECE_BYTES * 8); /* a byte may become eight */
  if (made == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", j->in);
  stow_status status = write_members(k, facts, to, z, made);
  free(made);
  return status;
}

/* ---- a matrix that is already sparse ---- */

static stow_status cast_member(job *j, archive *z, const zip_entry *entry, dtype to, bool deflate) {
  array a;
  sink s;
  STOW_TRY(array_open_member(&a, j->from, entry));
  stow_status status = shrink_member(z, &s, entry->name, npy_descr(to), a.fortran_order, a.shape,
                                     a.dims, dtype_bytes(to), deflate);
  if (status == STOW_OK) status = shrink_values(j, &a, to, &s, NULL, NULL);
  array_close(&a);
  return status;
}

/* Writes an index member, narrower if possible, never wider than before. */
static stow_status index_member(job *j, archive *z, const zip_entry *entry, dtype wanted,
                                bool deflate) {
  array a;
  STOW_TRY(array_open_member(&a, j->from, entry));
  dtype to = a.item_bytes < dtype_bytes(wanted) ? a.type : wanted;
  array_close(&a);
  return cast_member(j, z, entry, to, deflate);
}

stow_status shrink_sparse(job *j, const zip *from, dtype to, archive *z) {
  sparse s;
  sink shape;
  STOW_TRY(sparse_begin(&s, j->from, from));
  uint64_t dims = s.dims;
  bool deflate = s.data->method == ZIP_DEFLATED;
  for (size_t i = 0; i < s.places_count; i++)
    STOW_TRY(index_member(j, z, s.places[i].entry, s.places[i].type, deflate));
  STOW_TRY(text_member(z, "format.npy", s.layout));
  STOW_TRY(shrink_member(z, &shape, "shape.npy", "<i8", false, &dims, 1, 8, false));
  STOW_TRY(sink_write(&shape, s.shape, dims * 8));
  STOW_TRY(cast_member(j, z, s.data, to, deflate));
  /* Written by SciPy since 1.11 for a sparse array, which it then loads as an array, not as a
   * matrix. */
  const zip_entry *is_array = zip_find(from, "_is_array.npy");
  return is_array != NULL ? cast_member(j, z, is_array, DTYPE_BOOL, deflate) : STOW_OK;
}
