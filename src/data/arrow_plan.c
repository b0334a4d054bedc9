/* Arrow: finds the smallest types for the columns of a stream, then casts another reading of the
 * same stream to them (stowage/arrow.h).
 *
 * A plan is shared by the streams it made: it is freed with the last of them. */
#include <stowage/arrow.h>

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/growing.h"
#include "data/arrow_parts.h"
#include "data/shrink_parts.h"
#include "numbers/cast.h"
#include "numbers/scan.h"

enum { CHUNK = 1024 }; /* values of a chunk on the stack */

typedef struct plan_column {
  dtype from, to;    /* DTYPE_NONE: not numbers */
  scan seen;         /* scan of the values that are not null */
  loss half, single; /* error of float16 and float32, measured if there is a tolerance */
  double error;
  uint64_t rows, nulls, bytes;
} plan_column;

struct stow_arrow_plan {
  atomic_uint references;
  stow_arrow_plan_options options;
  struct ArrowSchema from, to;
  plan_column *columns;
  size_t count;
};

static void plan_drop(stow_arrow_plan *p) {
  if (atomic_fetch_sub(&p->references, 1) != 1) return;
  arrow_schema_release(&p->from);
  arrow_schema_release(&p->to);
  free(p->columns);
  free(p);
}

static bool valid_at(const uint8_t *bits, int64_t at) {
  return bits == NULL || (bits[at >> 3] >> (at & 7) & 1) != 0;
}

/* ---- reading ---- */

static stow_status stream_failed(struct ArrowArrayStream *s, int error) {
  const char *why = s->get_last_error != NULL ? s->get_last_error(s) : NULL;
  return stow_fail(STOW_ERR_IO, "Arrow stream: %.400s",
                   why != NULL && why[0] != '\0' ? why : strerror(error));
}

/* Rejects batches that do not have the layout the schema promises. */
static stow_status check_batch(const stow_arrow_plan *p, const struct ArrowArray *a) {
  if (a->length < 0 || a->offset < 0 || a->n_children != (int64_t)p->count)
    return stow_fail(STOW_ERR_FORMAT, "Arrow stream: a batch of %" PRId64 " columns, not %zu",
                     a->n_children, p->count);
  if (a->null_count > 0)
    return stow_fail(STOW_ERR_UNSUPPORTED, "Arrow stream: a batch with null rows");
  for (size_t i = 0; i < p->count; i++) {
    const struct ArrowArray *c = a->children[i];
    bool numbers = p->columns[i].from != DTYPE_NONE;
    if (c->length < a->offset + a->length || c->offset < 0 ||
        (numbers && (c->n_buffers != 2 || (c->buffers[1] == NULL && c->length > 0))))
      return stow_fail(STOW_ERR_FORMAT, "Arrow stream: column %s: %" PRId64 " rows, not %" PRId64,
                       p->from.children[i]->name, c->length, a->offset + a->length);
  }
  return STOW_OK;
}

static void see_loss(const stow_arrow_plan *p, plan_column *c, const void *values, size_t count) {
  uint64_t small[CHUNK];
  if (p->options.tolerance <= 0 || dtype_kind(c->from) != CLASS_FLOAT) return;
  for (size_t at = 0; at < count; at += CHUNK) {
    size_t part = count - at < CHUNK ? count - at : CHUNK;
    const char *from = (const char *)values + at * dtype_bytes(c->from);
    cast_values(small, DTYPE_F16, from, c->from, part);
    loss_add(&c->half, from, c->from, small, DTYPE_F16, part);
    cast_values(small, DTYPE_F32, from, c->from, part);
    loss_add(&c->single, from, c->from, small, DTYPE_F32, part);
  }
}

static void see(const stow_arrow_plan *p, plan_column *c, scan *to, const void *values,
                size_t count) {
  scan_add(to, values, count);
  see_loss(p, c, values, count);
}

/* Adds the rows `from` to `from + rows` of a column to `to`. Ignores the bytes under a null. */
static uint64_t see_rows(const stow_arrow_plan *p, plan_column *c, scan *to,
                         const struct ArrowArray *a, int64_t from, int64_t rows) {
  size_t width = dtype_bytes(c->from), filled = 0;
  const uint8_t *bits = a->null_count == 0 ? NULL : a->buffers[0];
  const char *values = (const char *)a->buffers[1] + (size_t)(a->offset + from) * width;
  char chunk[CHUNK * sizeof(uint64_t)];
  uint64_t nulls = 0;
  if (bits == NULL) return see(p, c, to, values, (size_t)rows), 0;
  for (int64_t i = 0; i < rows; i++) {
    if (!valid_at(bits, a->offset + from + i)) {
      nulls++;
      continue;
    }
    memcpy(chunk + filled++ * width, values + (size_t)i * width, width);
    if (filled == CHUNK) see(p, c, to, chunk, filled), filled = 0;
  }
  if (filled > 0) see(p, c, to, chunk, filled);
  return nulls;
}

static uint64_t count_nulls(const struct ArrowArray *a, int64_t from, int64_t rows) {
  uint64_t nulls = 0;
  const uint8_t *bits = a->null_count == 0 || a->n_buffers == 0 ? NULL : a->buffers[0];
  for (int64_t i = 0; bits != NULL && i < rows; i++) nulls += !valid_at(bits, a->offset + from + i);
  return nulls;
}

static uint64_t plain_bytes(const struct ArrowSchema *s, const struct ArrowArray *a, int64_t from,
                            int64_t rows);

/* Returns the bytes of lists, maps and structs with what is in them; 0 for others (unions, views).
 */
static uint64_t nested_bytes(const struct ArrowSchema *s, const struct ArrowArray *a, int64_t at,
                             int64_t rows) {
  const char *format = s->format;
  uint64_t bytes = 0;
  if (a->n_children != s->n_children || s->n_children == 0) return 0;
  if (strcmp(format, "+s") == 0) {
    for (int64_t i = 0; i < s->n_children; i++)
      bytes += plain_bytes(s->children[i], a->children[i], at, rows);
    return bytes;
  }
  if (strncmp(format, "+w:", 3) == 0) {
    int64_t width = strtoll(format + 3, NULL, 10);
    return plain_bytes(s->children[0], a->children[0], at * width, rows * width);
  }
  bool wide = strcmp(format, "+L") == 0;
  if (!wide && strcmp(format, "+l") != 0 && strcmp(format, "+m") != 0) return 0;
  const int32_t *ends = a->buffers[1];
  const int64_t *wides = a->buffers[1];
  int64_t first = wide ? wides[at] : ends[at], end = wide ? wides[at + rows] : ends[at + rows];
  return (uint64_t)rows * (wide ? 8 : 4) +
         plain_bytes(s->children[0], a->children[0], first, end - first);
}

/* Returns the bytes of values, as far as their format defines them; 0: it does not. */
static uint64_t plain_bytes(const struct ArrowSchema *s, const struct ArrowArray *a, int64_t from,
                            int64_t rows) {
  const char *format = s->format;
  int64_t at = a->offset + from;
  if (rows == 0) return 0;
  if (format[0] == '+') return nested_bytes(s, a, at, rows);
  if (arrow_type(format) != DTYPE_NONE) return (uint64_t)rows * dtype_bytes(arrow_type(format));
  if (strncmp(format, "w:", 2) == 0) return (uint64_t)rows * strtoull(format + 2, NULL, 10);
  if (format[0] == 'b') return ((uint64_t)rows + 7) / 8;
  if (strcmp(format, "u") == 0 || strcmp(format, "z") == 0) {
    const int32_t *ends = a->buffers[1];
    return (uint64_t)(ends[at + rows] - ends[at]) + (uint64_t)rows * sizeof *ends;
  }
  if (strcmp(format, "U") == 0 || strcmp(format, "Z") == 0) {
    const int64_t *ends = a->buffers[1];
    return (uint64_t)(ends[at + rows] - ends[at]) + (uint64_t)rows * sizeof *ends;
  }
  if (strncmp(format, "vu", 2) == 0 || strncmp(format, "vz", 2) == 0) {
    uint64_t bytes = 16 * (uint64_t)rows;
    for (int64_t i = 0; i < a->n_buffers - 3; i++)
      bytes += (uint64_t)((const int64_t *)a->buffers[a->n_buffers - 1])[i];
    return bytes;
  }
  bool narrow =
      strcmp(format, "tdD") == 0 || strcmp(format, "tts") == 0 || strcmp(format, "ttm") == 0;
  if (format[0] == 't') return (uint64_t)rows * (narrow ? 4 : 8);
  if (format[0] == 'd') return (uint64_t)rows * 16;
  return 0;
}

static stow_status see_batch(stow_arrow_plan *p, const struct ArrowArray *a) {
  STOW_TRY(check_batch(p, a));
  for (size_t i = 0; i < p->count; i++) {
    plan_column *c = &p->columns[i];
    const struct ArrowArray *child = a->children[i];
    c->rows += (uint64_t)a->length;
    if (c->from != DTYPE_NONE) {
      c->nulls += see_rows(p, c, &c->seen, child, a->offset, a->length);
      c->bytes += (uint64_t)a->length * dtype_bytes(c->from);
    } else {
      c->nulls += count_nulls(child, a->offset, a->length);
      const struct ArrowSchema *s = p->from.children[i];
      dtype codes = s->dictionary != NULL ? arrow_type(s->format) : DTYPE_NONE;
      c->bytes += codes != DTYPE_NONE ? (uint64_t)a->length * dtype_bytes(codes)
                                      : plain_bytes(s, child, a->offset, a->length);
    }
  }
  return STOW_OK;
}

/* ---- choosing ---- */

/* Returns the smallest type of the same kind that holds every value. A column of nulls alone keeps
 * its type. */
static dtype choose(const stow_arrow_plan *p, plan_column *c) {
  static const dtype integers[] = {DTYPE_I8,  DTYPE_U8,  DTYPE_I16, DTYPE_U16,
                                   DTYPE_I32, DTYPE_U32, DTYPE_I64};
  static const dtype floats[] = {DTYPE_F16, DTYPE_F32};
  scan_purpose purpose = (scan_purpose)p->options.purpose;
  bool is_float = dtype_kind(c->from) == CLASS_FLOAT;
  const dtype *list = is_float ? floats : integers;
  size_t count = is_float ? 2 : sizeof integers / sizeof *integers;
  for (size_t i = 0; i < count && c->seen.count > 0; i++) {
    if (dtype_bytes(list[i]) >= dtype_bytes(c->from) || !scan_allows(purpose, list[i])) continue;
    if (scan_fits(&c->seen, list[i])) return list[i];
    const loss *l = list[i] == DTYPE_F16 ? &c->half : &c->single;
    if (is_float && p->options.tolerance > 0 && !l->exceeded) return c->error = l->worst, list[i];
  }
  return c->from;
}

static stow_status plan_types(stow_arrow_plan *p) {
  STOW_TRY(arrow_schema_copy(&p->to, &p->from));
  for (size_t i = 0; i < p->count; i++) {
    plan_column *c = &p->columns[i];
    if (c->from == DTYPE_NONE) continue;
    c->to = choose(p, c);
    char *format = strdup(arrow_format(c->to));
    if (format == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
    free((char *)(uintptr_t)p->to.children[i]->format);
    p->to.children[i]->format = format;
  }
  return STOW_OK;
}

static stow_status plan_begin(stow_arrow_plan *p, struct ArrowArrayStream *s) {
  int error = s->get_schema(s, &p->from);
  if (error != 0) return p->from.release = NULL, stream_failed(s, error);
  if (strcmp(p->from.format, "+s") != 0)
    return stow_fail(STOW_ERR_INVALID,
                     "Arrow stream: a stream of \"%.40s\", not of record batches; give a table",
                     p->from.format);
  p->count = (size_t)p->from.n_children;
  p->columns = calloc(p->count + 1, sizeof *p->columns);
  if (p->columns == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  for (size_t i = 0; i < p->count; i++) {
    const struct ArrowSchema *c = p->from.children[i];
    loss l = {.tolerance = p->options.tolerance, .relative = p->options.absolute == 0};
    p->columns[i] = (plan_column){.half = l, .single = l};
    if (c->dictionary == NULL) p->columns[i].from = p->columns[i].to = arrow_type(c->format);
    if (p->columns[i].from != DTYPE_NONE)
      STOW_TRY(scan_begin(&p->columns[i].seen, p->columns[i].from));
  }
  return STOW_OK;
}

static stow_status plan_read(stow_arrow_plan *p, struct ArrowArrayStream *s) {
  STOW_TRY(plan_begin(p, s));
  for (;;) {
    struct ArrowArray a = {0};
    int error = s->get_next(s, &a);
    if (error != 0) return stream_failed(s, error);
    if (a.release == NULL) return plan_types(p);
    stow_status status = see_batch(p, &a);
    arrow_array_release(&a);
    STOW_TRY(status);
  }
}

stow_status stow_arrow_plan_make(stow_arrow_plan **plan, struct ArrowArrayStream *stream,
                                 const stow_arrow_plan_options *options) {
  stow_arrow_plan_options known = STOW_ARROW_PLAN_OPTIONS_INIT;
  if (plan != NULL) *plan = NULL;
  if (plan == NULL || stream == NULL || stream->release == NULL)
    return stow_fail(STOW_ERR_INVALID, "stow_arrow_plan_make: no stream; it may be used once only");
  stow_status status = growing_read(&known, sizeof known, options, "stow_arrow_plan_options");
  if (status == STOW_OK && (known.purpose >= SCAN_PURPOSES || !(known.tolerance >= 0)))
    status = stow_fail(STOW_ERR_INVALID,
                       "stow_arrow_plan_make: invalid purpose %u or tolerance %g; use STOW_FOR_… "
                       "and a tolerance of at least 0",
                       known.purpose, known.tolerance);
  stow_arrow_plan *p = status == STOW_OK ? calloc(1, sizeof *p) : NULL;
  if (status == STOW_OK && p == NULL) status = stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  if (status == STOW_OK) {
    atomic_init(&p->references, 1);
    p->options = known;
    status = plan_read(p, stream);
    if (status != STOW_OK) plan_drop(p);
  }
  arrow_stream_release(stream);
  if (status == STOW_OK) *plan = p;
  return status;
}

void stow_arrow_plan_close(stow_arrow_plan *plan) {
  if (plan != NULL) plan_drop(plan);
}

stow_status stow_arrow_plan_get_column(const stow_arrow_plan *plan, uint64_t index,
                                       stow_arrow_column *column) {
  if (plan == NULL || column == NULL)
    return stow_fail(STOW_ERR_INVALID, "stow_arrow_plan_get_column: NULL");
  if (index >= plan->count)
    return stow_fail(STOW_ERR_NOT_FOUND, "column %" PRIu64 " of %zu", index, plan->count);
  const plan_column *c = &plan->columns[index];
  const struct ArrowSchema *s = plan->from.children[index];
  stow_arrow_column full = {.struct_bytes = sizeof full,
                            .scanned = c->from != DTYPE_NONE,
                            .name = s->name != NULL ? s->name : "",
                            .from_type = s->format,
                            .to_type = s->format,
                            .rows = c->rows,
                            .nulls = c->nulls,
                            .bytes = c->bytes,
                            .bytes_after = c->bytes,
                            .least = 1,
                            .error = c->error};
  if (full.scanned) {
    full.from_type = dtype_name(c->from);
    full.to_type = dtype_name(c->to);
    full.bytes_after = c->rows * dtype_bytes(c->to);
    full.nans = c->seen.nans;
    full.infs = c->seen.infs;
    full.zeros = c->seen.zeros;
    full.least = c->seen.least;
    full.most = c->seen.most;
  }
  return growing_write(column, &full, sizeof full, "stow_arrow_column");
}

/* ---- casting ---- */

typedef struct applied {
  stow_arrow_plan *plan;
  struct ArrowArrayStream from;
  uint64_t rows;  /* so far */
  char said[512]; /* the last error */
} applied;

/* Refuses values that the plan did not see: `from` is not the stream that was scanned. */
static stow_status check_values(const stow_arrow_plan *p, size_t i, const struct ArrowArray *a,
                                int64_t from, int64_t rows) {
  plan_column c = p->columns[i];
  scan now;
  if (c.error > 0) return STOW_OK; /* rounded as allowed */
  STOW_TRY(scan_begin(&now, c.from));
  stow_arrow_plan exact = {.columns = NULL};
  see_rows(&exact, &c, &now, a, from, rows);
  if (now.count == 0 || scan_fits(&now, c.to)) return STOW_OK;
  return stow_fail(STOW_ERR_INVALID,
                   "Arrow stream: column %s: a value does not fit %s; the data changed since it "
                   "was scanned",
                   p->from.children[i]->name, dtype_name(c.to));
}

/* Makes `to` the column `from` in another type, with its own bitmap that begins at bit 0. */
static stow_status cast_column(struct ArrowArray *to, const plan_column *c,
                               const struct ArrowArray *from) {
  STOW_TRY(arrow_array_make(to, from->length, 2, 0));
  const uint8_t *bits = from->null_count == 0 ? NULL : from->buffers[0];
  uint8_t *own = NULL;
  size_t rows = (size_t)from->length;
  if (bits != NULL) {
    own = arrow_buffer(to, 0, rows / 8 + 1);
    if (own == NULL) return STOW_ERR_HOST_MEMORY;
    memset(own, 0, rows / 8 + 1);
    for (size_t i = 0; i < rows; i++)
      if (valid_at(bits, from->offset + (int64_t)i)) own[i >> 3] |= (uint8_t)(1u << (i & 7));
  }
  to->null_count = bits == NULL ? 0 : from->null_count;
  void *values = arrow_buffer(to, 1, rows * dtype_bytes(c->to));
  if (values == NULL) return STOW_ERR_HOST_MEMORY;
  if (rows == 0) return STOW_OK;
  return cast_values(values, c->to,
                     (const char *)from->buffers[1] + (size_t)from->offset * dtype_bytes(c->from),
                     c->from, rows);
}

/* Moves or casts the columns of `from`, which is released with what is left in it. */
static stow_status cast_batch(const stow_arrow_plan *p, struct ArrowArray *to,
                              struct ArrowArray *from) {
  STOW_TRY(check_batch(p, from));
  STOW_TRY(arrow_array_make(to, from->length, 1, p->count));
  to->offset = from->offset;
  for (size_t i = 0; i < p->count; i++) {
    const plan_column *c = &p->columns[i];
    struct ArrowArray *child = from->children[i];
    if (c->from == c->to) {
      *to->children[i] = *child;
      child->release = NULL;
      continue;
    }
    STOW_TRY(check_values(p, i, child, from->offset, from->length));
    STOW_TRY(cast_column(to->children[i], c, child));
    arrow_array_release(child);
  }
  return STOW_OK;
}

static int applied_schema(struct ArrowArrayStream *s, struct ArrowSchema *out) {
  applied *a = s->private_data;
  stow_status status = arrow_schema_copy(out, &a->plan->to);
  if (status != STOW_OK) snprintf(a->said, sizeof a->said, "%s", stow_status_message());
  return arrow_errno(status);
}

/* Checks the number of rows: a stream that can be read only once yields nothing the second time. */
static stow_status check_rows(const applied *a) {
  uint64_t rows = a->plan->count > 0 ? a->plan->columns[0].rows : 0;
  if (a->plan->count == 0 || a->rows == rows) return STOW_OK;
  return stow_fail(STOW_ERR_INVALID,
                   "Arrow stream: %" PRIu64 " rows in the second reading, %" PRIu64
                   " in the first; give data that can be read twice, such as a table",
                   a->rows, rows);
}

static int applied_next(struct ArrowArrayStream *s, struct ArrowArray *out) {
  applied *a = s->private_data;
  struct ArrowArray from = {0};
  *out = (struct ArrowArray){0};
  int error = a->from.get_next(&a->from, &from);
  stow_status status = error != 0 ? stream_failed(&a->from, error) : STOW_OK;
  bool ended = status == STOW_OK && from.release == NULL;
  if (ended) status = check_rows(a);
  if (status == STOW_OK && ended) return 0;
  if (status == STOW_OK) {
    a->rows += (uint64_t)from.length;
    status = cast_batch(a->plan, out, &from);
    if (status != STOW_OK) arrow_array_release(out);
    arrow_array_release(&from);
  }
  if (status != STOW_OK) snprintf(a->said, sizeof a->said, "%s", stow_status_message());
  return error != 0 ? error : arrow_errno(status);
}

static const char *applied_error(struct ArrowArrayStream *s) {
  return ((applied *)s->private_data)->said;
}

static void applied_release(struct ArrowArrayStream *s) {
  applied *a = s->private_data;
  arrow_stream_release(&a->from);
  plan_drop(a->plan);
  free(a);
  s->release = NULL;
}

/* Checks that `from` has the names and formats of the plan. */
static stow_status check_schema(const stow_arrow_plan *p, struct ArrowArrayStream *from) {
  struct ArrowSchema s = {0};
  int error = from->get_schema(from, &s);
  if (error != 0) return stream_failed(from, error);
  bool same = s.n_children == p->from.n_children && strcmp(s.format, p->from.format) == 0;
  for (int64_t i = 0; same && i < s.n_children; i++)
    same = strcmp(s.children[i]->format, p->from.children[i]->format) == 0 &&
           (s.children[i]->dictionary == NULL) == (p->from.children[i]->dictionary == NULL);
  arrow_schema_release(&s);
  return same ? STOW_OK
              : stow_fail(STOW_ERR_INVALID,
                          "stow_arrow_plan_apply: the columns are not those of the plan");
}

stow_status stow_arrow_plan_apply(stow_arrow_plan *plan, struct ArrowArrayStream *to,
                                  struct ArrowArrayStream *from) {
  if (to != NULL) *to = (struct ArrowArrayStream){0};
  if (plan == NULL || to == NULL || from == NULL || from->release == NULL)
    return stow_fail(STOW_ERR_INVALID,
                     "stow_arrow_plan_apply: no stream; it may be used once only");
  stow_status status = check_schema(plan, from);
  applied *a = status == STOW_OK ? calloc(1, sizeof *a) : NULL;
  if (status == STOW_OK && a == NULL) status = stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  if (status != STOW_OK) return arrow_stream_release(from), status;
  *a = (applied){.plan = plan, .from = *from};
  from->release = NULL;
  atomic_fetch_add(&plan->references, 1);
  *to = (struct ArrowArrayStream){.get_schema = applied_schema,
                                  .get_next = applied_next,
                                  .get_last_error = applied_error,
                                  .release = applied_release,
                                  .private_data = a};
  return STOW_OK;
}
