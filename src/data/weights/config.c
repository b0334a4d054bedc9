/* Config: see config.h. */
#include "data/weights/config.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "data/weights/renames.h"
#include "files/json_tree.h"

#define CONFIG_MAX (UINT64_C(16) << 20)

static bool is_float_name(const char *name) {
  return name != NULL && (strcmp(name, "float32") == 0 || strcmp(name, "float16") == 0 ||
                          strcmp(name, "bfloat16") == 0 || strcmp(name, "float64") == 0);
}

static bool sparse(const weights_job *j) {
  for (size_t i = 0; i < j->r->item_count; i++)
    if (j->r->items[i].action >= ACTION_BITMASK) return true;
  return false;
}

/* Returns whether the output is in a layout of compressed-tensors. */
static bool compressed(const weights_job *j) {
  return sparse(j) || j->o->quantize == WEIGHTS_INT8 || j->o->quantize == WEIGHTS_FP8;
}

/* Returns whether the model has the tensor "LAYER.WORD". */
static bool has_tensor(const model *m, const char *layer, const char *word) {
  char name[544];
  snprintf(name, sizeof name, "%s.%s", layer, word);
  return model_find(m, name) != NULL;
}

/* Writes the module of a bias whose matrix is not in the file: an output layer that is tied to the
 * embedding and has a bias of its own, as "decoder" of ModernBERT. */
static void put_tied(json *out, const weights_result *r, const tensor *t) {
  char layer[512];
  size_t length = strlen(t->name);
  if (t->dims != 1 || length < 6 || length - 5 >= sizeof layer ||
      strcmp(t->name + length - 5, ".bias") != 0)
    return;
  snprintf(layer, sizeof layer, "%.*s", (int)(length - 5), t->name);
  if (!has_tensor(&r->in, layer, "weight")) json_text(out, layer);
}

static bool is_packed(const weights_item *item) {
  return item->part_count > 1;
}

/* Returns whether a layer that was quantized has this module's name, at the end or as a whole. */
static bool hits_packed(const weights_result *r, const char *module, size_t length, bool end) {
  static const char word[] = ".weight";
  for (size_t i = 0; i < r->item_count; i++) {
    const char *name = r->items[i].from.facts->name;
    size_t all = strlen(name);
    if (!is_packed(&r->items[i]) || all < length + sizeof word - 1) continue;
    size_t before = all - length - (sizeof word - 1);
    bool same = strncmp(name + before, module, length) == 0;
    if (same && (before == 0 || (end && name[before - 1] == '.'))) return true;
  }
  return false;
}

/* Writes a pattern for a module that a reader knows under a longer name. */
static void put_ending(json *out, const weights_result *r, const char *module, size_t length) {
  char pattern[2048] = "re:(.*[.])?";
  size_t at = strlen(pattern);
  if (hits_packed(r, module, length, true)) return;
  for (size_t i = 0; i < length && at + 8 < sizeof pattern; i++) {
    bool plain = isalnum((unsigned char)module[i]) || module[i] == '_' || module[i] == '-';
    if (!plain) pattern[at++] = '[';
    pattern[at++] = module[i];
    if (!plain) pattern[at++] = ']';
  }
  pattern[at++] = '$';
  json_text_n(out, pattern, at);
}

/* Writes a module that was left as it is, with the names that it may have after loading: readers
 * compare them with this list. */
static void put_module(json *out, const weights_result *r, const char *module, size_t length) {
  char name[RENAMES_NAME_MAX];
  renames others = {.count = 0};
  json_text_n(out, module, length);
  if (weights_is_embedding(module, length)) return; /* no linear layer */
  put_ending(out, r, module, length);
  if (length < sizeof name) {
    snprintf(name, sizeof name, "%.*s", (int)length, module);
    renames_of(&others, name);
  }
  for (size_t i = 0; i < others.count; i++) {
    size_t all = strlen(others.list[i]);
    bool covered = all > length && strcmp(others.list[i] + all - length, name) == 0 &&
                   others.list[i][all - length - 1] == '.';
    if (!covered && !hits_packed(r, others.list[i], all, false)) json_text(out, others.list[i]);
  }
}

/* Modules with a matrix that was not quantized or stored sparse: a reader would look for scales or
 * bits otherwise. */
static void put_ignored(json *out, const weights_result *r) {
  for (size_t i = 0; i < r->item_count; i++) {
    const tensor *t = r->items[i].from.facts;
    size_t length = strlen(t->name);
    put_tied(out, r, t);
    bool weight = length > 7 && strcmp(t->name + length - 7, ".weight") == 0;
    if (!weight || t->dims != 2 || is_packed(&r->items[i])) continue;
    put_module(out, r, t->name, length - 7);
  }
  /* Tied to the embedding, so that they have no tensor here. */
  for (const char *const *head = weights_heads; *head != NULL; head++)
    if (!has_tensor(&r->in, *head, "weight") && !has_tensor(&r->in, *head, "bias"))
      json_text(out, *head); /* put_tied wrote those with a bias */
}

/* Writes what a reader needs to know about tensors without their zeros. */
static void put_sparsity(json *out, const weights_job *j) {
  const weights_result *r = j->r;
  double kept = 0, all = 0;
  for (size_t i = 0; i < r->item_count; i++) {
    const weights_item *item = &r->items[i];
    double count = (double)item->from.facts->count;
    if (item->action < ACTION_BITMASK) continue;
    all += count;
    kept += item->action == ACTION_BITMASK_24 ? count / 2 : (double)item->kept;
  }
  json_begin_object(out);
  json_key(out, "quant_method"), json_text(out, "compressed-tensors");
  json_key(out, "sparsity_config");
  json_begin_object(out);
  json_key(out, "format");
  json_text(out, j->o->prune_2_4 ? "sparse-24-bitmask" : "sparse-bitmask");
  json_key(out, "sparsity_structure"), json_text(out, j->o->prune_2_4 ? "2:4" : "unstructured");
  json_key(out, "global_sparsity"), json_double(out, 1 - kept / all);
  json_key(out, "targets");
  json_begin_array(out), json_text(out, "Linear"), json_end_array(out);
  json_key(out, "ignore");
  json_begin_array(out);
  put_ignored(out, r);
  json_end_array(out);
  json_end_object(out);
  json_end_object(out);
}

static void put_quantization(json *out, const weights_job *j) {
  if (sparse(j)) {
    put_sparsity(out, j);
    return;
  }
  bool int8 = j->o->quantize == WEIGHTS_INT8;
  json_begin_object(out);
  json_key(out, "quant_method"), json_text(out, "compressed-tensors");
  json_key(out, "format"), json_text(out, int8 ? "pack-quantized" : "float-quantized");
  json_key(out, "quantization_status"), json_text(out, "compressed");
  json_key(out, "config_groups");
  json_begin_object(out);
  json_key(out, "group_0");
  json_begin_object(out);
  json_key(out, "targets");
  json_begin_array(out), json_text(out, "Linear"), json_end_array(out);
  json_key(out, "weights");
  json_begin_object(out);
  json_number(out, "num_bits", 8);
  json_key(out, "type"), json_text(out, int8 ? "int" : "float");
  json_key(out, "symmetric"), json_bool(out, true);
  json_key(out, "strategy"), json_text(out, "channel");
  json_key(out, "group_size"), json_null(out);
  json_key(out, "dynamic"), json_bool(out, false);
  json_end_object(out);
  json_key(out, "input_activations"), json_null(out);
  json_key(out, "output_activations"), json_null(out);
  json_end_object(out);
  json_end_object(out);
  json_key(out, "ignore");
  json_begin_array(out);
  put_ignored(out, j->r);
  json_end_array(out);
  json_key(out, "kv_cache_scheme"), json_null(out);
  json_end_object(out);
}

static void put_addition(buffer *to, const weights_job *j, bool first, bool quantization,
                         bool untied) {
  buffer_text(to, first ? "\n  " : ",\n  ");
  if (untied) buffer_text(to, "\"tie_word_embeddings\": false");
  if (untied && quantization) buffer_text(to, ",\n  ");
  if (quantization) {
    buffer_text(to, "\"quantization_config\": ");
    json out = JSON_COMPACT(to);
    put_quantization(&out, j);
  }
  buffer_char(to, '\n');
}

/* ---- layers that are repeated, and an output layer of its own ---- */

bool config_counts_layers(const char *key) {
  static const char *const words[] = {"num_hidden_layers", "n_layer", "num_layers", "n_layers"};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    if (strcmp(key, words[i]) == 0) return true;
  return false;
}

/* Writes the items of an array that has one for each layer, in the order of the output's layers. */
static void put_repeated(buffer *to, const json_tree *t, const json_node *array,
                         const weights_replicas *r) {
  buffer_char(to, '[');
  for (size_t i = 0; i < r->layer_count; i++) {
    const json_node *n = json_first(t, array);
    for (uint32_t k = 0; k < r->layers[i]; k++) n = json_next(t, n);
    if (i > 0) buffer_text(to, ", ");
    buffer_append(to, t->text + n->begin, n->end - n->begin);
  }
  buffer_char(to, ']');
}

/* Writes another value for a member of the config's root, if it has to have one. */
static bool put_replicas(buffer *to, const json_tree *t, const json_node *n, const char *key,
                         const weights_replicas *r) {
  if (r->untied && strcmp(key, "tie_word_embeddings") == 0) return buffer_text(to, "false"), true;
  if (r->layer_count == 0) return false;
  if (config_counts_layers(key)) return buffer_printf(to, "%zu", r->layer_count), true;
  if (n->kind != JSON_ARRAY || n->count != r->layers_before || strstr(key, "layer") == NULL)
    return false;
  return put_repeated(to, t, n, r), true;
}

/* Returns whether most of the model is of the type of --dtype: config.json names the type in which
 * a reader loads all of it. */
static bool mostly_cast(const weights_job *j) {
  uint64_t all = 0, cast = 0;
  for (size_t i = 0; i < j->r->item_count; i++) {
    const weights_item *item = &j->r->items[i];
    if (!tensor_type_is_float(item->to) || item->action == ACTION_FP8) continue;
    all += item->from.facts->count;
    if (item->to == j->o->type) cast += item->from.facts->count;
  }
  return cast > all / 2;
}

/* Writes the text with its edits. Nodes are in the order of the text, so one pass suffices. */
static void edit(buffer *to, const json_tree *t, const weights_job *j) {
  const json_node *root = json_root(t), *old = json_member(t, root, "quantization_config");
  const weights_replicas *replicas = &j->r->replicas;
  const json_node *tie = json_member(t, root, "tie_word_embeddings");
  const json_node *last = NULL;
  const json_node *member = json_first(t, root);
  size_t at = 0;
  bool cast = j->o->type != TENSOR_NONE && mostly_cast(j);
  for (const json_node *m = json_first(t, root); m != NULL; m = json_next(t, m)) last = m;
  for (size_t i = 1; i < t->count; i++) {
    const json_node *n = &t->nodes[i];
    bool type = n->key > 0 || i == 1;
    const char *key = type ? json_key_of(t, n) : "";
    type = strcmp(key, "dtype") == 0 || strcmp(key, "torch_dtype") == 0;
    if (type && cast && is_float_name(json_string(t, n))) {
      buffer_append(to, t->text + at, n->begin - at);
      buffer_printf(to, "\"%s\"", tensor_type_name(j->o->type));
      at = n->end;
    }
    if (n == member) {
      buffer value = BUFFER_INIT;
      if (put_replicas(&value, t, n, json_key_of(t, n), replicas)) {
        buffer_append(to, t->text + at, n->begin - at);
        buffer_join(to, &value);
        at = n->end;
        while (i + 1 < t->count && t->nodes[i + 1].begin < n->end) i++;
      }
      buffer_free(&value);
      member = json_next(t, n);
    }
    if (n == old && compressed(j) && n->begin >= at) {
      json out = JSON_COMPACT(to);
      buffer_append(to, t->text + at, n->begin - at);
      put_quantization(&out, j);
      at = n->end;
      while (i + 1 < t->count && t->nodes[i + 1].begin < n->end) i++;
    }
  }
  bool quantization = compressed(j) && old == NULL, untied = replicas->untied && tie == NULL;
  if (quantization || untied) {
    size_t end = last != NULL ? last->end : root->begin + 1;
    if (end > at) buffer_append(to, t->text + at, end - at);
    put_addition(to, j, last == NULL, quantization, untied);
    at = root->end - 1;
  }
  buffer_append(to, t->text + at, t->length - at);
}

stow_status config_look(weights_result *r) {
  char path[PATH_MAX], *text;
  size_t length;
  json_tree t;
  if (r->in.folder == NULL ||
      snprintf(path, sizeof path, "%s/config.json", r->in.folder) >= PATH_MAX)
    return STOW_OK;
  if (access(path, F_OK) != 0)
    return errno == ENOENT ? STOW_OK
                           : stow_fail(STOW_ERR_IO, "%s: cannot open: %s", path, strerror(errno));
  STOW_TRY(model_read_text(&text, &length, path, CONFIG_MAX));
  stow_status status = json_tree_read(&t, text, length, path, 4 * CONFIG_MAX);
  if (status == STOW_OK && json_root(&t)->kind == JSON_OBJECT) {
    const char *kind = json_string(&t, json_member(&t, json_root(&t), "model_type"));
    r->has_config = true;
    r->diffusers = json_member(&t, json_root(&t), "_diffusers_version") != NULL;
    if (kind != NULL) snprintf(r->model_type, sizeof r->model_type, "%s", kind);
  }
  json_tree_free(&t);
  free(text);
  return status;
}

stow_status config_edit(buffer *to, const weights_job *j, const char *in) {
  char *text;
  size_t length;
  json_tree t;
  STOW_TRY(model_read_text(&text, &length, in, CONFIG_MAX));
  stow_status status = json_tree_read(&t, text, length, in, 4 * CONFIG_MAX);
  if (status == STOW_OK && json_root(&t)->kind != JSON_OBJECT)
    status = stow_fail(STOW_ERR_FORMAT, "%s: not a JSON object", in);
  if (status == STOW_OK) {
    edit(to, &t, j);
    status = to->status;
  }
  json_tree_free(&t);
  free(text);
  return status;
}
