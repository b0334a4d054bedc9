/* Hdf5 file: the list of datasets and their values, through libhdf5. Runs in the worker only. */
#include "arrays/hdf5_file.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrays/hdf5_grid.h"
#include "base/checked.h"
#include "base/compare.h"

/* ---- failures ---- */

/* Keeps the first text, which comes from the innermost function. */
static int take_error(unsigned number, const h5_error *error, void *context) {
  char *text = context;
  if (number == 0 && error->text != NULL) snprintf(text, 160, "%s", error->text);
  return 0;
}

/* Fails with `what` and libhdf5's own reason. Call it before any other function of the library. */
static stow_status fail(hdf5_file *f, const char *name, const char *what) {
  char reason[160] = "";
  f->library->H5Ewalk2(0, 0, take_error, reason);
  return stow_fail(STOW_ERR_FORMAT, "%s%s%.200s: libhdf5 cannot %s%s%s", f->path,
                   name[0] != '\0' ? ": dataset " : "", name, what, reason[0] != '\0' ? ": " : "",
                   reason);
}

/* ---- the list ---- */

/* Returns whether a type is h5py's bool: an enum of one byte with FALSE = 0 and TRUE = 1. */
static bool is_bool(const hdf5_library *l, h5_id type) {
  uint8_t no = 1, yes = 0;
  return l->H5Tget_class(type) == H5_CLASS_ENUM && l->H5Tget_size(type) == 1 &&
         l->H5Tget_nmembers(type) == 2 && l->H5Tenum_valueof(type, "FALSE", &no) >= 0 &&
         l->H5Tenum_valueof(type, "TRUE", &yes) >= 0 && no == 0 && yes == 1;
}

/* Sets the type of the values; the types that are not read only get a name. An enum is read as the
 * integers it is made of, as h5py reads it. */
static void name_type(const hdf5_library *l, h5_id type, hdf5_dataset *d) {
  size_t sign_at, exponent_at, exponent, fraction_at, fraction;
  int kind = l->H5Tget_class(type);
  d->item_bytes = l->H5Tget_size(type);
  bool plain = d->item_bytes * 8 == l->H5Tget_precision(type);
  if (is_bool(l, type)) {
    d->type = DTYPE_BOOL;
  } else if ((kind == H5_CLASS_INTEGER || kind == H5_CLASS_ENUM) && plain) {
    bool sign = l->H5Tget_sign(type) != 0;
    d->type = d->item_bytes == 1   ? (sign ? DTYPE_I8 : DTYPE_U8)
              : d->item_bytes == 2 ? (sign ? DTYPE_I16 : DTYPE_U16)
              : d->item_bytes == 4 ? (sign ? DTYPE_I32 : DTYPE_U32)
              : d->item_bytes == 8 ? (sign ? DTYPE_I64 : DTYPE_U64)
                                   : DTYPE_NONE;
  } else if (kind == H5_CLASS_FLOAT && plain &&
             l->H5Tget_fields(type, &sign_at, &exponent_at, &exponent, &fraction_at, &fraction) >=
                 0) {
    d->type = exponent == 5 && fraction == 10    ? DTYPE_F16
              : exponent == 8 && fraction == 7   ? DTYPE_BF16
              : exponent == 8 && fraction == 23  ? DTYPE_F32
              : exponent == 11 && fraction == 52 ? DTYPE_F64
                                                 : DTYPE_NONE;
  }
  const char *word = d->type != DTYPE_NONE       ? dtype_name(d->type)
                     : kind == H5_CLASS_STRING   ? "text"
                     : kind == H5_CLASS_COMPOUND ? "compound"
                     : kind == H5_CLASS_ARRAY    ? "array"
                     : kind == H5_CLASS_ENUM     ? "enum"
                                                 : "other";
  snprintf(d->type_name, sizeof d->type_name, "%s", word);
}

/* Names the first filter that this libhdf5 lacks: h5py brings lzf, hdf5plugin many others. */
static void name_filter(const hdf5_library *l, h5_id plist, hdf5_dataset *d) {
  int filters = l->H5Pget_nfilters(plist);
  d->filtered = filters > 0;
  for (int i = 0; i < filters; i++) {
    unsigned flags, values[1], config;
    size_t count = 0;
    char name[32] = "";
    int id =
        l->H5Pget_filter2(plist, (unsigned)i, &flags, &count, values, sizeof name, name, &config);
    if (id < 0 || l->H5Zfilter_avail(id) > 0) continue;
    name[sizeof name - 1] = '\0';
    d->type = DTYPE_NONE;
    if (name[0] != '\0')
      snprintf(d->type_name, sizeof d->type_name, "packed with %s", name);
    else
      snprintf(d->type_name, sizeof d->type_name, "packed with filter %d", id);
    return;
  }
}

/* Returns whether values are stored in the file exactly as H5Dread would return them. */
static bool stands_as_read(const hdf5_library *l, h5_id type, const hdf5_dataset *d) {
  if (d->type == DTYPE_NONE || d->filtered || l->H5Tget_order == NULL) return false;
  return d->item_bytes == 1 || l->H5Tget_order(type) == H5_ORDER_LITTLE;
}

/* Finds the offset of the values, if they are stored contiguously and as they are read. */
static void find_place(const hdf5_library *l, h5_id object, h5_id type, hdf5_dataset *d) {
  uint64_t bytes = d->item_bytes;
  if (l->H5Dget_offset == NULL || !stands_as_read(l, type, d)) return;
  for (uint32_t i = 0; i < d->dims; i++)
    if (!checked_mul(&bytes, bytes, d->shape[i])) return;
  if (d->count == 0 || l->H5Dget_storage_size(object) != bytes) return;
  d->place = l->H5Dget_offset(object); /* HDF5_NO_PLACE if there is none, as libhdf5 writes it */
}

/* The layout: chunks, filters, and values in other files, which are not read: no file makes us open
 * another one. */
static void read_layout(const hdf5_library *l, h5_id object, h5_id type, hdf5_dataset *d) {
  h5_size chunk[HDF5_DIMS_MAX];
  h5_id plist = l->H5Dget_create_plist(object);
  d->place = HDF5_NO_PLACE;
  if (plist < 0) return;
  int layout = l->H5Pget_layout(plist);
  if (layout == H5_LAYOUT_VIRTUAL || l->H5Pget_external_count(plist) > 0) {
    d->type = DTYPE_NONE;
    snprintf(d->type_name, sizeof d->type_name, "in other files");
  } else if (d->type != DTYPE_NONE) {
    name_filter(l, plist, d);
  }
  if (layout == H5_LAYOUT_CHUNKED && l->H5Pget_chunk(plist, (int)d->dims, chunk) == (int)d->dims)
    for (uint32_t i = 0; i < d->dims; i++) d->chunk[i] = chunk[i];
  if (layout == H5_LAYOUT_CONTIGUOUS) find_place(l, object, type, d);
  l->H5Pclose(plist);
}

static stow_status read_shape(hdf5_file *f, h5_id space, hdf5_dataset *d) {
  const hdf5_library *l = f->library;
  h5_size shape[HDF5_DIMS_MAX];
  d->count = l->H5Sget_simple_extent_type(space) != H5_SPACE_NULL;
  int dims = d->count > 0 ? l->H5Sget_simple_extent_ndims(space) : 0;
  if (dims < 0 || dims > HDF5_DIMS_MAX ||
      (dims > 0 && l->H5Sget_simple_extent_dims(space, shape, NULL) != dims))
    return fail(f, d->name, "read its shape");
  d->dims = (uint32_t)dims;
  for (int i = 0; i < dims; i++) d->count *= d->shape[i] = shape[i];
  return STOW_OK;
}

static stow_status describe(hdf5_file *f, h5_id object, hdf5_dataset *d) {
  const hdf5_library *l = f->library;
  h5_id type = l->H5Dget_type(object);
  stow_status status = type < 0 ? fail(f, d->name, "read its type") : STOW_OK;
  h5_id space = status == STOW_OK ? l->H5Dget_space(object) : -1;
  if (status == STOW_OK && space < 0) status = fail(f, d->name, "read its shape");
  if (status == STOW_OK) name_type(l, type, d);
  if (status == STOW_OK) status = read_shape(f, space, d);
  if (status == STOW_OK) read_layout(l, object, type, d);
  if (type >= 0) l->H5Tclose(type);
  if (space >= 0) l->H5Sclose(space);
  return status;
}

typedef struct walk {
  hdf5_file *file;
  hdf5_take take;
  void *context;
  stow_status status;
} walk;

static stow_status take_object(walk *w, const char *name) {
  hdf5_file *f = w->file;
  hdf5_dataset d = {0};
  h5_id object = f->library->H5Oopen(f->id, name, 0);
  if (object < 0) return fail(f, name, "open it");
  stow_status status = STOW_OK;
  if (f->library->H5Iget_type(object) == H5_KIND_DATASET) {
    if (strlen(name) >= sizeof d.name)
      status = stow_fail(STOW_ERR_FORMAT, "%s: the path of a dataset has more than %d bytes",
                         f->path, HDF5_NAME_MAX - 1);
    snprintf(d.name, sizeof d.name, "%s", name);
    if (status == STOW_OK) status = describe(f, object, &d);
    if (status == STOW_OK) status = w->take(w->context, &d);
  }
  f->library->H5Oclose(object);
  return status;
}

/* Called by the library for every link. Soft and external links are skipped. */
static int visit(h5_id group, const char *name, const h5_link *info, void *context) {
  walk *w = context;
  (void)group;
  if (info->type == H5_LINK_HARD) w->status = take_object(w, name);
  return w->status != STOW_OK;
}

stow_status hdf5_file_list(hdf5_file *f, hdf5_take take, void *context) {
  walk w = {.file = f, .take = take, .context = context};
  int code = f->library->visit(f->id, 0, 0, visit, &w);
  if (w.status != STOW_OK) return w.status;
  return code < 0 ? fail(f, "", "list its datasets") : STOW_OK;
}

/* ---- soft links ----
 *
 * libhdf5 follows links itself, but into other files too. So each part of a path is looked at
 * before it is opened. */

enum { LINKS_MAX = 32 }; /* more are a circle */

typedef struct route {
  char done[HDF5_NAME_MAX]; /* the path so far: hard links only */
  char left[HDF5_NAME_MAX]; /* the rest, perhaps behind '/' */
  unsigned links;
} route;

static stow_status refuse_route(hdf5_file *f, const char *path, const char *why) {
  return stow_fail(STOW_ERR_NOT_FOUND, "%s: no dataset %.200s: %s", f->path, path, why);
}

/* Replaces the next part of the route by where the soft link leads. */
static stow_status follow(hdf5_file *f, const char *path, const char *link, route *r) {
  char target[HDF5_NAME_MAX] = "", rest[HDF5_NAME_MAX];
  if (++r->links > LINKS_MAX) return refuse_route(f, path, "its links form a circle");
  if (f->library->H5Lget_val(f->id, link, target, sizeof target - 1, 0) < 0)
    return fail(f, link, "read the link");
  snprintf(rest, sizeof rest, "%s", r->left);
  if (snprintf(r->left, sizeof r->left, "%s/%s", target, rest) >= (int)sizeof r->left)
    return refuse_route(f, path, "its links are too long");
  if (target[0] == '/') r->done[0] = '\0';
  return STOW_OK;
}

/* Goes one part further. */
static stow_status step(hdf5_file *f, const char *path, route *r) {
  char part[HDF5_NAME_MAX], next[2 * HDF5_NAME_MAX];
  h5_link_room info = {0};
  size_t length = strcspn(r->left, "/");
  snprintf(part, sizeof part, "%.*s", (int)length, r->left);
  memmove(r->left, r->left + length, strlen(r->left + length) + 1);
  while (r->left[0] == '/') memmove(r->left, r->left + 1, strlen(r->left));
  if (part[0] == '\0' || strcmp(part, ".") == 0) return STOW_OK;
  snprintf(next, sizeof next, "%s%s%s", r->done, r->done[0] != '\0' ? "/" : "", part);
  if (strlen(next) >= sizeof r->done || f->library->link_info(f->id, next, &info, 0) < 0)
    return refuse_route(f, path, "nothing has this name, or a link leads nowhere");
  if (info.link.type == H5_LINK_SOFT) return follow(f, path, next, r);
  if (info.link.type != H5_LINK_HARD)
    return stow_fail(STOW_ERR_UNSUPPORTED, "%s: dataset %.200s is in other files (link %.200s); %s",
                     f->path, path, next, hdf5_reason("in other files"));
  snprintf(r->done, sizeof r->done, "%.*s", HDF5_NAME_MAX - 1, next);
  return STOW_OK;
}

stow_status hdf5_file_find(hdf5_file *f, const char *path, hdf5_take take, void *context) {
  route r = {0};
  walk w = {.file = f, .take = take, .context = context};
  snprintf(r.left, sizeof r.left, "%s", path);
  while (r.left[0] != '\0') STOW_TRY(step(f, path, &r));
  return r.done[0] != '\0' ? take_object(&w, r.done) : STOW_OK;
}

stow_status hdf5_file_open(hdf5_file *f, const char *name, const char *path) {
  *f = (hdf5_file){.path = path, .id = -1, .object = -1, .type = -1, .space = -1};
  STOW_TRY(hdf5_library_get(&f->library, path));
  f->id = f->library->H5Fopen(name, 0, 0);
  return f->id >= 0 ? STOW_OK : fail(f, "", "open it (cut short, damaged or being written?)");
}

/* ---- values ---- */

static void close_dataset(hdf5_file *f) {
  const hdf5_library *l = f->library;
  hdf5_packed_close(&f->packed);
  if (f->type >= 0) l->H5Tclose(f->type);
  if (f->space >= 0) l->H5Sclose(f->space);
  if (f->object >= 0) l->H5Oclose(f->object);
  f->type = f->space = f->object = -1;
  f->d.name[0] = '\0';
}

/* Reads how values that were never written are to be read. */
static void read_fill(hdf5_file *f) {
  const hdf5_library *l = f->library;
  int defined = H5_FILL_UNDEFINED, when = H5_FILL_TIME_NEVER;
  h5_id plist = l->H5Dget_create_plist(f->object);
  memset(f->fill, 0, sizeof f->fill);
  f->fills = false;
  if (plist < 0) return;
  if (l->H5Pget_fill_time(plist, &when) >= 0 && when != H5_FILL_TIME_NEVER &&
      l->H5Pfill_value_defined(plist, &defined) >= 0 && defined != H5_FILL_UNDEFINED)
    f->fills =
        f->d.item_bytes <= sizeof f->fill && l->H5Pget_fill_value(plist, f->type, f->fill) >= 0;
  l->H5Pclose(plist);
}

/* The older function walks the index from its start for every chunk: quadratic. */
#define CHUNKS_ONE_BY_ONE 4096
/* Half a step of that walk takes as long as libhdf5 and we need to copy this many bytes twice (7
 * ns, libhdf5 1.10.8). */
#define LISTED_BYTES 32
#define SIZED_BYTES  512 /* the same where it may take a sixteenth of that time */

/* Calls `take` for each chunk of the open dataset, in the order of the index, until it returns
 * another value than 0. Returns false if this libhdf5 cannot list them, or takes longer for it than
 * for reading them: `step_bytes` is LISTED_BYTES or SIZED_BYTES; 0: it may take longer. */
static bool list_chunks(hdf5_file *f, uint64_t step_bytes, h5_chunk_take take, void *context) {
  const hdf5_library *l = f->library;
  h5_size chunks = 0, offset[HDF5_DIMS_MAX], bytes;
  unsigned mask;
  uint64_t address, read;
  if (l->H5Dchunk_iter != NULL) return l->H5Dchunk_iter(f->object, 0, take, context) >= 0;
  if (!checked_mul(&read, hdf5_grid_chunks(&f->d), hdf5_grid_chunk_bytes(&f->d))) read = UINT64_MAX;
  if (l->H5Dget_chunk_info == NULL || l->H5Dget_num_chunks == NULL ||
      l->H5Dget_num_chunks(f->object, f->space, &chunks) < 0 || chunks > CHUNKS_ONE_BY_ONE ||
      (step_bytes > 0 && chunks * chunks > read / step_bytes))
    return false;
  for (uint64_t i = 0; i < chunks; i++) {
    if (l->H5Dget_chunk_info(f->object, f->space, i, offset, &mask, &address, &bytes) < 0)
      return false;
    if (take(offset, mask, address, bytes, context) != 0) break;
  }
  return true;
}

/* libhdf5 1.12.3 passes 32 bits of `bytes`; no chunk has more. */
static int take_size(const h5_size *offset, unsigned mask, uint64_t address, uint64_t bytes,
                     void *context) {
  (void)offset, (void)mask, (void)address;
  return (uint32_t)bytes != *(const uint64_t *)context ? *(uint64_t *)context = UINT64_MAX, 1 : 0;
}

/* Checks that chunks without filters are stored in their declared bytes. libhdf5 1.10 fills the
 * rest of a shorter one with what its memory held before. Where listing the chunks would take too
 * long, their sum has to be right. */
static stow_status check_sizes(hdf5_file *f, const char *name) {
  const hdf5_library *l = f->library;
  h5_size chunks = 0;
  uint64_t declared = hdf5_grid_chunk_bytes(&f->d), size = declared, sum;
  if (f->d.filtered || f->d.chunk[0] == 0 || l->H5Dget_num_chunks == NULL) return STOW_OK;
  if (l->H5Dchunk_iter == NULL &&
      (l->H5Dget_num_chunks(f->object, f->space, &chunks) < 0 ||
       !checked_mul(&sum, chunks, declared) || l->H5Dget_storage_size(f->object) != sum))
    size = UINT64_MAX;
  if (size == declared) list_chunks(f, SIZED_BYTES, take_size, &size);
  return size == declared ? STOW_OK
                          : stow_fail(STOW_ERR_FORMAT,
                                      "%s: dataset %.200s: a chunk is not stored in the %" PRIu64
                                      " bytes that it holds: damaged",
                                      f->path, name, declared);
}

/* Returns the type as which values of `type` are read, which the caller closes: the integers behind
 * an enum, else the same type. */
static h5_id read_as(const hdf5_library *l, h5_id type, const hdf5_dataset *d) {
  if (d->type == DTYPE_BOOL || l->H5Tget_class(type) != H5_CLASS_ENUM) return l->H5Tcopy(type);
  h5_id integer = l->H5Tget_super(type), copy = integer >= 0 ? l->H5Tcopy(integer) : -1;
  if (integer >= 0) l->H5Tclose(integer);
  return copy;
}

/* Makes dataset `name` the open one. */
static stow_status open_dataset(hdf5_file *f, const char *name) {
  const hdf5_library *l = f->library;
  if (strcmp(f->d.name, name) == 0) return STOW_OK;
  close_dataset(f);
  f->d = (hdf5_dataset){0};
  f->object = l->H5Oopen(f->id, name, 0);
  if (f->object < 0) return fail(f, name, "open it");
  STOW_TRY(describe(f, f->object, &f->d));
  if (f->d.type == DTYPE_NONE)
    return stow_fail(STOW_ERR_FORMAT, "%s: dataset %.200s is %s; %s", f->path, name, f->d.type_name,
                     hdf5_reason(f->d.type_name));
  f->space = l->H5Dget_space(f->object);
  h5_id type = f->space >= 0 ? l->H5Dget_type(f->object) : -1;
  /* The type of the file in the byte order of this machine (little). */
  f->type = type >= 0 ? read_as(l, type, &f->d) : -1;
  stow_status packed =
      type >= 0 ? hdf5_packed_open(&f->packed, l, f->object, type, &f->d) : STOW_OK;
  if (type >= 0) l->H5Tclose(type);
  STOW_TRY(packed);
  if (f->type < 0 || (f->d.type != DTYPE_BOOL && l->H5Tset_order(f->type, 0) < 0))
    return fail(f, name, "open it");
  /* Where libhdf5 unpacks chunks, nobody checks how many bytes that gives, and what its memory held
   * before must not become values. malloc then sets memory to the complement of this, 0. */
  if (f->d.filtered) mallopt(M_PERTURB, 0xff);
  read_fill(f);
  STOW_TRY(check_sizes(f, name));
  snprintf(f->d.name, sizeof f->d.name, "%s", name);
  return STOW_OK;
}

/* Sets `at` to the first chunk of a box. */
static void first_chunk(const hdf5_dataset *d, const hdf5_box *b, h5_size *at) {
  for (uint32_t i = 0; i < d->dims; i++) at[i] = b->from[i] / d->chunk[i] * d->chunk[i];
}

/* Sets `at` to the next chunk. Returns false behind the last one. */
static bool next_chunk(const hdf5_dataset *d, const hdf5_box *b, h5_size *at) {
  for (uint32_t i = d->dims; i-- > 0;) {
    at[i] += d->chunk[i];
    if (at[i] < b->from[i] + b->items[i]) return true;
    at[i] = b->from[i] / d->chunk[i] * d->chunk[i];
  }
  return false;
}

/* Adds to the message of an error where the chunk is. */
static stow_status fail_chunk(const hdf5_file *f, const h5_size *chunk, stow_status status) {
  char why[256];
  snprintf(why, sizeof why, "%s", stow_status_message());
  return stow_fail(status, "%s: dataset %.200s: the chunk at row %llu %s", f->path, f->d.name,
                   chunk[0], why);
}

/* Checks the stored size of the chunks of a box. */
static stow_status check_stored(hdf5_file *f, const hdf5_box *b) {
  const hdf5_dataset *d = &f->d;
  uint64_t declared = hdf5_grid_chunk_bytes(d);
  h5_size at[HDF5_DIMS_MAX], stored;
  if (!d->filtered || d->chunk[0] == 0) return STOW_OK;
  if (f->library->H5Dget_chunk_storage_size == NULL) return STOW_OK;
  first_chunk(d, b, at);
  do {
    /* Fails for a chunk that was never written. */
    if (f->library->H5Dget_chunk_storage_size(f->object, at, &stored) < 0) continue;
    stow_status status = hdf5_packed_check(declared, stored);
    if (status != STOW_OK) return fail_chunk(f, at, status);
  } while (next_chunk(d, b, at));
  return STOW_OK;
}

/* Below this the check costs more than 1% of a read; then it runs only after a failure. */
#define CHECKED_CHUNK (UINT64_C(16) << 10)

/* libhdf5 allocates a few KiB for each chunk of one read, besides its values. */
#define CHUNKS_AT_ONCE 256

static uint64_t chunks_along(const hdf5_file *f, const hdf5_box *b, uint32_t dim) {
  uint64_t chunk = f->d.chunk[dim];
  return (b->from[dim] + b->items[dim] - 1) / chunk - b->from[dim] / chunk + 1;
}

/* Finds the dimension with the most chunks. Returns false if the whole box can be read at once. */
static bool must_cut(const hdf5_file *f, const hdf5_box *b, uint32_t *widest) {
  uint64_t chunks = 1;
  *widest = 0;
  if (f->d.dims == 0 || f->d.chunk[0] == 0) return false;
  for (uint32_t i = 0; i < f->d.dims; i++) {
    if (b->items[i] == 0) return false;
    uint64_t here = chunks_along(f, b, i);
    if (here > chunks_along(f, b, *widest)) *widest = i;
    if (!checked_mul(&chunks, chunks, here)) chunks = UINT64_MAX;
  }
  return chunks > CHUNKS_AT_ONCE;
}

/* Reads a box, in halves if it has too many chunks. The halves meet between two chunks, so each
 * chunk is unpacked once. */
static int read_values(hdf5_file *f, const hdf5_box *b, h5_id memory, bool whole, void *to) {
  const hdf5_library *l = f->library;
  uint32_t dim;
  if (must_cut(f, b, &dim)) {
    hdf5_box half = *b;
    uint64_t chunk = f->d.chunk[dim];
    uint64_t middle = (b->from[dim] / chunk + chunks_along(f, b, dim) / 2) * chunk;
    half.items[dim] = middle - b->from[dim];
    int code = read_values(f, &half, memory, false, to);
    half.from[dim] = middle;
    half.at[dim] += half.items[dim];
    half.items[dim] = b->items[dim] - half.items[dim];
    return code < 0 ? code : read_values(f, &half, memory, false, to);
  }
  int code = 0;
  if (f->d.dims > 0) code = l->H5Sselect_hyperslab(f->space, 0, b->from, NULL, b->items, NULL);
  if (code >= 0 && !whole) code = l->H5Sselect_hyperslab(memory, 0, b->at, NULL, b->items, NULL);
  return code < 0 ? code : l->H5Dread(f->object, f->type, memory, f->space, 0, to);
}

/* Reads a box chunk by chunk, without libhdf5's filters. It reads chunks that are not there: *code
 * is what it returned. */
static stow_status read_packed(hdf5_file *f, const hdf5_box *b, h5_id memory, void *to, int *code) {
  const hdf5_dataset *d = &f->d;
  h5_size chunk[HDF5_DIMS_MAX];
  *code = 0;
  for (uint32_t i = 0; i < d->dims; i++)
    if (b->items[i] == 0) return STOW_OK;
  first_chunk(d, b, chunk);
  do {
    bool left;
    stow_status status = hdf5_packed_read(&f->packed, chunk, b, to, &left);
    if (status != STOW_OK) return fail_chunk(f, chunk, status);
    if (!left) continue;
    hdf5_box part = hdf5_packed_shared(d, chunk, b);
    *code = read_values(f, &part, memory, false, to);
  } while (*code >= 0 && next_chunk(d, b, chunk));
  return STOW_OK;
}

stow_status hdf5_file_read(hdf5_file *f, const char *name, const uint64_t *start,
                           const uint64_t *count, void *to, uint64_t bytes) {
  const hdf5_library *l = f->library;
  hdf5_box box = {0};
  STOW_TRY(open_dataset(f, name));
  uint64_t wanted = f->d.item_bytes;
  for (uint32_t i = 0; i < f->d.dims; i++) {
    box.from[i] = start[i];
    box.items[i] = count[i];
    if (!checked_mul(&wanted, wanted, count[i])) wanted = UINT64_MAX;
  }
  if (wanted > bytes)
    return stow_fail(STOW_ERR_FORMAT, "%s: dataset %.200s changed while it was read", f->path,
                     name);
  if (f->packed.unpack == NULL && hdf5_grid_chunk_bytes(&f->d) >= CHECKED_CHUNK)
    STOW_TRY(check_stored(f, &box));
  /* libhdf5 does not touch the memory of values that were never written if there is no fill
   * value. */
  if (!f->fills) memset(to, 0, wanted);
  h5_id memory = l->H5Screate_simple((int)f->d.dims, box.items, NULL);
  int code = memory < 0 ? -1 : 0;
  stow_status status = STOW_OK;
  if (code == 0 && f->packed.unpack != NULL)
    status = read_packed(f, &box, memory, to, &code);
  else if (code == 0)
    code = read_values(f, &box, memory, true, to);
  if (code < 0) {
    char what[64];
    snprintf(what, sizeof what, "read rows %" PRIu64 " to %" PRIu64, start[0],
             start[0] + (f->d.dims > 0 ? count[0] : 1));
    status = fail(f, name, what);
    if (check_stored(f, &box) != STOW_OK) status = STOW_ERR_FORMAT;
  }
  if (memory >= 0) l->H5Sclose(memory);
  return status;
}

/* ---- what was never written ---- */

typedef struct row_list {
  const hdf5_dataset *d;
  uint64_t *rows;
  uint64_t count, most;
  uint64_t last[HDF5_DIMS_MAX]; /* the largest index of a value in a chunk, per dimension */
} row_list;

static void add_row(row_list *list, uint64_t row) {
  row /= list->d->chunk[0];
  if (list->count > 0 && list->count <= list->most && list->rows[list->count - 1] == row) return;
  if (list->count < list->most) list->rows[list->count] = row;
  list->count++;
}

static int take_chunk(const h5_size *offset, unsigned mask, uint64_t address, uint64_t bytes,
                      void *context) {
  row_list *list = context;
  const hdf5_dataset *d = list->d;
  (void)mask, (void)address, (void)bytes;
  add_row(list, offset[0]);
  for (uint32_t i = 1; i < d->dims; i++) {
    uint64_t end = d->shape[i];
    if (offset[i] < end && d->chunk[i] < end - offset[i]) end = offset[i] + d->chunk[i];
    if (end > list->last[i] + 1) list->last[i] = end - 1;
  }
  return list->count > list->most;
}

stow_status hdf5_file_written(hdf5_file *f, const char *name, uint64_t *rows, uint64_t most,
                              uint64_t *count, uint64_t *row_items, bool *known, uint8_t fill[8]) {
  h5_size chunks = 0;
  STOW_TRY(open_dataset(f, name));
  *count = *row_items = 0;
  *known = false;
  memcpy(fill, f->fill, sizeof f->fill);
  if (f->library->H5Dget_storage_size(f->object) == 0) return *known = true, STOW_OK;
  const hdf5_dataset *d = &f->d;
  if (d->chunk[0] == 0 || f->library->H5Dget_num_chunks == NULL) return STOW_OK;
  uint64_t held;
  if (f->library->H5Dget_num_chunks(f->object, f->space, &chunks) < 0) return STOW_OK;
  if (!checked_mul(&held, chunks, hdf5_grid_chunk_bytes(d)) ||
      held / 2 > d->count * d->item_bytes / 4)
    return STOW_OK; /* most of it is there: plain reading is as good */
  row_list list = {.d = d, .rows = rows, .most = most};
  *known = list_chunks(f, 0, take_chunk, &list) && list.count <= list.most;
  if (!*known) return STOW_OK;
  for (uint32_t i = 1; i < d->dims; i++) *row_items = *row_items * d->shape[i] + list.last[i];
  *row_items += 1;
  qsort(rows, list.count, sizeof *rows, compare_u64);
  for (uint64_t i = 0; i < list.count; i++)
    if (*count == 0 || rows[i] != rows[*count - 1]) rows[(*count)++] = rows[i];
  return STOW_OK;
}

/* ---- offsets of the chunks ---- */

typedef struct place_list {
  const hdf5_dataset *d;
  uint64_t *places;
  uint64_t count;
  bool bad; /* a chunk is between two others or twice in the index: libhdf5 must read them */
} place_list;

static int take_place(const h5_size *offset, unsigned mask, uint64_t address, uint64_t bytes,
                      void *context) {
  place_list *list = context;
  const hdf5_dataset *d = list->d;
  uint64_t number = 0;
  (void)mask, (void)bytes; /* no filter; check_sizes */
  bool inside = true;
  for (uint32_t i = 0; i < d->dims; i++) {
    inside = inside && offset[i] < d->shape[i] && offset[i] % d->chunk[i] == 0;
    number = number * ((d->shape[i] - 1) / d->chunk[i] + 1) + offset[i] / d->chunk[i];
  }
  list->bad = list->bad || !inside || list->places[number] != HDF5_NO_PLACE;
  if (!list->bad) list->places[number] = address;
  return list->bad;
}

/* Forgets chunks that libhdf5 lists but does not find by their position: the index is damaged, and
 * reading gives the fill value. */
static void confirm_places(hdf5_file *f, place_list *list) {
  const hdf5_dataset *d = list->d;
  if (f->library->H5Dget_chunk_storage_size == NULL) return;
  for (uint64_t number = 0; number < list->count; number++) {
    h5_size offset[HDF5_DIMS_MAX], stored = 0;
    uint64_t rest = number;
    if (list->places[number] == HDF5_NO_PLACE) continue;
    for (uint32_t i = d->dims; i-- > 0;) {
      uint64_t across = (d->shape[i] - 1) / d->chunk[i] + 1;
      offset[i] = rest % across * d->chunk[i];
      rest /= across;
    }
    if (f->library->H5Dget_chunk_storage_size(f->object, offset, &stored) < 0 || stored == 0)
      list->places[number] = HDF5_NO_PLACE;
  }
}

stow_status hdf5_file_places(hdf5_file *f, const char *name, uint64_t *places, uint64_t most,
                             uint64_t *count, bool *known) {
  STOW_TRY(open_dataset(f, name));
  const hdf5_dataset *d = &f->d;
  *count = 0;
  *known = false;
  h5_id type = f->library->H5Dget_type(f->object);
  bool plain = type >= 0 && d->chunk[0] > 0 && stands_as_read(f->library, type, d);
  if (type >= 0) f->library->H5Tclose(type);
  if (!plain) return STOW_OK;
  place_list list = {.d = d, .places = places, .count = hdf5_grid_chunks(d)};
  if (list.count == 0 || list.count > most) return STOW_OK;
  for (uint64_t i = 0; i < list.count; i++) places[i] = HDF5_NO_PLACE;
  *known = list_chunks(f, LISTED_BYTES, take_place, &list) && !list.bad;
  if (*known) confirm_places(f, &list);
  *count = list.count;
  return STOW_OK;
}
