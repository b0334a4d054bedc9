/* Transposed: see transposed.h. */
#include "data/weights/transposed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/text.h"
#include "data/weights/beside.h"

#define TRIES_MAX      4 /* layers of one name to look at: they are alike */
#define NAME_MAX_BYTES 1024

/* Finds "c_attn" in "h.0.attn.c_attn.weight"; false if the name does not end in ".weight". */
static bool leaf_of(const char *name, const char **leaf, size_t *length) {
  static const char end[] = ".weight";
  size_t all = strlen(name);
  if (all < sizeof end || strcmp(name + all - (sizeof end - 1), end) != 0) return false;
  *length = all - (sizeof end - 1);
  *leaf = name + *length;
  while (*leaf > name && (*leaf)[-1] != '.') (*leaf)--;
  *length -= (size_t)(*leaf - name);
  return true;
}

/* Returns the length of the first words of a name, which say the part of the model: two words, or
 * one before a number ("h.0"). */
static size_t part_of(const char *name) {
  size_t first = strcspn(name, ".");
  if (name[first] == '\0') return 0;
  size_t second = strcspn(name + first + 1, ".");
  bool number = strspn(name + first + 1, "0123456789") == second;
  return number || name[first + 1 + second] == '\0' ? first : first + 1 + second;
}

static bool is_word(const char *name, size_t length, const char *word) {
  return strlen(word) == length && memcmp(name, word, length) == 0;
}

static transposed_leaf *find_leaf(const transposed *t, const transposed_leaf *like) {
  for (size_t i = 0; i < t->count; i++) {
    transposed_leaf *one = &t->list[i];
    if (one->length == like->length && one->part_length == like->part_length &&
        memcmp(one->name, like->name, one->length) == 0 &&
        memcmp(one->part, like->part, one->part_length) == 0)
      return one;
  }
  return NULL;
}

/* Returns whether the name is that of a layer, and sets its first words and its last. */
static bool read_leaf(transposed_leaf *to, const char *name) {
  *to = (transposed_leaf){.part = name, .part_length = part_of(name)};
  return leaf_of(name, &to->name, &to->length);
}

static transposed_kind judge(const model *m, const tensor *t) {
  char name[NAME_MAX_BYTES];
  size_t length = strlen(t->name) - strlen("weight");
  if (length + sizeof "bias" > sizeof name) return TRANSPOSED_UNKNOWN;
  snprintf(name, sizeof name, "%.*sbias", (int)length, t->name);
  const model_tensor *bias = model_find(m, name);
  if (bias == NULL || bias->facts->dims != 1) return TRANSPOSED_UNKNOWN;
  if (bias->facts->count == t->shape[1]) return TRANSPOSED_YES;
  return bias->facts->count == t->shape[0] ? TRANSPOSED_NO : TRANSPOSED_UNKNOWN;
}

/* ---- config.json ---- */

/* Architectures of transformers 5.23 with Conv1D. */
static bool has_conv1d(const char *type) {
  static const char *const types[] = {"gpt2", "imagegpt",    "openai-gpt", "decision_transformer",
                                      "clvp", "clvp_decoder"};
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
    if (strcmp(type, types[i]) == 0) return true;
  return false;
}

/* Returns whether one of their Conv1D has this name. */
static bool is_conv1d_name(const char *leaf, size_t length) {
  return is_word(leaf, length, "c_attn") || is_word(leaf, length, "q_attn") ||
         is_word(leaf, length, "c_proj") || is_word(leaf, length, "c_fc");
}

static const char *type_of(const json_tree *t, const json_node *config) {
  return config->kind == JSON_OBJECT ? json_string(t, json_member(t, config, "model_type")) : NULL;
}

static void read_types(transposed *to, const json_tree *t) {
  const json_node *root = json_root(t);
  const char *type = type_of(t, root);
  /* auto_map: the architecture is in Python code beside the model. */
  if (type == NULL || json_member(t, root, "auto_map") != NULL) return;
  to->known = true;
  to->conv1d = has_conv1d(type);
  for (const json_node *n = json_first(t, root); n != NULL; n = json_next(t, n)) {
    const char *key = json_key_of(t, n), *part_type = type_of(t, n);
    transposed_part *part = &to->parts[to->part_count];
    int length = (int)strlen(key) - (text_ends(key, "_config") ? (int)strlen("_config") : 0);
    if (part_type == NULL || length >= (int)sizeof part->name) continue;
    if (to->part_count == TRANSPOSED_PARTS_MAX) {
      to->known = false; /* no published model has so many */
      return;
    }
    snprintf(part->name, sizeof part->name, "%.*s", length, key);
    part->conv1d = has_conv1d(part_type);
    to->part_count++;
  }
}

/* Reads the architecture from the config.json beside the model. Without one, nothing is known. */
static void read_config(transposed *to, const model *m) {
  beside_config c;
  if (m->format == MODEL_GGUF || !beside_config_open(&c, m)) return;
  read_types(to, &c.tree);
  beside_config_close(&c);
}

/* Returns whether a word of a tensor's name is that of a part: "vision_tower" of "vision", and
 * "language_model" of "text". */
static bool is_part(const transposed_part *part, const char *word, size_t length) {
  size_t own = strlen(part->name);
  if (strcmp(part->name, "text") == 0 && is_word(word, length, "language_model")) return true;
  return length >= own && memcmp(word, part->name, own) == 0 && (length == own || word[own] == '_');
}

static transposed_kind by_config(const transposed *t, const char *name, const char *leaf,
                                 size_t length) {
  bool some = false;
  if (!t->known) return TRANSPOSED_UNKNOWN;
  if (!is_conv1d_name(leaf, length)) return TRANSPOSED_NO;
  if (t->conv1d) return TRANSPOSED_YES;
  for (size_t i = 0; i < t->part_count; i++) {
    size_t first = strcspn(name, "."), second = strcspn(name + first + 1, ".");
    if (is_part(&t->parts[i], name, first) || is_part(&t->parts[i], name + first + 1, second))
      return t->parts[i].conv1d ? TRANSPOSED_YES : TRANSPOSED_NO;
    some = some || t->parts[i].conv1d;
  }
  return some ? TRANSPOSED_MIXED : TRANSPOSED_NO;
}

/* ---- all of it ---- */

stow_status transposed_find(transposed *t, const model *m) {
  read_config(t, m);
  for (size_t i = 0; i < m->count; i++) {
    const tensor *one = m->list[i].facts;
    transposed_leaf like;
    if (one->dims != 2 || one->shape[0] == one->shape[1] || !read_leaf(&like, one->name)) continue;
    transposed_leaf *known = find_leaf(t, &like);
    if (known == NULL) {
      STOW_TRY(LIST_ROOM(t->list, t->count, t->capacity, 32, "layers"));
      known = &t->list[t->count++];
      *known = like;
    }
    if (known->kind != TRANSPOSED_UNKNOWN || known->tries == TRIES_MAX) continue;
    known->tries++;
    known->kind = judge(m, one);
  }
  return STOW_OK;
}

transposed_kind transposed_of(const transposed *t, const char *name) {
  transposed_leaf like;
  if (!read_leaf(&like, name)) return TRANSPOSED_UNKNOWN;
  const transposed_leaf *known = find_leaf(t, &like);
  if (known != NULL && known->kind != TRANSPOSED_UNKNOWN) return known->kind;
  return by_config(t, name, like.name, like.length);
}

void transposed_free(transposed *t) {
  free(t->list);
  *t = (transposed){0};
}
