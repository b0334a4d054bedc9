/* Array: opens files, and reads in file order and by rows. */
#include "data/array.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "arrays/tensors.h"
#include "base/checked.h"
#include "data/budget.h"
#include "files/remote.h"

/* Memory bound for an npz's directory; NumPy writes about 120 bytes per member. */
#define DIRECTORY_BYTES_MAX (UINT64_C(4) << 20)
/* Memory bound for the list of a safetensors file; a thousand tensors take about 300 KiB. */
#define HEADER_BYTES_MAX (UINT64_C(32) << 20)

/* ---- opening ---- */

static void take_header(array *a, const npy_header *h) {
  a->type = h->type;
  memcpy(a->descr, h->descr, sizeof a->descr);
  a->item_bytes = h->item_bytes;
  a->big_endian = h->big_endian;
  a->fortran_order = h->fortran_order;
  a->dims = h->dims;
  memcpy(a->shape, h->shape, sizeof a->shape);
  a->count = h->count;
  a->bytes = h->data_bytes;
  a->offset = h->data_offset;
}

/* Reads bytes of the file or member that contains the array. */
static stow_status read_bytes(array *a, uint64_t offset, void *to, size_t count) {
  return a->in_zip ? zip_member_read(&a->member, offset, to, count)
                   : source_read(a->from, offset, to, count);
}

static stow_status read_npy(array *a, uint64_t whole_bytes) {
  uint8_t start[NPY_PREFIX_MAX + NPY_HEADER_MAX];
  size_t have = whole_bytes < NPY_PREFIX_MAX ? (size_t)whole_bytes : NPY_PREFIX_MAX;
  uint64_t needed;
  STOW_TRY(read_bytes(a, 0, start, have));
  STOW_TRY(npy_header_bytes(&needed, start, have, a->name));
  if (needed > whole_bytes)
    return stow_fail(STOW_ERR_FORMAT,
                     "%s: the npy file ends inside its header of %" PRIu64
                     " bytes; copy or write it again",
                     a->name, needed);
  STOW_TRY(read_bytes(a, have, start + have, (size_t)needed - have));
  npy_header h;
  STOW_TRY(npy_read_header(&h, start, (size_t)needed, whole_bytes, a->name));
  take_header(a, &h);
  return STOW_OK;
}

stow_status array_open_npy(array *a, source *from) {
  *a = (array){.from = from};
  snprintf(a->name, sizeof a->name, "%s", from->name);
  return read_npy(a, from->bytes);
}

stow_status array_open_member(array *a, source *from, const zip_entry *entry) {
  *a = (array){.from = from, .in_zip = true};
  snprintf(a->name, sizeof a->name, "%.700s:%.300s", from->name, entry->name);
  STOW_TRY(zip_member_open(&a->member, from, entry));
  stow_status status = read_npy(a, entry->bytes);
  if (status == STOW_OK && a->offset + a->bytes != entry->bytes)
    status = stow_fail(STOW_ERR_FORMAT,
                       "%s: its npy header declares %" PRIu64 " bytes, but the member has %" PRIu64,
                       a->name, a->offset + a->bytes, entry->bytes);
  if (status != STOW_OK) array_close(a);
  return status;
}

stow_status array_open_other(array *a, source *from, const zip_entry *entry, const char **kind) {
  char start[256];
  size_t have = entry->bytes < sizeof start ? (size_t)entry->bytes : sizeof start;
  size_t length = strlen(entry->name);
  bool named = length > 4 && strcmp(entry->name + length - 4, ".npy") == 0;
  *kind = NULL;
  *a = (array){.from = from, .in_zip = true, .item_bytes = 1, .dims = 1};
  snprintf(a->name, sizeof a->name, "%.700s:%.300s", from->name, entry->name);
  a->count = a->bytes = a->shape[0] = entry->bytes;
  STOW_TRY(zip_member_open(&a->member, from, entry));
  stow_status status = zip_member_read(&a->member, 0, start, have);
  if (status == STOW_OK) *kind = npy_other(start, have);
  if (status == STOW_OK && !named && (have < 6 || memcmp(start, "\x93NUMPY", 6) != 0))
    *kind = "not an array";
  if (*kind == NULL) array_close(a);
  return status;
}

static stow_status shape_count(array *a) {
  uint64_t filled = 1;
  a->count = 1;
  for (uint32_t i = 0; i < a->dims; i++) {
    a->count *= a->shape[i];
    if (a->shape[i] != 0 && !checked_mul(&filled, filled, a->shape[i]))
      return stow_fail(STOW_ERR_OVERFLOW, "%s: the number of items in the shape exceeds 64 bits",
                       a->name);
  }
  if (!checked_mul(&filled, filled, a->item_bytes) || filled > INT64_MAX)
    return stow_fail(STOW_ERR_OVERFLOW, "%s: the number of bytes in the shape exceeds 63 bits",
                     a->name);
  a->bytes = a->count * a->item_bytes;
  return STOW_OK;
}

stow_status array_open_raw(array *a, source *from, const array_spec *spec) {
  *a = (array){.from = from, .type = spec->type, .item_bytes = dtype_bytes(spec->type)};
  snprintf(a->name, sizeof a->name, "%s", from->name);
  const char *descr = npy_descr(spec->type);
  snprintf(a->descr, sizeof a->descr, "%s", descr != NULL ? descr : "<V2");
  if (a->item_bytes == 0)
    return stow_fail(STOW_ERR_INVALID, "%s: raw bytes need a type: --dtype float32", a->name);
  if (spec->has_shape) {
    a->dims = spec->dims;
    memcpy(a->shape, spec->shape, sizeof a->shape);
  } else {
    a->dims = 1;
    a->shape[0] = from->bytes / a->item_bytes;
  }
  STOW_TRY(shape_count(a));
  if (a->bytes != from->bytes)
    return stow_fail(STOW_ERR_FORMAT,
                     "%s: %s of that shape take %" PRIu64 " bytes, but the file has %" PRIu64
                     "; give the --shape and --dtype it was written with",
                     a->name, dtype_name(a->type), a->bytes, from->bytes);
  return STOW_OK;
}

/* Splits "FILE:MEMBER" at the last colon after a file name. */
bool array_split(const char *path, char *file, size_t size, const char **member) {
  struct stat st;
  if (remote_is(path)) { /* as in "http://host:80/x.npz:member": after the last slash */
    const char *dot = strchr(strrchr(path, '/'), '.');
    const char *colon = dot != NULL ? strchr(dot, ':') : NULL;
    if (colon == NULL || memchr(dot, '?', (size_t)(colon - dot)) != NULL ||
        (size_t)(colon - path) >= size)
      return false;
    memcpy(file, path, (size_t)(colon - path));
    file[colon - path] = '\0';
    *member = colon + 1;
    return true;
  }
  if (stat(path, &st) == 0) return false;
  for (const char *colon = strrchr(path, ':'); colon != NULL && colon > path;) {
    size_t length = (size_t)(colon - path);
    if (length >= size) return false;
    memcpy(file, path, length);
    file[length] = '\0';
    if (stat(file, &st) == 0) {
      *member = colon + 1;
      return true;
    }
    do colon--;
    while (colon > path && *colon != ':');
    if (colon <= path) return false;
  }
  return false;
}

/* Lists the first members. */
static void list_members(const zip *z, char *names, size_t size) {
  const zip_entry *end = z->entries + z->count;
  for (const zip_entry *e = z->entries; e < end && strlen(names) < 180; e++)
    snprintf(names + strlen(names), size - strlen(names), "%s%.60s", e > z->entries ? ", " : "",
             e->name);
}

static stow_status no_member(const zip *z, const char *name) {
  char names[256] = "";
  list_members(z, names, sizeof names);
  return stow_fail(STOW_ERR_NOT_FOUND, "%s: no member %.200s; the file has: %s", z->from->name,
                   name, z->count > 0 ? names : "none");
}

static stow_status name_one(const zip *z, const char *name) {
  char names[256] = "";
  list_members(z, names, sizeof names);
  return stow_fail(STOW_ERR_INVALID, "%s: it holds %zu arrays; name one after a colon: %s", name,
                   z->count, names);
}

static const zip_entry *find_member(const zip *z, const char *name) {
  char with_end[ZIP_NAME_MAX + 8];
  snprintf(with_end, sizeof with_end, "%.500s.npy", name);
  const zip_entry *entry = zip_find(z, with_end);
  return entry != NULL ? entry : zip_find(z, name);
}

/* A file of torch.save: a zip whose pickle is in its only folder. torch writes the pickle first. */
static bool is_torch(source *from) {
  static const char name[] = "/data.pkl";
  uint8_t header[30], text[256];
  if (from->bytes < sizeof header || source_read(from, 0, header, sizeof header) != STOW_OK)
    return false;
  size_t length = source_u16(header + 26), end = sizeof name - 1;
  if (length < end || length > sizeof text || from->bytes - sizeof header < length) return false;
  return source_read(from, sizeof header, text, length) == STOW_OK &&
         memcmp(text + length - end, name, end) == 0;
}

stow_status array_keep_member(zip *z, const char *name) {
  const zip_entry *entry = find_member(z, name);
  if (entry == NULL && is_torch(z->from))
    return stow_fail(STOW_ERR_NOT_FOUND,
                     "%s: a file of torch.save: all of its tensors are taken; omit the name after "
                     "the colon, or read one with stowage.open in Python",
                     z->from->name);
  if (entry == NULL) return no_member(z, name);
  z->entries[0] = *entry;
  z->by_name[0] = &z->entries[0];
  z->count = z->all = 1;
  return STOW_OK;
}

static stow_status open_npz(array *a, source *from, const char *member) {
  zip archive;
  STOW_TRY(zip_open(&archive, from, DIRECTORY_BYTES_MAX));
  stow_status status = STOW_OK;
  if (member != NULL)
    status = array_keep_member(&archive, member);
  else if (archive.count != 1)
    status = name_one(&archive, from->name);
  if (status == STOW_OK) status = array_open_member(a, from, &archive.entries[0]);
  if (status == STOW_OK)
    a->archive = archive; /* the entry belongs to it */
  else
    zip_close(&archive);
  return status;
}

/* ---- safetensors and PyTorch: one tensor ---- */

static stow_status name_tensor(const tensors *t, const char *name) {
  char names[256] = "";
  const tensor *end = t->count > 0 ? t->list + t->count : t->list;
  for (const tensor *one = t->list; one < end && strlen(names) < 180; one++)
    snprintf(names + strlen(names), sizeof names - strlen(names), "%s%.60s",
             one > t->list ? ", " : "", one->name);
  return stow_fail(STOW_ERR_INVALID, "%s: it holds %zu tensors; name one after a colon: %s", name,
                   t->count, names);
}

static stow_status open_tensor(array *a, source *from, const char *member, bool torch) {
  tensors t;
  STOW_TRY(torch ? torch_file_read_data(&t, from, HEADER_BYTES_MAX)
                 : safetensors_read(&t, from, HEADER_BYTES_MAX));
  const tensor *one = member == NULL && t.count == 1 ? &t.list[0] : NULL;
  for (size_t i = 0; i < t.count && member != NULL && one == NULL; i++)
    if (strcmp(t.list[i].name, member) == 0) one = &t.list[i];
  stow_status status = STOW_OK;
  if (one == NULL && member == NULL)
    status = name_tensor(&t, from->name);
  else if (one == NULL)
    status = stow_fail(STOW_ERR_NOT_FOUND, "%s: it has no tensor %.200s", from->name, member);
  else if (one->type == DTYPE_NONE)
    status = stow_fail(STOW_ERR_UNSUPPORTED, "%s: tensor %.200s has type %s, which cannot be read",
                       from->name, one->name, one->type_name);
  if (status == STOW_OK && one != NULL) {
    *a = (array){.from = from, .type = one->type, .dims = one->dims};
    a->item_bytes = dtype_bytes(one->type);
    a->count = one->count;
    a->bytes = one->bytes;
    a->offset = one->offset;
    memcpy(a->shape, one->shape, sizeof one->shape);
    snprintf(a->name, sizeof a->name, "%.700s:%.300s", from->name, one->name);
    const char *descr = npy_descr(one->type);
    snprintf(a->descr, sizeof a->descr, "%s", descr != NULL ? descr : "<V2");
  }
  tensors_free(&t);
  return status;
}

/* ---- HDF5: one dataset ---- */

stow_status array_open_hdf5(array *a, source *values, hdf5 *h, size_t number, bool owns_file) {
  const hdf5_dataset *d = hdf5_get(h, number);
  if (d->type == DTYPE_NONE)
    return stow_fail(STOW_ERR_UNSUPPORTED, "dataset %.200s is %s: %s", d->name, d->type_name,
                     hdf5_reason(d->type_name));
  char name[301];
  array_spec spec = {.type = d->type, .dims = d->dims, .has_shape = true};
  memcpy(spec.shape, d->shape, sizeof d->shape);
  snprintf(name, sizeof name, "%.300s", d->name);
  bool none = d->count == 0 && d->dims == 0; /* a dataset without a dataspace */
  if (none) spec.dims = 1;
  STOW_TRY(hdf5_source(values, h, number, owns_file));
  stow_status status = array_open_raw(a, values, &spec);
  if (status == STOW_OK) snprintf(a->name, sizeof a->name, "%.700s:%s", values->name, name);
  a->chunk_rows = hdf5_band_rows(d);
  a->held_bytes = hdf5_held(h, number);
  return status;
}

static stow_status name_dataset(const hdf5 *h, const char *path) {
  char names[256] = "";
  for (size_t i = 0; i < hdf5_count(h) && strlen(names) < 180; i++)
    snprintf(names + strlen(names), sizeof names - strlen(names), "%s%.60s", i > 0 ? ", " : "",
             hdf5_get(h, i)->name);
  return stow_fail(STOW_ERR_INVALID, "%s: it holds %zu datasets; name one after a colon: %s", path,
                   hdf5_count(h), names);
}

/* Makes `from` a reader of the dataset. It keeps the identity of the file, which rows_same
 * compares.
 */
static stow_status open_dataset(array *a, source *from, const char *member, uint64_t budget_bytes) {
  hdf5 *h;
  const char *path = from->name;
  if (from->fd < 0)
    return stow_fail(STOW_ERR_UNSUPPORTED, "%s: HDF5 is read from local files only", path);
  STOW_TRY(hdf5_open(&h, path, member, budget_bytes));
  source values = {.fd = -1};
  stow_status status = hdf5_count(h) == 1 ? STOW_OK : name_dataset(h, path);
  if (status == STOW_OK) status = array_open_hdf5(a, &values, h, 0, true);
  if (status != STOW_OK) {
    if (values.reader.close == NULL) hdf5_close(h);
    source_close(&values);
    return status;
  }
  values.name = path;
  values.device = from->device;
  values.inode = from->inode;
  values.changed_ns = from->changed_ns;
  source_close(from);
  *from = values;
  a->from = from;
  return STOW_OK;
}

/* Returns whether it is safetensors: a plausible length, then the first character of the JSON. */
static bool is_safetensors(const uint8_t *start, uint64_t bytes) {
  return bytes > 8 && start[8] == '{' && source_u64(start) <= bytes - 8;
}

stow_status array_open_source(array *a, source *from, const char *member, const array_spec *spec) {
  uint8_t start[9] = {0};
  STOW_TRY(source_read(from, 0, start, from->bytes < 9 ? (size_t)from->bytes : 9));
  bool npy = memcmp(start, "\x93NUMPY", 6) == 0;
  bool zipped = memcmp(start, "PK\x03\x04", 4) == 0 || memcmp(start, "PK\x05\x06", 4) == 0;
  if (spec != NULL && spec->type != DTYPE_NONE) {
    if (npy || (zipped && spec->type != DTYPE_U8)) /* the bytes of an archive may be read */
      return stow_fail(STOW_ERR_INVALID,
                       "%s: an %s file stores its own type and shape; omit --dtype and --shape",
                       from->name, npy ? "npy" : "npz");
    return array_open_raw(a, from, spec);
  }
  if (zipped)
    return is_torch(from) ? open_tensor(a, from, member, true) : open_npz(a, from, member);
  if (npy && member == NULL) return array_open_npy(a, from);
  if (npy)
    return stow_fail(STOW_ERR_INVALID, "%s: an npy file is a single array; it has no member %.200s",
                     from->name, member);
  if (is_safetensors(start, from->bytes)) return open_tensor(a, from, member, false);
  bool is_hdf5;
  STOW_TRY(hdf5_find(&is_hdf5, from));
  if (is_hdf5)
    return open_dataset(a, from, member,
                        spec != NULL && spec->budget_bytes > 0 ? spec->budget_bytes
                                                               : budget_default());
  bool parquet = memcmp(start, "PAR1", 4) == 0;
  if (parquet || memcmp(start, "ARROW1", 6) == 0) {
    const char *dot = strrchr(from->name, '.');
    int length = (int)(dot != NULL ? (size_t)(dot - from->name) : strlen(from->name));
    return stow_fail(
        STOW_ERR_FORMAT, "%s: %s; make arrays of its columns first: stowage shrink %s -o %.*s.npz",
        from->name, parquet ? "a Parquet file" : "an Arrow file", from->name, length, from->name);
  }
  return stow_fail(STOW_ERR_FORMAT,
                   "%s: not an npy, npz, HDF5 or safetensors file; for raw bytes give their type "
                   "and shape (--dtype and --shape; in Python raw_dtype and raw_shape), convert a "
                   "table to an array with: stowage shrink TABLE.csv -o TABLE.npy",
                   from->name);
}

stow_status array_open(array *a, const char *path, const array_spec *spec) {
  *a = (array){0};
  const char *member = NULL;
  size_t length = strlen(path);
  /* The source and its name for messages, in one allocation. */
  source *from = malloc(sizeof *from + length + 1);
  if (from == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", path);
  char *file = (char *)(from + 1);
  if (!array_split(path, file, length + 1, &member)) memcpy(file, path, length + 1);
  stow_status status = source_open(from, file);
  if (status == STOW_OK) {
    status = array_open_source(a, from, member, spec);
    if (status != STOW_OK) source_close(from);
  }
  if (status != STOW_OK) {
    free(from);
    return status;
  }
  a->owns_source = true;
  return STOW_OK;
}

void array_close(array *a) {
  if (a->in_zip) zip_member_close(&a->member);
  zip_close(&a->archive);
  if (a->owns_source) {
    source_close(a->from);
    free(a->from);
  }
  *a = (array){0};
}

bool array_fork(array *copy, source *from, const array *a, uint64_t first) {
  if (a->in_zip || a->from->reader.read != NULL) return false;
  *from = *a->from;
  from->drop_from = from->drop_to = a->offset + first * a->item_bytes;
  *copy = *a;
  copy->from = from;
  copy->owns_source = false;
  return true;
}

/* ---- reading ---- */

stow_status array_repeats(array *a, uint64_t first, uint64_t *count, uint8_t value[8]) {
  uint64_t bytes = 0;
  *count = 0;
  if (a->in_zip || a->from->reader.repeats == NULL || a->item_bytes == 0) return STOW_OK;
  const source_reader *reader = &a->from->reader;
  STOW_TRY(reader->repeats(reader->user, a->offset + first * a->item_bytes, &bytes, value));
  *count = bytes / a->item_bytes;
  return STOW_OK;
}

stow_status array_read(array *a, uint64_t first, void *to, size_t count) {
  if (count > a->count || first > a->count - count)
    return stow_fail(STOW_ERR_INVALID,
                     "%s: items %" PRIu64 " to %" PRIu64 " requested, but it has %" PRIu64, a->name,
                     first, first + count, a->count);
  STOW_TRY(read_bytes(a, a->offset + first * a->item_bytes, to, count * a->item_bytes));
  if (a->big_endian && a->type != DTYPE_NONE) dtype_swap_bytes(to, a->item_bytes, count);
  return STOW_OK;
}

stow_status array_read_bytes(array *a, uint64_t offset, void *to, size_t count) {
  if (count > a->bytes || offset > a->bytes - count)
    return stow_fail(STOW_ERR_INVALID, "%s: bytes past its end requested", a->name);
  return read_bytes(a, a->offset + offset, to, count);
}

uint64_t array_rows(const array *a) {
  return a->dims == 0 ? 1 : a->shape[0];
}

uint64_t array_row_items(const array *a) {
  uint64_t items = 1;
  for (uint32_t i = 1; i < a->dims; i++) items *= a->shape[i];
  return items;
}

/* Returns the position in C order. A Fortran file stores, for each position in a row, that value of
 * all rows. `place` counts positions in file order (first index fastest). */
static uint64_t c_place(const array *a, uint64_t place) {
  uint64_t stride = 1, at = 0;
  for (uint32_t i = a->dims; i-- > 1;) stride *= a->shape[i];
  for (uint32_t i = 1; i < a->dims; i++) {
    stride /= a->shape[i];
    at += place % a->shape[i] * stride;
    place /= a->shape[i];
  }
  return at;
}

stow_status array_read_rows(array *a, uint64_t first, uint64_t count, void *to) {
  uint64_t rows = array_rows(a), items = array_row_items(a);
  if (count > rows || first > rows - count)
    return stow_fail(STOW_ERR_INVALID,
                     "%s: rows %" PRIu64 " to %" PRIu64 " requested, but it has %" PRIu64, a->name,
                     first, first + count, rows);
  if (count == 0 || items == 0) return STOW_OK;
  if (!a->fortran_order || a->dims < 2) return array_read(a, first * items, to, count * items);
  char run[4096];
  size_t width = a->item_bytes, step = width == 0 || width > sizeof run ? 0 : sizeof run / width;
  if (step == 0)
    return stow_fail(STOW_ERR_UNSUPPORTED, "%s: items of %zu bytes are not supported", a->name,
                     width);
  for (uint64_t place = 0; place < items; place++) {
    char *into = (char *)to + c_place(a, place) * width;
    for (uint64_t row = 0; row < count; row += step) {
      size_t part = count - row < step ? (size_t)(count - row) : step;
      STOW_TRY(array_read(a, place * rows + first + row, run, part));
      for (size_t i = 0; i < part; i++)
        memcpy(into + (row + i) * items * width, run + i * width, width);
    }
  }
  return STOW_OK;
}

/* ---- the name of its type ---- */

const char *array_dtype(const array *a, char text[ARRAY_DTYPE_MAX]) {
  char kind = a->descr[1];
  const char *unit = strchr(a->descr, '[');
  if (a->type != DTYPE_NONE && !a->big_endian)
    snprintf(text, ARRAY_DTYPE_MAX, "%s", dtype_name(a->type));
  else if (a->descr[0] != '>' && (kind == 'c' || kind == 'f'))
    snprintf(text, ARRAY_DTYPE_MAX, "%s%" PRIu64, kind == 'c' ? "complex" : "float",
             a->item_bytes * 8);
  else if (a->descr[0] != '>' && (kind == 'M' || kind == 'm'))
    snprintf(text, ARRAY_DTYPE_MAX, "%s%s", kind == 'M' ? "datetime64" : "timedelta64",
             unit != NULL ? unit : "");
  else if (kind == 'V' || kind == 'S' || kind == 'a') /* bytes have no order; 'a' is the old name of
                                                       * S */
    snprintf(text, ARRAY_DTYPE_MAX, "|%c%" PRIu64, kind == 'V' ? 'V' : 'S', a->item_bytes);
  else
    snprintf(text, ARRAY_DTYPE_MAX, "%s", a->descr);
  return text;
}
