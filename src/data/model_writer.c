/* The public model writer (stowage/model.h): a safetensors file, tensor by tensor. */
#include <stowage/model.h>

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "arrays/tensors_write.h"
#include "base/growing.h"
#include "base/hash.h"
#include "files/writer.h"
#include "numbers/cast.h"

#define CONVERT_BYTES ((size_t)256 << 10) /* stays in the second cache */

struct stow_model_writer {
  writer out;
  bool open;
  char *path;
  tensor *list; /* in the caller's order */
  char **names;
  bool *allow_nan;
  _Atomic uint64_t *put; /* values written of each */
  uint64_t count, file_bytes;
};

void stow_model_writer_close(stow_model_writer *w) {
  if (w == NULL) return;
  if (w->open) writer_abandon(&w->out);
  for (uint64_t i = 0; w->names != NULL && i < w->count; i++) free(w->names[i]);
  free(w->names);
  free(w->allow_nan);
  free(w->list);
  free((void *)w->put);
  free(w->path);
  free(w);
}

static stow_status take_type(tensor *t, const char *text) {
  tensor_type stored = tensor_type_of_safetensors(text, strlen(text));
  dtype type;
  if (stored == TENSOR_NONE) {
    STOW_TRY(dtype_parse(&type, text));
    stored = tensor_type_of_dtype(type);
  }
  tensors_set_type(t, stored);
  return STOW_OK;
}

static stow_status take_entry(stow_model_writer *w, uint64_t i, const stow_model_entry *given) {
  stow_model_entry e = STOW_MODEL_ENTRY_INIT;
  source named = {.name = w->path};
  tensor *t = &w->list[i];
  STOW_TRY(growing_read(&e, sizeof e, given, "stow_model_entry"));
  if (given == NULL || e.name == NULL || e.dtype == NULL || (e.dims > 0 && e.shape == NULL))
    return stow_fail(STOW_ERR_INVALID, "stow_model_entry %" PRIu64 ": name, dtype or shape is NULL",
                     i);
  if (e.dims > TENSOR_DIMS_MAX)
    return stow_fail(STOW_ERR_INVALID, "tensor %.200s: %u dimensions; at most %d", e.name, e.dims,
                     TENSOR_DIMS_MAX);
  if (strcmp(e.name, "__metadata__") == 0)
    return stow_fail(STOW_ERR_INVALID, "a tensor cannot be named __metadata__ in safetensors");
  w->names[i] = strdup(e.name);
  if (w->names[i] == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for names");
  t->name = w->names[i];
  w->allow_nan[i] = e.allow_nan != 0;
  t->dims = e.dims;
  memcpy(t->shape, e.shape != NULL ? e.shape : t->shape, e.dims * sizeof t->shape[0]);
  STOW_TRY(take_type(t, e.dtype));
  STOW_TRY(tensors_count(t, &named));
  t->bytes = tensor_type_bytes(t->stored, t->count);
  return STOW_OK;
}

static stow_status check_names(const stow_model_writer *w) {
  map seen = {0};
  stow_status status = STOW_OK;
  for (uint64_t i = 0; i < w->count && status == STOW_OK; i++) {
    const char *name = w->list[i].name;
    uint64_t hash = hash_bytes(name, strlen(name), 0);
    const uint64_t *other = map_get(&seen, hash);
    if (other != NULL && strcmp(w->list[*other].name, name) == 0)
      status = stow_fail(STOW_ERR_INVALID, "tensor %.200s is listed twice", name);
    else if (other == NULL)
      status = map_put(&seen, hash, i);
  }
  map_free(&seen);
  return status;
}

static stow_status begin_file(stow_model_writer *w, const char *metadata) {
  buffer header = BUFFER_INIT;
  tensor **order = calloc(w->count + 1, sizeof *order);
  if (order == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a header");
  for (uint64_t i = 0; i < w->count; i++) order[i] = &w->list[i];
  stow_status status =
      safetensors_header(&header, order, (size_t)w->count, metadata, &w->file_bytes);
  free(order);
  if (status == STOW_OK)
    status = writer_open_partial(&w->out, w->path, NULL, w->file_bytes, false, false);
  w->open = status == STOW_OK;
  if (status == STOW_OK) status = writer_put(&w->out, 0, header.data, header.length);
  buffer_free(&header);
  return status;
}

static stow_status fill(stow_model_writer *w, const char *path,
                        const stow_model_entry *const *entries, const char *metadata) {
  w->path = strdup(path);
  w->list = calloc(w->count + 1, sizeof *w->list);
  w->names = calloc(w->count + 1, sizeof *w->names);
  w->allow_nan = calloc(w->count + 1, sizeof *w->allow_nan);
  w->put = calloc(w->count + 1, sizeof *w->put);
  if (w->path == NULL || w->list == NULL || w->names == NULL || w->allow_nan == NULL ||
      w->put == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %" PRIu64 " tensors", w->count);
  for (uint64_t i = 0; i < w->count; i++) STOW_TRY(take_entry(w, i, entries[i]));
  STOW_TRY(check_names(w));
  return begin_file(w, metadata);
}

stow_status stow_model_writer_open(stow_model_writer **out, const char *path,
                                   const stow_model_entry *const *entries, uint64_t count,
                                   const char *metadata) {
  if (out == NULL || path == NULL || (entries == NULL && count > 0))
    return stow_fail(STOW_ERR_INVALID, "stow_model_writer_open: writer, path or entries is NULL");
  *out = NULL;
  if (count > SIZE_MAX / sizeof(tensor) - 1)
    return stow_fail(STOW_ERR_INVALID, "stow_model_writer_open: %" PRIu64 " tensors", count);
  stow_model_writer *w = calloc(1, sizeof *w);
  if (w == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a writer");
  w->count = count;
  stow_status status = fill(w, path, entries, metadata);
  if (status == STOW_OK)
    *out = w;
  else
    stow_model_writer_close(w);
  return status;
}

/* Refuses converted values that are not finite, as shrink does. */
static stow_status check_finite(const tensor *t, const void *from, dtype from_type, const void *to,
                                dtype to_type, size_t count) {
  size_t after = cast_count_not_finite(to, to_type, count);
  if (after == 0) return STOW_OK;
  size_t before = cast_count_not_finite(from, from_type, count);
  if (before > 0)
    return stow_fail(STOW_ERR_INVALID,
                     "tensor %.200s: %zu value%s NaN or infinite: a damaged or diverged model; set "
                     "allow_nan to write it anyway",
                     t->name, before, before == 1 ? " is" : "s are");
  return stow_fail(
      STOW_ERR_INVALID,
      "tensor %.200s: %zu value%s too large for %s and would become infinite; write it "
      "as %s, or set allow_nan",
      t->name, after, after == 1 ? " is" : "s are", dtype_name(to_type),
      to_type == DTYPE_F16 ? "bfloat16 or float32" : dtype_name(from_type));
}

static stow_status put_converted(stow_model_writer *w, uint64_t index, uint64_t at, dtype from,
                                 uint64_t count, const uint8_t *values) {
  const tensor *t = &w->list[index];
  dtype to = tensor_type_get(t->stored)->type;
  uint8_t *run = malloc(CONVERT_BYTES);
  if (run == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to convert values");
  stow_status status = STOW_OK;
  for (uint64_t i = 0; i < count && status == STOW_OK;) {
    uint64_t part = CONVERT_BYTES / dtype_bytes(to);
    if (part > count - i) part = count - i;
    const uint8_t *in = values + i * dtype_bytes(from);
    (void)cast_values(run, to, in, from, (size_t)part);
    if (!w->allow_nan[index]) status = check_finite(t, in, from, run, to, (size_t)part);
    if (status == STOW_OK)
      status = writer_put(&w->out, at + i * dtype_bytes(to), run, (size_t)part * dtype_bytes(to));
    i += part;
  }
  free(run);
  return status;
}

stow_status stow_model_writer_put(stow_model_writer *w, uint64_t index, uint64_t first,
                                  uint64_t count, const char *type, const void *from) {
  if (w == NULL || !w->open || index >= w->count || (from == NULL && count > 0))
    return stow_fail(STOW_ERR_INVALID, "stow_model_writer_put: no entry %" PRIu64 ", or NULL",
                     index);
  const tensor *t = &w->list[index];
  dtype to = tensor_type_get(t->stored)->type, kind = to;
  if (count > t->count || first > t->count - count)
    return stow_fail(STOW_ERR_INVALID,
                     "tensor %.200s: %" PRIu64 " values from %" PRIu64
                     " given, but it has %" PRIu64,
                     t->name, count, first, t->count);
  if (type != NULL) STOW_TRY(dtype_parse(&kind, type));
  if (kind != to && to == DTYPE_NONE)
    return stow_fail(STOW_ERR_UNSUPPORTED, "tensor %.200s: values cannot be converted to %s",
                     t->name, t->type_name);
  uint64_t at = t->offset + tensor_type_bytes(t->stored, first);
  if (kind == to)
    STOW_TRY(writer_put(&w->out, at, from, (size_t)tensor_type_bytes(t->stored, count)));
  else
    STOW_TRY(put_converted(w, index, at, kind, count, from));
  atomic_fetch_add(&w->put[index], count);
  return STOW_OK;
}

stow_status stow_model_writer_commit(stow_model_writer *w) {
  if (w == NULL || !w->open)
    return stow_fail(STOW_ERR_STATE, "stow_model_writer_commit: nothing is open");
  for (uint64_t i = 0; i < w->count; i++)
    if (atomic_load(&w->put[i]) != w->list[i].count)
      return stow_fail(STOW_ERR_STATE,
                       "%s: tensor %.200s has %" PRIu64 " of its %" PRIu64
                       " values; write the rest",
                       w->path, w->list[i].name, atomic_load(&w->put[i]), w->list[i].count);
  STOW_TRY(writer_end(&w->out, w->file_bytes));
  w->open = false;
  return writer_commit(&w->out);
}
