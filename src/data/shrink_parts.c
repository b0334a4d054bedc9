/* Shrink's parts: see shrink_parts.h. */
#include "data/shrink_parts.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32.h"
#include "data/ranges.h"
#include "data/team.h"
#include "numbers/cast.h"

enum { CHUNK_BYTES = 256 << 10, LOSS_RUN = 1024, PAGE_BYTES = 4096 };

/* ---- archives ---- */

void archive_begin(archive *a, writer *to, checkpoint *c) {
  uint64_t place;
  size_t bytes;
  zip_out_begin(&a->zip, to);
  a->checkpoint = c;
  a->zip.resumed = checkpoint_get(c, STEP_ARCHIVE, &place, &bytes);
  a->zip.resumed_count = bytes / sizeof(zip_out_mark);
  /* Our own next note would overwrite these. */
  zip_out_mark *marks = bytes > 0 ? malloc(bytes) : NULL;
  if (marks != NULL) memcpy(marks, a->zip.resumed, bytes);
  if (marks == NULL) a->zip.resumed_count = 0;
  a->zip.resumed = marks;
}

stow_status archive_end(archive *a, stow_status status) {
  if (status == STOW_OK) status = zip_out_finish(&a->zip);
  free((void *)(uintptr_t)a->zip.resumed);
  zip_out_free(&a->zip);
  return status;
}

stow_status archive_note(archive *a) {
  size_t count = a->zip.count;
  if (!checkpoint_due(a->checkpoint)) return STOW_OK;
  zip_out_mark *marks = calloc(count + 1, sizeof *marks);
  if (marks == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  for (size_t i = 0; i < count; i++) marks[i] = zip_out_marked(&a->zip, i);
  stow_status status =
      checkpoint_note(a->checkpoint, STEP_ARCHIVE, count, marks, count * sizeof *marks);
  free(marks);
  return status;
}

uint64_t sink_behind(const sink *s) {
  return s->archive != NULL && !s->part ? s->archive->zip.members[s->member].behind : 0;
}

void sink_pass(sink *s, uint64_t count) {
  if (s->archive != NULL) zip_out_pass(&s->archive->zip, s->member, count);
}

/* ---- sinks ---- */

static stow_status write_part(sink *s, const void *bytes, size_t count) {
  STOW_TRY(zip_out_put(&s->archive->zip, s->member, s->offset, bytes, count));
  s->crc = crc32_add(s->crc, bytes, count);
  s->offset += count;
  return STOW_OK;
}

stow_status sink_write(sink *s, const void *bytes, size_t count) {
  if (s->part) return write_part(s, bytes, count);
  if (s->archive != NULL) {
    STOW_TRY(zip_out_write(&s->archive->zip, s->member, bytes, count));
    return archive_note(s->archive);
  }
  STOW_TRY(writer_write(s->file, s->offset, bytes, count));
  s->offset += count;
  return STOW_OK;
}

/* Returns the error of a value. NaN and infinities are preserved without loss; a finite value that
 * became infinite is lost whatever the tolerance. */
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

/* Accumulated over all values; saved in checkpoints, sent to other ranks. */
typedef struct cast_state {
  scan values;
  loss loss;
} cast_state;

typedef struct cast_job {
  dtype to;
  sink *sink;  /* NULL: only measure */
  bool direct; /* the sink is a file: every thread writes its values at their offset */
  bool scans, measures;
  pthread_mutex_t lock;
  cast_state state; /* guarded by lock */
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
  if (a->type == c->to || (c->sink == NULL && l == NULL)) return write_chunk(c, from, first, count);
  if (l != NULL && l->exactly) {
    l->exceeded = !cast_exactly(made, c->to, from, a->type, count);
    if (l->exceeded) return STOW_OK;
  } else {
    STOW_TRY(cast_values(made, c->to, from, a->type, count));
    if (l != NULL) loss_add(l, from, a->type, made, c->to, count);
  }
  return write_chunk(c, made, first, count);
}

/* Shortens a chunk so that the next one starts at a page boundary: partial pages cost the kernel
 * twice. */
static size_t to_boundary(const cast_job *c, uint64_t first, size_t count) {
  size_t width = dtype_bytes(c->to);
  uint64_t end = c->sink->offset + (first + count) * width, past = end % PAGE_BYTES;
  return past % width == 0 && past / width < count ? count - past / width : count;
}

static stow_status cast_range(void *context, range *r) {
  cast_job *c = context;
  array *a = r->a;
  scan values;
  loss l = {.tolerance = c->state.loss.tolerance,
            .relative = c->state.loss.relative,
            .exactly = c->state.loss.exactly};
  char *from = aligned_alloc(64, 2 * CHUNK_BYTES);
  if (from == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", a->name);
  size_t wide = a->item_bytes > dtype_bytes(c->to) ? a->item_bytes : dtype_bytes(c->to);
  size_t step = CHUNK_BYTES / wide;
  stow_status status = scan_begin(&values, a->type);
  for (uint64_t first = r->first; first < r->end && status == STOW_OK;) {
    size_t count = r->end - first < step ? (size_t)(r->end - first) : step;
    if (c->direct) count = to_boundary(c, first, count);
    status = cast_chunk(c, a, c->scans ? &values : NULL, c->measures ? &l : NULL, from,
                        from + CHUNK_BYTES, first, count);
    first += count;
    if (status == STOW_OK) status = range_report(r, count * a->item_bytes);
    if (l.exceeded && (c->sink == NULL || l.exactly)) break;
  }
  free(from);
  pthread_mutex_lock(&c->lock);
  if (c->scans) scan_join(&c->state.values, &values);
  if (l.worst > c->state.loss.worst) c->state.loss.worst = l.worst;
  c->state.loss.exceeded = c->state.loss.exceeded || l.exceeded;
  pthread_mutex_unlock(&c->lock);
  return status;
}

stow_status loss_join(loss *l, const budget *b, stow_status status) {
  team *t = b->team;
  if (team_alone(t)) return status;
  loss *all = calloc(t->size, sizeof *all);
  if (!team_all(t, status == STOW_OK && all != NULL) || all == NULL) {
    free(all);
    return status != STOW_OK ? status : stow_fail(STOW_ERR_IO, "another rank failed");
  }
  status = team_gather(t, l, all, sizeof *all);
  for (unsigned i = 0; i < t->size && status == STOW_OK; i++) {
    if (all[i].worst > l->worst) l->worst = all[i].worst;
    l->exceeded = l->exceeded || all[i].exceeded;
  }
  free(all);
  return status;
}

stow_status shrink_agree(const job *j, stow_status status) {
  team *t = j->budget->team;
  status = team_agree(t, status);
  if (t != NULL) t->broken = false;
  return status;
}

/* Sets the length of the file, whoever wrote the values. */
static stow_status end_file(const job *j, sink *s, uint64_t bytes) {
  s->offset += bytes;
  s->file->bytes = s->offset;
  return team_leads(j->budget->team) ? writer_end(s->file, s->offset) : STOW_OK;
}

static uint64_t cast_step(const job *j, dtype to, bool writes) {
  return STEP_OF(STEP_CASTS + 2 * (unsigned)to + writes, j->item);
}

void shrink_measured(job *j, dtype to) {
  checkpoint_clear(j->budget->checkpoint, cast_step(j, to, false));
}

stow_status shrink_values(job *j, array *a, dtype to, sink *s, scan *values, loss *l) {
  budget b = *j->budget;
  cast_job c = {.to = to, .sink = s, .scans = values != NULL, .measures = l != NULL};
  pthread_mutex_init(&c.lock, NULL);
  STOW_TRY(scan_begin(&c.state.values, a->type));
  if (l != NULL) c.state.loss = *l;
  c.direct = s != NULL && s->archive == NULL;
  if (s != NULL && !c.direct) b.threads = 1; /* a sink takes bytes in order */
  ranges_job work = {.budget = &b,
                     .done = &j->done,
                     .total = j->total,
                     .work = cast_range,
                     .context = &c,
                     .step = c.direct || s == NULL ? cast_step(j, to, s != NULL) : 0,
                     .state = &c.state,
                     .state_bytes = sizeof c.state};
  if (s != NULL && !c.direct) { /* already written */
    work.from = sink_behind(s) / dtype_bytes(to);
    sink_pass(s, work.from * dtype_bytes(to));
  }
  stow_status status = ranges_run(a, &work);
  pthread_mutex_destroy(&c.lock);
  STOW_TRY(status);
  if (values != NULL) {
    *values = c.state.values;
    STOW_TRY(inspect_join(values, &b));
  }
  if (l != NULL) {
    *l = c.state.loss;
    STOW_TRY(loss_join(l, &b, STOW_OK));
  }
  return s != NULL && c.direct ? end_file(j, s, a->count * dtype_bytes(to)) : STOW_OK;
}

stow_status shrink_header(sink *s, const char *descr, bool fortran, const uint64_t *shape,
                          uint32_t dims) {
  buffer b = BUFFER_INIT;
  stow_status status = npy_write_header_as(&b, descr, fortran, shape, dims);
  if (status == STOW_OK) status = sink_write(s, b.data, b.length);
  buffer_free(&b);
  return status;
}

stow_status shrink_header_bytes(uint64_t *bytes, const char *descr, bool fortran,
                                const uint64_t *shape, uint32_t dims) {
  buffer b = BUFFER_INIT;
  stow_status status = npy_write_header_as(&b, descr, fortran, shape, dims);
  *bytes = b.length;
  buffer_free(&b);
  return status;
}

stow_status shrink_member(archive *z, sink *s, const char *name, const char *descr, bool fortran,
                          const uint64_t *shape, uint32_t dims, uint64_t item_bytes, bool deflate) {
  uint64_t bytes = item_bytes, header;
  for (uint32_t i = 0; i < dims; i++) bytes *= shape[i];
  STOW_TRY(shrink_header_bytes(&header, descr, fortran, shape, dims));
  bytes += header;
  *s = (sink){.archive = z};
  STOW_TRY(zip_out_add(&z->zip, &s->member, name, bytes, deflate));
  return shrink_header(s, descr, fortran, shape, dims);
}

stow_status shrink_bytes(archive *z, sink *s, const char *name, uint64_t bytes, bool deflate) {
  *s = (sink){.archive = z};
  return zip_out_add(&z->zip, &s->member, name, bytes, deflate);
}
