/* The public shrink (stowage/shrink.h): a job, and its result with text and JSON. */
#include <stowage/shrink.h>

#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "base/growing.h"
#include "data/job.h"
#include "data/shards.h"
#include "data/shrink_text.h"
#include "data/weights/text.h"

#define FLAGS_KNOWN                                                                                \
  (STOW_SHRINK_ABSOLUTE | STOW_SHRINK_DRY_RUN | STOW_SHRINK_RESUME | STOW_SHRINK_NO_SYNC |         \
   STOW_SHRINK_FORCE | STOW_SHRINK_VERIFY | STOW_SHRINK_ALLOW_NAN | STOW_SHRINK_JOIN |             \
   STOW_SHRINK_PRUNE_MODEL | STOW_SHRINK_SPARSE)
#define FLAGS_OF_MODELS                                                                            \
  (STOW_SHRINK_VERIFY | STOW_SHRINK_ALLOW_NAN | STOW_SHRINK_JOIN | STOW_SHRINK_PRUNE_MODEL)

struct stow_shrink {
  shrink_result result;
  bool done; /* result must be freed */
  weights_result weights;
  bool is_model; /* then `weights` is the result */
  buffer text, json;
};

static size_t list_count(const char *const *list) {
  size_t count = 0;
  while (list != NULL && list[count] != NULL) count++;
  return count;
}

static stow_status read_options(shrink_options *to, data_job *job, const stow_shrink_options *o) {
  stow_inspect_options in = STOW_INSPECT_OPTIONS_INIT;
  in.threads = o->threads;
  in.memory_bytes = o->memory_bytes;
  in.raw_dtype = o->raw_dtype;
  in.raw_shape = o->raw_shape;
  in.raw_dims = o->raw_dims;
  in.names = o->names;
  in.purpose = o->purpose;
  in.progress = o->progress;
  in.progress_user = o->progress_user;
  in.table = o->table;
  if ((o->flags & ~FLAGS_KNOWN) != 0)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "stow_shrink_options: unknown flags 0x%x: use a newer library", o->flags);
  if (!isfinite(o->tolerance) || o->tolerance < 0)
    return stow_fail(STOW_ERR_INVALID, "tolerance: %g; use a number above 0, or 0 for none",
                     o->tolerance);
  STOW_TRY(data_job_fill(job, &in));
  *to = (shrink_options){.tolerance = o->tolerance,
                         .relative = (o->flags & STOW_SHRINK_ABSOLUTE) == 0,
                         .dry_run = (o->flags & STOW_SHRINK_DRY_RUN) != 0,
                         .resume = (o->flags & STOW_SHRINK_RESUME) != 0,
                         .no_sync = (o->flags & STOW_SHRINK_NO_SYNC) != 0,
                         .force = (o->flags & STOW_SHRINK_FORCE) != 0,
                         .columns = o->columns,
                         .column_count = list_count(o->columns),
                         .drop = o->drop,
                         .drop_count = list_count(o->drop),
                         .in = job->in};
  return o->dtype != NULL ? dtype_parse(&to->type, o->dtype) : STOW_OK;
}

/* ---- models ---- */

static stow_status read_weights_options(weights_options *to, const stow_shrink_options *o) {
  *to = (weights_options){.include = o->include,
                          .include_count = list_count(o->include),
                          .exclude = o->exclude,
                          .exclude_count = list_count(o->exclude),
                          .shard_bytes = o->shard_bytes,
                          .join = (o->flags & STOW_SHRINK_JOIN) != 0,
                          .prune_model = (o->flags & STOW_SHRINK_PRUNE_MODEL) != 0,
                          .sparse = (o->flags & STOW_SHRINK_SPARSE) != 0,
                          .dry_run = (o->flags & STOW_SHRINK_DRY_RUN) != 0,
                          .resume = (o->flags & STOW_SHRINK_RESUME) != 0,
                          .no_sync = (o->flags & STOW_SHRINK_NO_SYNC) != 0,
                          .verify = (o->flags & STOW_SHRINK_VERIFY) != 0,
                          .allow_nan = (o->flags & STOW_SHRINK_ALLOW_NAN) != 0};
  if (o->tolerance != 0 || o->raw_dtype != NULL || o->columns != NULL || o->drop != NULL)
    return stow_fail(
        STOW_ERR_INVALID,
        "stow_shrink_options: tolerance, raw_dtype, columns and drop are for arrays and "
        "tables, not for models");
  if (o->dtype != NULL) STOW_TRY(weights_parse_type(&to->type, o->dtype));
  if (o->quantize != NULL) STOW_TRY(weights_parse_quant(&to->quantize, o->quantize));
  return o->prune != NULL ? weights_parse_prune(to, o->prune) : STOW_OK;
}

static stow_status shrink_model(stow_shrink *s, const char *in, const char *out,
                                const stow_shrink_options *given, const budget *b) {
  weights_options o;
  STOW_TRY(read_weights_options(&o, given));
  STOW_TRY(weights_shrink(&s->weights, in, out, &o, b));
  s->is_model = true;
  STOW_TRY(weights_text(&s->text, &s->weights, in, out, &o, false));
  return weights_json(&s->json, &s->weights, in, out, &o, 0);
}

static bool asks_for_model(const stow_shrink_options *o) {
  return o->quantize != NULL || o->prune != NULL || o->include != NULL || o->exclude != NULL ||
         o->shard_bytes != 0 || (o->flags & FLAGS_OF_MODELS) != 0;
}

/* ---- all ---- */

static stow_status do_it(stow_shrink *s, const char *in, const char *out, const shrink_options *o,
                         const budget *b) {
  char title[PATH_MAX];
  STOW_TRY(shrink_file(&s->result, in, out, o, b));
  s->done = true;
  in = shards_title(in, title, sizeof title);
  STOW_TRY(shrink_text(&s->text, &s->result, in, out, o, false));
  return shrink_json(&s->json, &s->result, in, out, o, 0);
}

stow_status stow_shrink_file(stow_shrink **result, const char *in, const char *out,
                             const stow_shrink_options *given) {
  if (result == NULL) return stow_fail(STOW_ERR_INVALID, "stow_shrink_file: shrink is NULL");
  *result = NULL;
  if (in == NULL || out == NULL)
    return stow_fail(STOW_ERR_INVALID, "stow_shrink_file: in or out is NULL");
  stow_shrink_options options = STOW_SHRINK_OPTIONS_INIT;
  shrink_options inner;
  data_job job = {0};
  STOW_TRY(growing_read(&options, sizeof options, given, "stow_shrink_options"));
  bool is_model = model_is(in);
  const char *type = options.dtype;
  if (is_model) options.dtype = NULL; /* other types; read below */
  stow_status status = read_options(&inner, &job, &options);
  options.dtype = type;
  if (status == STOW_OK && !is_model && asks_for_model(&options))
    status = stow_fail(
        STOW_ERR_INVALID,
        "%s: not a model; quantize, prune, include, exclude and shards are for models", in);
  stow_shrink *made = calloc(1, sizeof *made);
  if (made == NULL && status == STOW_OK)
    status = stow_fail(STOW_ERR_HOST_MEMORY, "stow_shrink_file: no host memory");
  if (made != NULL) made->text = made->json = BUFFER_INIT;
  if (status == STOW_OK) {
    status = is_model ? shrink_model(made, in, out, &options, &job.budget)
                      : do_it(made, in, out, &inner, &job.budget);
  }
  data_job_free(&job);
  if (status != STOW_OK) {
    stow_shrink_close(made);
    return status;
  }
  *result = made;
  return STOW_OK;
}

void stow_shrink_close(stow_shrink *s) {
  if (s == NULL) return;
  if (s->done) shrink_free(&s->result);
  if (s->is_model) weights_free(&s->weights);
  buffer_free(&s->text);
  buffer_free(&s->json);
  free(s);
}

static stow_shrink_info model_info(const weights_result *r) {
  uint64_t before = 0;
  for (size_t i = 0; i < r->in.file_count; i++) before += r->in.files[i].from.bytes;
  return (stow_shrink_info){.struct_bytes = sizeof(stow_shrink_info),
                            .resumed = r->resumed,
                            .bytes = r->bytes,
                            .bytes_after = r->bytes_after,
                            .file_bytes = before,
                            .file_bytes_after = r->written ? r->file_bytes : 0,
                            .item_count = r->item_count};
}

static stow_shrink_item model_item(const weights_result *r, uint64_t index) {
  const weights_item *i = &r->items[index];
  return (stow_shrink_item){.struct_bytes = sizeof(stow_shrink_item),
                            .sparse = 0,
                            .name = r->in.list[index].facts->name,
                            .from_dtype = i->from.facts->type_name,
                            .to_dtype = weights_becomes(i),
                            .exact = i->error.sum_error_squares == 0 && i->error.clipped == 0,
                            .error = weights_relative_error(&i->error),
                            .bytes = i->from.facts->bytes,
                            .bytes_after = i->bytes_after};
}

stow_status stow_shrink_get_info(const stow_shrink *s, stow_shrink_info *info) {
  if (s == NULL) return stow_fail(STOW_ERR_INVALID, "stow_shrink_get_info: shrink is NULL");
  const shrink_result *r = &s->result;
  stow_shrink_info full = {.struct_bytes = sizeof full,
                           .resumed = r->resumed,
                           .bytes = r->bytes,
                           .bytes_after = r->bytes_after,
                           .file_bytes = r->facts.file_bytes,
                           .file_bytes_after = r->file_bytes,
                           .item_count = r->item_count};
  if (s->is_model) full = model_info(&s->weights);
  return growing_write(info, &full, sizeof full, "stow_shrink_info");
}

stow_status stow_shrink_get_item(const stow_shrink *s, uint64_t index, stow_shrink_item *item) {
  if (s == NULL) return stow_fail(STOW_ERR_INVALID, "stow_shrink_get_item: shrink is NULL");
  const shrink_result *r = &s->result;
  size_t count = s->is_model ? s->weights.item_count : r->item_count;
  if (index >= count)
    return stow_fail(STOW_ERR_NOT_FOUND, "stow_shrink_get_item: no item %llu; there are %zu",
                     (unsigned long long)index, count);
  if (s->is_model) {
    stow_shrink_item one = model_item(&s->weights, index);
    return growing_write(item, &one, sizeof one, "stow_shrink_item");
  }
  const shrink_item *from = &r->items[index];
  const char *was = shrink_type(r, index);
  stow_shrink_item full = {.struct_bytes = sizeof full,
                           .sparse = from->sparse,
                           .name = shrink_name(r, index),
                           .from_dtype = was,
                           .to_dtype = from->to != DTYPE_NONE ? dtype_name(from->to) : was,
                           .exact = !from->rounded,
                           .error = from->error,
                           .bytes = from->bytes,
                           .bytes_after = from->bytes_after};
  return growing_write(item, &full, sizeof full, "stow_shrink_item");
}

const char *stow_shrink_text(const stow_shrink *s) {
  return s != NULL && s->text.data != NULL ? s->text.data : "";
}

const char *stow_shrink_json(const stow_shrink *s) {
  return s != NULL && s->json.data != NULL ? s->json.data : "";
}
