/* Shrink: a model from its input to its output (weights.h). */
#include <stdlib.h>
#include <string.h>

#include "data/weights/config.h"
#include "data/weights/lookup.h"
#include "data/weights/parts.h"
#include "data/weights/replicas.h"

#define LISTS_SHARE 4 /* share of the budget for headers and lists: 1/4 */
/* Buffers of a chunk, per value: read 8, float32 twice, written 8, scales 8. */
#define BYTES_PER_VALUE 32

void weights_free(weights_result *r) {
  for (size_t i = 0; i < r->part_count; i++) free(r->parts[i].name);
  for (size_t i = 0; i < r->file_count; i++) free(r->files[i].name);
  for (size_t i = 0; i < r->item_count && r->items != NULL; i++) free(r->items[i].starts);
  free(r->items);
  free(r->parts);
  free(r->files);
  transposed_free(&r->transposed);
  packed_free(&r->packed);
  lookup_close(&r->lookup);
  replicas_free(&r->replicas);
  model_close(&r->in);
  *r = (weights_result){0};
}

static stow_status write_all(weights_job *j) {
  STOW_TRY(weights_open_output(j, j->r->resumed));
  STOW_TRY(weights_stream(j));
  STOW_TRY(model_check(&j->r->in));
  if (j->o->verify) STOW_TRY(weights_verify(j));
  return weights_commit_output(j);
}

stow_status weights_run(weights_job *j) {
  stow_status status = STOW_OK;
  STOW_TRY(weights_check_output(j->r, j->o, j->in, j->out));
  STOW_TRY(weights_size_chunks(j, BYTES_PER_VALUE));
  if (j->o->resume && !j->o->dry_run)
    weights_take_chunks(j, BYTES_PER_VALUE, journal_chunk_values(j->out));
  bool count_first = j->o->sparse && !j->o->prune_2_4; /* the sizes depend on the values */
  if (count_first) {
    STOW_TRY(weights_find_thresholds(j));
    STOW_TRY(weights_count_kept(j));
  }
  STOW_TRY(weights_name_output(j->r, j->o, j->out));
  STOW_TRY(weights_measure_output(j));
  uint64_t planned = j->r->file_bytes;
  if (j->o->dry_run) {
    if (!count_first) STOW_TRY(weights_find_thresholds(j));
    return weights_stream(j);
  }
  STOW_TRY(journal_open(&j->journal, j));
  j->r->file_bytes = 0;
  if (!count_first) status = weights_find_thresholds(j);
  if (status == STOW_OK) status = write_all(j);
  if (status == STOW_OK && j->r->file_bytes != planned)
    status = stow_fail(
        STOW_ERR_STATE,
        "%s: the size of the output differs from the plan; this is a bug, please report it",
        j->out);
  j->r->written = status == STOW_OK;
  bool keep = status == STOW_ERR_INTERRUPTED;
  if (keep && journal_flush(j->journal, j) != STOW_OK) keep = false;
  if (status != STOW_OK) weights_abandon_output(j, keep);
  journal_close(j->journal, !keep);
  free(j->writers);
  free(j->target);
  return status;
}

stow_status weights_shrink(weights_result *r, const char *in, const char *out,
                           const weights_options *o, const budget *b) {
  *r = (weights_result){0};
  weights_job j = {.r = r, .o = o, .b = b, .in = in, .out = out};
  stow_status status = model_open(&r->in, in, b->bytes / LISTS_SHARE);
  if (status == STOW_OK && out == NULL) {
    r->unnamed = true;
    j.out = r->in.format == MODEL_GGUF ? "out.gguf"
            : r->in.folder != NULL || r->in.file_count > 1 || o->shard_bytes > 0
                ? "out"
                : "out.safetensors";
  }
  if (status == STOW_OK) status = model_check_whole(&r->in);
  if (status == STOW_OK) status = config_look(r);
  if (status == STOW_OK) status = weights_plan(r, o, j.out);
  if (status == STOW_OK) status = weights_run(&j);
  if (status != STOW_OK) weights_free(r);
  return status;
}
