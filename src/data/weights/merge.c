/* Merge: see merge.h. */
#include "data/weights/merge.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/size.h>

#include "base/checked.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/text.h"
#include "data/weights/layers.h"
#include "data/weights/lookup.h"
#include "data/weights/replicas.h"
#include "data/weights/text.h"
#include "data/weights/tied.h"
#include "numbers/cast.h"
#include "numbers/lowrank.h"

/* A chunk is merged in runs of about this many values, so that their float64 sums (256 KiB) stay in
 * the second cache from one pass to the next. */
#define RUN_VALUES  ((size_t)32768)
#define LISTS_SHARE 8 /* share of the budget for the lists of each model: 1/8 */

typedef struct merging {
  adapter *adapters;
  size_t adapter_count;
  layer_list layers;
  uint64_t budget_bytes;
} merging;

/* ---- which tensors ---- */

static stow_status find_place(weights_result *r, const adapter *a, const char *name,
                              base_place *at) {
  size_t found = lookup_find(r, name, at);
  if (found == 1 && lookup_renamed(r, name, at->item)) r->renamed++;
  return found == 1 ? STOW_OK : lookup_not_found(r, a, name, found);
}

/* Finds a tensor that must not be a part of another one. */
static stow_status find_item(weights_result *r, const adapter *a, const char *name, size_t *item) {
  base_place at;
  STOW_TRY(find_place(r, a, name, &at));
  *item = at.item;
  if (at.parts == 1) return STOW_OK;
  return stow_fail(STOW_ERR_UNSUPPORTED,
                   "tensor %.200s of the adapter is part %zu of %zu of %.200s in the base: only "
                   "LoRA of such a part is merged here; use PEFT's merge_and_unload",
                   name, at.part + 1, at.parts, r->in.list[at.item].facts->name);
}

/* Sets the rows of the layer. With several parts, each must have as many as the others. */
static stow_status find_rows(const weights_result *r, layer *l, const base_place *at) {
  const tensor *w = r->items[at->item].from.facts;
  l->item = at->item;
  if (at->parts == 1) return STOW_OK;
  if (w->dims != 2 || w->shape[0] % at->parts != 0 || l->module->embedding)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "tensor %.200s of the base is not %zu matrices of the same shape, one below "
                     "the other; use PEFT's merge_and_unload",
                     w->name, at->parts);
  l->row_count = (size_t)(w->shape[0] / at->parts);
  l->row = at->part * l->row_count;
  return STOW_OK;
}

static uint64_t product(const tensor *t, uint32_t from) {
  uint64_t sum = 1;
  for (uint32_t i = from; i < t->dims; i++) sum *= t->shape[i];
  return sum;
}

static stow_status check_shapes(const weights_result *r, const layer *l) {
  const tensor *w = r->items[l->item].from.facts, *a = l->module->a->facts,
               *b = l->module->b->facts;
  uint64_t rows = w->dims > 0 ? w->shape[0] : 1, columns = product(w, 1);
  if (l->row_count > 0) rows = l->row_count;
  uint64_t out = product(b, 0) / b->shape[1], in = product(a, 1);
  bool fits = l->transposed ? rows == in && columns == out : rows == out && columns == in;
  if (l->module->magnitude != NULL && product(l->module->magnitude->facts, 0) != out) fits = false;
  if (fits && w->dims >= 2 && tensor_type_is_float(w->stored)) return STOW_OK;
  if (!tensor_type_is_float(w->stored))
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "tensor %.200s of the base is %s: a quantized base cannot be merged exactly; "
                     "merge into the original model and quantize the result",
                     w->name, w->type_name);
  return stow_fail(STOW_ERR_INVALID,
                   "tensor %.200s: the base has %" PRIu64 " x %" PRIu64 ", the adapter %" PRIu64
                   " x %" PRIu64 "; is this the model that the adapter was trained for?",
                   w->name, rows, columns, l->transposed ? in : out, l->transposed ? out : in);
}

/* Sets whether the layer is stored as in x out. PEFT saves one fan_in_fan_out for all modules, that
 * of the last one, but transposes each by its kind: Conv1D always, Linear never. So the shapes
 * decide and, for a square matrix, what the base shows. */
static stow_status find_transposed(const weights_result *r, layer *l) {
  const tensor *w = r->items[l->item].from.facts;
  uint64_t in = product(l->module->a->facts, 1);
  l->transposed = l->module->embedding;
  if (l->module->embedding || w->dims != 2 || l->row_count > 0) return STOW_OK;
  transposed_kind kind = transposed_of(&r->transposed, w->name);
  l->transposed = w->shape[0] != w->shape[1] ? w->shape[0] == in : kind == TRANSPOSED_YES;
  bool open = kind == TRANSPOSED_MIXED || (kind == TRANSPOSED_UNKNOWN && l->of->fan_in_fan_out);
  if (w->shape[0] != w->shape[1] || w->shape[0] != in || !open) return STOW_OK;
  return stow_fail(STOW_ERR_UNSUPPORTED,
                   "tensor %.200s is square, and nothing shows whether it is stored as inputs x "
                   "outputs (Conv1D): fan_in_fan_out in adapter_config.json is one value for all "
                   "layers, and %s; use PEFT's merge_and_unload",
                   w->name,
                   kind == TRANSPOSED_MIXED
                       ? "the base has parts of both kinds"
                       : "the base has no config.json of an architecture that is known here");
}

static stow_status check_bias(const weights_result *r, const layer *l) {
  const tensor *w = r->items[l->item].from.facts;
  if (w->dims == 1 && w->count == l->module->bias->facts->count && tensor_type_is_float(w->stored))
    return STOW_OK;
  return stow_fail(STOW_ERR_INVALID,
                   "tensor %.200s is not a bias of %" PRIu64 " values, as the adapter's is",
                   w->name, l->module->bias->facts->count);
}

static stow_status check_tokens(const weights_result *r, const layer *l) {
  const tensor *w = r->items[l->item].from.facts, *t = l->module->tokens->facts;
  bool fits = w->dims == 2 && w->shape[1] == t->shape[1] && tensor_type_is_float(w->stored);
  for (size_t i = 0; i < t->shape[0] && fits; i++) fits = l->module->rows[i] < w->shape[0];
  if (fits) return STOW_OK;
  return stow_fail(
      STOW_ERR_INVALID,
      "tensor %.200s of the base does not have the adapter's trained tokens (a resized "
      "vocabulary? use PEFT's merge_and_unload)",
      w->name);
}

/* OLoRA and PiSSA changed the base before the training. PEFT does that for linear layers only. */
static stow_status add_start(weights_result *r, layer_list *l, layer added) {
  const tensor *w = r->items[added.item].from.facts;
  bool pissa = added.of->start == START_PISSA;
  const char *name = pissa ? "pissa" : "olora";
  if ((added.transposed && !pissa) || w->dims != 2 || added.row_count > 0 ||
      added.rank > w->shape[0] || added.rank > w->shape[1] || added.scale == 0)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "tensor %.200s: what init_lora_weights=%s did to this layer cannot be "
                     "repeated here; save the adapter with PEFT's "
                     "path_initial_model_for_weight_conversion and merge that",
                     w->name, name);
  if (layers_of(l, added.item) != NULL)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "tensor %.200s: an adapter initialized with %s cannot follow another one; "
                     "merge them one after the other",
                     w->name, name);
  added.kind = pissa ? LAYER_PISSA : LAYER_OLORA;
  added.scale = pissa ? -1 : -added.scale;
  added.transposed = false; /* its matrices are made for the tensor as it is stored */
  return layers_add(l, r, &added, product(w, 1));
}

/* Refuses two modules of one adapter that would change the same rows: one of them was found under a
 * wrong name. */
static stow_status check_once(const weights_result *r, const layer_list *list, const layer *l) {
  for (const layer *o = layers_of(list, l->item); o != NULL; o = layers_next(list, o))
    if (o->of == l->of && o->kind == l->kind && o->row == l->row)
      return stow_fail(
          STOW_ERR_INVALID,
          "the adapter's modules %.200s and %.200s both fit tensor %.200s of the base; "
          "is this the model that the adapter was trained for?",
          o->module->name, l->module->name, r->in.list[l->item].facts->name);
  return STOW_OK;
}

/* Adds what a module does to its weight or, with LAYER_BIAS, to its bias. */
static stow_status add_layer(weights_result *r, layer_list *list, const adapter *a,
                             uint32_t file_base, const adapter_module *module, layer_kind kind) {
  size_t length = strlen(module->name) + 16;
  char *name = malloc(length);
  if (name == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  snprintf(name, length, "%s.%s", module->name, kind == LAYER_BIAS ? "bias" : "weight");
  layer l = {.kind = kind,
             .of = a,
             .module = module,
             .file_base = file_base,
             .scale = module->scale,
             .rank = 1,
             .block_count = 1,
             .block_rows = SIZE_MAX};
  base_place at = {0, 0, 1};
  stow_status status =
      kind == LAYER_LORA ? find_place(r, a, name, &at) : find_item(r, a, name, &at.item);
  if (status == STOW_ERR_INVALID && kind == LAYER_BIAS && lookup_find(r, name, &at) == 0)
    status =
        stow_fail(STOW_ERR_INVALID,
                  "the adapter adds %.200s (lora_bias), which is not in the base: PEFT does not "
                  "merge it either; use the adapter beside the model",
                  name);
  free(name);
  STOW_TRY(status);
  STOW_TRY(find_rows(r, &l, &at));
  STOW_TRY(check_once(r, list, &l));
  const tensor *w = r->items[l.item].from.facts;
  if (kind == LAYER_BIAS) {
    STOW_TRY(check_bias(r, &l));
    return layers_add(list, r, &l, product(w, 0));
  }
  if (kind == LAYER_TOKENS) {
    STOW_TRY(check_tokens(r, &l));
    return layers_add(list, r, &l, product(w, 1));
  }
  STOW_TRY(find_transposed(r, &l));
  l.rank = (size_t)module->a->facts->shape[0];
  STOW_TRY(check_shapes(r, &l));
  /* A base that the adapter brings along is the one after the initialization. */
  if (a->start != START_PLAIN && !module->embedding && r->items[l.item].from.file < r->home_count)
    STOW_TRY(add_start(r, list, l));
  return layers_add(list, r, &l, product(w, 1));
}

/* Replaces a tensor of the base with a whole tensor of the adapter, in the base's type. */
static stow_status replace(weights_result *r, merging *m, const adapter *a, uint32_t file_base,
                           const adapter_module *module) {
  size_t i = 0;
  base_place at;
  stow_status status = find_item(r, a, module->name, &i);
  if (status == STOW_ERR_INVALID && lookup_find(r, module->name, &at) == 0)
    return stow_fail(STOW_ERR_INVALID,
                     "%s: its tensor %.200s (modules_to_save) is not in the base: if it is a head "
                     "that was added for the training, as for classification, save the base with "
                     "such a head first, or use PEFT's merge_and_unload",
                     a->weights.folder != NULL ? a->weights.folder : "the adapter", module->name);
  STOW_TRY(status);
  weights_item *item = &r->items[i];
  const tensor *was = item->from.facts, *now = module->saved->facts;
  if (was->count != now->count || was->dims != now->dims ||
      memcmp(was->shape, now->shape, was->dims * sizeof was->shape[0]) != 0)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "tensor %.200s: the adapter's has another shape (a resized vocabulary?); use "
                     "PEFT's merge_and_unload",
                     was->name);
  layers_forget(&m->layers, i); /* what earlier adapters added is gone, as with PEFT */
  item->from = (model_tensor){now, module->saved->file + file_base};
  item->action = item->to != now->stored ? ACTION_CAST : ACTION_COPY;
  return STOW_OK;
}

/* Moves the adapter's files to the model, where the threads read them. */
static stow_status take_files(weights_result *r, adapter *a, uint32_t *file_base) {
  model *m = &r->in;
  *file_base = (uint32_t)m->file_count;
  for (size_t i = 0; i < a->weights.file_count; i++) {
    STOW_TRY(LIST_ROOM(m->files, m->file_count, m->file_capacity, 4, "model files"));
    m->files[m->file_count++] = a->weights.files[i];
    a->weights.files[i] = (model_file){0};
  }
  a->weights.file_count = 0;
  return STOW_OK;
}

static stow_status plan_adapter(merge_result *r, merging *m, adapter *a) {
  uint32_t file_base = 0;
  STOW_TRY(take_files(&r->weights, a, &file_base));
  /* Whole tensors come first: PEFT saves a changed embedding beside its LoRA, which adds to it. */
  for (size_t i = 0; i < a->count; i++)
    if (a->modules[i].saved != NULL && !a->modules[i].tied) {
      STOW_TRY(replace(&r->weights, m, a, file_base, &a->modules[i]));
      r->replaced++;
    }
  STOW_TRY(layers_add_parameters(&m->layers, &r->weights, a, file_base));
  for (size_t i = 0; i < a->count && a->start != START_PLAIN; i++)
    if (a->modules[i].parameter_count > 0)
      return stow_fail(STOW_ERR_UNSUPPORTED,
                       "%.200s: the initialization of the adapter changed this parameter, which "
                       "cannot be repeated here; use PEFT's merge_and_unload",
                       a->modules[i].name);
  for (size_t i = 0; i < a->count; i++) {
    const adapter_module *module = &a->modules[i];
    if (module->saved != NULL || module->parameter_count > 0) continue;
    layer_kind kind = module->tokens != NULL ? LAYER_TOKENS : LAYER_LORA;
    STOW_TRY(add_layer(&r->weights, &m->layers, a, file_base, module, kind));
  }
  for (size_t i = 0; i < a->count; i++)
    if (a->modules[i].bias != NULL)
      STOW_TRY(add_layer(&r->weights, &m->layers, a, file_base, &a->modules[i], LAYER_BIAS));
  return STOW_OK;
}

/* ---- the sum ---- */

/* DoRA divides by the length of a row, or of a column of a transposed layer. PEFT gets NaN where
 * that is 0. */
static stow_status fail_length(const char *name, const char *what, size_t at) {
  return stow_fail(
      STOW_ERR_INVALID,
      "tensor %.200s: %s %zu is zero with the adapter's change, and DoRA divides by its "
      "length: the adapter computes NaN there with PEFT too; use --allow-nan to write "
      "it anyway",
      name, what, at);
}

/* DoRA: scales each row to its trained length. `row` is the number of the first one. */
static stow_status scale_rows(double *values, size_t row, size_t rows, size_t columns,
                              const layer *l, const char *name) {
  for (size_t i = 0; i < rows; i++) {
    double sum = 0, *at = values + i * columns;
    for (size_t k = 0; k < columns; k++) sum += at[k] * at[k];
    if (sum == 0 && !l->allow_zero) return fail_length(name, "row", l->row + row + i);
    double factor = l->magnitude[row + i] / sqrt(sum);
    for (size_t k = 0; k < columns; k++) at[k] *= factor;
  }
  return STOW_OK;
}

static void scale_columns(double *values, size_t rows, size_t columns, const double *factors) {
  for (size_t i = 0; i < rows; i++)
    for (size_t k = 0; k < columns; k++) values[i * columns + k] *= factors[k];
}

/* Replaces the rows that are trained tokens. */
static void replace_rows(const layer *l, double *sum, size_t row, size_t rows, size_t columns) {
  for (size_t i = 0; i < l->module->tokens->facts->shape[0]; i++) {
    uint64_t place = l->module->rows[i];
    if (place >= row && place - row < rows)
      memcpy(sum + (place - row) * columns, l->right + i * columns, columns * sizeof *sum);
  }
}

/* Rounds to what a type can hold: the training used what the initialization left in the type of the
 * base. */
static stow_status round_to(dtype type, double *values, size_t count) {
  uint8_t stored[512 * sizeof(double)];
  for (size_t i = 0; i < count; i += 512) {
    size_t some = count - i < 512 ? count - i : 512;
    STOW_TRY(cast_values(stored, type, values + i, DTYPE_F64, some));
    STOW_TRY(cast_values(values + i, DTYPE_F64, stored, type, some));
  }
  return STOW_OK;
}

/* Of rows of the item, keeps those that are the layer's, and counts them from its first one. */
static void keep_own(const layer *l, double **sum, size_t *row, size_t *rows, size_t columns) {
  if (l->row_count == 0) return;
  size_t first = *row > l->row ? *row : l->row, end = *row + *rows;
  if (end > l->row + l->row_count) end = l->row + l->row_count;
  *sum += first < end ? (first - *row) * columns : 0;
  *rows = first < end ? end - first : 0;
  *row = first < end ? first - l->row : 0;
}

/* Adds a layer to whole rows from `row` on, which are of type `type` in the base. */
static stow_status add_rows(const layer *l, dtype type, double *sum, size_t row, size_t rows,
                            size_t columns) {
  keep_own(l, &sum, &row, &rows, columns);
  if (l->kind == LAYER_TOKENS) return replace_rows(l, sum, row, rows, columns), STOW_OK;
  for (size_t done = 0; done < rows;) {
    size_t block = (row + done) / l->block_rows, in_block = (row + done) % l->block_rows;
    size_t left = l->block_rows - in_block, count = rows - done < left ? rows - done : left;
    lowrank_add(sum + done * columns, count, columns, l->left + (row + done) * l->rank,
                l->right + block * l->rank * columns, l->rank, l->scale);
    done += count;
  }
  bool start = l->kind == LAYER_OLORA || l->kind == LAYER_PISSA;
  return start ? round_to(type, sum, rows * columns) : STOW_OK;
}

/* DoRA: scales the rows that a layer was added to. */
static stow_status scale(const layer *l, const char *name, double *sum, size_t row, size_t rows,
                         size_t columns) {
  if (l->magnitude == NULL) return STOW_OK;
  keep_own(l, &sum, &row, &rows, columns);
  if (!l->transposed) return scale_rows(sum, row, rows, columns, l, name);
  scale_columns(sum, rows, columns, l->magnitude);
  return STOW_OK;
}

static size_t run_rows(size_t columns) {
  size_t rows = RUN_VALUES / columns & ~(size_t)3; /* lowrank_add takes four at once */
  return rows > 0 ? rows : 4;
}

/* Turns the magnitudes of a transposed layer into what each column is multiplied with. The length
 * of a column is known only after all rows, with the layers before this one, were read once. */
static stow_status find_factors(weights_job *j, layer *which) {
  merging *m = j->context;
  const weights_item *item = &j->r->items[which->item];
  const tensor *w = item->from.facts;
  size_t columns = (size_t)item->row, all = (size_t)(w->count / columns), step = run_rows(columns);
  size_t width = dtype_bytes(w->type);
  if (columns > RUN_VALUES) step = 1; /* what a chunk of the budget holds */
  double *sum = malloc(step * columns * sizeof *sum), *squares = calloc(columns, sizeof *squares);
  uint8_t *bytes = malloc(step * columns * width);
  stow_status status = sum != NULL && squares != NULL && bytes != NULL
                           ? STOW_OK
                           : stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %.200s", w->name);
  for (size_t row = 0; row < all && status == STOW_OK; row += step) {
    size_t rows = all - row < step ? all - row : step, count = rows * columns;
    status = layers_read_rows(j, item, row, rows, bytes, sum);
    for (const layer *l = layers_of(&m->layers, which->item); l != NULL && status == STOW_OK;
         l = l != which ? layers_next(&m->layers, l) : NULL) {
      status = add_rows(l, w->type, sum, row, rows, columns);
      if (l != which && status == STOW_OK) status = scale(l, w->name, sum, row, rows, columns);
    }
    for (size_t i = 0; i < count && status == STOW_OK; i++) squares[i % columns] += sum[i] * sum[i];
  }
  for (size_t k = 0; k < columns && status == STOW_OK; k++) {
    if (squares[k] == 0 && !which->allow_zero) status = fail_length(w->name, "column", k);
    which->magnitude[k] /= sqrt(squares[k]);
  }
  free(bytes);
  free(squares);
  free(sum);
  return status;
}

static void drop_layers(weights_job *j, size_t item) {
  merging *m = j->context;
  for (layer *l = layers_of(&m->layers, item); l != NULL; l = layers_next(&m->layers, l))
    layer_drop(l);
}

static stow_status load_layers(weights_job *j, size_t item) {
  merging *m = j->context;
  uint64_t need = 0;
  for (layer *l = layers_of(&m->layers, item); l != NULL; l = layers_next(&m->layers, l))
    need += layer_bytes(l);
  if (need > m->budget_bytes / 4) {
    char have[STOW_SIZE_TEXT_MAX], wants[STOW_SIZE_TEXT_MAX];
    return stow_fail(STOW_ERR_BUDGET,
                     "tensor %.200s: its adapters need a budget of %s, not %s; "
                     "raise --memory",
                     j->r->items[item].from.facts->name, stow_size_format(wants, need * 4),
                     stow_size_format(have, m->budget_bytes));
  }
  for (layer *l = layers_of(&m->layers, item); l != NULL; l = layers_next(&m->layers, l)) {
    l->allow_zero = j->o->allow_nan;
    STOW_TRY(l->kind == LAYER_OLORA   ? layer_load_olora(j, l)
             : l->kind == LAYER_PISSA ? layer_load_pissa(j, l, m->budget_bytes / 4)
                                      : layer_load(j, l));
    if (l->transposed && l->magnitude != NULL) STOW_TRY(find_factors(j, l));
  }
  return STOW_OK;
}

/* ---- chunks ---- */

/* Adds the layers of an item to whole rows of it: `bytes` as read becomes `out`. */
static stow_status merge_rows(const merging *m, const weights_item *item, size_t index,
                              uint64_t first, size_t count, const uint8_t *bytes, uint8_t *out,
                              chunk_buffers *c, quant_error *error) {
  dtype from = item->from.facts->type, to = tensor_type_get(item->to)->type;
  size_t columns = (size_t)item->row, rows = count / columns;
  double *sum = (double *)(void *)c->codes;
  STOW_TRY(cast_values(sum, DTYPE_F64, bytes, from, count));
  size_t row = (size_t)(first / columns);
  for (const layer *l = layers_of(&m->layers, index); l != NULL; l = layers_next(&m->layers, l)) {
    STOW_TRY(add_rows(l, from, sum, row, rows, columns));
    STOW_TRY(scale(l, item->from.facts->name, sum, row, rows, columns));
  }
  STOW_TRY(cast_values(out, to, sum, DTYPE_F64, count));
  STOW_TRY(cast_values(c->before, DTYPE_F32, bytes, from, count));
  STOW_TRY(cast_values(c->after, DTYPE_F32, out, to, count));
  quant_error_add(error, c->before, c->after, count);
  return STOW_OK;
}

static stow_status merge_chunk(weights_job *j, size_t index, uint64_t first, size_t count,
                               chunk_buffers *c, quant_error *error) {
  const merging *m = j->context;
  const weights_item *item = &j->r->items[index];
  dtype from = item->from.facts->type, to = tensor_type_get(item->to)->type;
  uint64_t zeros = 0;
  if (layers_of(&m->layers, index) == NULL)
    return weights_encode(j, item, first, count, c, error, &zeros);
  size_t step = run_rows((size_t)item->row) * (size_t)item->row;
  for (size_t i = 0; i < count; i += step)
    STOW_TRY(merge_rows(m, item, index, first + i, count - i < step ? count - i : step,
                        c->bytes + i * dtype_bytes(from), c->out + i * dtype_bytes(to), c, error));
  return STOW_OK;
}

/* ---- all of it ---- */

static void merging_free(merging *m) {
  for (size_t i = 0; i < m->adapter_count; i++) adapter_close(&m->adapters[i]);
  free(m->adapters);
  layers_free(&m->layers);
}

static stow_status plan(merge_result *r, merging *m, const char *base, const char *const *paths,
                        size_t count, const weights_options *o, const char *out, const budget *b) {
  weights_result *w = &r->weights;
  if (w->in.format == MODEL_GGUF)
    return stow_fail(STOW_ERR_UNSUPPORTED, "a GGUF model cannot be merged here; merge the adapter "
                                           "into the safetensors model and convert that");
  m->adapters = calloc(count + 1, sizeof *m->adapters);
  if (m->adapters == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  STOW_TRY(model_check_whole(&w->in));
  bool swapped = adapter_of_model(&w->in);
  for (; m->adapter_count < count; m->adapter_count++) {
    adapter *a = &m->adapters[m->adapter_count];
    stow_status status = adapter_open(a, paths[m->adapter_count], b->bytes / LISTS_SHARE);
    if (status == STOW_ERR_INVALID && swapped)
      return stow_fail(status, "%s; are BASE and ADAPTER swapped?", stow_status_message());
    STOW_TRY(status);
    if (a->unknown[0] != '\0' && w->unknown[0] == '\0')
      snprintf(w->unknown, sizeof w->unknown,
               "adapter_config.json has settings that are not known here and were ignored: %s; "
               "compare the merged model with the adapter",
               a->unknown);
  }
  if (swapped)
    return stow_fail(STOW_ERR_INVALID,
                     "%s is an adapter, not a model; name the model first, then "
                     "its adapters",
                     base);
  for (size_t i = 0; i < count; i++) STOW_TRY(tied_mark(w, &m->adapters[i]));
  STOW_TRY(replicas_add(w, m->adapters, count, out, b->bytes / LISTS_SHARE));
  STOW_TRY(weights_plan(w, o, out));
  STOW_TRY(lookup_open(w));
  for (size_t i = 0; i < count; i++) STOW_TRY(plan_adapter(r, m, &m->adapters[i]));
  w->changed = r->replaced;
  for (size_t i = 0; i < w->item_count; i++) r->merged += layers_of(&m->layers, i) != NULL;
  w->changed += r->merged;
  return STOW_OK;
}

stow_status weights_merge(merge_result *r, const char *base, const char *const *adapters,
                          size_t adapter_count, const char *out, const weights_options *o,
                          const budget *b) {
  *r = (merge_result){.adapter_count = adapter_count};
  merging m = {.budget_bytes = b->bytes};
  weights_job j = {.r = &r->weights,
                   .o = o,
                   .b = b,
                   .in = base,
                   .out = out,
                   .change = merge_chunk,
                   .begin = load_layers,
                   .end = drop_layers,
                   .context = &m};
  stow_status status = model_open(&r->weights.in, base, b->bytes / LISTS_SHARE);
  if (status == STOW_OK && out == NULL) { /* a dry run */
    const model *in = &r->weights.in;
    bool folder = in->folder != NULL || in->file_count > 1 || o->shard_bytes > 0;
    r->weights.unnamed = true;
    j.out = folder ? "out" : "out.safetensors";
  }
  if (status == STOW_OK) status = plan(r, &m, base, adapters, adapter_count, o, j.out, b);
  for (size_t i = 0; i < m.layers.count; i++)
    j.key = hash_u64(2 * m.layers.list[i].item + m.layers.list[i].transposed, j.key) +
            hash_bytes(&m.layers.list[i].scale, 8, i);
  if (status == STOW_OK) status = weights_run(&j);
  merging_free(&m);
  if (status != STOW_OK) merge_free(r);
  return status;
}

void merge_free(merge_result *r) {
  weights_free(&r->weights);
  *r = (merge_result){0};
}

stow_status merge_text(buffer *to, const merge_result *r, const char *base, const char *out,
                       const weights_options *o, bool bold) {
  const weights_result *w = &r->weights;
  char name[TEXT_PATH_MAX], size[STOW_SIZE_TEXT_MAX];
  buffer_printf(to, "%s%s%s: %s, %zu tensor%s, %s\n", bold ? "\033[1m" : "",
                text_show(name, sizeof name, base), bold ? "\033[0m" : "",
                model_format_name(w->in.format), w->item_count, text_s(w->item_count),
                stow_size_format(size, w->bytes));
  buffer_printf(to,
                "merged %zu adapter%s into %" PRIu64 " tensor%s, replaced %" PRIu64
                "; weights changed by %.3g%% RMS, at most %.3g\n",
                r->adapter_count, text_s(r->adapter_count), r->merged, text_s(r->merged),
                r->replaced, 100 * weights_relative_error(&w->error), w->error.max_error);
  if (w->renamed > 0)
    buffer_printf(to, "%" PRIu64 " tensor%s found under the name%s that transformers 5 gives %s\n",
                  w->renamed, text_s(w->renamed), text_s(w->renamed),
                  w->renamed == 1 ? "it" : "them");
  if (w->unknown[0] != '\0') buffer_printf(to, "warning: %s\n", w->unknown);
  if (o->resume && !o->dry_run && !w->resumed)
    buffer_text(to, "started over: there is no checkpoint for these inputs and options\n");
  if (!o->dry_run)
    buffer_printf(to, "%s: %s in %zu file%s%s%s\n", text_show(name, sizeof name, out),
                  stow_size_format(size, w->file_bytes), w->file_count, text_s(w->file_count),
                  w->verified ? ", read back and equal" : "", w->resumed ? ", resumed" : "");
  return to->status;
}
