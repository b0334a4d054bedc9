/* Shrink's parts: see shrink_parts.h. */
#include "data/shrink_parts.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "data/ranges.h"
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

typedef struct cast_job {
  dtype to;
  sink *sink;  /* NULL: only looked at */
  bool direct; /* the sink is a file: every thread writes where its values belong */
  pthread_mutex_t lock;
  scan *values; /* guarded by lock; NULL: not wanted */
  loss *loss;   /* the same */
} cast_job;

static stow_status write_chunk(const cast_job *c, const char *made, uint64_t first, size_t count) {
  size_t width = dtype_bytes(c->to);
  if (c->sink == NULL) return STOW_OK;
  if (!c->direct) return sink_write(c->sink, made, count * width);
  return writer_put(c->sink->file, c->sink->offset + first * width, made, count * width);
}

static stow_status cast_chunk(const cast_job *c, array *a, scan *values, loss *l, char *from,
                              char *made, uint64_t first, size_t count) {
  STOW_TRY(array_read(a, first, from, count));
  if (values != NULL) scan_add(values, from, count);
  const char *out = from;
  if (a->type != c->to && (c->sink != NULL || l != NULL)) {
    STOW_TRY(cast_values(made, c->to, from, a->type, count));
    out = made;
  }
  if (l != NULL && out == made) loss_add(l, from, a->type, made, c->to, count);
  return write_chunk(c, out, first, count);
}

static stow_status cast_range(void *context, range *r) {
  cast_job *c = context;
  array *a = r->a;
  scan values;
  loss l = c->loss != NULL ? *c->loss : (loss){0};
  char *from = aligned_alloc(64, 2 * CHUNK_BYTES);
  if (from == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", a->name);
  size_t wide = a->item_bytes > dtype_bytes(c->to) ? a->item_bytes : dtype_bytes(c->to);
  size_t step = CHUNK_BYTES / wide;
  stow_status status = scan_begin(&values, a->type);
  for (uint64_t first = r->first; first < r->end && status == STOW_OK;) {
    size_t count = r->end - first < step ? (size_t)(r->end - first) : step;
    status = cast_chunk(c, a, c->values != NULL ? &values : NULL, c->loss != NULL ? &l : NULL, from,
                        from + CHUNK_BYTES, first, count);
    first += count;
    if (status == STOW_OK) status = range_tell(r, count * a->item_bytes);
    if (l.exceeded && c->sink == NULL) break;
  }
  free(from);
  pthread_mutex_lock(&c->lock);
  if (c->values != NULL) scan_join(c->values, &values);
  if (c->loss != NULL && l.worst > c->loss->worst) c->loss->worst = l.worst;
  if (c->loss != NULL) c->loss->exceeded = c->loss->exceeded || l.exceeded;
  pthread_mutex_unlock(&c->lock);
  return status;
}

stow_status shrink_values(job *j, array *a, dtype to, sink *s, scan *values, loss *l) {
  cast_job c = {
      .to = to, .sink = s, .values = values, .loss = l, .lock = PTHREAD_MUTEX_INITIALIZER};
  budget alone = *j->budget;
  c.direct = s != NULL && s->archive == NULL && ranges_threads(a, j->budget) > 1;
  if (s != NULL && !c.direct) alone.threads = 1; /* a sink takes bytes in order */
  STOW_TRY(ranges_run(a, &alone, &j->done, j->total, cast_range, &c));
  if (!c.direct) return STOW_OK;
  s->offset += a->count * dtype_bytes(to);
  return writer_end(s->file, s->offset);
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
