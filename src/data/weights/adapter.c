/* Adapter: see adapter.h. The rules are those of PEFT (tuners/lora): names, scaling, patterns. */
#include "data/weights/adapter.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/list.h"
#include "base/text.h"
#include "data/weights/pattern.h"
#include "files/json_tree.h"

#define CONFIG_MAX     (UINT64_C(4) << 20)
#define COMPARED_MAX   (UINT64_C(1) << 32)
#define PARAMETERS_MAX 64 /* of one module */
#define LAYERS_MAX     100000

static stow_status no_memory(void) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for the adapter");
}

/* ---- names ---- */

/* Removes each ".word" and ".word.default" that PEFT's wrappers put into names. */
static void drop_word(char *name, const char *word) {
  for (char *at = strstr(name, word); at != NULL; at = strstr(name, word)) {
    size_t length = strlen(word);
    if (strncmp(at + length, ".default", 8) == 0) length += 8;
    memmove(at, at + length, strlen(at + length) + 1);
  }
}

static stow_status find_module(adapter *a, const char *name, adapter_module **found) {
  uint32_t number;
  STOW_TRY(intern_add(&a->names, &number, name, strlen(name)));
  if (number < a->count) return *found = &a->modules[number], STOW_OK;
  STOW_TRY(LIST_ROOM(a->modules, a->count, a->capacity, 64, "modules"));
  a->modules[a->count] = (adapter_module){.name = strdup(name)};
  if (a->modules[a->count].name == NULL) return no_memory();
  *found = &a->modules[a->count++];
  return STOW_OK;
}

typedef enum role {
  ROLE_A,
  ROLE_B,
  ROLE_BIAS,
  ROLE_MAGNITUDE,
  ROLE_TOKENS,
  ROLE_SAVED,
  ROLE_UNUSED,
  ROLE_OTHER
} role;

/* Cuts `name` down to the module and returns the role of the tensor. */
static role role_of(char *name, bool *embedding, bool *base) {
  static const struct {
    const char *ending;
    role what;
    bool embedding;
  } endings[] = {
      {".lora_A.weight", ROLE_A, false},
      {".lora_A.default.weight", ROLE_A, false},
      {".lora_B.weight", ROLE_B, false},
      {".lora_B.default.weight", ROLE_B, false},
      {".lora_B.bias", ROLE_BIAS, false},
      {".lora_B.default.bias", ROLE_BIAS, false},
      {".lora_embedding_A", ROLE_A, true},
      {".lora_embedding_A.default", ROLE_A, true},
      {".lora_embedding_B", ROLE_B, true},
      {".lora_embedding_B.default", ROLE_B, true},
      {".lora_magnitude_vector", ROLE_MAGNITUDE, false},
      {".lora_magnitude_vector.weight", ROLE_MAGNITUDE, false},
      {".lora_magnitude_vector.default.weight", ROLE_MAGNITUDE, false},
      {".token_adapter.trainable_tokens_delta", ROLE_TOKENS, false},
      {".token_adapter.trainable_tokens_delta.default", ROLE_TOKENS, false},
  };
  static const char prefix[] = "base_model.model.";
  if (strncmp(name, prefix, sizeof prefix - 1) == 0)
    memmove(name, name + sizeof prefix - 1, strlen(name + sizeof prefix - 1) + 1);
  for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
    if (text_ends(name, endings[i].ending)) {
      name[strlen(name) - strlen(endings[i].ending)] = '\0';
      *embedding = endings[i].embedding;
      return endings[i].what;
    }
  if (strstr(name, "lora_") != NULL || strstr(name, ".token_adapter.") != NULL) return ROLE_OTHER;
  /* With bias="all" PEFT also saves the bias of the module that a trained copy stands for. */
  if (strstr(name, ".original_module.") != NULL) return ROLE_UNUSED;
  *base = strstr(name, ".base_layer") != NULL;
  drop_word(name, ".modules_to_save");
  drop_word(name, ".base_layer");
  return ROLE_SAVED;
}

static stow_status sort_tensor(adapter *a, const model_tensor *t) {
  bool embedding = false, base = false;
  adapter_module *m = NULL;
  char *name = strdup(t->facts->name);
  if (name == NULL) return no_memory();
  role what = role_of(name, &embedding, &base);
  if (what == ROLE_UNUSED) return free(name), STOW_OK;
  stow_status status = what == ROLE_OTHER
                           ? stow_fail(STOW_ERR_UNSUPPORTED,
                                       "%s: tensor %.200s cannot be merged here; merge "
                                       "this adapter with PEFT's merge_and_unload",
                                       a->weights.files[0].path, t->facts->name)
                           : find_module(a, name, &m);
  free(name);
  STOW_TRY(status);
  const model_tensor **place = what == ROLE_A           ? &m->a
                               : what == ROLE_B         ? &m->b
                               : what == ROLE_BIAS      ? &m->bias
                               : what == ROLE_MAGNITUDE ? &m->magnitude
                               : what == ROLE_TOKENS    ? &m->tokens
                                                        : &m->saved;
  *place = t;
  m->embedding = m->embedding || embedding;
  m->saved_base = m->saved_base || base;
  if (!tensor_type_is_float(t->facts->stored))
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "%s: tensor %.200s is %s; adapters of float16, bfloat16 "
                     "and float32 can be merged",
                     a->weights.files[0].path, t->facts->name, t->facts->type_name);
  return STOW_OK;
}

/* ---- the config ---- */

typedef struct config {
  json_tree t;
  const json_node *root;
  double alpha, rank;
  pattern_list alphas, ranks;
  bool rank_stabilised, dora, fan_in_fan_out;
  adapter_start start;
} config;

/* Returns whether the key is present and not null, false or empty. */
static bool is_set(const config *c, const char *key) {
  const json_node *n = json_member(&c->t, c->root, key);
  if (n == NULL || n->kind == JSON_NULL || n->kind == JSON_FALSE) return false;
  return (n->kind != JSON_ARRAY && n->kind != JSON_OBJECT) || n->count > 0;
}

/* Initializations that leave the base as it is, or that PEFT converted. */
static bool keeps_base(const char *start) {
  static const char *const known[] = {"gaussian", "eva", "orthogonal", "mica"};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (strcmp(start, known[i]) == 0) return true;
  return false;
}

/* Refuses what changes the layers in another way than LoRA does. */
static stow_status check_variants(const config *c, const char *path) {
  static const char elsewhere[] = "is not merged here; use PEFT's merge_and_unload";
  static const struct {
    const char *key, *what;
  } refused[] = {
      {"alora_invocation_tokens", "acts only behind these tokens, which no merged model can do, "
                                  "and PEFT does not merge it either; use the adapter beside the "
                                  "model"},
      {"megatron_config", elsewhere},
      {"velora_config", elsewhere},
      {"use_qalora", "is not merged here; use PEFT's merge_and_unload, which merges it into a base "
                     "that is not quantized"},
      {"use_bdlora", elsewhere},
      {"arrow_config", "chooses among several adapters for each token, which no merged model can "
                       "do; merge one of them, or use them beside the model"},
      {"kasa_config", elsewhere},
      {"monteclora_config", elsewhere}};
  for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
    if (is_set(c, refused[i].key))
      return stow_fail(STOW_ERR_UNSUPPORTED, "%s: uses %s, which %s", path, refused[i].key,
                       refused[i].what);
  return STOW_OK;
}

/* Refuses adapters of other types, before their tensors are looked at. */
static stow_status check_type(const json_tree *t, const char *path) {
  const char *kind = json_string(t, json_member(t, json_root(t), "peft_type"));
  if (kind != NULL && strcmp(kind, "LORA") == 0) return STOW_OK;
  return stow_fail(STOW_ERR_UNSUPPORTED,
                   "%s: peft_type is %.40s; only LORA is merged here; use PEFT's "
                   "merge_and_unload if PEFT merges this type",
                   path, kind != NULL ? kind : "missing");
}

static stow_status check_kind(const char *path) {
  char *text;
  size_t length;
  json_tree t;
  STOW_TRY(model_read_text(&text, &length, path, CONFIG_MAX));
  stow_status status = json_tree_read(&t, text, length, path, 4 * CONFIG_MAX);
  if (status == STOW_OK) status = check_type(&t, path);
  json_tree_free(&t);
  free(text);
  return status;
}

static stow_status check_config(config *c, const char *path) {
  const char *start = json_string(&c->t, json_member(&c->t, c->root, "init_lora_weights"));
  STOW_TRY(check_variants(c, path));
  if (start != NULL && strcmp(start, "olora") == 0) c->start = START_OLORA;
  if (start != NULL && strcmp(start, "pissa") == 0) c->start = START_PISSA;
  if (start != NULL && c->start == START_PLAIN && !keeps_base(start))
    return stow_fail(
        STOW_ERR_UNSUPPORTED,
        "%s: init_lora_weights is %.20s, which changed the base model%s; save the adapter with "
        "PEFT's save_pretrained(FOLDER, path_initial_model_for_weight_conversion=INITIAL), where "
        "INITIAL is the adapter as saved before training, and merge FOLDER",
        path, start,
        strncmp(start, "pissa", 5) == 0 ? " with random numbers, so that nobody can repeat it"
                                        : "");
  c->alpha = NAN;
  STOW_TRY(json_read_number(&c->t, c->root, "lora_alpha", &c->alpha));
  STOW_TRY(json_read_number(&c->t, c->root, "r", &c->rank));
  if (isnan(c->alpha) || !(c->rank >= 1))
    return stow_fail(STOW_ERR_FORMAT, "%s: no numbers \"r\" (1 or more) and \"lora_alpha\"", path);
  STOW_TRY(json_read_boolean(&c->t, c->root, "fan_in_fan_out", &c->fan_in_fan_out));
  STOW_TRY(json_read_boolean(&c->t, c->root, "use_rslora", &c->rank_stabilised));
  return json_read_boolean(&c->t, c->root, "use_dora", &c->dora);
}

/* Lists settings that are not those of PEFT 0.21 and say something: PEFT may have a new one that
 * changes the result. Other programs add some that do not. */
static void list_unknown(adapter *a, const config *c) {
  static const char *const known[] = {"r",
                                      "lora_alpha",
                                      "lora_dropout",
                                      "target_modules",
                                      "exclude_modules",
                                      "fan_in_fan_out",
                                      "bias",
                                      "use_rslora",
                                      "modules_to_save",
                                      "init_lora_weights",
                                      "layers_to_transform",
                                      "layers_pattern",
                                      "rank_pattern",
                                      "alpha_pattern",
                                      "megatron_config",
                                      "megatron_core",
                                      "trainable_token_indices",
                                      "loftq_config",
                                      "eva_config",
                                      "corda_config",
                                      "lora_ga_config",
                                      "use_dora",
                                      "velora_config",
                                      "alora_invocation_tokens",
                                      "use_qalora",
                                      "qalora_group_size",
                                      "monteclora_config",
                                      "layer_replication",
                                      "runtime_config",
                                      "lora_bias",
                                      "target_parameters",
                                      "use_bdlora",
                                      "arrow_config",
                                      "kasa_config",
                                      "ensure_weight_tying",
                                      "task_type",
                                      "peft_type",
                                      "auto_mapping",
                                      "peft_version",
                                      "base_model_name_or_path",
                                      "revision",
                                      "inference_mode"};
  const size_t count = sizeof known / sizeof known[0];
  for (const json_node *n = json_first(&c->t, c->root); n != NULL; n = json_next(&c->t, n)) {
    const char *key = json_key_of(&c->t, n);
    size_t i = 0, used = strlen(a->unknown);
    while (i < count && strcmp(known[i], key) != 0) i++;
    if (i == count && is_set(c, key))
      snprintf(a->unknown + used, sizeof a->unknown - used, "%s%.40s", used > 0 ? ", " : "", key);
  }
}

static void scale_of(const config *c, const char *name, double *rank, double *scale) {
  double alpha = patterns_value(&c->alphas, name, c->alpha);
  *rank = patterns_value(&c->ranks, name, c->rank);
  *scale = c->rank_stabilised ? alpha / sqrt(*rank) : alpha / *rank;
}

/* ---- parameters ---- */

/* Returns whether `name` is the last words of a module's name. */
static bool is_end_of(const char *name, size_t length, const char *module, size_t module_length) {
  if (length > module_length || strncmp(module + module_length - length, name, length) != 0)
    return false;
  return length == 0 || length == module_length || module[module_length - length - 1] == '.';
}

/* Lists the parameters of target_parameters that the module may have. */
static stow_status list_parameters(const config *c, adapter_module *m) {
  static const char wrapper[] = ".base_layer";
  const json_node *targets = json_member(&c->t, c->root, "target_parameters");
  size_t length = strlen(m->name), capacity = 0;
  if (targets == NULL || targets->kind != JSON_ARRAY) return STOW_OK;
  while (length > sizeof wrapper &&
         strncmp(m->name + length - (sizeof wrapper - 1), wrapper, sizeof wrapper - 1) == 0)
    length -= sizeof wrapper - 1;
  for (const json_node *n = json_first(&c->t, targets); n != NULL; n = json_next(&c->t, n)) {
    const char *target = json_string(&c->t, n);
    if (target == NULL) continue;
    const char *dot = strrchr(target, '.');
    if (!is_end_of(target, dot != NULL ? (size_t)(dot - target) : 0, m->name, length)) continue;
    if (m->parameter_count == PARAMETERS_MAX)
      return stow_fail(STOW_ERR_UNSUPPORTED,
                       "%.200s: more than %d parameters of one module are not merged here; use "
                       "PEFT's merge_and_unload",
                       m->name, PARAMETERS_MAX);
    STOW_TRY(LIST_ROOM(m->parameters, m->parameter_count, capacity, 4, "parameters"));
    adapter_parameter *p = &m->parameters[m->parameter_count];
    const char *last = dot != NULL ? dot + 1 : target;
    size_t size = length + strlen(last) + 2;
    *p = (adapter_parameter){.name = malloc(size)};
    if (p->name == NULL) return no_memory();
    m->parameter_count++;
    snprintf(p->name, size, "%.*s.%s", (int)length, m->name, last);
    scale_of(c, p->name, &p->rank, &p->scale);
    for (adapter_parameter *other = m->parameters; other < p; other++)
      if (strcmp(other->name, p->name) == 0) { /* named twice, with more and with fewer words */
        free(p->name);
        m->parameter_count--;
        break;
      }
  }
  return STOW_OK;
}

/* ---- layers ---- */

/* Reads layer_replication: [[0, 2], [1, 2]] is the layers 0, 1 and 1. */
static stow_status read_replication(adapter *a, const config *c, const char *path) {
  const json_node *ranges = json_member(&c->t, c->root, "layer_replication");
  size_t capacity = 0;
  if (ranges == NULL || ranges->kind == JSON_NULL) return STOW_OK;
  if (ranges->kind != JSON_ARRAY)
    return stow_fail(STOW_ERR_FORMAT, "%s: layer_replication is not a list of ranges of layers",
                     path);
  for (const json_node *n = json_first(&c->t, ranges); n != NULL; n = json_next(&c->t, n)) {
    double start = -1, end = -1;
    const json_node *first = n->kind == JSON_ARRAY ? json_first(&c->t, n) : NULL;
    const json_node *second = first != NULL ? json_next(&c->t, first) : NULL;
    if (second == NULL || json_next(&c->t, second) != NULL || !json_value(&c->t, first, &start) ||
        !json_value(&c->t, second, &end) || !(start >= 0 && end >= start && end <= LAYERS_MAX) ||
        start != floor(start) || end != floor(end) || a->replication_count == LAYERS_MAX)
      return stow_fail(STOW_ERR_FORMAT, "%s: layer_replication is not a list of ranges of layers",
                       path);
    STOW_TRY(LIST_ROOM(a->replication, a->replication_count, capacity, 8, "ranges"));
    a->replication[a->replication_count++] = (adapter_range){(uint32_t)start, (uint32_t)end};
  }
  return STOW_OK;
}

/* ---- tokens ---- */

/* Reads which rows a module's trained tokens are. */
static stow_status list_rows(const config *c, const char *path, adapter_module *m) {
  const json_node *all = json_member(&c->t, c->root, "trainable_token_indices");
  uint64_t count = 0, want = m->tokens->facts->dims == 2 ? m->tokens->facts->shape[0] : 0;
  if (all != NULL && all->kind == JSON_OBJECT) {
    const json_node *n = json_first(&c->t, all);
    while (n != NULL) {
      const char *key = json_key_of(&c->t, n);
      if (is_end_of(key, strlen(key), m->name, strlen(m->name))) break;
      n = json_next(&c->t, n);
    }
    all = n;
  }
  bool fits =
      m->tokens->facts->dims == 2 && all != NULL && all->kind == JSON_ARRAY && all->count == want;
  m->rows = fits ? calloc(want + 1, sizeof *m->rows) : NULL;
  if (fits && m->rows == NULL) return no_memory();
  const json_node *n = fits ? json_first(&c->t, all) : NULL;
  for (; n != NULL && fits; n = json_next(&c->t, n)) {
    double row = -1;
    fits = json_value(&c->t, n, &row) && row >= 0 && row < 0x1p53 && row == floor(row);
    if (fits) m->rows[count++] = (uint64_t)row;
  }
  if (fits) return STOW_OK;
  return stow_fail(STOW_ERR_FORMAT,
                   "%s: trainable_token_indices does not name the %" PRIu64 " tokens of %.200s",
                   path, want, m->name);
}

static stow_status check_module(const config *c, const char *path, adapter_module *m) {
  if (m->saved != NULL && m->a == NULL && m->b == NULL && m->bias == NULL && m->tokens == NULL)
    return STOW_OK;
  if (m->tokens != NULL && m->a == NULL && m->b == NULL && m->bias == NULL && m->saved == NULL)
    return list_rows(c, path, m);
  if (m->tokens != NULL)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "%s: module %.200s has trained tokens and LoRA, which is not merged here; use "
                     "PEFT's merge_and_unload",
                     path, m->name);
  if (m->a == NULL || m->b == NULL || m->saved != NULL)
    return stow_fail(STOW_ERR_FORMAT, "%s: module %.200s has only one of lora_A and lora_B", path,
                     m->name);
  if (c->dora != (m->magnitude != NULL))
    return stow_fail(STOW_ERR_FORMAT,
                     "%s: module %.200s: use_dora and lora_magnitude_vector "
                     "disagree",
                     path, m->name);
  const tensor *a = m->a->facts, *b = m->b->facts;
  if (strstr(m->name, ".base_layer.") != NULL)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "%s: module %.200s is part of torch.nn.MultiheadAttention, which is not "
                     "merged here; use PEFT's merge_and_unload",
                     path, m->name);
  STOW_TRY(list_parameters(c, m));
  scale_of(c, m->name, &m->rank, &m->scale);
  if (a->dims > 2 && b->dims == a->dims && b->shape[1] > 0 && a->shape[0] > b->shape[1] &&
      a->shape[0] % b->shape[1] == 0 && (double)a->shape[0] == m->rank)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "%s: module %.200s is a convolution with groups: its LoRA mixes the channels "
                     "of all groups, which the weight of such a convolution cannot do. PEFT cannot "
                     "merge it either; use the adapter beside the model",
                     path, m->name);
  if (a->dims < 2 || b->dims < 2 || a->shape[0] != b->shape[1] || a->shape[0] == 0 ||
      ((double)a->shape[0] != m->rank && m->parameter_count == 0))
    return stow_fail(STOW_ERR_FORMAT,
                     "%s: module %.200s: lora_A and lora_B do not have the rank %g of the config",
                     path, m->name, m->rank);
  return STOW_OK;
}

/* Each module is compared with each key and target: bounds the bytes that are compared, which a
 * config of a few MB could make endless. */
static stow_status check_work(const config *c, const char *path, size_t modules) {
  static const char *const tables[] = {"rank_pattern", "alpha_pattern", "target_parameters",
                                       "trainable_token_indices"};
  for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
    const json_node *table = json_member(&c->t, c->root, tables[i]);
    uint64_t bytes = 0, entries = 0;
    if (table == NULL || (table->kind != JSON_OBJECT && table->kind != JSON_ARRAY)) continue;
    for (const json_node *n = json_first(&c->t, table); n != NULL; n = json_next(&c->t, n)) {
      const char *text = table->kind == JSON_OBJECT ? json_key_of(&c->t, n) : json_string(&c->t, n);
      bytes += 1 + (text != NULL ? strlen(text) : 0);
      entries++;
    }
    if (modules > 0 && bytes > COMPARED_MAX / modules)
      return stow_fail(STOW_ERR_UNSUPPORTED,
                       "%s: %s has %" PRIu64 " entries for %zu modules, which is not merged here; "
                       "use PEFT's merge_and_unload",
                       path, tables[i], entries, modules);
  }
  return STOW_OK;
}

static stow_status read_config(adapter *a, const char *path) {
  char *text;
  size_t length;
  config c = {0};
  STOW_TRY(model_read_text(&text, &length, path, CONFIG_MAX));
  stow_status status = json_tree_read(&c.t, text, length, path, 4 * CONFIG_MAX);
  c.root = json_root(&c.t);
  if (status == STOW_OK) status = check_config(&c, path);
  if (status == STOW_OK) status = check_work(&c, path, a->count);
  if (status == STOW_OK) status = patterns_read(&c.alphas, &c.t, c.root, path, "alpha_pattern");
  if (status == STOW_OK) status = patterns_read(&c.ranks, &c.t, c.root, path, "rank_pattern");
  a->fan_in_fan_out = c.fan_in_fan_out;
  a->start = c.start;
  if (status == STOW_OK) list_unknown(a, &c);
  if (status == STOW_OK) status = read_replication(a, &c, path);
  for (size_t i = 0; i < a->count && status == STOW_OK; i++)
    status = check_module(&c, path, &a->modules[i]);
  patterns_free(&c.alphas);
  patterns_free(&c.ranks);
  json_tree_free(&c.t);
  free(text);
  return status;
}

bool adapter_of_model(const model *m) {
  for (size_t i = 0; i < m->count; i++)
    if (strstr(m->list[i].facts->name, ".lora_A.") != NULL ||
        strstr(m->list[i].facts->name, ".lora_embedding_A") != NULL)
      return true;
  return false;
}

stow_status adapter_open(adapter *a, const char *path, uint64_t max_bytes) {
  char config_path[PATH_MAX];
  *a = (adapter){0};
  STOW_TRY(model_open(&a->weights, path, max_bytes));
  const char *file = a->weights.files[0].path;
  const char *slash = strrchr(file, '/');
  int folder = slash != NULL ? (int)(slash - file) : 1;
  stow_status status = STOW_OK;
  if (snprintf(config_path, sizeof config_path, "%.*s/adapter_config.json", folder,
               slash != NULL ? file : ".") >= PATH_MAX)
    status = stow_fail(STOW_ERR_INVALID, "%s: the path is too long", path);
  else if (!text_is_url(path) && access(config_path, F_OK) != 0 && errno == ENOENT)
    status = stow_fail(STOW_ERR_INVALID,
                       "%s is not a PEFT adapter: it has no adapter_config.json; name the folder "
                       "that PEFT's save_pretrained wrote",
                       path);
  if (status == STOW_OK) status = check_kind(config_path);
  for (size_t i = 0; i < a->weights.count && status == STOW_OK; i++)
    status = sort_tensor(a, &a->weights.list[i]);
  if (status == STOW_OK) status = read_config(a, config_path);
  if (status == STOW_OK && a->count == 0)
    status = stow_fail(STOW_ERR_FORMAT, "%s: an adapter without tensors", path);
  if (status != STOW_OK) adapter_close(a);
  return status;
}

void adapter_close(adapter *a) {
  for (size_t i = 0; i < a->count; i++) {
    adapter_module *m = &a->modules[i];
    for (size_t k = 0; k < m->parameter_count; k++) free(m->parameters[k].name);
    free(m->parameters);
    free(m->rows);
    free(m->name);
  }
  free(a->modules);
  free(a->replication);
  intern_free(&a->names);
  model_close(&a->weights);
  *a = (adapter){0};
}
