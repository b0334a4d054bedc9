/* OLoRA: what this initialization subtracted from the base, computed again from the base.
 *
 * With W = Q R, PEFT starts with B = the first columns of Q and A = the first rows of R, and leaves
 * W - s B A as the base. An adapter saved without conversion is only right on that base, so PEFT
 * repeats the subtraction when it loads one. The first columns of Q depend on the first columns of
 * W alone, and the rows of R are their products with W: two passes over W, no whole W in memory. */
#include <math.h>
#include <stdlib.h>

#include "data/weights/layers.h"

#define STEP_ROWS ((size_t)16)
/* A column whose distance to those before it is below this part of its length has no direction of
 * its own: what the initialization made of it depends on rounding. */
#define DEPENDENT 1e-5

typedef struct pass {
  const weights_item *item;
  size_t rows, columns, rank;
  uint8_t *bytes;
  double *values; /* STEP_ROWS rows */
} pass;

static stow_status read_columns(weights_job *j, const pass *p, double *q) {
  for (size_t row = 0; row < p->rows; row += STEP_ROWS) {
    size_t rows = p->rows - row < STEP_ROWS ? p->rows - row : STEP_ROWS;
    STOW_TRY(layers_read_rows(j, p->item, row, rows, p->bytes, p->values));
    for (size_t i = 0; i < rows; i++)
      for (size_t k = 0; k < p->rank; k++)
        q[(row + i) * p->rank + k] = p->values[i * p->columns + k];
  }
  return STOW_OK;
}

/* Makes the columns orthogonal and of length 1, in place: Gram-Schmidt, each column twice, which
 * leaves them orthogonal to the last bits. The signs differ from those of a QR decomposition, but
 * the product with Q^T W does not. */
static bool orthogonalize(double *q, size_t rows, size_t rank) {
  for (size_t k = 0; k < rank; k++) {
    double before = 0, after = 0;
    for (size_t i = 0; i < rows; i++) before += q[i * rank + k] * q[i * rank + k];
    for (size_t turn = 0; turn < 2; turn++)
      for (size_t n = 0; n < k; n++) {
        double dot = 0;
        for (size_t i = 0; i < rows; i++) dot += q[i * rank + n] * q[i * rank + k];
        for (size_t i = 0; i < rows; i++) q[i * rank + k] -= dot * q[i * rank + n];
      }
    for (size_t i = 0; i < rows; i++) after += q[i * rank + k] * q[i * rank + k];
    if (!(after > before * DEPENDENT * DEPENDENT)) return false;
    for (size_t i = 0; i < rows; i++) q[i * rank + k] /= sqrt(after);
  }
  return true;
}

static stow_status multiply(weights_job *j, const pass *p, const double *q, double *r) {
  for (size_t row = 0; row < p->rows; row += STEP_ROWS) {
    size_t rows = p->rows - row < STEP_ROWS ? p->rows - row : STEP_ROWS;
    STOW_TRY(layers_read_rows(j, p->item, row, rows, p->bytes, p->values));
    for (size_t i = 0; i < rows; i++)
      for (size_t k = 0; k < p->rank; k++) {
        double factor = q[(row + i) * p->rank + k], *to = r + k * p->columns;
        for (size_t n = 0; n < p->columns; n++) to[n] += factor * p->values[i * p->columns + n];
      }
  }
  return STOW_OK;
}

stow_status layer_load_olora(weights_job *j, layer *l) {
  const weights_item *item = &j->r->items[l->item];
  const tensor *w = item->from.facts;
  pass p = {.item = item,
            .rows = (size_t)w->shape[0],
            .columns = (size_t)item->row,
            .rank = l->rank,
            .bytes = malloc(STEP_ROWS * (size_t)item->row * dtype_bytes(w->type)),
            .values = malloc(STEP_ROWS * (size_t)item->row * sizeof(double))};
  l->left = malloc(p.rows * p.rank * sizeof *l->left);
  l->right = calloc(p.rank * p.columns, sizeof *l->right);
  stow_status status = STOW_OK;
  if (p.bytes == NULL || p.values == NULL || l->left == NULL || l->right == NULL)
    status = stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %.200s", w->name);
  if (status == STOW_OK) status = read_columns(j, &p, l->left);
  if (status == STOW_OK && !orthogonalize(l->left, p.rows, p.rank))
    status = stow_fail(STOW_ERR_UNSUPPORTED,
                       "tensor %.200s: its first %zu columns depend on each other, so what OLoRA "
                       "did to it cannot be repeated; save the adapter with PEFT's "
                       "path_initial_model_for_weight_conversion and merge that",
                       w->name, p.rank);
  if (status == STOW_OK) status = multiply(j, &p, l->left, l->right);
  free(p.bytes);
  free(p.values);
  return status;
}
