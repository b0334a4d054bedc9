/* The public shrink (stowage/shrink.h): a job, and its result with text and JSON. */
#include <stowage/shrink.h>

#include <math.h>
#include <stdlib.h>

#include "base/growing.h"
#include "data/job.h"
#include "data/shrink_text.h"

#define FLAGS_KNOWN                                                                                \
  (STOW_SHRINK_ABSOLUTE | STOW_SHRINK_DRY_RUN | STOW_SHRINK_RESUME | STOW_SHRINK_NO_SYNC |         \
   STOW_SHRINK_FORCE)

struct stow_shrink {
  shrink_result result;
  bool done; /* result must be freed */
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
  in.progress = o->progress;
  in.progress_user = o->progress_user;
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

static stow_status do_it(stow_shrink *s, const char *in, const char *out, const shrink_options *o,
                         const budget *b) {
  STOW_TRY(shrink_file(&s->result, in, out, o, b));
  s->done = true;
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
  data_job job;
  STOW_TRY(growing_read(&options, sizeof options, given, "stow_shrink_options"));
  STOW_TRY(read_options(&inner, &job, &options));
  stow_shrink *made = calloc(1, sizeof *made);
  if (made == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "stow_shrink_file: no host memory");
  made->text = made->json = BUFFER_INIT;
  stow_status status = do_it(made, in, out, &inner, &job.budget);
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
  buffer_free(&s->text);
  buffer_free(&s->json);
  free(s);
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
  return growing_write(info, &full, sizeof full, "stow_shrink_info");
}

stow_status stow_shrink_get_item(const stow_shrink *s, uint64_t index, stow_shrink_item *item) {
  if (s == NULL) return stow_fail(STOW_ERR_INVALID, "stow_shrink_get_item: shrink is NULL");
  const shrink_result *r = &s->result;
  if (index >= r->item_count)
    return stow_fail(STOW_ERR_NOT_FOUND, "stow_shrink_get_item: no item %llu; there are %zu",
                     (unsigned long long)index, r->item_count);
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
