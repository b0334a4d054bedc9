/* Shards of arrays: a source that reads like one npy file. Its header is made here; its values are
 * those of the arrays, in order. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/hash.h"
#include "data/shards.h"

enum { OPEN_MOST = 4 };

typedef struct shard {
  char *path;
  uint64_t start; /* of its values, in those of all */
  uint64_t bytes;
  uint64_t file_bytes, changed_ns, inode;
  bool is_open;
  uint64_t used; /* when it was read last */
  array array;
} shard;

typedef struct joined {
  char *name;
  array_spec spec;
  buffer header;
  shard *parts;
  size_t count, open_count;
  uint64_t clock;
} joined;

static void close_joined(void *user) {
  joined *j = user;
  for (size_t i = 0; i < j->count; i++) {
    if (j->parts[i].is_open) array_close(&j->parts[i].array);
    free(j->parts[i].path);
  }
  buffer_free(&j->header);
  free(j->parts);
  free(j->name);
  free(j);
}

/* ---- opening ---- */

static stow_status open_part(joined *j, shard *p) {
  if (p->is_open) return STOW_OK;
  if (j->open_count == OPEN_MOST) {
    shard *oldest = NULL;
    for (size_t i = 0; i < j->count; i++)
      if (j->parts[i].is_open && (oldest == NULL || j->parts[i].used < oldest->used))
        oldest = &j->parts[i];
    if (oldest != NULL) {
      array_close(&oldest->array);
      oldest->is_open = false;
      j->open_count--;
    }
  }
  STOW_TRY(array_open(&p->array, p->path, &j->spec));
  p->is_open = true;
  j->open_count++;
  return STOW_OK;
}

/* Writes "float32 (n, 3)". */
static const char *kind_of(const array *a, char *text, size_t size) {
  char type[ARRAY_DTYPE_MAX];
  int at = snprintf(text, size, "%s (n", array_dtype(a, type));
  for (uint32_t i = 1; i < a->dims && at > 0 && (size_t)at < size; i++)
    at += snprintf(text + at, size - (size_t)at, ", %" PRIu64, a->shape[i]);
  if (at > 0 && (size_t)at < size) snprintf(text + at, size - (size_t)at, ")");
  return text;
}

static stow_status check_kind(const array *a, const array *first) {
  if (a->dims == 0 || (a->fortran_order && a->dims > 1) ||
      (a->type != DTYPE_NONE && npy_descr(a->type) == NULL))
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "%s: %s cannot be one of several files; they need rows in C order, of a type "
                     "that NumPy has",
                     a->name, a->dims == 0 ? "a single value" : "this array");
  bool same = a->dims == first->dims && strcmp(a->descr, first->descr) == 0 &&
              a->item_bytes == first->item_bytes;
  for (uint32_t i = 1; i < a->dims && same; i++) same = a->shape[i] == first->shape[i];
  if (same) return STOW_OK;
  char own[256], other[256];
  return stow_fail(
      STOW_ERR_INVALID, "%s holds %s, but %s holds %s; all files need the same type and row shape",
      a->name, kind_of(a, own, sizeof own), first->name, kind_of(first, other, sizeof other));
}

/* Opens each array once, for its shape. */
static stow_status look(joined *j, array *first, uint64_t *identity) {
  uint64_t rows = 0, bytes = 0;
  for (size_t i = 0; i < j->count; i++) {
    shard *p = &j->parts[i];
    STOW_TRY(open_part(j, p));
    const array *a = &p->array;
    if (i == 0) *first = *a;
    STOW_TRY(check_kind(a, first));
    p->start = bytes;
    p->bytes = a->bytes;
    p->file_bytes = a->from->bytes;
    p->changed_ns = a->from->changed_ns;
    p->inode = a->from->inode;
    uint64_t is[] = {p->file_bytes, p->changed_ns, p->inode, a->from->device};
    *identity = hash_bytes(is, sizeof is, *identity + 1);
    rows += a->shape[0];
    if (!checked_add(&bytes, bytes, a->bytes) || bytes > INT64_MAX)
      return stow_fail(STOW_ERR_OVERFLOW, "%s: the number of bytes in all files exceeds 63 bits",
                       j->name);
    p->used = ++j->clock;
  }
  uint64_t shape[ARRAY_DIMS_MAX];
  memcpy(shape, first->shape, sizeof shape);
  shape[0] = rows;
  return npy_write_header_as(&j->header, first->descr, false, shape, first->dims);
}

/* ---- reading ---- */

static shard *part_at(const joined *j, uint64_t offset) {
  size_t low = 0, high = j->count;
  while (high - low > 1) {
    size_t middle = low + (high - low) / 2;
    if (j->parts[middle].start <= offset)
      low = middle;
    else
      high = middle;
  }
  return &j->parts[low];
}

static stow_status read_joined(void *user, uint64_t offset, void *to, size_t count) {
  joined *j = user;
  char *at = to;
  uint64_t header = j->header.length;
  if (offset < header) {
    size_t part = header - offset < count ? (size_t)(header - offset) : count;
    memcpy(at, j->header.data + offset, part);
    at += part;
    offset += part;
    count -= part;
  }
  for (offset -= header; count > 0;) {
    shard *p = part_at(j, offset);
    uint64_t left = p->start + p->bytes - offset;
    size_t part = left < count ? (size_t)left : count;
    STOW_TRY(open_part(j, p));
    p->used = ++j->clock;
    STOW_TRY(array_read_bytes(&p->array, offset - p->start, at, part));
    at += part;
    offset += part;
    count -= part;
  }
  return STOW_OK;
}

static stow_status check_joined(void *user) {
  joined *j = user;
  for (size_t i = 0; i < j->count; i++) {
    shard *p = &j->parts[i];
    STOW_TRY(open_part(j, p));
    const source *from = p->array.from;
    if (from->changed_ns != p->changed_ns || from->inode != p->inode || p->array.bytes != p->bytes)
      return stow_fail(
          STOW_ERR_IO,
          "%s: was modified while being read; wait for its writer, then run this again", p->path);
    STOW_TRY(source_check(from));
  }
  return STOW_OK;
}

static stow_status take_paths(joined *j, const shards *s) {
  char name[1024];
  j->name = strdup(shards_name(s, name, sizeof name));
  j->parts = calloc(s->count, sizeof *j->parts);
  if (j->name == NULL || j->parts == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %zu files", s->count);
  for (; j->count < s->count; j->count++) {
    j->parts[j->count].path = strdup(s->paths[j->count]);
    if (j->parts[j->count].path == NULL)
      return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %zu files", s->count);
  }
  return STOW_OK;
}

stow_status shards_open_arrays(source *from, const shards *s, const array_spec *spec) {
  joined *j = calloc(1, sizeof *j);
  *from = (source){.fd = -1, .direct_fd = -1, .name = s->paths[0]};
  if (j == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %zu files", s->count);
  j->header = BUFFER_INIT;
  if (spec != NULL) j->spec = *spec;
  array first = {0};
  uint64_t identity = 0;
  stow_status status = take_paths(j, s);
  if (status == STOW_OK) status = look(j, &first, &identity);
  if (status != STOW_OK) {
    close_joined(j);
    return status;
  }
  const shard *last = &j->parts[j->count - 1];
  source_reader reader = {
      .read = read_joined, .check = check_joined, .close = close_joined, .user = j};
  source_open_reader(from, &reader, j->header.length + last->start + last->bytes, j->name);
  from->changed_ns = identity;
  return STOW_OK;
}
