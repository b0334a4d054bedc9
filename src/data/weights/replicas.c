/* Replicas: see replicas.h. */
#include "data/weights/replicas.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/text.h"
#include "data/weights/config.h"
#include "data/weights/tied.h"
#include "files/json_tree.h"

#define CONFIG_MAX (UINT64_C(16) << 20)
#define LAYERS_MAX 4096 /* of the output: many times the deepest model */

static stow_status no_memory(void) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for the list of tensors");
}

void replicas_free(weights_replicas *r) {
  for (size_t i = 0; i < r->count; i++) {
    free((char *)r->list[i]->name);
    free(r->list[i]);
  }
  free(r->list);
  free(r->layers);
  *r = (weights_replicas){0};
}

/* Makes a tensor with the values of `of` and another name, which it takes. */
static stow_status make(weights_result *r, const tensor *of, char *name, uint64_t *left,
                        const tensor **made) {
  weights_replicas *all = &r->replicas;
  uint64_t need = sizeof *of + strlen(name) + 64;
  tensor *copy = need <= *left ? malloc(sizeof *copy) : NULL;
  stow_status status = LIST_ROOM(all->list, all->count, all->capacity, 64, "tensors");
  if (need > *left)
    status = stow_fail(STOW_ERR_BUDGET,
                       "layer_replication: the list of tensors does not fit in the budget; raise "
                       "--memory");
  else if (copy == NULL)
    status = no_memory();
  if (status != STOW_OK) {
    free(copy);
    free(name);
    return status;
  }
  *copy = *of;
  copy->name = name;
  *left -= need;
  *made = all->list[all->count++] = copy;
  return STOW_OK;
}

/* ---- the base's config.json ---- */

typedef struct facts {
  bool known;             /* there is a config.json */
  bool may_be_tied, tied; /* `tied`: config.json says so */
  const char *head;       /* the output layer of the architecture; NULL: not known */
  const char *head_bias;  /* the tensor that its bias is tied to; NULL: it has its own, or none */
  double layers;          /* as the config says */
  bool with_other_head;   /* it has one, which may have another name or scale its output if tied */
} facts;

/* Sets the output layer of an architecture. T5 and its kin are not listed: they scale their output
 * if it is tied. */
static void find_head(facts *f, const char *architecture) {
  static const struct {
    const char *architecture, *head, *bias;
  } heads[] = {{"BertForMaskedLM", "cls.predictions.decoder", "cls.predictions.bias"},
               {"BertForPreTraining", "cls.predictions.decoder", "cls.predictions.bias"},
               {"BertLMHeadModel", "cls.predictions.decoder", "cls.predictions.bias"},
               {"RobertaForMaskedLM", "lm_head.decoder", "lm_head.bias"},
               {"XLMRobertaForMaskedLM", "lm_head.decoder", "lm_head.bias"},
               {"CamembertForMaskedLM", "lm_head.decoder", "lm_head.bias"},
               {"AlbertForMaskedLM", "predictions.decoder", "predictions.bias"},
               {"DistilBertForMaskedLM", "vocab_projector", NULL},
               {"ElectraForMaskedLM", "generator_lm_head", NULL},
               {"WhisperForConditionalGeneration", "proj_out", NULL}};
  for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
    if (strcmp(architecture, heads[i].architecture) == 0) {
      f->head = heads[i].head;
      f->head_bias = heads[i].bias;
      return;
    }
  if (text_ends(architecture, "ForCausalLM") || text_ends(architecture, "LMHeadModel"))
    f->head = "lm_head";
  f->with_other_head =
      text_ends(architecture, "ForMaskedLM") || text_ends(architecture, "ForPreTraining") ||
      text_ends(architecture, "ForConditionalGeneration") ||
      text_ends(architecture, "ForSpeechToText") || text_ends(architecture, "EncoderDecoderModel");
}

static stow_status read_facts(const weights_result *r, facts *f) {
  char path[PATH_MAX], *text;
  size_t length;
  json_tree t;
  *f = (facts){0};
  if (r->in.folder == NULL ||
      snprintf(path, sizeof path, "%s/config.json", r->in.folder) >= PATH_MAX ||
      model_read_text(&text, &length, path, CONFIG_MAX) != STOW_OK)
    return STOW_OK;
  stow_status status = json_tree_read(&t, text, length, path, 4 * CONFIG_MAX);
  if (status == STOW_OK) {
    const json_node *root = json_root(&t), *tie = json_member(&t, root, "tie_word_embeddings");
    const char *kind = json_string(&t, json_first(&t, json_member(&t, root, "architectures")));
    f->known = root->kind == JSON_OBJECT;
    for (const json_node *n = f->known ? json_first(&t, root) : NULL; n != NULL;
         n = json_next(&t, n))
      if (config_counts_layers(json_key_of(&t, n))) (void)json_value(&t, n, &f->layers);
    f->may_be_tied = true;
    status = json_read_boolean(&t, root, "tie_word_embeddings", &f->may_be_tied);
    f->tied = tie != NULL && tie->kind == JSON_TRUE;
    if (kind != NULL) find_head(f, kind);
  }
  json_tree_free(&t);
  free(text);
  return status;
}

static stow_status check_folders(const facts *f, const char *out, const char *why) {
  if (f->known && !text_ends(out, ".safetensors")) return STOW_OK;
  return stow_fail(STOW_ERR_INVALID,
                   "%s: this changes config.json; name the folder of the base, with its "
                   "config.json, and a folder for the output",
                   why);
}

/* ---- layers ---- */

/* Finds the number of a layer in a tensor's name, as PEFT finds the layers: behind "layers.",
 * "encoder.layer." or "h.". Returns the length of what comes before the number; 0: none. */
static size_t number_at(const char *name, unsigned long *number, const char **behind) {
  static const char *const words[] = {"layers.", "encoder.layer.", "h."};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    for (const char *at = strstr(name, words[i]); at != NULL; at = strstr(at + 1, words[i])) {
      const char *digits = at + strlen(words[i]);
      size_t length = strspn(digits, "0123456789");
      if ((at != name && at[-1] != '.') || length == 0 || length > 6 || digits[length] != '.')
        continue;
      *number = strtoul(digits, NULL, 10);
      *behind = digits + length;
      return (size_t)(digits - name);
    }
  return 0;
}

/* Counts the layers of the base. They all have the same name but for the number. */
static stow_status count_layers(const weights_result *r, size_t *count) {
  const char *stem = NULL, *behind;
  size_t stem_length = 0;
  unsigned long number;
  *count = 0;
  for (size_t i = 0; i < r->in.count; i++) {
    const char *name = r->in.list[i].facts->name;
    size_t length = number_at(name, &number, &behind);
    if (length == 0) continue;
    if (stem == NULL) stem = name, stem_length = length;
    if (length != stem_length || strncmp(name, stem, length) != 0)
      return stow_fail(STOW_ERR_UNSUPPORTED,
                       "layer_replication: the base has layers \"%.*s\" and \"%.*s\"; which ones "
                       "are repeated is not known",
                       (int)stem_length, stem, (int)length, name);
    if (number + 1 > *count) *count = number + 1;
  }
  if (stem != NULL) return STOW_OK;
  return stow_fail(STOW_ERR_INVALID, "layer_replication: the base has no numbered layers; is this "
                                     "the model that the adapter was trained for?");
}

static stow_status list_layers(weights_replicas *to, const adapter *a, size_t have) {
  size_t capacity = 0;
  to->layers_before = have;
  for (size_t i = 0; i < a->replication_count; i++)
    for (uint32_t k = a->replication[i].start; k < a->replication[i].end; k++) {
      if (k >= have || to->layer_count == LAYERS_MAX)
        return stow_fail(STOW_ERR_INVALID,
                         "layer_replication: %s %zu; is this the model that the adapter was "
                         "trained for?",
                         k >= have ? "layers up to the end of a range are needed, the base has"
                                   : "more layers than",
                         k >= have ? have : (size_t)LAYERS_MAX);
      STOW_TRY(LIST_ROOM(to->layers, to->layer_count, capacity, 64, "layers"));
      to->layers[to->layer_count++] = k;
    }
  if (to->layer_count > 0) return STOW_OK;
  return stow_fail(STOW_ERR_FORMAT, "layer_replication leaves no layer");
}

static stow_status add_tensor(model_tensor **list, size_t *count, size_t *capacity,
                              model_tensor added) {
  STOW_TRY(LIST_ROOM(*list, *count, *capacity, 64, "tensors"));
  (*list)[(*count)++] = added;
  return STOW_OK;
}

/* Adds the tensor once for each layer of the output that repeats its layer. */
static stow_status repeat(weights_result *r, model_tensor t, uint64_t *left, model_tensor **list,
                          size_t *count, size_t *capacity) {
  unsigned long number;
  const char *behind, *name = t.facts->name;
  size_t length = number_at(name, &number, &behind);
  if (length == 0) return add_tensor(list, count, capacity, t);
  for (size_t i = 0; i < r->replicas.layer_count; i++) {
    const tensor *made = t.facts;
    if (r->replicas.layers[i] != number) continue;
    if (i != number) {
      size_t size = strlen(name) + 24;
      char *other = malloc(size);
      if (other == NULL) return no_memory();
      snprintf(other, size, "%.*s%zu%s", (int)length, name, i, behind);
      STOW_TRY(make(r, t.facts, other, left, &made));
    }
    STOW_TRY(add_tensor(list, count, capacity, (model_tensor){made, t.file}));
  }
  return STOW_OK;
}

static stow_status repeat_layers(weights_result *r, const adapter *a, const facts *f,
                                 const char *out, uint64_t *left) {
  model_tensor *list = NULL;
  size_t count = 0, capacity = 0, have = 0;
  stow_status status = check_folders(f, out, "layer_replication");
  if (status == STOW_OK) status = count_layers(r, &have);
  if (status == STOW_OK && f->layers != (double)have)
    status = stow_fail(STOW_ERR_UNSUPPORTED,
                       "layer_replication: the base has %zu layers, and its config.json does not "
                       "say so; how to change it is not known for this architecture",
                       have);
  if (status == STOW_OK) status = list_layers(&r->replicas, a, have);
  for (size_t i = 0; i < r->in.count && status == STOW_OK; i++)
    status = repeat(r, r->in.list[i], left, &list, &count, &capacity);
  if (status != STOW_OK) return free(list), status;
  free(r->in.list);
  r->in.list = list;
  r->in.count = count;
  r->in.capacity = capacity;
  return STOW_OK;
}

/* ---- tied output layers ---- */

/* Returns the embedding, or NULL if it is not clear which tensor that is. */
static const model_tensor *find_embedding(const weights_result *r) {
  static const char *const words[] = {"embed_tokens.weight",    "wte.weight",
                                      "word_embeddings.weight", "embed_in.weight",
                                      "tok_embeddings.weight",  "embeddings.weight"};
  const model_tensor *found = NULL;
  for (size_t i = 0; i < r->in.count; i++) {
    const tensor *t = r->in.list[i].facts;
    for (size_t k = 0; k < sizeof words / sizeof words[0]; k++) {
      if (t->dims != 2 || !tied_is_last(t->name, words[k])) continue;
      if (found != NULL) return NULL;
      found = &r->in.list[i];
    }
  }
  return found;
}

/* Returns the output layer that an adapter changes and the base does not have; NULL: none. */
static const char *missing_head(const weights_result *r, const adapter *a) {
  for (size_t i = 0; i < a->count; i++)
    for (const char *const *head = weights_heads; *head != NULL; head++)
      if (!a->modules[i].tied && tied_is_layer(a->modules[i].name, *head) &&
          !tied_has_layer(r, *head))
        return *head;
  return NULL;
}

/* What adapters do to a pair of embedding and output layer. */
typedef struct pair {
  bool head;      /* change the output layer */
  bool start;     /* with an initialization that changed the base */
  bool embedding; /* replace the embedding (LoRA of it does not count: PEFT changes both) */
} pair;

/* Returns whether the adapter's tensor replaces the embedding, which transformers may rename. */
static bool replaces(const adapter_module *m, const tensor *embedding) {
  const char *last = strrchr(embedding->name, '.'); /* ".weight" */
  if (m->saved == NULL || m->saved_base || last == NULL) return false;
  while (last > embedding->name && last[-1] != '.') last--;
  const tensor *t = m->saved->facts;
  return tied_is_last(m->name, last) && t->dims == 2 && t->shape[1] == embedding->shape[1];
}

static void look_at(pair *p, const adapter *a, const char *head, const tensor *embedding) {
  bool both = false; /* the adapter has the output layer too, with the same values */
  for (size_t i = 0; i < a->count; i++)
    for (const char *const *any = weights_heads; *any != NULL && a->modules[i].tied; any++)
      both = both || tied_is_layer(a->modules[i].name, *any);
  for (size_t i = 0; i < a->count; i++) {
    const adapter_module *m = &a->modules[i];
    bool of_head = !m->tied && tied_is_layer(m->name, head);
    p->head = p->head || of_head;
    p->start = p->start || (of_head && m->a != NULL && a->start != START_PLAIN);
    if (!both && embedding != NULL && replaces(m, embedding)) p->embedding = true;
  }
}

/* Adds a tensor with the values of another one. */
static stow_status add_copy(weights_result *r, const char *layer, const char *word,
                            const model_tensor *of, uint64_t *left) {
  model_tensor added = {.file = of->file};
  size_t size = strlen(layer) + strlen(word) + 2;
  char *name = malloc(size);
  if (name == NULL) return no_memory();
  snprintf(name, size, "%s.%s", layer, word);
  STOW_TRY(make(r, of->facts, name, left, &added.facts));
  return add_tensor(&r->in.list, &r->in.count, &r->in.capacity, added);
}

static stow_status untie(weights_result *r, const facts *f, const char *out, bool start,
                         const model_tensor *embedding, uint64_t *left) {
  static const char next[] =
      "load the base with tie_word_embeddings=False, copy the embedding to the output layer, save "
      "that and merge into it";
  STOW_TRY(check_folders(f, out, "the output layer is tied to the embedding"));
  if (f->head == NULL || embedding == NULL)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "the output layer is tied to the embedding, and how to untie them is not "
                     "known for this architecture; %s",
                     next);
  if (start)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "the output layer is tied to the embedding, and the initialization of the "
                     "adapter changed both; %s, or save the adapter with PEFT's "
                     "path_initial_model_for_weight_conversion",
                     next);
  r->replicas.untied = true;
  STOW_TRY(add_copy(r, f->head, "weight", embedding, left));
  const model_tensor *bias = f->head_bias != NULL ? model_find(&r->in, f->head_bias) : NULL;
  return bias != NULL ? add_copy(r, f->head, "bias", bias, left) : STOW_OK;
}

stow_status replicas_add(weights_result *r, const adapter *adapters, size_t count, const char *out,
                         uint64_t max_bytes) {
  facts f;
  pair p = {0};
  STOW_TRY(read_facts(r, &f));
  for (size_t i = 0; i < count; i++) {
    if (adapters[i].replication_count == 0) continue;
    if (count > 1)
      return stow_fail(STOW_ERR_UNSUPPORTED,
                       "layer_replication: an adapter that repeats layers is merged alone; merge "
                       "the others before or after it");
    STOW_TRY(repeat_layers(r, &adapters[i], &f, out, &max_bytes));
  }
  const model_tensor *embedding = find_embedding(r);
  const char *head = f.head;
  for (size_t i = 0; i < count && head == NULL; i++) head = missing_head(r, &adapters[i]);
  if (head == NULL) head = "lm_head";
  for (size_t i = 0; i < count; i++)
    look_at(&p, &adapters[i], head, embedding != NULL ? embedding->facts : NULL);
  bool two = p.head || (p.embedding && (f.head != NULL || f.with_other_head));
  /* A base that has both, of equal values: a reader would take the embedding for both. */
  if (tied_has_layer(r, head) && two && f.tied && f.head != NULL) r->replicas.untied = true;
  if (tied_has_layer(r, head) || (f.known && !f.may_be_tied)) return STOW_OK;
  return two ? untie(r, &f, out, p.start, embedding, &max_bytes) : STOW_OK;
}
