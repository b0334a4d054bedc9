/* Count: see count.h. The layouts are those that the methods write, by names and types; where names
 * leave it open, the shapes of the scales decide, then config.json. */
#include "data/weights/count.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/hash.h"
#include "base/text.h"
#include "data/weights/beside.h"

#define LONGEST   1024 /* a longer name has no tensors beside it */
#define STATE_MAX 4096 /* bytes of the quant_state of bitsandbytes */
#define DEPTH_MAX 6

typedef struct counting {
  model *m;
  map names;  /* hash of a name to the tensor's place */
  map layers; /* hashes of the names before ".weight" of packed layers, and of packed parameters */
  beside_config config;
  const json_node *method; /* quantization_config; NULL: none */
  bool has_config;
} counting;

/* ---- tensors beside each other ---- */

/* Returns the tensor whose name is the first `length` bytes of `stem` and `ending`, or NULL. */
static const model_tensor *beside(const counting *c, const char *stem, size_t length,
                                  const char *ending) {
  char name[LONGEST];
  int all = snprintf(name, sizeof name, "%.*s%s", (int)length, stem, ending);
  if (length >= sizeof name || all < 0 || (size_t)all >= sizeof name) return NULL;
  const uint64_t *place = map_get(&c->names, hash_bytes(name, (size_t)all, 0));
  if (place == NULL || strcmp(c->m->list[*place].facts->name, name) != 0) return NULL;
  return &c->m->list[*place];
}

static const tensor *facts_beside(const counting *c, const char *stem, size_t length,
                                  const char *ending) {
  const model_tensor *found = beside(c, stem, length, ending);
  return found != NULL ? found->facts : NULL;
}

/* The scales of a layer, or of a parameter of stacked experts. */
static const tensor *scale_of(const counting *c, const char *stem, size_t length) {
  static const char *const endings[] = {".weight_scale",
                                        ".weight_scale_inv",
                                        ".weight_scales",
                                        ".scales",
                                        ".scale",
                                        ".scale_weight",
                                        "._weight_scale",
                                        "._weight_block_scale",
                                        ".weight._scale",
                                        ".weight.absmax",
                                        ".SCB",
                                        "_scale",
                                        "_scale_inv",
                                        "_scales",
                                        "_weight_scale",
                                        "_weight_scale_inv",
                                        ".weight_block_scale"};
  for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
    const tensor *found = facts_beside(c, stem, length, endings[i]);
    if (found != NULL) return found;
  }
  return NULL;
}

/* Reads the shape that a tensor beside the weights holds, and returns the number of values; 0:
 * there is none, or it is impossible for weights in `bytes` bytes. */
static uint64_t stated(const counting *c, const char *stem, size_t length, const char *ending,
                       uint64_t bytes) {
  uint8_t raw[8 * TENSOR_DIMS_MAX];
  const model_tensor *t = beside(c, stem, length, ending);
  if (t == NULL || (t->facts->stored != TENSOR_I64 && t->facts->stored != TENSOR_I32) ||
      t->facts->count == 0 || t->facts->bytes > sizeof raw)
    return 0;
  source *from = &c->m->files[t->file].from;
  if (from->fd < 0 || source_read(from, t->facts->offset, raw, (size_t)t->facts->bytes) != STOW_OK)
    return 0;
  uint64_t count = 1;
  for (uint64_t i = 0; i < t->facts->count; i++) {
    bool wide = t->facts->stored == TENSOR_I64;
    uint64_t side = wide ? source_u64(raw + 8 * i) : source_u32(raw + 4 * i);
    if (!checked_mul(&count, count, side)) return 0;
  }
  return count / 64 <= bytes ? count : 0;
}

/* ---- config.json ---- */

/* Returns a number of the quantization's settings that describes the weights; 0: none. */
static double setting(const counting *c, const json_node *in, const char *const *keys, int depth) {
  double value = 0;
  for (size_t i = 0; keys[i] != NULL && in != NULL; i++)
    if (json_value(&c->config.tree, json_member(&c->config.tree, in, keys[i]), &value))
      return value;
  for (const json_node *n = json_first(&c->config.tree, in); n != NULL && depth > 0;
       n = json_next(&c->config.tree, n)) {
    const char *key = in->kind == JSON_OBJECT ? json_key_of(&c->config.tree, n) : "";
    if ((n->kind != JSON_OBJECT && n->kind != JSON_ARRAY) || strstr(key, "activations") != NULL ||
        strstr(key, "kv_cache") != NULL)
      continue;
    value = setting(c, n, keys, depth - 1);
    if (value != 0) return value;
  }
  return 0;
}

/* Returns the bits of a weight that config.json states, or `otherwise`. */
static uint64_t bits_of(const counting *c, uint64_t otherwise) {
  static const char *const keys[] = {"bits", "num_bits", "nbits", "w_bit", NULL};
  double bits = c->method != NULL ? setting(c, c->method, keys, DEPTH_MAX) : 0;
  return bits >= 1 && bits <= 64 ? (uint64_t)bits : otherwise;
}

static bool is_set_to(const counting *c, const char *key, const char *value) {
  if (c->method == NULL) return false;
  const json_tree *t = &c->config.tree;
  const char *have = json_string(t, json_member(t, c->method, key));
  return have != NULL && strcmp(have, value) == 0;
}

static bool is_method(const counting *c, const char *name) {
  return is_set_to(c, "quant_method", name);
}

/* MLX: the settings of a layer, or of all. */
static uint64_t mlx_setting(const counting *c, const char *stem, size_t length, const char *key) {
  char layer[LONGEST];
  double value = 0;
  const json_tree *t = &c->config.tree;
  if (c->method == NULL || length >= sizeof layer) return 0;
  snprintf(layer, sizeof layer, "%.*s", (int)length, stem);
  const json_node *own = json_member(t, c->method, layer);
  if (own == NULL || own->kind != JSON_OBJECT || !json_value(t, json_member(t, own, key), &value))
    (void)json_value(t, json_member(t, c->method, key), &value);
  return value >= 1 && value <= 65536 ? (uint64_t)value : 0;
}

/* VPTQ: the size of a layer. */
static uint64_t vptq_count(const counting *c, const char *stem, size_t length) {
  char layer[LONGEST];
  double in = 0, out = 0;
  const json_tree *t = &c->config.tree;
  if (c->method == NULL || length >= sizeof layer) return 0;
  snprintf(layer, sizeof layer, "%.*s", (int)length, stem);
  const json_node *own = json_member(t, json_member(t, c->method, "config_for_layers"), layer);
  bool known = own != NULL && json_value(t, json_member(t, own, "in_features"), &in) &&
               json_value(t, json_member(t, own, "out_features"), &out);
  return known && in >= 1 && out >= 1 && in < 1e9 && out < 1e9 ? (uint64_t)in * (uint64_t)out : 0;
}

/* ---- the methods ---- */

static bool is_integer(tensor_type t) {
  return t >= TENSOR_I64 && t <= TENSOR_U8;
}

static bool is_byte(tensor_type t) {
  return t == TENSOR_U8 || t == TENSOR_I8;
}

static bool is_float8(tensor_type t) {
  return t >= TENSOR_F8_E4M3 && t <= TENSOR_F8_E5M2FNUZ;
}

/* Returns how many weights of `bits` bits a packed tensor holds. */
static uint64_t unpacked(const tensor *t, uint64_t bits) {
  return (uint64_t)((unsigned __int128)t->bytes * 8 / bits);
}

/* Bytes: one weight each, or several. The scales show it: those of 8 bits belong to 16 (NVFP4) or
 * 32 weights, and some methods pack neighbouring rows, while there is a scale for each row. */
static uint64_t count_bytes(const counting *c, const tensor *t, const tensor *scale) {
  if (is_method(c, "bitnet")) return unpacked(t, 2);
  if (is_method(c, "higgs")) return unpacked(t, bits_of(c, 4));
  if (is_method(c, "gemma") && t->stored == TENSOR_U8) return unpacked(t, bits_of(c, 4));
  if (scale == NULL || scale->count == 0) return t->count;
  if (is_float8(scale->stored) || is_byte(scale->stored)) {
    uint64_t each = t->count / scale->count;
    return each == 8 || each == 16 ? unpacked(t, 4) : each == 24 ? unpacked(t, 6) : t->count;
  }
  bool rows = t->dims >= 2 && t->dims == scale->dims && t->shape[t->dims - 2] > 1;
  if (rows && scale->shape[t->dims - 2] == 2 * t->shape[t->dims - 2]) return unpacked(t, 4);
  return t->count;
}

/* bitsandbytes in 4 bits. Its quant_state states the shape, as `"shape": [4096, 11008]`. */
static uint64_t count_bnb(const counting *c, const tensor *t, const char *stem, size_t length) {
  static const char *const endings[] = {".weight.quant_state.bitsandbytes__nf4",
                                        ".weight.quant_state.bitsandbytes__fp4"};
  char text[STATE_MAX];
  for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
    const model_tensor *state = beside(c, stem, length, endings[i]);
    json_tree tree;
    if (state == NULL || state->facts->bytes == 0 || state->facts->bytes > sizeof text ||
        c->m->files[state->file].from.fd < 0 ||
        source_read(&c->m->files[state->file].from, state->facts->offset, text,
                    (size_t)state->facts->bytes) != STOW_OK ||
        json_tree_read(&tree, text, (size_t)state->facts->bytes, "quant_state", 16 * STATE_MAX) !=
            STOW_OK)
      continue;
    const json_node *shape = json_member(&tree, json_root(&tree), "shape");
    double count = shape != NULL && shape->kind == JSON_ARRAY ? 1 : 0, side;
    for (const json_node *n = json_first(&tree, shape); n != NULL; n = json_next(&tree, n))
      count = json_value(&tree, n, &side) ? count * side : 0;
    json_tree_free(&tree);
    if (count >= 1 && count <= 2 * (double)t->bytes) return (uint64_t)count;
  }
  return unpacked(t, 4);
}

/* GPTQ and AWQ: zero points are packed like the weights, one for each scale. */
static uint64_t count_qweight(const counting *c, const tensor *t, const char *stem, size_t length) {
  const tensor *zeros = facts_beside(c, stem, length, ".qzeros");
  const tensor *scales = scale_of(c, stem, length);
  if (is_byte(t->stored)) return count_bytes(c, t, scales);
  uint64_t bits = 0;
  if (zeros != NULL && scales != NULL && scales->count > 0 && is_integer(zeros->stored))
    bits = zeros->bytes * 8 / scales->count;
  return unpacked(t, bits >= 1 && bits <= 8 ? bits : bits_of(c, 4));
}

/* MLX, and Metal of transformers: uint32 and a scale for each group of weights in a row. */
static uint64_t count_mlx(const counting *c, const tensor *t, const tensor *scale, const char *stem,
                          size_t length) {
  uint64_t bits = mlx_setting(c, stem, length, "bits");
  uint64_t group = mlx_setting(c, stem, length, "group_size"), count;
  if (bits >= 1 && bits <= 32) return unpacked(t, bits);
  if (group == 0) group = is_byte(scale->stored) ? 32 : 64;
  return checked_mul(&count, scale->count, group) ? count : t->count;
}

static uint64_t count_aqlm(const counting *c, const tensor *t, const char *stem, size_t length) {
  const tensor *books = facts_beside(c, stem, length, ".codebooks");
  uint64_t count;
  if (books == NULL || books->dims != 4 || t->dims < 2 ||
      !checked_mul(&count, t->shape[0], t->shape[1]) ||
      !checked_mul(&count, count, books->shape[2]) || !checked_mul(&count, count, books->shape[3]))
    return t->count;
  return count;
}

static uint64_t count_exl2(const counting *c, const tensor *t, const char *stem, size_t length) {
  const tensor *rows = facts_beside(c, stem, length, ".q_invperm");
  uint64_t count;
  bool known = rows != NULL && t->dims == 2 && checked_mul(&count, rows->count, t->shape[1]);
  return known ? count : t->count;
}

typedef enum layout {
  LAYOUT_PLAIN, /* the layer's own weight, or a parameter with scales */
  LAYOUT_STATED_4,
  LAYOUT_GPTQ,
  LAYOUT_HQQ,
  LAYOUT_QUANTO,
  LAYOUT_AO,
  LAYOUT_BLOCKS,
  LAYOUT_AQLM,
  LAYOUT_VPTQ,
  LAYOUT_EXL2,
  LAYOUT_EXL3,
  LAYOUT_SPQR
} layout;

/* Returns the layout that the end of a name shows, and the length of what is before it. */
static layout layout_of(const char *name, size_t *length) {
  static const struct {
    const char *ending;
    layout what;
  } endings[] = {{".weight_packed", LAYOUT_STATED_4},
                 {".qweight", LAYOUT_GPTQ},
                 {".W_q", LAYOUT_HQQ},
                 {".weight._data._data", LAYOUT_QUANTO},
                 {".weight._data", LAYOUT_PLAIN},
                 {".weight_qdata", LAYOUT_AO},
                 {"._weight_qdata", LAYOUT_AO},
                 {"_blocks", LAYOUT_BLOCKS},
                 {".codes", LAYOUT_AQLM},
                 {".indices", LAYOUT_VPTQ},
                 {".q_weight", LAYOUT_EXL2},
                 {".trellis", LAYOUT_EXL3},
                 {".dense_weights", LAYOUT_SPQR},
                 {".weight", LAYOUT_PLAIN}};
  *length = strlen(name);
  for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
    if (!text_ends(name, endings[i].ending)) continue;
    *length -= strlen(endings[i].ending);
    return endings[i].what;
  }
  return LAYOUT_PLAIN;
}

/* Integers without a scale are positions and counters, unless they have the name of weights. */
static uint64_t count_plain(const counting *c, const tensor *t, size_t length) {
  const tensor *scale = scale_of(c, t->name, length);
  bool weight = length < strlen(t->name);
  if (is_byte(t->stored) && facts_beside(c, t->name, length, ".weight.absmax") != NULL)
    return count_bnb(c, t, t->name, length);
  if (is_byte(t->stored) && (scale != NULL || (weight && t->dims >= 2)))
    return count_bytes(c, t, scale);
  if (scale == NULL) return 0;
  if (t->stored == TENSOR_U32) return count_mlx(c, t, scale, t->name, length);
  bool packed = c->method != NULL && t->stored != TENSOR_I64 && t->stored != TENSOR_U64;
  return packed ? unpacked(t, bits_of(c, 8 * tensor_type_get(t->stored)->bytes)) : 0;
}

/* torchao: its 4-bit tensors have scales of the shape groups x rows, the others rows x groups. */
static uint64_t count_ao(const counting *c, const tensor *t, size_t length) {
  const tensor *scale = scale_of(c, t->name, length);
  if (!is_byte(t->stored)) return unpacked(t, 4);
  bool turned = scale != NULL && t->dims == 2 && scale->dims == 2 &&
                scale->shape[1] == t->shape[0] && scale->shape[0] != t->shape[0];
  return turned ? unpacked(t, 4) : count_bytes(c, t, scale);
}

/* Returns how many weights a tensor of integers holds; 0: it holds none. */
static uint64_t count_integers(const counting *c, const tensor *t, size_t *length) {
  layout what = layout_of(t->name, length);
  uint64_t known = 0;
  bool byte = is_byte(t->stored);
  if (t->dims == 0 || t->count == 0 || t->stored == TENSOR_BOOL) return 0;
  switch (what) {
  case LAYOUT_PLAIN: return count_plain(c, t, *length);
  case LAYOUT_STATED_4:
    known = stated(c, t->name, *length, ".weight_shape", t->bytes);
    if (known > 0) return known;
    return byte ? count_bytes(c, t, scale_of(c, t->name, *length)) : unpacked(t, bits_of(c, 4));
  case LAYOUT_GPTQ: return count_qweight(c, t, t->name, *length);
  case LAYOUT_HQQ:
    known = stated(c, t->name, *length, ".shape", t->bytes);
    if (known > 0) return known;
    return byte ? unpacked(t, bits_of(c, 4)) : t->count * 10; /* 3 bits: ten in 32 */
  case LAYOUT_QUANTO: return unpacked(t, is_set_to(c, "weights", "int2") ? 2 : 4);
  case LAYOUT_AO: return count_ao(c, t, *length);
  case LAYOUT_BLOCKS:
    return facts_beside(c, t->name, *length, "_scales") != NULL && byte ? unpacked(t, 4) : 0;
  case LAYOUT_AQLM: return count_aqlm(c, t, t->name, *length);
  case LAYOUT_VPTQ:
    known = vptq_count(c, t->name, *length);
    if (facts_beside(c, t->name, *length, ".centroids.weight") == NULL) return 0;
    return known > 0 ? known : t->count;
  case LAYOUT_EXL2: return count_exl2(c, t, t->name, *length);
  case LAYOUT_EXL3: return t->dims == 3 ? t->shape[0] * t->shape[1] * 256 : t->count;
  case LAYOUT_SPQR: return t->count * 16; /* 48 bits of weights and 16 of scales */
  }
  return 0;
}

/* ---- all of it ---- */

/* Float types that need scales beside them. */
static bool is_small_float(tensor_type t) {
  return is_float8(t) || t == TENSOR_F4 || t == TENSOR_F6_E2M3 || t == TENSOR_F6_E3M2;
}

static bool is_float(const tensor *t) {
  const tensor_type_info *info = tensor_type_get(t->stored);
  return info->block > 1 || info->type == DTYPE_NONE || dtype_kind(info->type) == CLASS_FLOAT;
}

static stow_status add_layer(counting *c, const char *name, size_t length) {
  return map_put(&c->layers, hash_bytes(name, length, 0), 1);
}

/* Sets the counts of packed weights, and lists their layers. */
static stow_status count_packed(counting *c, uint64_t *counts) {
  for (size_t i = 0; i < c->m->count; i++) {
    const tensor *t = c->m->list[i].facts;
    size_t length = 0;
    bool blocks = c->m->format == MODEL_GGUF && tensor_type_get(t->stored)->block > 1;
    if (is_float(t)) {
      counts[i] = t->count;
      (void)layout_of(t->name, &length);
      bool small = is_small_float(t->stored) && scale_of(c, t->name, length) != NULL;
      if (blocks || small) STOW_TRY(add_layer(c, t->name, length));
      if (!text_ends(t->name, ".compressed")) continue;
      length = strlen(t->name) - strlen(".compressed");
      const tensor *bits = facts_beside(c, t->name, length, ".bitmask");
      uint64_t all = bits != NULL ? stated(c, t->name, length, ".shape", bits->bytes) : 0;
      if (all > 0) counts[i] = all;
    } else if (c->m->format != MODEL_GGUF) {
      counts[i] = count_integers(c, t, &length);
      if (counts[i] > 0) STOW_TRY(add_layer(c, t->name, length));
    }
  }
  return STOW_OK;
}

static bool has_layer(const counting *c, const char *name, size_t length) {
  return map_get(&c->layers, hash_bytes(name, length, 0)) != NULL;
}

/* Returns whether a tensor describes the packed weights of its layer. */
static bool is_description(const counting *c, const tensor *t) {
  static const char *const stacked[] = {"_scale",
                                        "_scales",
                                        "_scale_inv",
                                        "_weight_scale",
                                        "_input_scale",
                                        "_weight_scale_inv",
                                        "_weight_scale_2",
                                        "_global_scale",
                                        "_activation_scale",
                                        "_scale_2",
                                        "_input_global_scale"};
  const char *last = strrchr(t->name, '.'), *inner = strstr(t->name, ".weight.");
  size_t length = strlen(t->name);
  for (size_t i = 0; i < sizeof stacked / sizeof stacked[0]; i++)
    if (text_ends(t->name, stacked[i]) && has_layer(c, t->name, length - strlen(stacked[i])))
      return true;
  if (inner != NULL && has_layer(c, t->name, (size_t)(inner - t->name))) return true;
  if (last == NULL) return false;
  if (strcmp(last, ".weight") == 0) { /* VPTQ's "l.centroids.weight" */
    while (last > t->name && last[-1] != '.') last--;
    bool table = text_ends(t->name, "centroids.weight") && last > t->name;
    return table && has_layer(c, t->name, (size_t)(last - 1 - t->name));
  }
  return strcmp(last, ".bias") != 0 && has_layer(c, t->name, (size_t)(last - t->name));
}

static void open_config(counting *c) {
  c->has_config = c->m->format != MODEL_GGUF && beside_config_open(&c->config, c->m);
  if (!c->has_config) return;
  const json_tree *t = &c->config.tree;
  c->method = json_member(t, json_root(t), "quantization_config");
  if (c->method == NULL) c->method = json_member(t, json_root(t), "quantization");
  if (c->method != NULL && c->method->kind != JSON_OBJECT) c->method = NULL;
}

stow_status count_parameters(uint64_t *counts, model *m) {
  counting c = {.m = m};
  stow_status status = STOW_OK;
  for (size_t i = 0; i < m->count && status == STOW_OK; i++) {
    const char *name = m->list[i].facts->name;
    status = map_put(&c.names, hash_bytes(name, strlen(name), 0), i);
  }
  open_config(&c);
  if (status == STOW_OK) status = count_packed(&c, counts);
  for (size_t i = 0; i < m->count && status == STOW_OK && c.layers.count > 0; i++) {
    const tensor *t = m->list[i].facts;
    size_t length = 0;
    (void)layout_of(t->name, &length);
    bool main = has_layer(&c, t->name, length) && length < strlen(t->name);
    bool itself = has_layer(&c, t->name, strlen(t->name));
    if (!main && !itself && is_description(&c, t)) counts[i] = 0;
  }
  map_free(&c.names);
  map_free(&c.layers);
  if (c.has_config) beside_config_close(&c.config);
  return status;
}
