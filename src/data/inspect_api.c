/* The public inspection (stowage/inspect.h): facts with their text and JSON. */
#include <stowage/inspect.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/growing.h"
#include "data/inspect_text.h"
#include "data/job.h"
#include "data/shards.h"
#include "data/weights/inspect.h"
#include "data/workers.h"

struct stow_inspection {
  file_facts facts;
  buffer text, json;
};

/* Adapts the caller's progress function to a budget's. */
static stow_status pass_on(void *context, uint64_t done, uint64_t total) {
  const data_job *job = context;
  int answer = job->progress(job->progress_user, done, total);
  if (answer == 0) return STOW_OK;
  return stow_fail(answer < 0 ? (stow_status)answer : STOW_ERR_INTERRUPTED,
                   "stopped by the caller after %llu of %llu bytes", (unsigned long long)done,
                   (unsigned long long)total);
}

stow_status data_job_fill(data_job *job, const stow_inspect_options *o) {
  *job = (data_job){.progress = o->progress, .progress_user = o->progress_user};
  job->budget = (budget){.bytes = o->memory_bytes != 0 ? o->memory_bytes : budget_default(),
                         .threads = o->threads != 0 ? o->threads : workers_default()};
  if (o->progress != NULL) {
    job->budget.progress = pass_on;
    job->budget.context = job;
  }
  if (o->threads > WORKERS_MAX)
    return stow_fail(STOW_ERR_INVALID, "threads: %u; use at most %d", o->threads, WORKERS_MAX);
  if (o->purpose > STOW_FOR_STORAGE)
    return stow_fail(STOW_ERR_INVALID,
                     "purpose: %u; use STOW_FOR_ARITHMETIC, _TRAINING or _STORAGE", o->purpose);
  job->budget.purpose = (scan_purpose)o->purpose;
  if (o->names > STOW_NAMES_NO)
    return stow_fail(STOW_ERR_INVALID, "names: %u; use STOW_NAMES_AUTO, _YES or _NO", o->names);
  job->in.header = o->names == STOW_NAMES_YES  ? HEADER_YES
                   : o->names == STOW_NAMES_NO ? HEADER_NO
                                               : HEADER_AUTO;
  if (o->raw_dtype != NULL) STOW_TRY(dtype_parse(&job->in.raw.type, o->raw_dtype));
  if (o->raw_shape != NULL) {
    if (o->raw_dims > ARRAY_DIMS_MAX)
      return stow_fail(STOW_ERR_INVALID, "raw_dims: %u; use at most %d", o->raw_dims,
                       ARRAY_DIMS_MAX);
    job->in.raw.has_shape = true;
    job->in.raw.dims = o->raw_dims;
    memcpy(job->in.raw.shape, o->raw_shape, o->raw_dims * sizeof o->raw_shape[0]);
  }
  STOW_TRY(table_options_read(&job->table, o->table));
  job->in.csv = job->table.csv;
  return budget_check(job->budget.bytes);
}

void data_job_free(data_job *job) {
  table_options_free(&job->table);
}

/* Reads a model: its tensors are the items; text and JSON are those of `stowage inspect`. */
static stow_status read_model(stow_inspection *i, const char *path, const data_job *job) {
  model_facts m;
  file_facts *f = &i->facts;
  STOW_TRY(model_inspect(&m, path, &job->budget));
  json j = JSON_PRETTY(&i->json);
  model_json(&j, &m, path, 0, 0);
  stow_status status = i->json.status;
  if (status == STOW_OK) status = model_text(&i->text, &m, path, 0, false);
  f->arrays = calloc(m.in.count + 1, sizeof *f->arrays);
  if (f->arrays == NULL) status = stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", path);
  for (size_t k = 0; k < m.in.count && status == STOW_OK; k++) {
    const tensor *t = m.in.list[k].facts;
    array_facts *to = &f->arrays[f->array_count++];
    snprintf(to->name, sizeof to->name, "%s", t->name);
    snprintf(to->type_name, sizeof to->type_name, "%s", t->type_name);
    to->type = t->type;
    to->dims = t->dims;
    memcpy(to->shape, t->shape, sizeof t->shape);
    to->count = t->count;
    to->bytes = to->bytes_after = t->bytes;
  }
  f->format = model_format_name(m.in.format);
  f->file_bytes = m.file_bytes;
  f->bytes = f->bytes_after = m.in.bytes;
  model_facts_free(&m);
  return status;
}

static stow_status read_file(stow_inspection *i, const char *path, const data_job *job) {
  if (job->in.raw.type == DTYPE_NONE && model_is(path)) return read_model(i, path, job);
  char title[PATH_MAX];
  STOW_TRY(inspect_file(&i->facts, path, &job->in, &job->budget));
  path = shards_title(path, title, sizeof title);
  json j = JSON_PRETTY(&i->json);
  inspect_json(&j, path, &i->facts, 0);
  STOW_TRY(i->json.status);
  return inspect_text(&i->text, path, &i->facts, false);
}

stow_status stow_inspect_file(stow_inspection **out, const char *path,
                              const stow_inspect_options *given) {
  if (out == NULL) return stow_fail(STOW_ERR_INVALID, "stow_inspect_file: inspection is NULL");
  *out = NULL;
  if (path == NULL) return stow_fail(STOW_ERR_INVALID, "stow_inspect_file: path is NULL");
  stow_inspect_options options = STOW_INSPECT_OPTIONS_INIT;
  data_job job = {0};
  STOW_TRY(growing_read(&options, sizeof options, given, "stow_inspect_options"));
  stow_inspection *made = calloc(1, sizeof *made);
  if (made == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "stow_inspect_file: no host memory");
  made->text = made->json = BUFFER_INIT;
  stow_status status = data_job_fill(&job, &options);
  if (status == STOW_OK) status = read_file(made, path, &job);
  data_job_free(&job);
  if (status != STOW_OK) {
    stow_inspection_close(made);
    return status;
  }
  *out = made;
  return STOW_OK;
}

void stow_inspection_close(stow_inspection *i) {
  if (i == NULL) return;
  inspect_free(&i->facts);
  buffer_free(&i->text);
  buffer_free(&i->json);
  free(i);
}

stow_status stow_inspection_get_info(const stow_inspection *i, stow_inspection_info *info) {
  if (i == NULL) return stow_fail(STOW_ERR_INVALID, "stow_inspection_get_info: inspection is NULL");
  const file_facts *f = &i->facts;
  stow_inspection_info full = {.struct_bytes = sizeof full,
                               .is_table = f->table,
                               .format = f->format,
                               .file_bytes = f->file_bytes,
                               .bytes = f->bytes,
                               .bytes_after = f->bytes_after,
                               .item_count = f->table ? f->column_count : f->array_count,
                               .rows = f->table ? f->rows : 0,
                               .has_names = f->table && f->has_header};
  return growing_write(info, &full, sizeof full, "stow_inspection_info");
}

static stow_inspection_item item_of_array(const array_facts *a) {
  return (stow_inspection_item){
      .struct_bytes = sizeof(stow_inspection_item),
      .scanned = a->scanned,
      .name = a->name,
      .dtype = a->type_name,
      .smallest_dtype = a->scanned ? dtype_name(a->smallest) : a->type_name,
      .shape = a->shape,
      .dims = a->dims,
      .sparse_is_smaller = a->sparse_is_smaller,
      .bytes = a->bytes,
      .bytes_after = a->bytes_after,
      .sparse_bytes = a->sparse_bytes,
      .zeros = a->scanned ? a->zeros : 0,
      .nans = a->scanned ? a->values.nans : 0,
      .infs = a->scanned ? a->values.infs : 0,
      .least = a->scanned ? a->values.least : 1,
      .most = a->scanned ? a->values.most : 0,
  };
}

static stow_inspection_item item_of_column(const file_facts *f, const column_facts *c) {
  return (stow_inspection_item){
      .struct_bytes = sizeof(stow_inspection_item),
      .scanned = !c->text,
      .name = c->apart != NULL ? c->apart : c->name,
      .dtype = c->type_name,
      .smallest_dtype = c->smallest != DTYPE_NONE ? dtype_name(c->smallest) : c->type_name,
      .shape = &f->rows,
      .dims = 1,
      .bytes = c->bytes,
      .bytes_after = c->bytes_after,
      .zeros = c->text ? 0 : c->values.zeros,
      .nans = c->text ? 0 : c->values.nans,
      .infs = c->text ? 0 : c->values.infs,
      .missing = c->missing,
      .least = c->text ? 1 : c->values.least,
      .most = c->text ? 0 : c->values.most,
  };
}

stow_status stow_inspection_get_item(const stow_inspection *i, uint64_t index,
                                     stow_inspection_item *item) {
  if (i == NULL) return stow_fail(STOW_ERR_INVALID, "stow_inspection_get_item: inspection is NULL");
  const file_facts *f = &i->facts;
  uint64_t count = f->table ? f->column_count : f->array_count;
  if (index >= count)
    return stow_fail(STOW_ERR_NOT_FOUND, "stow_inspection_get_item: no item %llu; there are %llu",
                     (unsigned long long)index, (unsigned long long)count);
  stow_inspection_item full =
      f->table ? item_of_column(f, &f->columns[index]) : item_of_array(&f->arrays[index]);
  return growing_write(item, &full, sizeof full, "stow_inspection_item");
}

const char *stow_inspection_text(const stow_inspection *i) {
  return i != NULL && i->text.data != NULL ? i->text.data : "";
}

const char *stow_inspection_json(const stow_inspection *i) {
  return i != NULL && i->json.data != NULL ? i->json.data : "";
}
