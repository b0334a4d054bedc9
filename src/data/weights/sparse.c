/* Sparse: how many values each tensor keeps that is stored without its zeros (weights.h).
 *
 * The header of the output holds the number of kept values, and a chunk is written behind what the
 * chunks before it keep. So all chunks are counted before anything is written. */
#include <stdlib.h>

#include "data/weights/walk.h"
#include "data/workers.h"

static bool is_counted(const weights_job *j, size_t item) {
  return j->r->items[item].action == ACTION_BITMASK;
}

static stow_status count_chunk(weights_job *j, unsigned member, size_t index, uint64_t first,
                               size_t count, const uint8_t *bytes) {
  chunk_buffers *c = (chunk_buffers *)j->user + member;
  weights_item *item = &j->r->items[index];
  quant_error error = {0};
  uint64_t zeros = 0, kept = 0;
  c->bytes = bytes;
  STOW_TRY(weights_encode(j, item, first, count, c, &error, &zeros));
  for (size_t i = 0; i < count; i++) kept += c->after[i] != 0;
  item->starts[first / weights_chunk_length(j, item) + 1] = kept; /* its own place */
  return STOW_OK;
}

/* Sums the counts up. Stores the item dense if that takes no more bytes. */
static void settle(const weights_job *j, weights_item *item) {
  const tensor *t = item->from.facts;
  uint64_t length = weights_chunk_length(j, item), chunks = (t->count + length - 1) / length;
  for (uint64_t i = 0; i < chunks; i++) item->starts[i + 1] += item->starts[i];
  item->kept = item->starts[chunks];
  uint64_t sparse = tensor_type_bytes(item->to, item->kept) +
                    t->shape[0] * ((item->row + 7) / 8 + sizeof(int64_t)) + 2 * sizeof(int64_t);
  if (sparse < tensor_type_bytes(item->to, t->count)) return;
  item->action = item->pruned || item->to != t->stored ? ACTION_CAST : ACTION_COPY;
}

stow_status weights_count_kept(weights_job *j) {
  chunk_buffers buffers[WORKERS_MAX] = {0};
  walk_task task = {.end = j->r->item_count, .wanted = is_counted, .run = count_chunk};
  stow_status status = STOW_OK;
  for (unsigned i = 0; i < j->threads && status == STOW_OK; i++)
    status = weights_make_buffers(j, &buffers[i]);
  for (size_t i = 0; i < j->r->item_count && status == STOW_OK; i++) {
    weights_item *item = &j->r->items[i];
    if (!is_counted(j, i)) continue;
    item->starts =
        calloc(item->from.facts->count / weights_chunk_length(j, item) + 2, sizeof *item->starts);
    if (item->starts == NULL) status = stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  }
  j->user = buffers;
  if (status == STOW_OK) status = weights_walk(j, &task);
  j->user = NULL;
  for (unsigned i = 0; i < WORKERS_MAX; i++) weights_free_buffers(&buffers[i]);
  for (size_t i = 0; i < j->r->item_count && status == STOW_OK; i++) {
    if (!is_counted(j, i)) continue;
    settle(j, &j->r->items[i]);
    status = weights_add_parts(j->r, i);
  }
  return status;
}
