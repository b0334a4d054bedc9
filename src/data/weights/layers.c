/* Layers: see layers.h. */
#include "data/weights/layers.h"

#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "numbers/cast.h"

#define SHARED_SHARE 8 /* share of the budget for matrices that several layers need: 1/8 */

static stow_status no_memory(void) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for an adapter");
}

stow_status layers_add(layer_list *l, weights_result *r, const layer *added, uint64_t row) {
  weights_item *item = &r->items[added->item];
  item->action = ACTION_CAST;
  item->row = row;
  if (l->first == NULL) l->first = calloc(r->item_count + 1, sizeof *l->first);
  if (l->first == NULL) return no_memory();
  STOW_TRY(LIST_ROOM(l->list, l->count, l->capacity, 64, "layers"));
  size_t *link = &l->first[added->item];
  while (*link > 0) link = &l->list[*link - 1].next;
  l->list[l->count] = *added;
  *link = ++l->count;
  return STOW_OK;
}

layer *layers_of(const layer_list *l, size_t item) {
  return l->first != NULL && l->first[item] > 0 ? &l->list[l->first[item] - 1] : NULL;
}

layer *layers_next(const layer_list *l, const layer *before) {
  return before->next > 0 ? &l->list[before->next - 1] : NULL;
}

void layers_forget(layer_list *l, size_t item) {
  if (l->first != NULL) l->first[item] = 0;
}

void layers_free(layer_list *l) {
  for (size_t i = 0; i < l->count; i++) layer_drop(&l->list[i]);
  free(l->list);
  free(l->first);
  *l = (layer_list){0};
}

/* ---- matrices ---- */

/* Refuses an adapter's values that are NaN or infinite: they would spread over rows of the sum. */
static stow_status check_finite(const weights_job *j, const tensor *t, const double *values,
                                size_t count) {
  size_t odd = j->o->allow_nan ? 0 : cast_count_not_finite(values, DTYPE_F64, count);
  if (odd == 0) return STOW_OK;
  return stow_fail(STOW_ERR_INVALID,
                   "tensor %.200s of the adapter: %zu value%s NaN or infinite: a damaged or "
                   "diverged adapter; use --allow-nan to merge it anyway",
                   t->name, odd, odd == 1 ? " is" : "s are");
}

/* Reads `count` values of a tensor of the adapter, from `first` on. */
static stow_status load(weights_job *j, const layer *l, const model_tensor *t, uint64_t first,
                        uint64_t count, double **to) {
  const tensor *facts = t->facts;
  size_t width = dtype_bytes(facts->type), length = (size_t)count * width;
  uint8_t *bytes = malloc(length + 1);
  *to = malloc(((size_t)count + 1) * sizeof **to);
  stow_status status = bytes != NULL && *to != NULL ? STOW_OK : no_memory();
  if (status == STOW_OK)
    status = source_read(&j->r->in.files[t->file + l->file_base].from,
                         facts->offset + first * width, bytes, length);
  if (status == STOW_OK) status = cast_values(*to, DTYPE_F64, bytes, facts->type, (size_t)count);
  if (status == STOW_OK) status = check_finite(j, facts, *to, (size_t)count);
  free(bytes);
  return status;
}

static stow_status load_all(weights_job *j, const layer *l, const model_tensor *t, double **to) {
  return load(j, l, t, 0, t->facts->count, to);
}

static stow_status transpose(double **matrix, size_t rows, size_t columns) {
  double *flipped = malloc((rows * columns + 1) * sizeof *flipped);
  if (flipped == NULL) return no_memory();
  for (size_t i = 0; i < rows; i++)
    for (size_t k = 0; k < columns; k++) flipped[k * rows + i] = (*matrix)[i * columns + k];
  free(*matrix);
  *matrix = flipped;
  return STOW_OK;
}

/* Reads B of stacked experts, or takes it from a layer before that had the same. *own: the caller
 * frees it. */
static stow_status read_b(weights_job *j, const layer *l, uint8_t **bytes, bool *own) {
  const tensor *facts = l->module->b->facts;
  size_t length = (size_t)facts->count * dtype_bytes(facts->type);
  shared_matrix *s = l->shared;
  *own = false;
  if (s != NULL && s->bytes != NULL) return *bytes = s->bytes, STOW_OK;
  *bytes = malloc(length + 1);
  if (*bytes == NULL) return no_memory();
  stow_status status = source_read(&j->r->in.files[l->module->b->file + l->file_base].from,
                                   facts->offset, *bytes, length);
  *own = status != STOW_OK || s == NULL || *s->in_use + length > j->b->bytes / SHARED_SHARE;
  if (*own) return status;
  s->bytes = *bytes;
  s->length = length;
  *s->in_use += length;
  return STOW_OK;
}

/* Reads `rows` rows of B from `first` on, as one matrix for each block. B has a column for each
 * rank of each expert, the experts side by side: column k * experts + e. With `by_rank` the
 * matrices are rank x rows, otherwise rows x rank. */
static stow_status load_b(weights_job *j, const layer *l, size_t first, size_t rows, bool by_rank,
                          double **to) {
  const tensor *facts = l->module->b->facts;
  size_t width = dtype_bytes(facts->type), columns = l->rank * l->experts;
  size_t count = l->block_count * rows * l->rank;
  uint8_t *bytes = NULL, *parts = malloc(count * width + 1);
  bool own = false;
  *to = malloc((count + 1) * sizeof **to);
  stow_status status = parts != NULL && *to != NULL ? read_b(j, l, &bytes, &own) : no_memory();
  for (size_t e = 0; e < l->block_count && status == STOW_OK; e++)
    for (size_t i = 0; i < rows; i++)
      for (size_t k = 0; k < l->rank; k++) {
        size_t place = e * rows * l->rank + (by_rank ? k * rows + i : i * l->rank + k);
        size_t from = (first + i) * columns + k * l->experts + l->expert + e;
        memcpy(parts + place * width, bytes + from * width, width);
      }
  if (status == STOW_OK) status = cast_values(*to, DTYPE_F64, parts, facts->type, count);
  if (status == STOW_OK) status = check_finite(j, facts, *to, count);
  if (own) free(bytes);
  free(parts);
  return status;
}

/* Turns A, which has the ranks of one expert after the other, into one matrix for each block, with
 * the rows of the block and a column for each rank. */
static stow_status split_a(const layer *l, double **a, size_t columns) {
  double *parts = malloc((l->block_count * l->block_rows * l->rank + 1) * sizeof *parts);
  if (parts == NULL) return no_memory();
  for (size_t e = 0; e < l->block_count; e++)
    for (size_t i = 0; i < l->block_rows; i++)
      for (size_t k = 0; k < l->rank; k++)
        parts[(e * l->block_rows + i) * l->rank + k] =
            (*a)[(e * l->rank + k) * columns + l->first_row + i];
  free(*a);
  *a = parts;
  return STOW_OK;
}

static stow_status load_experts(weights_job *j, layer *l) {
  const model_tensor *a = l->module->a, *b = l->module->b;
  uint64_t in = a->facts->shape[1], out = b->facts->shape[0];
  uint64_t first = l->expert * l->rank * in, count = l->block_count * l->rank * in;
  if (!l->transposed) {
    STOW_TRY(load(j, l, a, first, count, &l->right));
    return load_b(j, l, l->first_row, l->block_rows, false, &l->left);
  }
  STOW_TRY(load(j, l, a, first, count, &l->left));
  STOW_TRY(split_a(l, &l->left, (size_t)in));
  return load_b(j, l, 0, (size_t)out, true, &l->right);
}

static stow_status load_lora(weights_job *j, layer *l) {
  const adapter_module *module = l->module;
  if (l->experts > 0) return load_experts(j, l);
  STOW_TRY(load_all(j, l, module->b, &l->left));
  STOW_TRY(load_all(j, l, module->a, &l->right));
  if (l->transposed) {
    double *b = l->left;
    l->left = l->right;
    l->right = b;
    STOW_TRY(transpose(&l->left, l->rank, (size_t)module->a->facts->count / l->rank));
    STOW_TRY(transpose(&l->right, (size_t)module->b->facts->count / l->rank, l->rank));
  }
  return module->magnitude != NULL ? load_all(j, l, module->magnitude, &l->magnitude) : STOW_OK;
}

stow_status layer_load(weights_job *j, layer *l) {
  if (l->kind == LAYER_LORA) return load_lora(j, l);
  if (l->kind == LAYER_TOKENS) return load_all(j, l, l->module->tokens, &l->right);
  l->left = malloc(sizeof *l->left);
  if (l->left == NULL) return no_memory();
  *l->left = 1;
  return load_all(j, l, l->module->bias, &l->right);
}

void layer_drop(layer *l) {
  free(l->left);
  free(l->right);
  free(l->magnitude);
  l->left = l->right = l->magnitude = NULL;
  shared_matrix *s = l->shared;
  l->shared = NULL;
  if (s == NULL || --s->uses > 0) return;
  *s->in_use -= s->length;
  free(s->bytes);
  free(s);
}

uint64_t layer_bytes(const layer *l) {
  const adapter_module *m = l->module;
  if (l->kind == LAYER_TOKENS) return m->tokens->facts->count * 16;
  if (l->experts > 0) { /* all of B as stored, and the part of the blocks */
    const tensor *b = m->b->facts;
    uint64_t part = (uint64_t)l->block_count * l->rank * (m->a->facts->shape[1] + b->shape[0]);
    return b->count * dtype_bytes(b->type) + part * 16;
  }
  return (m->a->facts->count + m->b->facts->count) * 16;
}

stow_status layers_read_rows(weights_job *j, const weights_item *item, size_t row, size_t rows,
                             uint8_t *bytes, double *values) {
  const tensor *w = item->from.facts;
  size_t width = dtype_bytes(w->type), count = rows * (size_t)item->row;
  STOW_TRY(source_read(&j->r->in.files[item->from.file].from, w->offset + row * item->row * width,
                       bytes, count * width));
  return cast_values(values, DTYPE_F64, bytes, w->type, count);
}
