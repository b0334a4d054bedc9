/* GGUF, versions 2 and 3, little-endian:
 *
 *   "GGUF" version tensors keys | key… | tensor… | padding | the tensors' bytes, each aligned
 *
 * Keys are skipped, except those that say how the tensors are stored. The file lists dimensions
 * fastest first. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "arrays/tensors.h"
#include "base/checked.h"
#include "base/hash.h"

#define TEXT_MAX  65535
#define ALIGNMENT "general.alignment"
#define KEY_BYTES 64 /* of the map, for each key */

enum {
  TYPE_U16 = 2,
  TYPE_U32 = 4,
  TYPE_BOOL = 7,
  TYPE_STRING = 8,
  TYPE_ARRAY = 9,
  TYPE_COUNT = 13
};

typedef struct cursor {
  source *from;
  uint64_t at;
  uint8_t window[4096];
  uint64_t window_at;
  size_t window_count;
  map keys; /* hashes of their names */
} cursor;

static stow_status refuse(const cursor *c, const char *why) {
  return stow_fail(STOW_ERR_FORMAT, "%s: at byte %" PRIu64 " of the GGUF header: %s", c->from->name,
                   c->at, why);
}

static stow_status take(cursor *c, void *to, size_t count) {
  uint8_t *into = to;
  while (count > 0) {
    uint64_t into_window = c->at - c->window_at;
    if (c->at < c->window_at || into_window >= c->window_count) {
      uint64_t left = c->at < c->from->bytes ? c->from->bytes - c->at : 0;
      if (left == 0) return refuse(c, "the file ends inside its header");
      c->window_count = left < sizeof c->window ? (size_t)left : sizeof c->window;
      c->window_at = c->at;
      STOW_TRY(source_read(c->from, c->at, c->window, c->window_count));
      continue;
    }
    size_t part = c->window_count - (size_t)into_window;
    if (part > count) part = count;
    memcpy(into, c->window + into_window, part);
    into += part;
    c->at += part;
    count -= part;
  }
  return STOW_OK;
}

static stow_status take_u32(cursor *c, uint32_t *value) {
  uint8_t bytes[4];
  STOW_TRY(take(c, bytes, sizeof bytes));
  *value = source_u32(bytes);
  return STOW_OK;
}

static stow_status take_u64(cursor *c, uint64_t *value) {
  uint8_t bytes[8];
  STOW_TRY(take(c, bytes, sizeof bytes));
  *value = source_u64(bytes);
  return STOW_OK;
}

static stow_status pass_over(cursor *c, uint64_t count) {
  if (c->at > c->from->bytes || count > c->from->bytes - c->at)
    return refuse(c, "a value extends past the end of the file");
  c->at += count;
  return STOW_OK;
}

static stow_status take_name(cursor *c, char name[TEXT_MAX + 1], size_t *length) {
  uint64_t count;
  STOW_TRY(take_u64(c, &count));
  if (count > TEXT_MAX) return refuse(c, "a name is longer than 65535 bytes");
  *length = (size_t)count;
  STOW_TRY(take(c, name, *length));
  name[*length] = '\0';
  return STOW_OK;
}

/* Bytes of one value of each type; 0 for texts and lists. */
static const uint8_t widths[TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

static stow_status pass_values(cursor *c, uint32_t type, uint64_t count) {
  uint64_t bytes, length;
  if (type == TYPE_STRING) {
    if (count > c->from->bytes / 8) return refuse(c, "more texts than fit in the file");
    for (uint64_t i = 0; i < count; i++) {
      STOW_TRY(take_u64(c, &length));
      STOW_TRY(pass_over(c, length));
    }
    return STOW_OK;
  }
  if (!checked_mul(&bytes, count, widths[type]))
    return refuse(c, "the size of a list exceeds 64 bits");
  if (type != TYPE_BOOL) return pass_over(c, bytes);
  for (uint64_t i = 0; i < count; i++) {
    uint8_t value;
    STOW_TRY(take(c, &value, 1));
    if (value > 1) return refuse(c, "a bool is neither 0 nor 1");
  }
  return STOW_OK;
}

/* Reads split.count or split.no, the uint16 that the cursor is at. */
static stow_status take_split(cursor *c, tensors *t, bool is_count) {
  uint8_t bytes[2];
  uint64_t at = c->at;
  STOW_TRY(take(c, bytes, sizeof bytes));
  if (is_count) t->split_count_at = at;
  *(is_count ? &t->split_count : &t->split_number) = source_u16(bytes);
  return STOW_OK;
}

/* llama.cpp loads no file with a key twice. */
static stow_status check_once(cursor *c, tensors *t, const char *name, size_t length) {
  uint64_t hash = hash_bytes(name, length, 0);
  t->used_bytes += KEY_BYTES;
  if (t->used_bytes > t->max_bytes)
    return stow_fail(STOW_ERR_BUDGET,
                     "%s: its list of keys needs more than %" PRIu64
                     " KiB of memory; raise --memory",
                     c->from->name, t->max_bytes >> 10);
  if (map_get(&c->keys, hash) != NULL)
    return stow_fail(STOW_ERR_FORMAT, "%s: duplicate key %.200s", c->from->name, name);
  return map_put(&c->keys, hash, 1);
}

static stow_status take_key(cursor *c, tensors *t, char *name) {
  size_t length = 0;
  uint32_t type = 0;
  uint64_t count = 1;
  STOW_TRY(take_name(c, name, &length));
  STOW_TRY(check_once(c, t, name, length));
  STOW_TRY(take_u32(c, &type));
  if (type == TYPE_ARRAY) {
    STOW_TRY(take_u32(c, &type));
    STOW_TRY(take_u64(c, &count));
    if (type == TYPE_ARRAY) return refuse(c, "nested lists are not supported");
  } else if (strcmp(name, ALIGNMENT) == 0) {
    uint32_t value;
    if (type != TYPE_U32) return refuse(c, ALIGNMENT " is not a uint32");
    STOW_TRY(take_u32(c, &value));
    if (value < 8 || !is_power_of_two(value) || value > 1u << 20)
      return refuse(c, ALIGNMENT " is not a power of two from 8 to 2^20");
    t->alignment = value;
    return STOW_OK;
  }
  if (type >= TYPE_COUNT) return refuse(c, "a value has an unknown type");
  bool is_count = strcmp(name, "split.count") == 0;
  if (type == TYPE_U16 && count == 1 && (is_count || strcmp(name, "split.no") == 0))
    return take_split(c, t, is_count);
  if (strcmp(name, "general.file_type") == 0 && type == TYPE_U32 && count == 1)
    t->file_type_at = c->at;
  if (strcmp(name, "general.quantization_version") == 0) t->has_quantization_version = true;
  return pass_values(c, type, count);
}

static stow_status take_tensor(cursor *c, tensors *t, char *name) {
  size_t length = 0;
  uint32_t dims = 0, type = 0;
  tensor *one = NULL;
  STOW_TRY(take_name(c, name, &length));
  STOW_TRY(tensors_add(t, c->from, name, length, &one));
  STOW_TRY(take_u32(c, &dims));
  if (dims > 4) return refuse(c, "a tensor has more than 4 dimensions");
  one->dims = dims;
  for (uint32_t i = 0; i < dims; i++) STOW_TRY(take_u64(c, &one->shape[dims - 1 - i]));
  STOW_TRY(take_u32(c, &type));
  tensor_type stored = tensor_type_of_ggml(type);
  if (stored == TENSOR_NONE) return refuse(c, "a tensor has an unknown type");
  const tensor_type_info *info = tensor_type_get(stored);
  tensors_set_type(one, stored);
  STOW_TRY(tensors_count(one, c->from));
  uint64_t row = dims > 0 ? one->shape[dims - 1] : 1;
  if (row % info->block != 0) return refuse(c, "the rows are not a multiple of the block");
  if (!checked_mul(&one->bytes, one->count / info->block, info->bytes))
    return refuse(c, "the size of a tensor exceeds 64 bits");
  return take_u64(c, &one->offset);
}

static stow_status place_tensors(cursor *c, tensors *t) {
  uint64_t alignment = t->alignment, data_at = round_up(c->at, alignment);
  for (size_t i = 0; i < t->count; i++) {
    if (t->list[i].offset % alignment != 0) return refuse(c, "a tensor is not aligned");
    if (!checked_add(&t->list[i].offset, t->list[i].offset, data_at))
      return refuse(c, "an offset exceeds 64 bits");
  }
  return STOW_OK;
}

static stow_status read_all(cursor *c, tensors *t, char name[TEXT_MAX + 1]) {
  char magic[4];
  uint64_t tensor_count;
  STOW_TRY(take(c, magic, 4));
  if (memcmp(magic, "GGUF", 4) != 0) return refuse(c, "not a GGUF file");
  STOW_TRY(take_u32(c, &t->version));
  if (t->version != 0 && (t->version & 0xffff) == 0)
    return refuse(c, "a big-endian file; convert it with gguf-convert-endian");
  if (t->version != 2 && t->version != 3)
    return refuse(c, "unsupported version; only 2 and 3 can be read");
  STOW_TRY(take_u64(c, &tensor_count));
  STOW_TRY(take_u64(c, &t->key_count));
  t->keys_at = c->at;
  for (uint64_t i = 0; i < t->key_count; i++) STOW_TRY(take_key(c, t, name));
  t->keys_end = c->at;
  for (uint64_t i = 0; i < tensor_count; i++) STOW_TRY(take_tensor(c, t, name));
  STOW_TRY(place_tensors(c, t));
  return tensors_check(t, c->from);
}

stow_status gguf_read(tensors *t, source *from, uint64_t max_bytes) {
  *t = (tensors){.max_bytes = max_bytes, .alignment = 32};
  cursor c = {.from = from};
  char *name = malloc(TEXT_MAX + 1); /* too large for a small stack */
  if (name == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a name");
  stow_status status = read_all(&c, t, name);
  map_free(&c.keys);
  free(name);
  if (status != STOW_OK) tensors_free(t);
  return status;
}
