/* Packed: see packed.h. */
#include "data/weights/packed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "data/weights/beside.h"
#include "data/weights/parts.h"

/* ---- names ---- */

/* Returns the length of the layer's name: "l" of "l.weight_scale", "l.weight.absmax", "l.scales"
 * and VPTQ's "l.centroids.weight". */
static size_t layer_length(const char *name) {
  static const char word[] = ".weight", centroids[] = "centroids";
  const char *last = strrchr(name, '.'), *inner = strstr(name, ".weight.");
  if (inner != NULL) return (size_t)(inner - name);
  if (last == NULL) return 0;
  size_t length = (size_t)(last - name), cut = sizeof centroids - 1;
  if (strncmp(last, word, sizeof word - 1) != 0 || length < cut ||
      strncmp(name + length - cut, centroids, cut) != 0)
    return length;
  while (length > 0 && name[length - 1] != '.') length--;
  return length > 0 ? length - 1 : 0;
}

static uint64_t layer_hash(const char *name) {
  return hash_bytes(name, layer_length(name), 0);
}

static bool ends_with_any(const char *name, const char *const *endings, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (text_ends(name, endings[i])) return true;
  return false;
}

/* A bias is no part of how the weights are stored. VPTQ's weight_bias is. */
static bool is_bias(const char *name) {
  const char *last = strrchr(name, '.');
  last = last != NULL ? last + 1 : name;
  return strcmp(last, "bias") == 0 ||
         (text_ends(last, "_bias") && strcmp(last, "weight_bias") != 0);
}

/* ---- types ---- */

/* Types in which no layer computes. */
static bool is_small(tensor_type t) {
  return weights_is_float8(t) || t == TENSOR_I8 || t == TENSOR_U8 || t == TENSOR_F4 ||
         t == TENSOR_F6_E2M3 || t == TENSOR_F6_E3M2;
}

/* int64 holds positions and counters. */
static bool is_integer(tensor_type t) {
  return t == TENSOR_I8 || t == TENSOR_U8 || t == TENSOR_I16 || t == TENSOR_U16 ||
         t == TENSOR_I32 || t == TENSOR_U32;
}

/* Packed weights by their names: compressed-tensors, GPTQ and AWQ, HQQ, quanto, torchao, AQLM,
 * EXL2, SpQR, VPTQ, MXFP4. */
static bool has_packed_name(const tensor *t) {
  static const char *const endings[] = {".weight_packed", ".qweight",       "._data",
                                        ".W_q",           ".weight_qdata",  ".codes",
                                        ".q_weight",      ".dense_weights", "_blocks"};
  bool whole = is_small(t->stored) || is_integer(t->stored) || t->stored == TENSOR_I64;
  return whole && t->dims > 0 && ends_with_any(t->name, endings, sizeof endings / sizeof *endings);
}

/* Returns whether the tensor holds the packed weights of its layer. */
static bool is_packed_weight(const packed_layers *p, const map *scaled, const tensor *t) {
  bool weight = text_ends(t->name, ".weight") && t->dims >= 2;
  if (t->dims == 0 || t->count == 0) return false;
  if (has_packed_name(t) || (weight && (t->stored == TENSOR_I8 || t->stored == TENSOR_U8)))
    return true;
  /* float8 without scales is a plain type: its values are the weights. */
  if (weight && is_small(t->stored) && map_get(scaled, layer_hash(t->name)) != NULL) return true;
  return p->method[0] != '\0' && is_integer(t->stored);
}

/* The scales of compressed-tensors, DeepSeek, GPTQ, AWQ, bitsandbytes and ComfyUI. Rounding them
 * changes every weight of the layer. */
bool weights_is_scale(const tensor *t) {
  static const char *const endings[] = {"_scale", "_scale_inv", ".scales",      "absmax",
                                        ".SCB",   "quant_map",  ".scale_weight"};
  for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
    if (text_ends(t->name, endings[i])) return true;
  return false;
}

static bool is_layer_scale(const tensor *t) {
  return weights_is_scale(t) || text_ends(t->name, ".scale");
}

/* ---- config.json ---- */

static void take_method(packed_layers *p, const json_tree *t) {
  const json_node *root = json_root(t);
  const json_node *found = json_member(t, root, "quantization_config");
  if (found == NULL || found->kind != JSON_OBJECT || found->count == 0) return;
  const char *method = json_string(t, json_member(t, found, "quant_method"));
  if (method == NULL) method = json_string(t, json_member(t, found, "quant_algo"));
  snprintf(p->method, sizeof p->method, "%s", method != NULL ? method : "quantization_config");
}

/* Reads the method from the config.json beside the model. One that cannot be read says nothing. */
static void read_method(packed_layers *p, const model *m) {
  static const struct {
    const char *file, *method;
  } others[] = {{"hf_quant_config.json", "modelopt"}, {"quantize_config.json", "gptq"}};
  char path[PATH_MAX];
  beside_config c;
  if (beside_config_open(&c, m)) {
    take_method(p, &c.tree);
    beside_config_close(&c);
  }
  for (size_t i = 0; i < sizeof others / sizeof others[0] && p->method[0] == '\0'; i++)
    if (beside_path(path, m, others[i].file) && access(path, F_OK) == 0)
      snprintf(p->method, sizeof p->method, "%s", others[i].method);
}

/* ---- all of it ---- */

stow_status packed_find(packed_layers *p, const model *m) {
  map scaled = {0};
  bool scales = false, float8 = false;
  stow_status status = STOW_OK;
  if (m->format == MODEL_GGUF) return STOW_OK;
  read_method(p, m);
  for (size_t i = 0; i < m->count && status == STOW_OK; i++) {
    const tensor *t = m->list[i].facts;
    if (is_layer_scale(t)) status = map_put(&scaled, layer_hash(t->name), 1);
    scales = scales || weights_is_scale(t);
    float8 = float8 || weights_is_float8(t->stored);
    p->sparse = p->sparse || (text_ends(t->name, ".bitmask") && t->stored == TENSOR_U8);
  }
  for (size_t i = 0; i < m->count && status == STOW_OK; i++) {
    const tensor *t = m->list[i].facts;
    if (text_ends(t->name, ".bitmask") || !is_packed_weight(p, &scaled, t)) continue;
    status = map_put(&p->layers, layer_hash(t->name), 1);
    p->any = true;
  }
  p->any = p->any || (float8 && scales);
  map_free(&scaled);
  return status;
}

bool packed_has_layer(const packed_layers *p, const char *name) {
  return p->any && map_get(&p->layers, layer_hash(name)) != NULL;
}

bool packed_holds(const packed_layers *p, const tensor *t) {
  if (!p->any) return false;
  if (weights_is_scale(t) || weights_is_float8(t->stored)) return true;
  return packed_has_layer(p, t->name) && !is_bias(t->name);
}

const char *packed_method(const packed_layers *p) {
  return p->method[0] != '\0' ? p->method : "an unknown method";
}

void packed_free(packed_layers *p) {
  map_free(&p->layers);
  *p = (packed_layers){0};
}
