/* Shrink's parts: see shrink_parts.h. */
#include "data/shrink_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "numbers/cast.h"

enum { CHUNK_BYTES = 256 << 10, LOSS_RUN = 1024 };

stow_status sink_write(sink *s, const void *bytes, size_t count) {
  if (s->archive != NULL) return zip_out_write(s->archive, s->member, bytes, count);
  STOW_TRY(writer_write(s->file, s->offset, bytes, count));
  s->offset += count;
  return STOW_OK;
}

/* NaN stays NaN and infinities stay infinite without loss; a finite value that became infinite is
 * lost whatever the tolerance. */
static double error_of(double x, double y, bool relative) {
  if (x == y || (isnan(x) && isnan(y))) return 0;
  double error = fabs(x - y);
  if (!isfinite(error)) return INFINITY;
  if (!relative) return error;
  return x == 0 ? INFINITY : error / fabs(x);
}

void loss_add(loss *l, const void *from, dtype from_type, const void *to, dtype to_type,
              size_t count) {
  double before[LOSS_RUN], after[LOSS_RUN];
  const char *x = from, *y = to;
  for (size_t run; count > 0; count -= run) {
    run = count < LOSS_RUN ? count : LOSS_RUN;
    cast_values(before, DTYPE_F64, x, from_type, run);
    cast_values(after, DTYPE_F64, y, to_type, run);
    for (size_t i = 0; i < run; i++) {
      double error = error_of(before[i], after[i], l->relative);
      if (error > l->worst) l->worst = error;
    }
    x += run * dtype_bytes(from_type);
    y += run * dtype_bytes(to_type);
  }
  l->exceeded = l->worst > l->tolerance;
}

static stow_status one_chunk(job *j, array *a, dtype to, sink *s, scan *values, loss *l, char *from,
                             char *made, uint64_t first, size_t count) {
  STOW_TRY(array_read(a, first, from, count));
  if (values != NULL) scan_add(values, from, count);
  const char *out = from;
  if (a->type != to && (s != NULL || l != NULL)) {
    STOW_TRY(cast_values(made, to, from, a->type, count));
    out = made;
  }
  if (l != NULL && out == made) loss_add(l, from, a->type, made, to, count);
  if (s != NULL) STOW_TRY(sink_write(s, out, count * dtype_bytes(to)));
  j->done += count * a->item_bytes;
  return budget_tell(j->budget, j->done, j->total);
}

stow_status shrink_values(job *j, array *a, dtype to, sink *s, scan *values, loss *l) {
  char *from = aligned_alloc(64, 2 * CHUNK_BYTES);
  if (from == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", a->name);
  size_t wide = a->item_bytes > dtype_bytes(to) ? a->item_bytes : dtype_bytes(to);
  size_t step = CHUNK_BYTES / wide;
  stow_status status = STOW_OK;
  for (uint64_t first = 0; first < a->count && status == STOW_OK;) {
    size_t count = a->count - first < step ? (size_t)(a->count - first) : step;
    status = one_chunk(j, a, to, s, values, l, from, from + CHUNK_BYTES, first, count);
    first += count;
    if (l != NULL && l->exceeded && s == NULL) break;
  }
  free(from);
  return status;
}

stow_status shrink_header(sink *s, const char *descr, bool fortran, const uint64_t *shape,
                          uint32_t dims) {
  buffer b = BUFFER_INIT;
  stow_status status = npy_write_header_as(&b, descr, fortran, shape, dims);
  if (status == STOW_OK) status = sink_write(s, b.data, b.length);
  buffer_free(&b);
  return status;
}

uint64_t shrink_header_bytes(const char *descr, bool fortran, const uint64_t *shape,
                             uint32_t dims) {
  buffer b = BUFFER_INIT;
  uint64_t bytes = npy_write_header_as(&b, descr, fortran, shape, dims) == STOW_OK ? b.length : 0;
  buffer_free(&b);
  return bytes;
}

stow_status shrink_member(zip_out *z, sink *s, const char *name, const char *descr, bool fortran,
                          const uint64_t *shape, uint32_t dims, uint64_t item_bytes, bool deflate) {
  uint64_t bytes = item_bytes;
  for (uint32_t i = 0; i < dims; i++) bytes *= shape[i];
  bytes += shrink_header_bytes(descr, fortran, shape, dims);
  *s = (sink){.archive = z};
  STOW_TRY(zip_out_add(z, &s->member, name, bytes, deflate));
  return shrink_header(s, descr, fortran, shape, dims);
}
