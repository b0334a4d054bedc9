/* Headers of safetensors and GGUF files (tensors_write.h). */
#include "arrays/tensors_write.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/json.h"

/* ---- safetensors ---- */

static int by_width_and_name(const void *a, const void *b) {
  const tensor *x = *(const tensor *const *)a, *y = *(const tensor *const *)b;
  int width = (int)tensor_type_get(y->stored)->bytes - (int)tensor_type_get(x->stored)->bytes;
  /* Types of one width in the package's order: its list of types, backwards. */
  if (width == 0 && x->stored != y->stored) return x->stored < y->stored ? -1 : 1;
  return width != 0 ? width : strcmp(x->name, y->name);
}

static void put_tensor(json *j, const tensor *one, uint64_t at) {
  json_key(j, one->name);
  json_begin_object(j);
  json_key(j, "dtype"), json_text(j, tensor_type_get(one->stored)->safetensors);
  json_key(j, "shape");
  json_begin_array(j);
  for (uint32_t i = 0; i < one->dims; i++) json_u64(j, one->shape[i]);
  json_end_array(j);
  json_key(j, "data_offsets");
  json_begin_array(j);
  json_u64(j, at);
  json_u64(j, at + one->bytes);
  json_end_array(j);
  json_end_object(j);
}

static void put_u64(char *to, uint64_t value) {
  for (int i = 0; i < 8; i++) to[i] = (char)(value >> (8 * i));
}

stow_status safetensors_header(buffer *out, tensor **list, size_t count, const char *metadata,
                               uint64_t *file_bytes) {
  size_t start = out->length;
  uint64_t at = 0;
  qsort(list, count, sizeof *list, by_width_and_name);
  buffer_append(out, "\0\0\0\0\0\0\0", 8);
  json j = JSON_COMPACT(out);
  json_begin_object(&j);
  if (metadata != NULL) {
    json_key(&j, "__metadata__");
    buffer_text(out, metadata);
    j.after_key = false;
    j.comma = true;
  }
  for (size_t i = 0; i < count; i++) {
    put_tensor(&j, list[i], at);
    list[i]->offset = at;
    at += list[i]->bytes;
  }
  json_end_object(&j);
  while (out->status == STOW_OK && (out->length - start) % 8 != 0) buffer_char(out, ' ');
  STOW_TRY(out->status);
  uint64_t header = out->length - start;
  put_u64(out->data + start, header - 8);
  for (size_t i = 0; i < count; i++) list[i]->offset += header;
  *file_bytes = header + at;
  return STOW_OK;
}

/* ---- GGUF ---- */

static void append_u32(buffer *out, uint32_t value) {
  char bytes[4];
  for (int i = 0; i < 4; i++) bytes[i] = (char)(value >> (8 * i));
  buffer_append(out, bytes, sizeof bytes);
}

static void append_u64(buffer *out, uint64_t value) {
  char bytes[8];
  put_u64(bytes, value);
  buffer_append(out, bytes, sizeof bytes);
}

static void append_text(buffer *out, const char *text) {
  append_u64(out, strlen(text));
  buffer_text(out, text);
}

static stow_status copy_keys(buffer *out, const tensors *t, source *from,
                             const gguf_change *change) {
  uint64_t bytes = t->keys_end - t->keys_at;
  char *keys = buffer_extend(out, (size_t)bytes);
  if (keys == NULL) return out->status;
  STOW_TRY(source_read(from, t->keys_at, keys, (size_t)bytes));
  if (t->file_type_at > 0 && change->file_type_known)
    for (int i = 0; i < 4; i++)
      keys[t->file_type_at - t->keys_at + (uint64_t)i] = (char)(change->file_type >> (8 * i));
  /* All parts become one file. llama-gguf-split --merge leaves the same 0. */
  if (t->split_count_at > 0) memset(keys + (t->split_count_at - t->keys_at), 0, 2);
  return STOW_OK;
}

stow_status gguf_header(buffer *out, tensor **list, size_t count, const tensors *t, source *from,
                        const gguf_change *change, uint64_t *file_bytes) {
  bool add_version = change->quantization_version && !t->has_quantization_version;
  size_t start = out->length;
  uint64_t at = 0;
  buffer_append(out, "GGUF", 4);
  append_u32(out, t->version);
  append_u64(out, count);
  append_u64(out, t->key_count + (add_version ? 1 : 0));
  STOW_TRY(copy_keys(out, t, from, change));
  if (add_version) {
    append_text(out, "general.quantization_version");
    append_u32(out, 4); /* uint32 */
    append_u32(out, 2); /* GGML_QNT_VERSION */
  }
  for (size_t i = 0; i < count; i++) {
    append_text(out, list[i]->name);
    append_u32(out, list[i]->dims);
    for (uint32_t k = list[i]->dims; k-- > 0;) append_u64(out, list[i]->shape[k]);
    append_u32(out, (uint32_t)tensor_type_get(list[i]->stored)->ggml);
    append_u64(out, at);
    list[i]->offset = at;
    at += round_up(list[i]->bytes, t->alignment);
  }
  while (out->status == STOW_OK && (out->length - start) % t->alignment != 0)
    buffer_char(out, '\0');
  STOW_TRY(out->status);
  for (size_t i = 0; i < count; i++) list[i]->offset += out->length - start;
  *file_bytes = out->length - start + at;
  return STOW_OK;
}
