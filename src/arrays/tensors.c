/* Tensors: the list, its memory, and the checks over all tensors. */
#include "arrays/tensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

void tensors_free(tensors *t) {
  for (size_t i = 0; i < t->block_count; i++) free(t->blocks[i]);
  free(t->blocks);
  free(t->list);
  free(t->metadata);
  *t = (tensors){0};
}

static stow_status grow(tensors *t, const source *from) {
  size_t capacity = t->capacity * 2 + 16;
  tensor *list = realloc(t->list, capacity * sizeof *list);
  if (list != NULL) t->list = list;
  char **blocks = realloc(t->blocks, capacity * sizeof *blocks);
  if (blocks != NULL) t->blocks = blocks;
  if (list == NULL || blocks == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", from->name);
  t->capacity = capacity;
  return STOW_OK;
}

stow_status tensors_add(tensors *t, const source *from, const char *name, size_t length,
                        tensor **added) {
  t->used_bytes += length + 1 + 2 * (sizeof(tensor) + sizeof(char *));
  if (t->used_bytes > t->max_bytes)
    return stow_fail(STOW_ERR_BUDGET,
                     "%s: its list of tensors needs more than %" PRIu64
                     " KiB of memory; raise --memory",
                     from->name, t->max_bytes >> 10);
  if (memchr(name, '\0', length) != NULL)
    return stow_fail(STOW_ERR_FORMAT, "%s: the name of tensor %zu contains a NUL", from->name,
                     t->count);
  if (t->count == t->capacity) STOW_TRY(grow(t, from));
  char *copy = strndup(name, length);
  if (copy == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", from->name);
  t->blocks[t->block_count++] = copy;
  *added = &t->list[t->count++];
  **added = (tensor){.name = copy};
  return STOW_OK;
}

stow_status tensors_count(tensor *one, const source *from) {
  one->count = 1;
  for (uint32_t i = 0; i < one->dims; i++)
    if (!checked_mul(&one->count, one->count, one->shape[i]) || one->count > INT64_MAX)
      return stow_fail(STOW_ERR_FORMAT, "%s: tensor %.200s: the number of elements exceeds 63 bits",
                       from->name, one->name);
  return STOW_OK;
}

void tensors_set_type(tensor *one, tensor_type stored) {
  one->stored = stored;
  one->type = tensor_type_get(stored)->type;
  snprintf(one->type_name, sizeof one->type_name, "%s", tensor_type_name(stored));
}

static int by_name(const void *a, const void *b) {
  return strcmp((*(const tensor *const *)a)->name, (*(const tensor *const *)b)->name);
}

static int by_offset(const void *a, const void *b) {
  const tensor *x = *(const tensor *const *)a, *y = *(const tensor *const *)b;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static stow_status check_all(tensors *t, const source *from, bool shared) {
  if (t->count == 0) return STOW_OK;
  const tensor **order = calloc(t->count, sizeof *order);
  if (order == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", from->name);
  for (size_t i = 0; i < t->count; i++) order[i] = &t->list[i];
  stow_status status = STOW_OK;
  qsort(order, t->count, sizeof *order, by_name);
  for (size_t i = 1; i < t->count && status == STOW_OK; i++)
    if (strcmp(order[i]->name, order[i - 1]->name) == 0)
      status =
          stow_fail(STOW_ERR_FORMAT, "%s: duplicate tensor %.200s", from->name, order[i]->name);
  qsort(order, t->count, sizeof *order, by_offset);
  uint64_t end = source_end(from);
  for (size_t i = 0; i < t->count && status == STOW_OK; i++) {
    const tensor *one = order[i];
    if (one->offset > end || one->bytes > end - one->offset)
      status = stow_fail(STOW_ERR_FORMAT,
                         "%s: tensor %.200s ends at byte %" PRIu64
                         ", but the file ends at byte %" PRIu64,
                         from->name, one->name, one->offset + one->bytes, end);
    else if (!shared && i > 0 && one->offset < order[i - 1]->offset + order[i - 1]->bytes)
      status = stow_fail(STOW_ERR_FORMAT, "%s: tensors %.200s and %.200s overlap at byte %" PRIu64,
                         from->name, order[i - 1]->name, one->name, one->offset);
  }
  free(order);
  return status;
}

stow_status tensors_check(tensors *t, const source *from) {
  return check_all(t, from, false);
}

stow_status tensors_check_shared(tensors *t, const source *from) {
  return check_all(t, from, true);
}
