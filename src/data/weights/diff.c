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

#define CHUNK_VALUES 65536
#define ROWS_MAX     30

typedef struct buffers {
  uint8_t *bytes[2];
  float *values[2];
} buffers;

static stow_status read_part(model *m, const model_tensor *t, uint64_t first, size_t count,
                             uint8_t *bytes) {
  return source_read(&m->files[t->file].from,
                     t->facts->offset + tensor_type_bytes(t->facts->stored, first), bytes,
                     (size_t)tensor_type_bytes(t->facts->stored, count));
}

/* Compares the bytes if the types are equal, otherwise the values. */
static stow_status compare_values(model_diff *d, diff_item *item, const model_tensor *a,
                                  const model_tensor *b, buffers *m) {
  bool alike = a->facts->stored == b->facts->stored, equal = true;
  bool values = weights_can_decode(a->facts->stored) && weights_can_decode(b->facts->stored);
  for (uint64_t first = 0; first < a->facts->count; first += CHUNK_VALUES) {
    uint64_t rest = a->facts->count - first;
    size_t count = (size_t)(rest < CHUNK_VALUES ? rest : CHUNK_VALUES);
    STOW_TRY(read_part(&d->a, a, first, count, m->bytes[0]));
    STOW_TRY(read_part(&d->b, b, first, count, m->bytes[1]));
    size_t bytes = (size_t)tensor_type_bytes(a->facts->stored, count);
    equal = equal && alike && memcmp(m->bytes[0], m->bytes[1], bytes) == 0;
    if (!values) continue;
    weights_decode(a->facts->stored, m->bytes[0], count, m->values[0]);
    weights_decode(b->facts->stored, m->bytes[1], count, m->values[1]);
    quant_error_add(&item->error, m->values[0], m->values[1], count);
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

stow_status model_compare(model_diff *d, const char *a, const char *b, const budget *limit) {
  *d = (model_diff){0};
  buffers m = {{malloc(CHUNK_VALUES * 8), malloc(CHUNK_VALUES * 8)},
               {malloc(CHUNK_VALUES * 4), malloc(CHUNK_VALUES * 4)}};
  stow_status status = STOW_OK;
  for (int i = 0; i < 2; i++)
    if (m.bytes[i] == NULL || m.values[i] == NULL)
      status = stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to compare");
  if (status == STOW_OK) status = model_open(&d->a, a, limit->bytes / 8);
  if (status == STOW_OK) status = model_open(&d->b, b, limit->bytes / 8);
  if (status == STOW_OK) status = compare_all(d, &m, limit);
  if (status == STOW_OK) status = model_check(&d->a);
  if (status == STOW_OK) status = model_check(&d->b);
  for (int i = 0; i < 2; i++) {
    free(m.bytes[i]);
    free(m.values[i]);
  }
  for (size_t i = 0; i < d->count; i++) {
    d->error.sum_squares += d->items[i].error.sum_squares;
    d->error.sum_error_squares += d->items[i].error.sum_error_squares;
    if (d->items[i].error.max_error > d->error.max_error)
      d->error.max_error = d->items[i].error.max_error;
  }
  if (status != STOW_OK) model_diff_free(d);
  return status;
}

void model_diff_free(model_diff *d) {
  free(d->items);
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

static int by_difference(const void *a, const void *b) {
  const diff_item *x = *(const diff_item *const *)a, *y = *(const diff_item *const *)b;
  if (x->kind != y->kind) return (int)y->kind - (int)x->kind;
  double p = weights_relative_error(&x->error), q = weights_relative_error(&y->error);
  return p < q ? 1 : p > q ? -1 : 0;
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
    if (one->error.values > 0) {
      table_printf(&t, "%.3g%%", 100 * weights_relative_error(&one->error));
      table_printf(&t, "%.3g", one->error.max_error);
    } else {
      table_cell(&t, "-");
      table_cell(&t, "-");
    }
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
  if (d->error.sum_error_squares > 0)
    buffer_printf(to, "difference: %.3g%% RMS, at most %.3g\n",
                  100 * weights_relative_error(&d->error), d->error.max_error);
  return to->status;
}

void model_diff_json(json *j, const model_diff *d, const char *a, const char *b) {
  char name[TEXT_PATH_MAX];
  json_begin_object(j);
  json_key(j, "a"), json_text(j, text_show(name, sizeof name, a));
  json_key(j, "b"), json_text(j, text_show(name, sizeof name, b));
  json_key(j, "equal"), json_bool(j, model_diff_equal(d));
  json_key(j, "relative_rms_error"), json_double(j, weights_relative_error(&d->error));
  json_key(j, "max_error"), json_double(j, d->error.max_error);
  json_key(j, "tensors");
  json_begin_array(j);
  for (size_t i = 0; i < d->count; i++) {
    const diff_item *one = &d->items[i];
    json_begin_object(j);
    json_key(j, "name"), json_text(j, (one->a != NULL ? one->a : one->b)->name);
    json_key(j, "differs"), json_text(j, kind_names[one->kind]);
    json_key(j, "dtype_a"), json_text(j, one->a != NULL ? one->a->type_name : NULL);
    json_key(j, "dtype_b"), json_text(j, one->b != NULL ? one->b->type_name : NULL);
    json_key(j, "relative_rms_error"), json_double(j, weights_relative_error(&one->error));
    json_key(j, "max_error"), json_double(j, one->error.max_error);
    json_end_object(j);
  }
  json_end_array(j);
  json_end_object(j);
}
