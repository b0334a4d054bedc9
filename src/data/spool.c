/* Spool: see spool.h. */
#include "data/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/newfile.h"

enum { CHUNK_BYTES = 256 << 10 };

static stow_status refuse(const array *from, const char *what) {
  return stow_fail(STOW_ERR_IO,
                   "%s: shuffling it needs a copy of %" PRIu64
                   " bytes in %s, which %s: %s; set TMPDIR to another folder, or convert it once "
                   "with: stowage shrink",
                   from->name, from->bytes, newfile_folder(), what, strerror(errno));
}

static stow_status write_all(int fd, const char *bytes, size_t count) {
  while (count > 0) {
    ssize_t put = write(fd, bytes, count);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return STOW_ERR_IO;
    bytes += put;
    count -= (size_t)put;
  }
  return STOW_OK;
}

static stow_status copy(spool *s, array *from) {
  char *chunk = malloc(CHUNK_BYTES);
  if (chunk == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", from->name);
  size_t step = CHUNK_BYTES / from->item_bytes;
  stow_status status = STOW_OK;
  for (uint64_t first = 0; first < from->count && status == STOW_OK;) {
    size_t count = from->count - first < step ? (size_t)(from->count - first) : step;
    status = array_read(from, first, chunk, count);
    if (status == STOW_OK && write_all(s->fd, chunk, count * from->item_bytes) != STOW_OK)
      status = refuse(from, "has no space for it");
    first += count;
  }
  free(chunk);
  return status;
}

bool spool_can(const array *from) {
  return from->type != DTYPE_NONE && (!from->fortran_order || from->dims < 2) &&
         from->item_bytes <= CHUNK_BYTES;
}

stow_status spool_make(spool *s, array *from) {
  *s = (spool){.fd = -1, .type = from->type, .dims = from->dims};
  memcpy(s->shape, from->shape, sizeof s->shape);
  if (!spool_can(from))
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "%s: a deflated member of type %s%s cannot be shuffled within this budget; "
                     "convert it once with: stowage shrink",
                     from->name, from->descr, from->fortran_order ? " in Fortran order" : "");
  s->name = strdup(from->name);
  if (s->name == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", from->name);
  s->fd = newfile_unnamed(newfile_folder());
  if (s->fd < 0) return refuse(from, "cannot be written");
  stow_status status = copy(s, from);
  if (status != STOW_OK) spool_close(s);
  return status;
}

stow_status spool_origin(const spool *s, origin *o) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", s->fd);
  stow_array_options options = STOW_ARRAY_OPTIONS_INIT;
  options.path = path;
  options.raw_dtype = dtype_name(s->type);
  options.raw_shape = s->shape;
  options.raw_dims = s->dims;
  dtype to = o->to;
  origin_close(o);
  stow_status status = origin_open(o, &options);
  o->to = to;
  o->copy_of = s->name;
  o->in_order = true;
  return status;
}

void spool_close(spool *s) {
  if (s->fd >= 0) close(s->fd);
  s->fd = -1;
  free(s->name);
  s->name = NULL;
}
