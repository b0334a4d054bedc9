/* Tied: see tied.h. */
#include "data/weights/tied.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "data/weights/parts.h"

#define READ_BYTES ((size_t)65536)

bool tied_is_last(const char *name, const char *end) {
  size_t a = strlen(name), b = strlen(end);
  return strcmp(name, end) == 0 || (a > b && name[a - b - 1] == '.' && text_ends(name, end));
}

bool tied_is_layer(const char *name, const char *layer) {
  size_t length = strlen(name), cut = strlen(".weight");
  char module[512];
  if (!text_ends(name, ".weight") || length - cut >= sizeof module)
    return tied_is_last(name, layer);
  snprintf(module, sizeof module, "%.*s", (int)(length - cut), name);
  return tied_is_last(module, layer);
}

bool tied_has_layer(const weights_result *r, const char *layer) {
  /* GPT-NeoX: lm_head since transformers 5, embed_out in files. */
  const char *other = strcmp(layer, "lm_head") == 0     ? "embed_out"
                      : strcmp(layer, "embed_out") == 0 ? "lm_head"
                                                        : layer;
  for (size_t i = 0; i < r->in.count; i++) {
    const char *name = r->in.list[i].facts->name;
    if (text_ends(name, ".weight") && (tied_is_layer(name, layer) || tied_is_layer(name, other)))
      return true;
  }
  return false;
}

static bool same_kind(const tensor *a, const tensor *b) {
  return a->stored == b->stored && a->dims == b->dims &&
         memcmp(a->shape, b->shape, a->dims * sizeof a->shape[0]) == 0;
}

static stow_status same_values(model *ma, const model_tensor *a, model *mb, const model_tensor *b,
                               bool *same) {
  uint8_t *bytes = malloc(2 * READ_BYTES);
  if (bytes == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to compare tensors");
  stow_status status = STOW_OK;
  *same = same_kind(a->facts, b->facts);
  for (uint64_t at = 0; at < a->facts->bytes && *same && status == STOW_OK; at += READ_BYTES) {
    size_t part = (size_t)(a->facts->bytes - at < READ_BYTES ? a->facts->bytes - at : READ_BYTES);
    status = source_read(&ma->files[a->file].from, a->facts->offset + at, bytes, part);
    if (status == STOW_OK)
      status =
          source_read(&mb->files[b->file].from, b->facts->offset + at, bytes + READ_BYTES, part);
    *same = status == STOW_OK && memcmp(bytes, bytes + READ_BYTES, part) == 0;
  }
  free(bytes);
  return status;
}

static bool is_embedding(const tensor *t, const tensor *like) {
  size_t length = strlen(t->name), cut = strlen(".weight");
  return text_ends(t->name, ".weight") && weights_is_embedding(t->name, length - cut) &&
         same_kind(t, like);
}

/* The weight of an output layer that the base does not have: equal to the embedding? */
static stow_status mark_weight(weights_result *r, adapter *a, adapter_module *m) {
  bool replaced = false;
  for (size_t i = 0; i < a->count && !m->tied; i++) {
    const adapter_module *other = &a->modules[i];
    if (other == m || other->saved == NULL || !is_embedding(other->saved->facts, m->saved->facts))
      continue;
    replaced = true;
    STOW_TRY(same_values(&a->weights, m->saved, &a->weights, other->saved, &m->tied));
  }
  for (size_t i = 0; i < r->in.count && !m->tied && !replaced; i++)
    if (is_embedding(r->in.list[i].facts, m->saved->facts))
      STOW_TRY(same_values(&a->weights, m->saved, &r->in, &r->in.list[i], &m->tied));
  return STOW_OK;
}

/* "cls.predictions.decoder.bias" is tied to "cls.predictions.bias". */
static stow_status mark_bias(weights_result *r, adapter *a, adapter_module *m) {
  static const char inner[] = ".decoder.bias", bias[] = ".bias";
  char other[512];
  size_t length = strlen(m->name);
  if (!text_ends(m->name, inner) || length >= sizeof other) return STOW_OK;
  snprintf(other, sizeof other, "%.*s%s", (int)(length - (sizeof inner - 1)), m->name, bias);
  if (model_find(&r->in, m->name) != NULL || model_find(&r->in, other) == NULL) return STOW_OK;
  for (size_t i = 0; i < a->count; i++)
    if (strcmp(a->modules[i].name, other) == 0 && a->modules[i].saved != NULL)
      return same_values(&a->weights, m->saved, &a->weights, a->modules[i].saved, &m->tied);
  return same_values(&a->weights, m->saved, &r->in, model_find(&r->in, other), &m->tied);
}

static bool has_name(const weights_result *r, const char *name) {
  for (size_t i = 0; i < r->in.count; i++) {
    const char *own = r->in.list[i].facts->name;
    if (tied_is_last(own, name) || tied_is_last(name, own)) return true;
  }
  return false;
}

/* The embedding under another name: "model.encoder.embed_tokens" of Marian is "model.shared". With
 * other values than the base's it stays: no tensor takes them. */
static stow_status mark_embedding(weights_result *r, adapter *a, adapter_module *m) {
  if (!is_embedding(m->saved->facts, m->saved->facts) || has_name(r, m->name)) return STOW_OK;
  for (size_t i = 0; i < r->in.count && !m->tied; i++)
    if (is_embedding(r->in.list[i].facts, m->saved->facts))
      STOW_TRY(same_values(&a->weights, m->saved, &r->in, &r->in.list[i], &m->tied));
  return STOW_OK;
}

static bool changes_layer(const adapter *a, const char *layer) {
  for (size_t i = 0; i < a->count; i++) {
    const adapter_module *m = &a->modules[i];
    if ((m->a != NULL || m->tokens != NULL) && tied_is_layer(m->name, layer)) return true;
  }
  return false;
}

stow_status tied_mark(weights_result *r, adapter *a) {
  for (size_t i = 0; i < a->count; i++)
    if (a->modules[i].saved != NULL) STOW_TRY(mark_embedding(r, a, &a->modules[i]));
  for (const char *const *head = weights_heads; *head != NULL; head++) {
    if (changes_layer(a, *head) || tied_has_layer(r, *head)) continue;
    bool kept = true;
    char bias[64];
    for (size_t i = 0; i < a->count; i++) {
      adapter_module *m = &a->modules[i];
      if (m->saved == NULL || !tied_is_layer(m->name, *head)) continue;
      STOW_TRY(mark_weight(r, a, m));
      kept = kept && m->tied;
    }
    snprintf(bias, sizeof bias, "%s.bias", *head);
    for (size_t i = 0; i < a->count && kept; i++)
      if (a->modules[i].saved != NULL && tied_is_last(a->modules[i].name, bias))
        STOW_TRY(mark_bias(r, a, &a->modules[i]));
  }
  return STOW_OK;
}
