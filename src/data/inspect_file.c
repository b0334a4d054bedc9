/* Inspect: arrays and model headers; table.c handles tables. */
#include "data/inspect.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrays/tensors.h"
#include "base/checked.h"
#include "base/hash.h"
#include "data/checkpoint.h"
#include "data/ranges.h"
#include "data/shards.h"
#include "data/sparse.h"
#include "data/table.h"
#include "data/team.h"

/* Read and scanned while still in the L2 cache. */
enum { CHUNK_BYTES = 256 << 10 };

/* ---- one array ---- */

typedef struct scans {
  pthread_mutex_t lock;
  scan *all; /* guarded by lock */
} scans;

static stow_status scan_range(void *context, range *r) {
  scans *s = context;
  array *a = r->a;
  scan mine;
  char *chunk = aligned_alloc(64, CHUNK_BYTES);
  if (chunk == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", a->name);
  stow_status status = scan_begin(&mine, a->type);
  size_t step = CHUNK_BYTES / a->item_bytes;
  for (uint64_t first = r->first; first < r->end && status == STOW_OK;) {
    uint64_t equal;
    uint8_t value[8];
    status = array_repeats(a, first, &equal, value);
    if (status != STOW_OK) break;
    if (equal > r->end - first) equal = r->end - first;
    uint64_t count = r->end - first < step ? r->end - first : step;
    if (equal >= step) {
      count = equal;
      scan_repeat(&mine, value, equal);
    } else {
      status = array_read(a, first, chunk, (size_t)count);
      if (status == STOW_OK) scan_add(&mine, chunk, (size_t)count);
    }
    first += count;
    if (status == STOW_OK) status = range_report(r, count * a->item_bytes);
  }
  free(chunk);
  pthread_mutex_lock(&s->lock);
  scan_join(s->all, &mine);
  pthread_mutex_unlock(&s->lock);
  return status;
}

stow_status inspect_join(scan *s, const budget *b) {
  if (b->team == NULL || b->team->size <= 1) return STOW_OK;
  scan mine = *s, *all = calloc(b->team->size, sizeof *all);
  if (all == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  stow_status status = team_gather(b->team, &mine, all, sizeof mine);
  if (status == STOW_OK) status = scan_begin(s, mine.type);
  for (unsigned i = 0; i < b->team->size && status == STOW_OK; i++) scan_join(s, &all[i]);
  free(all);
  return status;
}

static stow_status scan_all(array_facts *facts, array *a, const budget *b, uint64_t *done,
                            uint64_t total) {
  scans s = {.lock = PTHREAD_MUTEX_INITIALIZER, .all = &facts->values};
  STOW_TRY(scan_begin(&facts->values, a->type));
  ranges_job job = {.budget = b,
                    .done = done,
                    .total = total,
                    .work = scan_range,
                    .context = &s,
                    .step = STEP_OF(STEP_SCAN, b->item),
                    .state = &facts->values,
                    .state_bytes = sizeof facts->values};
  STOW_TRY(ranges_run(a, &job));
  return inspect_join(&facts->values, b);
}

static void weigh_sparse(array_facts *facts) {
  facts->zeros = facts->values.zeros;
  if (facts->dims != 2 || facts->count == 0) return;
  /* A Fortran array is stored by columns, so it becomes a CSC matrix. */
  uint64_t major = facts->shape[facts->fortran_order ? 1 : 0];
  uint64_t minor = facts->shape[facts->fortran_order ? 0 : 1];
  facts->sparse_bytes = sparse_bytes(major, minor, facts->count - facts->zeros, facts->smallest);
  facts->sparse_is_smaller = facts->sparse_bytes < facts->bytes_after;
}

void inspect_begin(array_facts *facts, const array *a) {
  facts->type = a->type;
  facts->fortran_order = a->fortran_order;
  facts->dims = a->dims;
  memcpy(facts->shape, a->shape, sizeof facts->shape);
  facts->count = a->count;
  facts->bytes = facts->bytes_after = a->bytes;
  array_dtype(a, facts->type_name);
}

void inspect_conclude(array_facts *facts, scan_purpose purpose) {
  facts->scanned = true;
  facts->smallest = scan_type_for(&facts->values, purpose);
  facts->bytes_after = facts->count * dtype_bytes(facts->smallest);
  weigh_sparse(facts);
}

stow_status inspect_array(array_facts *facts, array *a, const budget *b, uint64_t *done,
                          uint64_t total) {
  inspect_begin(facts, a);
  if (a->type == DTYPE_NONE) {
    *done += a->bytes;
    return budget_report(b, *done, total);
  }
  STOW_TRY(scan_all(facts, a, b, done, total));
  inspect_conclude(facts, b->purpose);
  return STOW_OK;
}

/* ---- files ---- */

/* Inspects the newest of the file's arrays. Arrays that an interrupted run had finished are not
 * read again. */
static stow_status inspect_next(file_facts *f, array *a, const budget *b, uint64_t *done,
                                uint64_t total) {
  size_t i = f->array_count - 1, bytes;
  array_facts *facts = &f->arrays[i];
  uint64_t count;
  budget own = *b;
  const scan *known = checkpoint_get(b->checkpoint, STEP_FACTS, &count, &bytes);
  own.item = i;
  if (i >= count) {
    STOW_TRY(inspect_array(facts, a, &own, done, total));
    checkpoint_clear(b->checkpoint, STEP_OF(STEP_SCAN, i));
    return checkpoint_append(b->checkpoint, STEP_FACTS, &facts->values, sizeof facts->values);
  }
  inspect_begin(facts, a);
  *done += a->bytes;
  if (a->type == DTYPE_NONE) return STOW_OK;
  facts->values = known[i];
  inspect_conclude(facts, b->purpose);
  return STOW_OK;
}

static stow_status add_array(file_facts *f, array_facts **facts) {
  array_facts *more = realloc(f->arrays, (f->array_count + 1) * sizeof *more);
  if (more == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for another array");
  f->arrays = more;
  *facts = &more[f->array_count++];
  **facts = (array_facts){0};
  return STOW_OK;
}

static stow_status inspect_one(file_facts *f, array *a, const budget *b) {
  array_facts *facts = NULL;
  uint64_t done = 0;
  STOW_TRY(add_array(f, &facts));
  return inspect_array(facts, a, b, &done, a->bytes);
}

/* Checks only once: a resumed run knows the result. */
static stow_status check_places(sparse *s, source *from, const budget *b, uint64_t *done,
                                uint64_t total) {
  uint64_t found[2], count = s->places_count;
  if (checkpoint_find(b->checkpoint, STEP_PLACES, &count, found, sizeof found)) {
    s->outside = found[0];
    s->repeats = found[1] != 0;
    return STOW_OK;
  }
  STOW_TRY(sparse_check(s, from, b, done, total));
  found[0] = s->outside;
  found[1] = s->repeats;
  return checkpoint_note(b->checkpoint, STEP_PLACES, count, found, sizeof found);
}

static stow_status inspect_sparse(file_facts *f, source *from, const zip *z, const budget *b,
                                  uint64_t *done, uint64_t total) {
  sparse s;
  array data;
  array_facts *facts = NULL;
  STOW_TRY(sparse_begin(&s, from, z));
  STOW_TRY(check_places(&s, from, b, done, total));
  STOW_TRY(add_array(f, &facts));
  STOW_TRY(array_open_member(&data, from, s.data));
  stow_status status = inspect_next(f, &data, b, done, total);
  array_close(&data);
  STOW_TRY(status);
  f->format = "scipy sparse npz";
  facts->sparse = true;
  memcpy(facts->layout, s.layout, sizeof facts->layout);
  facts->dims = s.dims;
  facts->fortran_order = false;
  memcpy(facts->shape, s.shape, sizeof facts->shape);
  facts->bytes = facts->bytes_after = s.bytes;
  if (!facts->scanned) return STOW_OK; /* complex numbers get a name and a size only */
  facts->places_bytes = s.places_bytes;
  facts->repeats = s.repeats;
  facts->smallest = sparse_value_type(s.repeats ? facts->type : facts->smallest);
  facts->sparse_bytes = s.stored * dtype_bytes(facts->smallest) + s.places_bytes;
  facts->bytes_after = facts->sparse_bytes;
  /* Positions that are not stored are zeros. Two entries at one position would be counted twice, so
   * none may remain. */
  uint64_t places = 1, kept = s.stored - facts->values.zeros - s.outside;
  bool counted = true;
  for (uint32_t i = 0; i < s.dims; i++)
    counted = counted && checked_mul(&places, places, s.shape[i]);
  facts->count = counted ? places : UINT64_MAX;
  facts->zeros = counted && kept <= places ? places - kept : 0;
  uint64_t dense;
  facts->sparse_is_smaller = !checked_mul(&dense, facts->count, dtype_bytes(facts->smallest)) ||
                             facts->sparse_bytes < dense;
  return STOW_OK;
}

/* Notes that array `i` was seen and not read, so that the others keep their numbers. */
static stow_status note_unread(const array_facts *facts, size_t i, const budget *b) {
  uint64_t count;
  size_t bytes;
  checkpoint_get(b->checkpoint, STEP_FACTS, &count, &bytes);
  if (i < count) return STOW_OK;
  return checkpoint_append(b->checkpoint, STEP_FACTS, &facts->values, sizeof facts->values);
}

static void name_member(array_facts *facts, const zip_entry *e) {
  size_t length = strlen(e->name);
  bool ends = length > 4 && strcmp(e->name + length - 4, ".npy") == 0;
  memcpy(facts->name, e->name, ends ? length - 4 : length);
}

/* Lists a member that is not read as numbers: what it is, and its bytes. */
static stow_status list_other(file_facts *f, const zip_entry *e, const char *kind, const budget *b,
                              uint64_t *done) {
  array_facts *facts = NULL;
  STOW_TRY(add_array(f, &facts));
  name_member(facts, e);
  snprintf(facts->type_name, sizeof facts->type_name, "%s", kind);
  facts->opaque = true;
  facts->bytes = facts->bytes_after = e->bytes;
  *done += e->bytes;
  return note_unread(facts, f->array_count - 1, b);
}

static stow_status inspect_member(file_facts *f, source *from, const zip_entry *e, const budget *b,
                                  uint64_t *done, uint64_t total) {
  array a;
  array_facts *facts = NULL;
  const char *kind;
  STOW_TRY(array_open_other(&a, from, e, &kind));
  if (kind != NULL) {
    array_close(&a);
    return list_other(f, e, kind, b, done);
  }
  STOW_TRY(array_open_member(&a, from, e));
  stow_status status = add_array(f, &facts);
  if (status == STOW_OK) {
    name_member(facts, e);
    status = inspect_next(f, &a, b, done, total);
  }
  array_close(&a);
  return status;
}

static stow_status inspect_members(file_facts *f, source *from, const zip *z, const budget *b,
                                   uint64_t *done, uint64_t total) {
  if (z->count > b->bytes / 2 / sizeof(array_facts))
    return stow_fail(STOW_ERR_BUDGET,
                     "%s: the facts of %zu arrays do not fit in the budget; raise --memory",
                     from->name, z->count);
  for (size_t i = 0; i < z->count; i++)
    STOW_TRY(inspect_member(f, from, &z->entries[i], b, done, total));
  return STOW_OK;
}

static stow_status inspect_npz(file_facts *f, source *from, const char *member, const budget *b) {
  zip z;
  STOW_TRY(zip_open(&z, from, b->bytes / 4));
  stow_status kept = member != NULL ? array_keep_member(&z, member) : STOW_OK;
  if (kept != STOW_OK) {
    zip_close(&z);
    return kept;
  }
  f->format = "npz";
  uint64_t done = 0, total = 0;
  for (size_t i = 0; i < z.count; i++) total += z.entries[i].bytes;
  stow_status status = sparse_is(&z) ? inspect_sparse(f, from, &z, b, &done, total)
                                     : inspect_members(f, from, &z, b, &done, total);
  zip_close(&z);
  return status;
}

/* ---- model files: the header's list; the values are not read ---- */

static stow_status inspect_tensors(file_facts *f, source *from, const char *member,
                                   const budget *b) {
  tensors t;
  bool gguf = strcmp(f->format, "gguf") == 0;
  STOW_TRY(gguf ? gguf_read(&t, from, b->bytes / 4) : safetensors_read(&t, from, b->bytes / 4));
  stow_status status = STOW_OK;
  if (t.count > b->bytes / 2 / sizeof(array_facts))
    status = stow_fail(STOW_ERR_BUDGET,
                       "%s: the facts of %zu tensors do not fit in the budget; raise --memory",
                       from->name, t.count);
  for (size_t i = 0; i < t.count && status == STOW_OK; i++) {
    const tensor *one = &t.list[i];
    array_facts *facts = NULL;
    if (member != NULL && strcmp(member, one->name) != 0) continue;
    status = add_array(f, &facts);
    if (status != STOW_OK) break;
    snprintf(facts->name, sizeof facts->name, "%s", one->name);
    snprintf(facts->type_name, sizeof facts->type_name, "%s", one->type_name);
    facts->type = one->type;
    facts->dims = one->dims;
    memcpy(facts->shape, one->shape, sizeof one->shape);
    facts->count = one->count;
    facts->bytes = facts->bytes_after = one->bytes;
  }
  tensors_free(&t);
  if (status == STOW_OK && member != NULL && f->array_count == 0)
    status = stow_fail(STOW_ERR_NOT_FOUND, "%s: no tensor %.200s in it", from->name, member);
  return status;
}

/* ---- HDF5: every dataset ---- */

static void list_dataset(array_facts *facts, const hdf5_dataset *d) {
  snprintf(facts->name, sizeof facts->name, "%.500s", d->name);
  snprintf(facts->type_name, sizeof facts->type_name, "%s", d->type_name);
  facts->dims = d->dims;
  memcpy(facts->shape, d->shape, sizeof d->shape);
  facts->count = d->count;
  facts->bytes = facts->bytes_after = d->count * d->item_bytes;
}

static stow_status inspect_dataset(file_facts *f, hdf5 *h, size_t i, const budget *b,
                                   uint64_t *done, uint64_t total) {
  array a;
  array_facts *facts = &f->arrays[i];
  source values = {.fd = -1};
  list_dataset(facts, hdf5_get(h, i));
  facts->left_out = hdf5_get(h, i)->type == DTYPE_NONE;
  if (facts->left_out) facts->bytes_after = 0;
  if (facts->left_out) return note_unread(facts, i, b);
  stow_status status = array_open_hdf5(&a, &values, h, i, false);
  if (status == STOW_OK) status = inspect_next(f, &a, b, done, total);
  source_close(&values);
  return status;
}

static stow_status inspect_hdf5(file_facts *f, source *from, const char *member, const budget *b) {
  hdf5 *h;
  uint64_t done = 0, total = 0;
  if (from->fd < 0)
    return stow_fail(STOW_ERR_UNSUPPORTED, "%s: HDF5 can be read only from local files",
                     from->name);
  STOW_TRY(hdf5_open(&h, from->name, member, b->bytes));
  for (size_t i = 0; i < hdf5_count(h); i++)
    total += hdf5_get(h, i)->count * hdf5_get(h, i)->item_bytes;
  stow_status status = STOW_OK;
  for (size_t i = 0; i < hdf5_count(h) && status == STOW_OK; i++) {
    array_facts *facts = NULL;
    status = add_array(f, &facts);
    if (status == STOW_OK) status = inspect_dataset(f, h, i, b, &done, total);
  }
  hdf5_close(h);
  return status;
}

/* ---- one file or several ---- */

/* Adds the bytes of the files after the first. */
/* Rejects a file that is not a table beside tables. */
static stow_status check_table(const shards *s, size_t i, source *from, const inspect_options *o) {
  const char *format;
  inspect_options alone = *o;
  alone.csv.files = NULL;
  alone.csv.file_count = 0;
  if (from->bytes == 0) return STOW_OK; /* the reader says so */
  STOW_TRY(inspect_format(&format, from, &alone));
  if (strcmp(format, "csv") == 0) return STOW_OK;
  return stow_fail(STOW_ERR_INVALID,
                   "%s is %s and %s is a table: they cannot be joined; shrink them one by one",
                   s->paths[i], format, s->paths[0]);
}

static stow_status add_bytes(const shards *s, uint64_t *bytes, const inspect_options *o) {
  for (size_t i = 1; i < s->count; i++) {
    source one;
    STOW_TRY(source_open(&one, s->paths[i]));
    *bytes += one.bytes;
    stow_status status = check_table(s, i, &one, o);
    source_close(&one);
    STOW_TRY(status);
  }
  return STOW_OK;
}

stow_status inspect_open(source *from, shards *s, inspect_options *o, uint64_t *file_bytes) {
  const char *format, *member = NULL;
  char *path = s->paths[0];
  char file[PATH_MAX];
  if (o->member == NULL && array_split(path, file, sizeof file, &member)) {
    if (s->count == 1) { /* the name of the source must outlive it */
      memcpy(path, file, strlen(file) + 1);
      o->member = path + strlen(file) + 1;
    }
    path = file;
  }
  o->csv.member = o->member;
  o->csv.names = o->header;
  STOW_TRY(source_open(from, s->count == 1 ? s->paths[0] : path));
  *file_bytes = from->bytes;
  if (s->count == 1) return STOW_OK;
  stow_status status = member == NULL ? inspect_format(&format, from, o) : STOW_OK;
  bool table = status == STOW_OK && member == NULL && strcmp(format, "csv") == 0;
  if (table) {
    o->csv.files = (const char *const *)s->paths + 1;
    o->csv.file_count = s->count - 1;
    from->name = s->paths[0];
    status = add_bytes(s, file_bytes, o);
    if (status != STOW_OK) source_close(from);
    return status;
  }
  source_close(from);
  if (status == STOW_OK) status = shards_open_arrays(from, s, &o->raw);
  if (status != STOW_OK) return status;
  o->raw = (array_spec){0};
  *file_bytes = from->bytes;
  return STOW_OK;
}

static stow_status inspect_source(file_facts *f, source *from, const inspect_options *o,
                                  const budget *b) {
  array a;
  STOW_TRY(inspect_format(&f->format, from, o));
  const char *format = f->format;
  if (strcmp(format, "raw") == 0) {
    STOW_TRY(array_open_raw(&a, from, &o->raw));
    return inspect_one(f, &a, b);
  }
  if (strcmp(format, "npy") == 0) {
    STOW_TRY(array_open_npy(&a, from));
    return inspect_one(f, &a, b);
  }
  if (strcmp(format, "npz") == 0) return inspect_npz(f, from, o->member, b);
  if (strcmp(format, "csv") == 0) {
    inspect_options own = *o;
    own.csv.member = o->member;
    return table_inspect(f, from->name, &own, b);
  }
  if (strcmp(format, "hdf5") == 0) return inspect_hdf5(f, from, o->member, b);
  return inspect_tensors(f, from, o->member, b);
}

/* Sets the names of columns that have the name of an earlier one, as shrink does: names that are in
 * the file come first. */
static stow_status tell_apart(file_facts *f) {
  intern names = {0};
  bool *again = calloc(f->column_count + 1, sizeof *again);
  uint32_t *tries = calloc(f->column_count + 1, sizeof *tries), number;
  stow_status status = again != NULL && tries != NULL
                           ? STOW_OK
                           : stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for names");
  for (size_t i = 0; i < f->column_count && status == STOW_OK; i++) {
    uint32_t before = names.count;
    status = intern_add(&names, &number, f->columns[i].name, strlen(f->columns[i].name));
    again[i] = names.count == before;
  }
  for (size_t i = 0; i < f->column_count && status == STOW_OK; i++) {
    column_facts *c = &f->columns[i];
    if (!again[i] || !intern_find(&names, &number, c->name, strlen(c->name))) continue;
    uint32_t *last = &tries[number], before = names.count;
    while (names.count == before && status == STOW_OK) {
      free(c->apart);
      c->apart = NULL;
      if (asprintf(&c->apart, "%s.%u", c->name, ++*last) < 0) {
        c->apart = NULL;
        status = stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for names");
      } else {
        status = intern_add(&names, &number, c->apart, strlen(c->apart));
      }
    }
  }
  intern_free(&names);
  free(again);
  free(tries);
  return status;
}

stow_status inspect_file(file_facts *f, const char *path, const inspect_options *options,
                         const budget *b) {
  inspect_options o = options != NULL ? *options : (inspect_options){0};
  *f = (file_facts){.purpose = b->purpose};
  shards several;
  source from;
  stow_status status = shards_find(&several, path);
  if (status == STOW_OK) status = inspect_open(&from, &several, &o, &f->file_bytes);
  if (status == STOW_OK) {
    status = inspect_source(f, &from, &o, b);
    if (status == STOW_OK) status = source_check(&from);
    if (status == STOW_OK) status = tell_apart(f);
    if (several.count == 1) status = inspect_blame(&from, o.member, status);
    source_close(&from);
  }
  shards_free(&several);
  if (status != STOW_OK) {
    inspect_free(f);
    return status;
  }
  for (size_t i = 0; i < f->array_count; i++) {
    f->bytes += f->arrays[i].bytes;
    f->bytes_after += f->arrays[i].bytes_after;
  }
  return STOW_OK;
}
