/* Hdf5: the list of datasets, and their values by bands of chunks. */
#include "arrays/hdf5.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrays/hdf5_library.h"
#include "base/checked.h"

#define SIGNATURE_LAST (UINT64_C(64) << 10) /* where we stop looking for it */

struct hdf5 {
  const hdf5_library *library;
  char *path;
  h5_id file;
  hdf5_dataset *list;
  size_t count, capacity;
  uint64_t max_bytes;
  stow_status status; /* of the walk */
};

/* ---- the list ---- */

/* NumPy's types; anything else has a name and is not read. */
static void name_type(const hdf5_library *l, h5_id type, hdf5_dataset *d) {
  size_t sign_at, exponent_at, exponent, fraction_at, fraction;
  int kind = l->H5Tget_class(type);
  d->item_bytes = l->H5Tget_size(type);
  bool plain = d->item_bytes * 8 == l->H5Tget_precision(type);
  if (kind == H5_CLASS_INTEGER && plain) {
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
  } else if (kind == H5_CLASS_ENUM && d->item_bytes == 1 && l->H5Tget_nmembers(type) == 2) {
    d->type = DTYPE_BOOL; /* as h5py writes it */
  }
  const char *word = d->type != DTYPE_NONE       ? dtype_name(d->type)
                     : kind == H5_CLASS_STRING   ? "text"
                     : kind == H5_CLASS_COMPOUND ? "compound"
                     : kind == H5_CLASS_ARRAY    ? "array"
                     : kind == H5_CLASS_ENUM     ? "enum"
                                                 : "other";
  snprintf(d->type_name, sizeof d->type_name, "%s", word);
}

/* A dataset may have its values in files that it names: no file makes us open another. */
static void name_elsewhere(const hdf5_library *l, h5_id object, hdf5_dataset *d) {
  h5_id plist = l->H5Dget_create_plist(object);
  if (plist < 0) return;
  if (l->H5Pget_layout(plist) == H5_LAYOUT_VIRTUAL || l->H5Pget_external_count(plist) > 0) {
    d->type = DTYPE_NONE;
    snprintf(d->type_name, sizeof d->type_name, "in other files");
  }
  l->H5Pclose(plist);
}

static stow_status read_shape(hdf5 *h, h5_id space, hdf5_dataset *d) {
  const hdf5_library *l = h->library;
  h5_size shape[HDF5_DIMS_MAX];
  d->count = l->H5Sget_simple_extent_type(space) != H5_SPACE_NULL;
  int dims = d->count > 0 ? l->H5Sget_simple_extent_ndims(space) : 0;
  if (dims < 0 || dims > HDF5_DIMS_MAX ||
      (dims > 0 && l->H5Sget_simple_extent_dims(space, shape, NULL) != dims))
    return stow_fail(STOW_ERR_FORMAT, "%s: dataset %.200s: libhdf5 cannot tell its shape", h->path,
                     d->name);
  d->dims = (uint32_t)dims;
  uint64_t bytes = d->item_bytes;
  for (int i = 0; i < dims; i++) {
    d->shape[i] = shape[i];
    d->count *= shape[i];
    if (shape[i] > 0 && !checked_mul(&bytes, bytes, shape[i]))
      return stow_fail(STOW_ERR_OVERFLOW, "%s: dataset %.200s: more bytes than 64 bits count",
                       h->path, d->name);
  }
  return STOW_OK;
}

static stow_status add_dataset(hdf5 *h, const char *name, h5_id object) {
  const hdf5_library *l = h->library;
  if (h->count == h->capacity) {
    size_t capacity = h->capacity * 2 + 8;
    if (capacity * sizeof *h->list > h->max_bytes)
      return stow_fail(STOW_ERR_BUDGET, "%s: more datasets than the budget lists", h->path);
    hdf5_dataset *more = realloc(h->list, capacity * sizeof *more);
    if (more == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", h->path);
    h->list = more;
    h->capacity = capacity;
  }
  hdf5_dataset *d = &h->list[h->count];
  *d = (hdf5_dataset){0};
  if (strlen(name) >= sizeof d->name)
    return stow_fail(STOW_ERR_FORMAT, "%s: a dataset's path is longer than %d letters", h->path,
                     HDF5_NAME_MAX - 1);
  snprintf(d->name, sizeof d->name, "%s", name);
  h5_id type = l->H5Dget_type(object), space = l->H5Dget_space(object);
  stow_status status = STOW_OK;
  if (type < 0 || space < 0)
    status =
        stow_fail(STOW_ERR_FORMAT, "%s: dataset %.200s: libhdf5 cannot open it", h->path, name);
  if (status == STOW_OK) name_type(l, type, d);
  if (status == STOW_OK) name_elsewhere(l, object, d);
  if (status == STOW_OK) status = read_shape(h, space, d);
  if (type >= 0) l->H5Tclose(type);
  if (space >= 0) l->H5Sclose(space);
  if (status == STOW_OK) h->count++;
  return status;
}

/* Called by the library for every link; links to other places and files are passed over. */
static int visit(h5_id group, const char *name, const h5_link *info, void *context) {
  hdf5 *h = context;
  (void)group;
  if (info->type != H5_LINK_HARD) return 0;
  h5_id object = h->library->H5Oopen(h->file, name, 0);
  if (object < 0) {
    h->status = stow_fail(STOW_ERR_FORMAT, "%s: %.200s: libhdf5 cannot open it", h->path, name);
    return 1;
  }
  if (h->library->H5Iget_type(object) == H5_KIND_DATASET) h->status = add_dataset(h, name, object);
  h->library->H5Oclose(object);
  return h->status != STOW_OK;
}

/* The signature stands at byte 0, 512, 1024, 2048 and so on (HDF5 file format specification, II.A):
 * MATLAB, for one, writes 512 bytes of its own before it. */
stow_status hdf5_find(bool *found, source *from) {
  uint8_t start[8];
  *found = false;
  for (uint64_t at = 0; at <= SIGNATURE_LAST && from->bytes >= at + 8 && !*found;) {
    STOW_TRY(source_read(from, at, start, sizeof start));
    *found = memcmp(start, "\x89HDF\r\n\x1a\n", 8) == 0;
    at = at == 0 ? 512 : at * 2;
  }
  return STOW_OK;
}

stow_status hdf5_open(hdf5 **to, const char *path, uint64_t max_bytes) {
  const hdf5_library *library;
  *to = NULL;
  STOW_TRY(hdf5_library_get(&library, path));
  hdf5 *h = calloc(1, sizeof *h);
  if (h == NULL || (h->path = strdup(path)) == NULL) {
    free(h);
    return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", path);
  }
  h->library = library;
  h->max_bytes = max_bytes;
  h->file = library->H5Fopen(path, 0, 0);
  stow_status status = STOW_OK;
  if (h->file < 0) {
    status = stow_fail(STOW_ERR_FORMAT,
                       "%s: libhdf5 cannot open it: cut short, damaged, or being written", path);
  } else if (library->visit(h->file, 0, 0, visit, h) < 0 && h->status == STOW_OK) {
    status = stow_fail(STOW_ERR_FORMAT, "%s: libhdf5 cannot list its datasets: damaged?", path);
  }
  if (status == STOW_OK) status = h->status;
  if (status != STOW_OK) {
    hdf5_close(h);
    return status;
  }
  *to = h;
  return STOW_OK;
}

void hdf5_close(hdf5 *h) {
  if (h == NULL) return;
  if (h->file >= 0) h->library->H5Fclose(h->file);
  free(h->path);
  free(h->list);
  free(h);
}

size_t hdf5_count(const hdf5 *h) {
  return h->count;
}

const hdf5_dataset *hdf5_get(const hdf5 *h, size_t number) {
  return &h->list[number];
}

/* ---- values ---- */

typedef struct dataset_reader {
  hdf5 *h;
  bool owns_file;
  hdf5_dataset d;
  h5_id object, type, space;
  uint64_t row_bytes, band_rows; /* a band: rows that share their chunks */
  char *band;                    /* rows band_at to band_end */
  uint64_t band_at, band_end;
} dataset_reader;

static stow_status read_band(dataset_reader *r, uint64_t row) {
  const hdf5_library *l = r->h->library;
  h5_size start[HDF5_DIMS_MAX] = {0}, count[HDF5_DIMS_MAX];
  uint64_t first = row / r->band_rows * r->band_rows, rows = r->d.dims > 0 ? r->d.shape[0] : 1;
  uint64_t end = rows - first < r->band_rows ? rows : first + r->band_rows;
  for (uint32_t i = 0; i < r->d.dims; i++) count[i] = r->d.shape[i];
  start[0] = first;
  count[0] = end - first;
  h5_id memory = l->H5Screate_simple((int)r->d.dims, count, NULL);
  int code = memory < 0 ? -1 : 0;
  if (code >= 0 && r->d.dims > 0)
    code = l->H5Sselect_hyperslab(r->space, 0, start, NULL, count, NULL);
  r->band_at = r->band_end = 0;
  if (code >= 0) code = l->H5Dread(r->object, r->type, memory, r->space, 0, r->band);
  if (memory >= 0) l->H5Sclose(memory);
  if (code < 0)
    return stow_fail(STOW_ERR_FORMAT,
                     "%s: dataset %.200s: libhdf5 cannot read rows %" PRIu64 " to %" PRIu64
                     ": damaged, or packed with a filter it does not have",
                     r->h->path, r->d.name, first, end);
  r->band_at = first;
  r->band_end = end;
  return STOW_OK;
}

static stow_status read_values(void *user, uint64_t offset, void *to, size_t count) {
  dataset_reader *r = user;
  char *at = to;
  while (count > 0) {
    uint64_t row = offset / r->row_bytes;
    if (row < r->band_at || row >= r->band_end) STOW_TRY(read_band(r, row));
    uint64_t left = r->band_end * r->row_bytes - offset;
    size_t part = count < left ? count : (size_t)left;
    memcpy(at, r->band + (offset - r->band_at * r->row_bytes), part);
    at += part;
    offset += part;
    count -= part;
  }
  return STOW_OK;
}

static void close_values(void *user) {
  dataset_reader *r = user;
  const hdf5_library *l = r->h->library;
  if (r->type >= 0) l->H5Tclose(r->type);
  if (r->space >= 0) l->H5Sclose(r->space);
  if (r->object >= 0) l->H5Oclose(r->object);
  if (r->owns_file) hdf5_close(r->h);
  free(r->band);
  free(r);
}

/* How many rows are read together: all that share chunks, more where they are few bytes. */
static stow_status choose_band(dataset_reader *r, uint64_t max_bytes) {
  const hdf5_library *l = r->h->library;
  h5_size chunk[HDF5_DIMS_MAX] = {1};
  uint64_t chunk_bytes = 0, rows = r->d.dims > 0 ? r->d.shape[0] : 1, together = 1;
  h5_id plist = l->H5Dget_create_plist(r->object);
  if (plist >= 0 && l->H5Pget_layout(plist) == H5_LAYOUT_CHUNKED &&
      l->H5Pget_chunk(plist, (int)r->d.dims, chunk) == (int)r->d.dims) {
    chunk_bytes = r->d.item_bytes;
    for (uint32_t i = 0; i < r->d.dims; i++)
      if (!checked_mul(&chunk_bytes, chunk_bytes, chunk[i])) chunk_bytes = UINT64_MAX;
    together = chunk[0] < rows ? chunk[0] : rows;
  }
  if (plist >= 0) l->H5Pclose(plist);
  r->row_bytes = rows > 0 ? r->d.count / rows * r->d.item_bytes : r->d.item_bytes;
  uint64_t band;
  if (!checked_mul(&band, together, r->row_bytes) || band > max_bytes || chunk_bytes > max_bytes)
    return stow_fail(STOW_ERR_BUDGET,
                     "%s: dataset %.200s: its chunks need %" PRIu64
                     " MiB at a time, the budget has %" PRIu64 " MiB for them; give more with "
                     "--memory",
                     r->h->path, r->d.name,
                     (together * (r->row_bytes >> 10) > chunk_bytes >> 10
                          ? together * (r->row_bytes >> 10)
                          : chunk_bytes >> 10) >>
                         10,
                     max_bytes >> 20);
  uint64_t wanted = max_bytes < 1u << 20 ? max_bytes : 1u << 20;
  if (band > 0 && band < wanted) together *= wanted / band;
  r->band_rows = together < 1 ? 1 : together > rows && rows > 0 ? rows : together;
  r->band = malloc(r->band_rows * r->row_bytes + 1);
  return r->band != NULL ? STOW_OK
                         : stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", r->h->path);
}

static stow_status open_values(dataset_reader *r, uint64_t max_bytes) {
  const hdf5_library *l = r->h->library;
  r->object = l->H5Oopen(r->h->file, r->d.name, 0);
  h5_id type = r->object >= 0 ? l->H5Dget_type(r->object) : -1;
  r->space = r->object >= 0 ? l->H5Dget_space(r->object) : -1;
  /* The type the file has, in this machine's byte order (little). */
  r->type = type >= 0 ? l->H5Tcopy(type) : -1;
  if (type >= 0) l->H5Tclose(type);
  if (r->space < 0 || r->type < 0 || (r->d.type != DTYPE_BOOL && l->H5Tset_order(r->type, 0) < 0))
    return stow_fail(STOW_ERR_FORMAT, "%s: dataset %.200s: libhdf5 cannot open it", r->h->path,
                     r->d.name);
  return choose_band(r, max_bytes);
}

stow_status hdf5_source(source *s, hdf5 *h, size_t number, uint64_t max_bytes, bool owns_file) {
  dataset_reader *r = calloc(1, sizeof *r);
  if (r == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", h->path);
  *r = (dataset_reader){.h = h, .d = h->list[number], .object = -1, .type = -1, .space = -1};
  stow_status status = open_values(r, max_bytes);
  if (status != STOW_OK) {
    close_values(r);
    return status;
  }
  r->owns_file = owns_file;
  source_reader reader = {.read = read_values, .close = close_values, .user = r};
  source_open_reader(s, &reader, r->d.count * r->d.item_bytes, h->path);
  return STOW_OK;
}
