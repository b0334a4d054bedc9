/* Diff: how two models differ (inspect.h). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/size.h>

#include "base/hash.h"
#include "base/list.h"
#include "base/table.h"
#include "base/text.h"
#include "data/weights/inspect.h"
#include "data/weights/parts.h"
#include "data/weights/text.h"
#include "numbers/cast.h"

#define CHUNK_VALUES 65536
#define ROWS_MAX     30

typedef struct buffers {
  uint8_t *bytes[2];
  float *values[2];
  double *doubles[2];
} buffers;

static stow_status read_part(model *m, const model_tensor *t, uint64_t first, size_t count,
                             uint8_t *bytes) {
  return source_read(&m->files[t->file].from,
                     t->facts->offset + tensor_type_bytes(t->facts->stored, first), bytes,
                     (size_t)tensor_type_bytes(t->facts->stored, count));
}

/* Returns whether a tensor's values mean something by themselves: not those of a layer that has
 * scales beside it. */
static bool has_values(const tensor *t, const packed_layers *p) {
  if (packed_holds(p, t) && !tensor_type_is_float(t->stored)) return false;
  return weights_can_decode(t->stored) || tensor_type_get(t->stored)->type != DTYPE_NONE;
}

/* Returns whether float32 holds every value of the type. */
static bool fits_float(tensor_type t) {
  return weights_can_decode(t) && t != TENSOR_F64;
}

static void to_doubles(tensor_type t, const void *bytes, size_t count, buffers *m, int which) {
  dtype type = tensor_type_get(t)->type;
  if (type == DTYPE_NONE) {
    weights_decode(t, bytes, count, m->values[which]);
    bytes = m->values[which];
    type = DTYPE_F32;
  }
  (void)cast_values(m->doubles[which], DTYPE_F64, bytes, type, count);
}

/* Returns the difference of two 64-bit integers, of which float64 may lose the last digits. */
static double difference_64(tensor_type t, const uint8_t *a, const uint8_t *b) {
  uint64_t x, y;
  memcpy(&x, a, sizeof x);
  memcpy(&y, b, sizeof y);
  bool more = t == TENSOR_U64 ? x > y : (int64_t)x > (int64_t)y;
  return (double)(more ? x - y : y - x);
}

/* NaN is equal to NaN here. */
static bool differs(double a, double b) {
  return a != b && !(isnan(a) && isnan(b));
}

/* Adds the differences of values that float32 does not hold. */
static void add_doubles(diff_item *item, const tensor *a, const tensor *b, size_t count,
                        buffers *m) {
  tensor_type type = a->stored;
  bool whole = type == b->stored && (type == TENSOR_I64 || type == TENSOR_U64);
  quant_error *e = &item->error;
  to_doubles(a->stored, m->bytes[0], count, m, 0);
  to_doubles(b->stored, m->bytes[1], count, m, 1);
  for (size_t i = 0; i < count; i++) {
    double x = m->doubles[0][i], y = m->doubles[1][i], error = fabs(x - y);
    if (!isfinite(x) || !isfinite(y)) {
      item->not_finite += differs(x, y);
      continue;
    }
    if (whole) error = difference_64(type, m->bytes[0] + 8 * i, m->bytes[1] + 8 * i);
    e->sum_squares += x * x;
    e->sum_error_squares += error * error;
    if (error > e->max_error) e->max_error = error;
  }
  e->values += count;
}

static void add_floats(diff_item *item, const tensor *a, const tensor *b, size_t count,
                       buffers *m) {
  const float *x = m->values[0], *y = m->values[1];
  uint64_t before = item->error.clipped + item->error.not_finite;
  weights_decode(a->stored, m->bytes[0], count, m->values[0]);
  weights_decode(b->stored, m->bytes[1], count, m->values[1]);
  quant_error_add(&item->error, x, y, count);
  if (item->error.clipped + item->error.not_finite == before) return;
  for (size_t i = 0; i < count; i++)
    item->not_finite += (!isfinite(x[i]) || !isfinite(y[i])) && differs((double)x[i], (double)y[i]);
}

/* Compares the bytes if the types are equal, and the values if both types have values. */
static stow_status compare_values(model_diff *d, diff_item *item, const model_tensor *a,
                                  const model_tensor *b, buffers *m) {
  const tensor *x = a->facts, *y = b->facts;
  bool alike = x->stored == y->stored, equal = true;
  bool values = has_values(x, &d->packed[0]) && has_values(y, &d->packed[1]);
  bool floats = fits_float(x->stored) && fits_float(y->stored);
  for (uint64_t first = 0; first < x->count; first += CHUNK_VALUES) {
    uint64_t rest = x->count - first;
    size_t count = (size_t)(rest < CHUNK_VALUES ? rest : CHUNK_VALUES);
    STOW_TRY(read_part(&d->a, a, first, count, m->bytes[0]));
    STOW_TRY(read_part(&d->b, b, first, count, m->bytes[1]));
    size_t bytes = (size_t)tensor_type_bytes(x->stored, count);
    equal = equal && alike && memcmp(m->bytes[0], m->bytes[1], bytes) == 0;
    if (values && floats)
      add_floats(item, x, y, count, m);
    else if (values)
      add_doubles(item, x, y, count, m);
  }
  item->kind = equal ? DIFF_SAME : alike ? DIFF_VALUES : DIFF_TYPE;
  return STOW_OK;
}

static stow_status add(model_diff *d, diff_item item) {
  STOW_TRY(LIST_ROOM(d->items, d->count, d->capacity, 64, "tensors"));
  d->items[d->count++] = item;
  return STOW_OK;
}

static bool same_shape(const tensor *a, const tensor *b) {
  return a->dims == b->dims && memcmp(a->shape, b->shape, a->dims * sizeof a->shape[0]) == 0;
}

static stow_status compare_all(model_diff *d, buffers *m, const budget *b) {
  map places = {0};
  stow_status status = STOW_OK;
  uint64_t done = 0;
  for (size_t i = 0; i < d->b.count && status == STOW_OK; i++) {
    const char *name = d->b.list[i].facts->name;
    status = map_put(&places, hash_bytes(name, strlen(name), 0), i);
  }
  for (size_t i = 0; i < d->a.count && status == STOW_OK; i++) {
    const model_tensor *a = &d->a.list[i];
    uint64_t hash = hash_bytes(a->facts->name, strlen(a->facts->name), 0), found;
    diff_item item = {.a = a->facts, .kind = DIFF_ONLY_A};
    const model_tensor *other = NULL;
    if (map_remove(&places, hash, &found)) other = &d->b.list[found];
    if (other != NULL) {
      item.b = other->facts;
      if (!same_shape(item.a, item.b))
        item.kind = DIFF_SHAPE;
      else
        status = compare_values(d, &item, a, other, m);
    }
    done += a->facts->bytes;
    if (status == STOW_OK) status = add(d, item);
    if (status == STOW_OK) status = budget_report(b, done, d->a.bytes);
  }
  for (size_t i = 0; i < d->b.count && status == STOW_OK; i++) {
    const char *name = d->b.list[i].facts->name;
    if (map_get(&places, hash_bytes(name, strlen(name), 0)) != NULL)
      status = add(d, (diff_item){.b = d->b.list[i].facts, .kind = DIFF_ONLY_B});
  }
  map_free(&places);
  return status;
}

/* Returns whether a tensor differs and nothing is known of how much. */
static bool is_unknown(const diff_item *item) {
  return (item->kind == DIFF_VALUES || item->kind == DIFF_TYPE) && item->a->count > 0 &&
         item->error.values == 0;
}

stow_status model_compare(model_diff *d, const char *a, const char *b, const budget *limit) {
  *d = (model_diff){0};
  buffers m = {{malloc(CHUNK_VALUES * 8), malloc(CHUNK_VALUES * 8)},
               {malloc(CHUNK_VALUES * 4), malloc(CHUNK_VALUES * 4)},
               {malloc(CHUNK_VALUES * 8), malloc(CHUNK_VALUES * 8)}};
  stow_status status = STOW_OK;
  for (int i = 0; i < 2; i++)
    if (m.bytes[i] == NULL || m.values[i] == NULL || m.doubles[i] == NULL)
      status = stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to compare");
  if (status == STOW_OK) status = model_open(&d->a, a, limit->bytes / 8);
  if (status == STOW_OK) status = model_open(&d->b, b, limit->bytes / 8);
  if (status == STOW_OK) status = packed_find(&d->packed[0], &d->a);
  if (status == STOW_OK) status = packed_find(&d->packed[1], &d->b);
  if (status == STOW_OK) status = compare_all(d, &m, limit);
  if (status == STOW_OK) status = model_check(&d->a);
  if (status == STOW_OK) status = model_check(&d->b);
  for (int i = 0; i < 2; i++) {
    free(m.bytes[i]);
    free(m.values[i]);
    free(m.doubles[i]);
  }
  for (size_t i = 0; i < d->count; i++) {
    d->error.sum_squares += d->items[i].error.sum_squares;
    d->error.sum_error_squares += d->items[i].error.sum_error_squares;
    if (d->items[i].error.max_error > d->error.max_error)
      d->error.max_error = d->items[i].error.max_error;
    d->error.values += d->items[i].error.values;
    d->not_finite += d->items[i].not_finite;
    d->not_compared += is_unknown(&d->items[i]);
  }
  if (status != STOW_OK) model_diff_free(d);
  return status;
}

void model_diff_free(model_diff *d) {
  free(d->items);
  packed_free(&d->packed[0]);
  packed_free(&d->packed[1]);
  model_close(&d->a);
  model_close(&d->b);
  *d = (model_diff){0};
}

bool model_diff_equal(const model_diff *d) {
  for (size_t i = 0; i < d->count; i++)
    if (d->items[i].kind != DIFF_SAME) return false;
  return true;
}

static const char *const kind_names[] = {
    [DIFF_SAME] = "same",   [DIFF_TYPE] = "type",     [DIFF_VALUES] = "values",
    [DIFF_SHAPE] = "shape", [DIFF_ONLY_A] = "only A", [DIFF_ONLY_B] = "only B"};

/* Returns the relative error; NaN if all values of A are 0 and those of B are not. */
static double relative(const quant_error *e) {
  return e->sum_squares > 0 || e->sum_error_squares == 0 ? weights_relative_error(e) : NAN;
}

static int by_difference(const void *a, const void *b) {
  const diff_item *x = *(const diff_item *const *)a, *y = *(const diff_item *const *)b;
  if (x->kind != y->kind) return (int)y->kind - (int)x->kind;
  if (x->not_finite != y->not_finite) return x->not_finite < y->not_finite ? 1 : -1;
  double p = relative(&x->error), q = relative(&y->error);
  if (isnan(p) || isnan(q)) return isnan(q) - isnan(p);
  return p < q ? 1 : p > q ? -1 : 0;
}

static void error_cells(table *t, const diff_item *item) {
  double rms = relative(&item->error);
  if (item->error.values == 0 || item->not_finite > 0 || isnan(rms))
    table_cell(t, "-");
  else
    table_printf(t, "%.3g%%", 100 * rms);
  if (item->not_finite > 0)
    table_cell(t, "not finite");
  else if (item->error.values > 0)
    table_printf(t, "%.3g", item->error.max_error);
  else
    table_cell(t, "-");
}

/* Writes the sum of all differences, and what it leaves out. */
static void total_text(buffer *to, const model_diff *d) {
  double rms = relative(&d->error);
  if (d->error.sum_error_squares > 0) {
    buffer_text(to, "difference: ");
    if (!isnan(rms)) buffer_printf(to, "%.3g%% RMS, ", 100 * rms);
    buffer_printf(to, "at most %.3g%s\n", d->error.max_error,
                  isnan(rms) ? "; all values of A are 0" : "");
  }
  if (d->not_finite > 0)
    buffer_printf(to, "not finite: %" PRIu64 " value%s where A or B has NaN or infinity%s\n",
                  d->not_finite, d->not_finite == 1 ? " differs" : "s differ",
                  d->error.sum_error_squares > 0 ? ", not counted above" : "");
  if (d->not_compared > 0)
    buffer_printf(to,
                  "not compared: the values of %" PRIu64 " tensor%s, packed with scales or of "
                  "a type without values\n",
                  d->not_compared, text_s(d->not_compared));
}

static void rows_text(buffer *to, const model_diff *d, bool bold) {
  table t = TABLE_INIT(6, 1u << 4 | 1u << 5);
  const diff_item **order = calloc(d->count + 1, sizeof *order);
  size_t count = 0;
  if (order == NULL) {
    to->status = stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
    return;
  }
  for (size_t i = 0; i < d->count; i++)
    if (d->items[i].kind != DIFF_SAME) order[count++] = &d->items[i];
  qsort(order, count, sizeof *order, by_difference);
  static const char *const heads[] = {"tensor", "differs", "A", "B", "RMS", "max"};
  for (size_t i = 0; i < 6; i++) table_cell(&t, heads[i]);
  for (size_t i = 0; i < count && i < ROWS_MAX; i++) {
    const diff_item *one = order[i];
    char name[512];
    table_cell(&t, text_show(name, sizeof name, (one->a != NULL ? one->a : one->b)->name));
    table_cell(&t, kind_names[one->kind]);
    table_cell(&t, one->a != NULL ? one->a->type_name : "-");
    table_cell(&t, one->b != NULL ? one->b->type_name : "-");
    error_cells(&t, one);
  }
  if (count > 0)
    table_write(&t, to, 2, bold);
  else
    buffer_free(&t.cells);
  if (count > ROWS_MAX)
    buffer_printf(to, "  … and %zu more (--json lists all)\n", count - ROWS_MAX);
  free(order);
}

stow_status model_diff_text(buffer *to, const model_diff *d, const char *a, const char *b,
                            bool bold) {
  char name[2][TEXT_PATH_MAX];
  uint64_t counts[6] = {0};
  for (size_t i = 0; i < d->count; i++) counts[d->items[i].kind]++;
  buffer_printf(to, "A is %s, B is %s\n", text_show(name[0], sizeof name[0], a),
                text_show(name[1], sizeof name[1], b));
  rows_text(to, d, bold);
  buffer_printf(to,
                "%" PRIu64 " tensor%s the same, %" PRIu64 " differ in values, %" PRIu64
                " in type, %" PRIu64 " in shape; %" PRIu64 " only in A, %" PRIu64 " only in B\n",
                counts[DIFF_SAME], counts[DIFF_SAME] == 1 ? " is" : "s are", counts[DIFF_VALUES],
                counts[DIFF_TYPE], counts[DIFF_SHAPE], counts[DIFF_ONLY_A], counts[DIFF_ONLY_B]);
  total_text(to, d);
  return to->status;
}

/* Writes the figures; null for what is not known. */
static void json_errors(json *j, const quant_error *e, bool known) {
  json_key(j, "relative_rms_error"), json_double(j, known ? relative(e) : NAN);
  json_key(j, "max_error"), json_double(j, known ? e->max_error : NAN);
}

void model_diff_json(json *j, const model_diff *d, const char *a, const char *b) {
  char name[TEXT_PATH_MAX];
  json_begin_object(j);
  json_key(j, "a"), json_text(j, text_show(name, sizeof name, a));
  json_key(j, "b"), json_text(j, text_show(name, sizeof name, b));
  json_key(j, "equal"), json_bool(j, model_diff_equal(d));
  bool known =
      model_diff_equal(d) || (d->error.values > 0 && d->not_finite == 0 && d->not_compared == 0);
  json_errors(j, &d->error, known);
  json_number(j, "not_finite", d->not_finite);
  json_number(j, "not_compared", d->not_compared);
  json_key(j, "tensors");
  json_begin_array(j);
  for (size_t i = 0; i < d->count; i++) {
    const diff_item *one = &d->items[i];
    json_begin_object(j);
    json_key(j, "name"), json_text(j, (one->a != NULL ? one->a : one->b)->name);
    json_key(j, "differs"), json_text(j, kind_names[one->kind]);
    json_key(j, "dtype_a"), json_text(j, one->a != NULL ? one->a->type_name : NULL);
    json_key(j, "dtype_b"), json_text(j, one->b != NULL ? one->b->type_name : NULL);
    json_errors(j, &one->error,
                one->kind == DIFF_SAME || (one->error.values > 0 && one->not_finite == 0));
    json_number(j, "not_finite", one->not_finite);
    json_end_object(j);
  }
  json_end_array(j);
  json_end_object(j);
}
