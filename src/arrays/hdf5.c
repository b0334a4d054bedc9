/* Hdf5: this process's side: the list of datasets, and their values in parts. */
#include "arrays/hdf5.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stowage/size.h>

#include "arrays/hdf5_grid.h"
#include "arrays/hdf5_spool.h"
#include "arrays/hdf5_wire.h"
#include "base/checked.h"

#define SIGNATURE      "\x89HDF\r\n\x1a\n"
#define SIGNATURE_LAST (UINT64_C(64) << 10) /* the search for the signature ends here */
#define LIST_SHARE     8                    /* share of the budget for the list: 1/8 */
/* Share of the budget for a part of the values, in shared memory: 1/4. */
#define PART_SHARE 4
#define HEAP_SHARE 2 /* the worker */
/* The packed chunk, the unpacked one and shuffle's copy (hdf5_unpack.c). */
#define UNPACK_COPIES 3
/* Large enough that the messages do not matter: 1 MiB and 2 MiB took the same CPU time. */
#define PART_BYTES (UINT64_C(2) << 20)
/* Smaller datasets are read in less time than it takes to list their chunks. */
#define REPEATS_LEAST (UINT64_C(64) << 20)
#define PLACES_LEAST  (UINT64_C(1) << 20)
/* Smaller reads of chunks that hold parts of rows go to libhdf5, which reads a part ahead: many
 * small reads would read each chunk in small pieces. */
#define PIECES_LEAST (UINT64_C(256) << 10)

struct hdf5 {
  hdf5_child child;
  char *path;
  hdf5_dataset *list;
  size_t count, capacity;
  uint64_t budget_bytes;
  struct stat opened;
  bool from_start;       /* no user block: some libhdf5 leave it out of a chunk's place */
  const void *in_shared; /* the reader whose part is in shared memory */
};

/* Finds the signature. It is at byte 0, 512, 1024, 2048 and so on (HDF5 file format specification,
 * II.A); MATLAB, for example, writes 512 bytes of its own before it. */
stow_status hdf5_find(bool *found, source *from) {
  uint8_t start[8];
  *found = false;
  for (uint64_t at = 0; at <= SIGNATURE_LAST && from->bytes >= at + 8 && !*found;) {
    STOW_TRY(source_read(from, at, start, sizeof start));
    *found = memcmp(start, SIGNATURE, 8) == 0;
    at = at == 0 ? 512 : at * 2;
  }
  return STOW_OK;
}

/* ---- the list ---- */

/* Checks a dataset that the worker described, as everything that comes from a file. */
static stow_status check_dataset(const hdf5 *h, hdf5_dataset *d) {
  d->name[HDF5_NAME_MAX - 1] = d->type_name[HDF5_TYPE_MAX - 1] = '\0';
  if (d->name[0] == '\0' || d->dims > HDF5_DIMS_MAX || (unsigned)d->type >= DTYPE_COUNT ||
      (d->type != DTYPE_NONE && d->item_bytes != dtype_bytes(d->type)))
    return stow_fail(
        STOW_ERR_FORMAT,
        "%s: libhdf5 lists a dataset with an impossible type or shape: the file is damaged",
        h->path);
  uint64_t bytes = d->item_bytes;
  d->count = d->dims > 0 ? 1 : d->count > 0;
  for (uint32_t i = 0; i < d->dims; i++) {
    d->count *= d->shape[i];
    if (d->shape[i] > 0 && !checked_mul(&bytes, bytes, d->shape[i]))
      return stow_fail(STOW_ERR_OVERFLOW, "%s: dataset %.200s: more bytes than 64 bits count",
                       h->path, d->name);
    if (d->chunk[0] > 0 && d->chunk[i] == 0)
      return stow_fail(STOW_ERR_FORMAT, "%s: dataset %.200s: a chunk without values", h->path,
                       d->name);
  }
  uint64_t end;
  if (d->place != HDF5_NO_PLACE &&
      (d->type == DTYPE_NONE || d->chunk[0] > 0 || !checked_add(&end, d->place, bytes) ||
       end > (uint64_t)h->opened.st_size))
    d->place = HDF5_NO_PLACE; /* libhdf5 reads it, and says what is wrong */
  return STOW_OK;
}

static stow_status add_dataset(hdf5 *h, const hdf5_dataset *d) {
  if (h->count == h->capacity) {
    size_t capacity = h->capacity * 2 + 8;
    if (capacity * sizeof *h->list > h->budget_bytes / LIST_SHARE) {
      char needed[STOW_SIZE_TEXT_MAX];
      return stow_fail(
          STOW_ERR_BUDGET, "%s: more than %zu datasets do not fit in %s; raise --memory", h->path,
          h->count, stow_size_format(needed, (uint64_t)capacity * sizeof *h->list * LIST_SHARE));
    }
    hdf5_dataset *more = realloc(h->list, capacity * sizeof *more);
    if (more == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", h->path);
    h->list = more;
    h->capacity = capacity;
  }
  h->list[h->count++] = *d;
  return STOW_OK;
}

/* Adds the names of the datasets to a message. */
static stow_status not_found(const hdf5 *h, const char *only, const char *names) {
  return stow_fail(STOW_ERR_NOT_FOUND, "%s: no dataset %.200s; the file has: %s", h->path, only,
                   names[0] != '\0' ? names : "none");
}

/* Finds the dataset that a path with soft links leads to. */
static stow_status find_linked(hdf5 *h, const char *only, const char *names) {
  hdf5_request request = {.what = HDF5_FIND};
  hdf5_reply reply;
  if (strlen(only) >= sizeof request.name) return not_found(h, only, names);
  snprintf(request.name, sizeof request.name, "%s", only);
  stow_status status = hdf5_child_request(&h->child, &request, &reply);
  while (status == STOW_OK && !reply.last) {
    status = check_dataset(h, &reply.dataset);
    if (status == STOW_OK) status = add_dataset(h, &reply.dataset);
    if (status == STOW_OK) status = hdf5_child_more(&h->child, &reply);
  }
  if (status == STOW_ERR_NOT_FOUND || (status == STOW_OK && h->count == 0))
    return not_found(h, only, names);
  return status;
}

static stow_status read_list(hdf5 *h, const char *only) {
  hdf5_request request = {.what = HDF5_LIST};
  hdf5_reply reply;
  char names[256] = "";
  if (only != NULL && only[0] == '/') only++;
  STOW_TRY(hdf5_child_request(&h->child, &request, &reply));
  while (!reply.last) {
    hdf5_dataset *d = &reply.dataset;
    STOW_TRY(check_dataset(h, d));
    if (only == NULL || strcmp(only, d->name) == 0) STOW_TRY(add_dataset(h, d));
    if (strlen(names) < 180)
      snprintf(names + strlen(names), sizeof names - strlen(names), "%s%.60s",
               names[0] != '\0' ? ", " : "", d->name);
    STOW_TRY(hdf5_child_more(&h->child, &reply));
  }
  return only != NULL && h->count == 0 ? find_linked(h, only, names) : STOW_OK;
}

stow_status hdf5_open(hdf5 **to, const char *path, const char *only, uint64_t budget_bytes) {
  *to = NULL;
  hdf5 *h = calloc(1, sizeof *h);
  if (h == NULL || (h->path = strdup(path)) == NULL) {
    free(h);
    return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", path);
  }
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  h->budget_bytes = budget_bytes;
  h->child = (hdf5_child){.path = h->path,
                          .file = open(path, O_RDONLY | O_CLOEXEC),
                          .heap_bytes = budget_bytes / HEAP_SHARE,
                          .shared_bytes = (budget_bytes / PART_SHARE + page) / page * page,
                          .socket = -1,
                          .pid = -1};
  stow_status status = STOW_OK;
  if (h->child.file < 0 || fstat(h->child.file, &h->opened) != 0)
    status = stow_fail(STOW_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
  char start[8];
  h->from_start = status == STOW_OK &&
                  pread(h->child.file, start, sizeof start, 0) == (ssize_t)sizeof start &&
                  memcmp(start, SIGNATURE, sizeof start) == 0;
  if (status == STOW_OK) status = read_list(h, only);
  if (status != STOW_OK) {
    hdf5_close(h);
    return status;
  }
  *to = h;
  return STOW_OK;
}

void hdf5_close(hdf5 *h) {
  if (h == NULL) return;
  hdf5_child_stop(&h->child);
  if (h->child.file >= 0) close(h->child.file);
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

const char *hdf5_reason(const char *type_name) {
  if (strncmp(type_name, "packed with", 11) == 0)
    return "a filter that libhdf5 lacks; write it again with gzip (h5py: compression=\"gzip\"; or "
           "h5repack -f GZIP=4)";
  if (strcmp(type_name, "in other files") == 0)
    return "a virtual or external dataset, and no other file is opened; copy its values into one "
           "file (h5py: new[name] = old[name][...])";
  return "only datasets of numbers are read; read it with h5py";
}

/* ---- parts ----
 *
 * A part is what is read at a time: `rows` indexes along dimension `axis`, at one index of each
 * dimension before it, and everything in the dimensions behind it. Its values follow one another in
 * C order. Along the axis it is a multiple of the chunk if memory allows: then each chunk is
 * unpacked once. Usually the axis is 0; rows larger than a part are cut along a later one. */

typedef struct part_plan {
  uint32_t axis;
  uint64_t unit_bytes; /* size of one index along the axis */
  uint64_t length;     /* length of the axis */
  uint64_t rows;
} part_plan;

static part_plan plan_part(const hdf5_dataset *d, uint64_t most) {
  part_plan p = {.unit_bytes = d->item_bytes, .length = 1, .rows = 1};
  if (d->dims == 0) return p;
  for (uint32_t i = 1; i < d->dims; i++) p.unit_bytes *= d->shape[i];
  while (p.unit_bytes > most && p.axis + 1 < d->dims) p.unit_bytes /= d->shape[++p.axis];
  p.length = d->shape[p.axis];
  uint64_t step = d->chunk[0] > 0 ? d->chunk[p.axis] : 1, fit = most / p.unit_bytes;
  if (fit < 1) fit = 1;
  if (step > p.length) step = p.length;
  uint64_t wanted = PART_BYTES / p.unit_bytes / step * step;
  p.rows = wanted > step ? wanted : step;
  if (p.rows > fit) p.rows = fit >= step ? fit / step * step : fit;
  if (p.rows > p.length) p.rows = p.length;
  return p;
}

uint64_t hdf5_band_rows(const hdf5_dataset *d) {
  return d->chunk[0] > 0 && d->count > 0 ? plan_part(d, INT64_MAX).rows : 0;
}

uint64_t hdf5_held(const hdf5 *h, size_t number) {
  const hdf5_dataset *d = &h->list[number];
  if (d->count == 0) return 0;
  part_plan p = plan_part(d, h->child.shared_bytes);
  return p.rows * p.unit_bytes + (d->filtered ? UNPACK_COPIES * hdf5_grid_chunk_bytes(d) : 0);
}

static stow_status check_chunk(const hdf5 *h, const hdf5_dataset *d) {
  uint64_t chunk = d->filtered ? hdf5_grid_chunk_bytes(d) : 0, needed;
  if (chunk <= h->child.heap_bytes / UNPACK_COPIES) return STOW_OK;
  char size[STOW_SIZE_TEXT_MAX], has[STOW_SIZE_TEXT_MAX], more[STOW_SIZE_TEXT_MAX];
  if (!checked_mul(&needed, chunk, UNPACK_COPIES * HEAP_SHARE)) needed = UINT64_MAX;
  needed = needed < UINT64_MAX - (1 << 20) ? (needed + (1 << 20) - 1) >> 20 << 20 : needed;
  return stow_fail(
      STOW_ERR_BUDGET,
      "%s: dataset %.200s: a whole chunk of %s must be unpacked at once, which the budget of %s "
      "does not allow; --memory %" PRIu64 "M (%s) suffices",
      h->path, d->name, stow_size_format(size, chunk), stow_size_format(has, h->budget_bytes),
      needed >> 20, stow_size_format(more, needed));
}

/* ---- values ---- */

typedef struct dataset_reader {
  hdf5 *h;
  bool owns_file;
  hdf5_dataset d;
  part_plan plan;
  uint64_t at, end;  /* the bytes of the dataset in shared memory; at == end: none */
  bool asked;        /* about what was written */
  bool known;        /* `written` is complete */
  uint64_t *written; /* rows of chunks that are in the file, ascending */
  uint64_t written_count;
  uint64_t row_bytes; /* of a row in them that may be in the file; the others are not */
  uint8_t fill[8];    /* the value of all others */
  bool asked_places;
  hdf5_grid grid; /* chunks that are stored as they are read; without places: none */
  bool spools;    /* parts unpack chunks more than once */
  uint64_t next;  /* the byte behind the last part that was read */
  hdf5_spool spool;
} dataset_reader;

/* Returns how many indexes along the axis from `index` on, which is within a row, may hold values
 * that are in the file; at least 1. */
static uint64_t rows_written(const dataset_reader *r, uint64_t index) {
  uint64_t unit = r->plan.unit_bytes, row = r->d.count * r->d.item_bytes / r->d.shape[0];
  uint64_t in_row = index % (row / unit) * unit;
  if (!r->known || in_row >= r->row_bytes) return r->known ? 1 : UINT64_MAX;
  return (r->row_bytes - in_row - 1) / unit + 1;
}

/* Reads the part that holds byte `offset`. The values stay in shared memory, which holds one part.
 */
static stow_status read_part(dataset_reader *r, uint64_t offset) {
  const part_plan *p = &r->plan;
  hdf5_request request = {.what = HDF5_READ, .dims = r->d.dims};
  hdf5_reply reply;
  uint64_t index = offset / p->unit_bytes, outer = index / p->length;
  uint64_t first = index % p->length / p->rows * p->rows;
  uint64_t rows = p->length - first < p->rows ? p->length - first : p->rows;
  uint64_t written = p->axis > 0 ? rows_written(r, index / p->length * p->length + first) : rows;
  if (rows > written) rows = written;
  memcpy(request.name, r->d.name, sizeof request.name);
  for (uint32_t i = p->axis; i-- > 0; outer /= r->d.shape[i]) {
    request.start[i] = outer % r->d.shape[i];
    request.count[i] = 1;
  }
  if (r->d.dims > 0) {
    request.start[p->axis] = first;
    request.count[p->axis] = rows;
  }
  for (uint32_t i = p->axis + 1; i < r->d.dims; i++) request.count[i] = r->d.shape[i];
  request.bytes = rows * p->unit_bytes;
  r->at = r->end = 0;
  r->h->in_shared = r;
  STOW_TRY(hdf5_child_request(&r->h->child, &request, &reply));
  r->at = (index / p->length * p->length + first) * p->unit_bytes;
  r->end = r->next = r->at + request.bytes;
  return STOW_OK;
}

/* Reads from byte `offset` what is in the spool. Fills it for the second part of a band that is
 * read in order. Sets `done` to the number of bytes. */
static stow_status read_spooled(dataset_reader *r, uint64_t offset, char *to, size_t count,
                                size_t *done) {
  hdf5_spool *s = &r->spool;
  *done = 0;
  if (!r->spools) return STOW_OK;
  if (!hdf5_spool_holds(s, offset)) {
    bool in_order = offset > 0 && offset == r->next && hdf5_spool_in_one(&r->d, offset - 1, offset);
    if (!in_order || s->refused) return STOW_OK;
    r->at = r->end = 0;
    r->h->in_shared = NULL;
    STOW_TRY(hdf5_spool_fill(s, &r->h->child, &r->d, offset));
    if (s->refused) return STOW_OK;
  }
  uint64_t left = s->stop - offset;
  *done = count < left ? count : (size_t)left;
  return hdf5_spool_read(s, r->h->path, offset, to, *done);
}

/* Requests the offsets of the chunks, once. The answer uses the memory of the part. */
static stow_status request_places(dataset_reader *r) {
  hdf5 *h = r->h;
  uint64_t most = h->budget_bytes / LIST_SHARE, chunks = hdf5_grid_chunks(&r->d);
  hdf5_request request = {.what = HDF5_PLACES, .bytes = chunks * sizeof(uint64_t)};
  hdf5_reply reply;
  r->asked_places = true;
  if (most > h->child.shared_bytes) most = h->child.shared_bytes;
  if (chunks == 0 || chunks > most / sizeof(uint64_t) || r->d.filtered ||
      r->d.count * r->d.item_bytes < PLACES_LEAST || !h->from_start)
    return STOW_OK;
  memcpy(request.name, r->d.name, sizeof request.name);
  r->at = r->end = 0;
  h->in_shared = NULL;
  STOW_TRY(hdf5_child_request(&h->child, &request, &reply));
  if (!reply.known || reply.count != chunks) return STOW_OK;
  uint64_t *places = malloc(chunks * sizeof(uint64_t));
  if (places == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", h->path);
  memcpy(places, h->child.shared, chunks * sizeof(uint64_t));
  bool usable;
  /* It takes the memory of a part, which is not read. */
  STOW_TRY(hdf5_grid_open(&r->grid, &r->d, places, h->child.file, (uint64_t)h->opened.st_size,
                          h->path, r->plan.rows * r->plan.unit_bytes, &usable));
  if (!usable) hdf5_grid_close(&r->grid);
  return STOW_OK;
}

/* Reads from byte `offset` of the values what this process can read itself. Sets `done` to the
 * number of bytes; 0 if libhdf5 must read them. */
static stow_status read_direct(dataset_reader *r, uint64_t offset, char *to, size_t count,
                               size_t *done) {
  *done = 0;
  if (r->grid.places != NULL) return hdf5_grid_read(&r->grid, offset, to, count, done);
  if (r->d.place == HDF5_NO_PLACE) return STOW_OK;
  *done = count;
  return hdf5_read_at(r->h->child.file, r->h->path, r->d.place + offset, to, count);
}

/* Requests, once, which rows of chunks are in the file. The answer uses the memory of the part. */
static stow_status request_written(dataset_reader *r) {
  hdf5_request request = {.what = HDF5_WRITTEN, .bytes = r->h->child.shared_bytes / 8 * 8};
  hdf5_reply reply;
  r->asked = true;
  memcpy(request.name, r->d.name, sizeof request.name);
  r->at = r->end = 0;
  r->h->in_shared = NULL;
  STOW_TRY(hdf5_child_request(&r->h->child, &request, &reply));
  if (!reply.known || reply.count > request.bytes / sizeof(uint64_t)) return STOW_OK;
  r->written = malloc(reply.count * sizeof(uint64_t) + 1);
  if (r->written == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", r->h->path);
  memcpy(r->written, r->h->child.shared, reply.count * sizeof(uint64_t));
  memcpy(r->fill, reply.fill, sizeof r->fill);
  r->written_count = reply.count;
  if (!checked_mul(&r->row_bytes, reply.row_items, r->d.item_bytes)) r->row_bytes = UINT64_MAX;
  r->known = true;
  return STOW_OK;
}

/* Returns the first row of chunks in the file at or after `row`. */
static uint64_t next_written(const dataset_reader *r, uint64_t row) {
  uint64_t low = 0, high = r->written_count;
  while (low < high) {
    uint64_t middle = low + (high - low) / 2;
    if (r->written[middle] < row)
      low = middle + 1;
    else
      high = middle;
  }
  return low < r->written_count ? r->written[low] : UINT64_MAX;
}

static stow_status find_repeats(void *user, uint64_t offset, uint64_t *count, uint8_t item[8]) {
  dataset_reader *r = user;
  uint64_t total = r->d.count * r->d.item_bytes;
  *count = 0;
  if (total < REPEATS_LEAST || r->d.place != HDF5_NO_PLACE) return STOW_OK;
  if (!r->asked) STOW_TRY(request_written(r));
  if (!r->known) return STOW_OK;
  memcpy(item, r->fill, sizeof r->fill);
  if (r->written_count == 0) return *count = total - offset, STOW_OK;
  uint64_t row_bytes = total / r->d.shape[0], band, until = total;
  if (!checked_mul(&band, row_bytes, r->d.chunk[0])) band = total;
  uint64_t now = offset / band, next = next_written(r, now), in_row = offset % row_bytes;
  if (next == now) {
    if (in_row >= r->row_bytes) *count = row_bytes - in_row;
    return STOW_OK;
  }
  if (next <= total / band) until = next * band;
  *count = until - offset;
  return STOW_OK;
}

/* Sets what of `count` bytes at byte `offset` was never written, as far as that is known. Sets
 * `done` to the number of bytes. */
static stow_status read_repeats(dataset_reader *r, uint64_t offset, char *to, size_t count,
                                size_t *done) {
  uint64_t equal = 0, item = r->d.item_bytes;
  uint8_t value[8];
  *done = 0;
  if (r->known) STOW_TRY(find_repeats(r, offset, &equal, value));
  if (equal == 0) return STOW_OK;
  *done = count < equal ? count : (size_t)equal;
  for (size_t i = 0; i < *done; i++) to[i] = (char)value[(offset + i) % item];
  return STOW_OK;
}

static stow_status read_values(void *user, uint64_t offset, void *to, size_t count) {
  dataset_reader *r = user;
  char *at = to;
  if (!r->asked_places) STOW_TRY(request_places(r));
  bool direct = r->grid.cut == 0 || count >= PIECES_LEAST;
  while (count > 0) {
    size_t done = 0;
    if (direct) STOW_TRY(read_direct(r, offset, at, count, &done));
    if (done == 0) STOW_TRY(read_repeats(r, offset, at, count, &done));
    if (done == 0) STOW_TRY(read_spooled(r, offset, at, count, &done));
    if (done > 0) {
      at += done;
      offset += done;
      count -= done;
      continue;
    }
    /* A forked child shares the memory with its parent, which reads on. */
    if (offset < r->at || offset >= r->end || r->h->in_shared != r || r->h->child.owner != getpid())
      STOW_TRY(read_part(r, offset));
    uint64_t left = r->end - offset;
    size_t part = count < left ? count : (size_t)left;
    memcpy(at, r->h->child.shared + (offset - r->at), part);
    at += part;
    offset += part;
    count -= part;
  }
  return STOW_OK;
}

/* Checks that the file has not changed while libhdf5 reads it. */
static stow_status check_file(void *user) {
  const dataset_reader *r = user;
  const struct stat *before = &r->h->opened;
  struct stat now;
  if (fstat(r->h->child.file, &now) == 0 && now.st_size == before->st_size &&
      now.st_mtim.tv_sec == before->st_mtim.tv_sec &&
      now.st_mtim.tv_nsec == before->st_mtim.tv_nsec)
    return STOW_OK;
  return stow_fail(STOW_ERR_IO,
                   "%s: was written to while it was read; wait for its writer, then try again",
                   r->h->path);
}

static void close_values(void *user) {
  dataset_reader *r = user;
  if (r->owns_file) hdf5_close(r->h);
  free(r->written);
  hdf5_grid_close(&r->grid);
  hdf5_spool_close(&r->spool);
  free(r);
}

stow_status hdf5_source(source *s, hdf5 *h, size_t number, bool owns_file) {
  const hdf5_dataset *d = &h->list[number];
  STOW_TRY(check_chunk(h, d));
  dataset_reader *r = calloc(1, sizeof *r);
  if (r == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", h->path);
  *r = (dataset_reader){.h = h, .d = *d, .owns_file = owns_file, .spool = HDF5_SPOOL_INIT};
  if (d->count > 0) r->plan = plan_part(d, h->child.shared_bytes);
  if (d->count > 0) r->spools = hdf5_spool_helps(d, r->plan.axis, r->plan.rows);
  source_reader reader = {.read = read_values,
                          .check = check_file,
                          .close = close_values,
                          .repeats = find_repeats,
                          .user = r};
  source_open_reader(s, &reader, d->count * d->item_bytes, h->path);
  return STOW_OK;
}
