/* Config: see config.h. */
#include "data/weights/config.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/list.h"
#include "base/text.h"
#include "data/weights/linear.h"
#include "data/weights/renames.h"
#include "files/json_tree.h"

#define CONFIG_MAX  (UINT64_C(16) << 20)
#define STARRED_MAX 512 /* no module of a model has a longer name */

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

/* The list of modules that stay as they are, without repetitions. */
typedef struct ignored {
  json *out;
  const weights_result *r;
  map seen;      /* hashes of what was written, and of the names in `packed` */
  char **packed; /* the names of the quantized layers, with a star for each number */
  size_t packed_count, packed_capacity;
} ignored;

static void put_once(ignored *g, const char *text, size_t length) {
  uint64_t hash = hash_bytes(text, length, 0);
  if (map_get(&g->seen, hash) != NULL) return;
  json_text_n(g->out, text, length);
  (void)map_put(&g->seen, hash, 1); /* without memory: written twice */
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

/* Writes a module's name with a star for each number; returns its length, or 0 if it is too long.
 * The layers of a model have few such names. */
static size_t star(char to[STARRED_MAX], const char *module, size_t length) {
  size_t at = 0;
  for (size_t i = 0, end; i < length; i = end + 1) {
    bool number = true;
    for (end = i; end < length && module[end] != '.'; end++)
      number = number && isdigit((unsigned char)module[end]);
    if (at + (end - i) + 2 > STARRED_MAX) return 0;
    if (i > 0) to[at++] = '.';
    if (number && end > i) {
      to[at++] = '*';
    } else {
      memcpy(to + at, module + i, end - i);
      at += end - i;
    }
  }
  to[at] = '\0';
  return at;
}

static void list_packed(ignored *g) {
  char name[STARRED_MAX];
  for (size_t i = 0; i < g->r->item_count; i++) {
    const char *whole = g->r->items[i].from.facts->name;
    size_t length = strlen(whole);
    if (!is_packed(&g->r->items[i]) || length < 7) continue;
    length = star(name, whole, length - 7);
    uint64_t hash = hash_bytes(name, length, 1);
    if (length == 0 || map_get(&g->seen, hash) != NULL) continue;
    (void)map_put(&g->seen, hash, 1);
    if (LIST_ROOM(g->packed, g->packed_count, g->packed_capacity, 64, "layers") != STOW_OK) return;
    g->packed[g->packed_count] = strdup(name);
    g->packed_count += g->packed[g->packed_count] != NULL;
  }
}

/* Returns whether the name of a quantized layer ends with these words. */
static bool ends_packed(const ignored *g, const char *words, size_t length) {
  for (size_t i = 0; i < g->packed_count; i++) {
    size_t all = strlen(g->packed[i]);
    if (all < length || memcmp(g->packed[i] + all - length, words, length) != 0) continue;
    if (all == length || g->packed[i][all - length - 1] == '.') return true;
  }
  return false;
}

/* Returns where the last words of a module's name begin that no quantized layer ends with. A reader
 * may know the module under a name with other words in front. NULL: there are none. */
static const char *own_ending(const ignored *g, const char *module, size_t length, bool starred) {
  const char *end = module + length, *at = end;
  for (unsigned named = 0; at > module;) {
    at--;
    while (at > module && at[-1] != '.') at--;
    named += !(isdigit((unsigned char)*at) || *at == '*'); /* "0" alone says nothing */
    size_t tail = (size_t)(end - at);
    bool alone = named == 1 && (at == module || !linear_has_word(at, strcspn(at, ".")));
    if ((named > 1 || alone) &&
        !(starred ? ends_packed(g, at, tail) : hits_packed(g->r, at, tail, true)))
      return at;
    if (at > module) at--;
  }
  return NULL;
}

/* Writes a pattern for the modules whose names end like this one, whatever their numbers or, if
 * some of those are quantized, with these numbers. */
static void put_ending(ignored *g, const char *module, size_t length) {
  char pattern[4 * STARRED_MAX] = "re:(.*[.])?", name[STARRED_MAX];
  size_t at = strlen(pattern), starred = star(name, module, length);
  const char *from = starred > 0 ? own_ending(g, name, starred, true) : NULL, *end = name + starred;
  if (from == NULL) from = own_ending(g, module, length, false), end = module + length;
  if (from == NULL) return;
  for (; from < end && at + 8 < sizeof pattern; from++) {
    bool plain = isalnum((unsigned char)*from) || *from == '_' || *from == '-';
    const char *form = *from == '*' ? "[0-9]+" : plain ? "%c" : "[%c]";
    at += (size_t)snprintf(pattern + at, sizeof pattern - at, form, *from);
  }
  if (from < end) return; /* too long for any module */
  pattern[at++] = '$';
  put_once(g, pattern, at);
}

/* Writes what a name that ends like this one may end with after loading. */
static void put_endings_after(ignored *g, const char *module, size_t length) {
  char name[STARRED_MAX];
  const char *after;
  if (star(name, module, length) == 0) return;
  for (size_t at = 0; (after = renames_ending(name, &at)) != NULL;)
    put_ending(g, after, strlen(after));
}

/* Writes a module that was left as it is, with the names that it may have after loading: readers
 * compare them with this list. */
static void put_module(ignored *g, const char *module, size_t length) {
  char name[RENAMES_NAME_MAX];
  renames others = {.count = 0};
  put_once(g, module, length);
  put_ending(g, module, length);
  if (length < sizeof name) {
    snprintf(name, sizeof name, "%.*s", (int)length, module);
    renames_of(&others, name);
  }
  put_endings_after(g, module, length);
  for (size_t i = 0; i < others.count; i++) {
    size_t all = strlen(others.list[i]);
    bool covered = all > length && strcmp(others.list[i] + all - length, name) == 0 &&
                   others.list[i][all - length - 1] == '.';
    if (!covered && !hits_packed(g->r, others.list[i], all, false))
      put_once(g, others.list[i], all);
  }
}

/* Writes the module of a bias whose matrix is not in the file: an output layer that is tied to the
 * embedding and has a bias of its own, as "decoder" of ModernBERT. */
static void put_tied(ignored *g, const tensor *t) {
  char layer[512];
  size_t length = strlen(t->name);
  if (t->dims != 1 || length < 6 || length - 5 >= sizeof layer ||
      strcmp(t->name + length - 5, ".bias") != 0)
    return;
  snprintf(layer, sizeof layer, "%.*s", (int)(length - 5), t->name);
  if (has_tensor(&g->r->in, layer, "weight")) return;
  put_once(g, layer, length - 5);
  put_ending(g, layer, length - 5);
}

/* Modules with a matrix that was not quantized or stored sparse: a reader would look for scales or
 * bits otherwise. */
static void put_ignored(json *out, const weights_result *r) {
  ignored g = {.out = out, .r = r};
  list_packed(&g);
  for (size_t i = 0; i < r->item_count; i++) {
    const tensor *t = r->items[i].from.facts;
    size_t length = strlen(t->name);
    put_tied(&g, t);
    bool weight = length > 7 && strcmp(t->name + length - 7, ".weight") == 0;
    if (!weight || t->dims != 2 || is_packed(&r->items[i])) continue;
    put_module(&g, t->name, length - 7);
  }
  /* Tied to the embedding, so that they have no tensor here; of a part of the model as well. */
  for (const char *const *head = weights_heads; *head != NULL; head++) {
    if (hits_packed(r, *head, strlen(*head), true)) continue; /* chosen with --include */
    if (strchr(*head, '*') == NULL) put_once(&g, *head, strlen(*head));
    put_ending(&g, *head, strlen(*head));
  }
  map_free(&g.seen);
  for (size_t i = 0; i < g.packed_count; i++) free(g.packed[i]);
  free(g.packed);
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
