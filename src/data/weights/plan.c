/* Plan: what each tensor becomes (weights.h). The defaults are those of the tools whose files these
 * are: llama.cpp for GGUF, llm-compressor for compressed-tensors. --include and --exclude override
 * them. */
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "base/list.h"
#include "base/text.h"
#include "data/weights/config.h"
#include "data/weights/linear.h"
#include "data/weights/parts.h"

/* ---- words ---- */

static const struct {
  const char *name;
  weights_quant quant;
  tensor_type type;
} quants[] = {
    {"q8_0", WEIGHTS_Q8_0, TENSOR_Q8_0}, {"q4_0", WEIGHTS_Q4_0, TENSOR_Q4_0},
    {"q4_k", WEIGHTS_Q4_K, TENSOR_Q4_K}, {"q6_k", WEIGHTS_Q6_K, TENSOR_Q6_K},
    {"int8", WEIGHTS_INT8, TENSOR_I8},   {"fp8", WEIGHTS_FP8, TENSOR_F8_E4M3},
};

stow_status weights_parse_quant(weights_quant *q, const char *text) {
  for (size_t i = 0; i < sizeof quants / sizeof quants[0]; i++)
    if (strcasecmp(text, quants[i].name) == 0) return *q = quants[i].quant, STOW_OK;
  return stow_fail(
      STOW_ERR_INVALID,
      "quantize: unknown type \"%.32s\"; use q8_0, q6_k, q4_k or q4_0 for GGUF, int8 or "
      "fp8 for safetensors",
      text);
}

const char *weights_quant_name(weights_quant q) {
  for (size_t i = 0; i < sizeof quants / sizeof quants[0]; i++)
    if (quants[i].quant == q) return quants[i].name;
  return "none";
}

static tensor_type quant_type(weights_quant q) {
  for (size_t i = 0; i < sizeof quants / sizeof quants[0]; i++)
    if (quants[i].quant == q) return quants[i].type;
  return TENSOR_NONE;
}

/* Returns the word of --quantize that somebody means who asks for a type of 8 bits or fewer; NULL:
 * none. */
static const char *quant_meant(const char *text) {
  static const struct {
    const char *word, *means;
  } words[] = {{"i8", "int8"},         {"float8", "fp8"},        {"f8", "fp8"},
               {"float8_e4m3", "fp8"}, {"float8_e4m3fn", "fp8"}, {"f8_e4m3", "fp8"}};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    if (strcasecmp(text, words[i].word) == 0) return words[i].means;
  for (size_t i = 0; i < sizeof quants / sizeof quants[0]; i++)
    if (strcasecmp(text, quants[i].name) == 0) return quants[i].name;
  return NULL;
}

stow_status weights_parse_type(tensor_type *t, const char *text) {
  dtype type;
  *t = dtype_parse(&type, text) == STOW_OK ? tensor_type_of_dtype(type) : TENSOR_NONE;
  if (*t == TENSOR_F16 || *t == TENSOR_BF16 || *t == TENSOR_F32) return STOW_OK;
  const char *quant = quant_meant(text);
  return stow_fail(
      STOW_ERR_INVALID, "dtype: \"%.32s\" is not a type for weights; use f16, bf16 or f32%s%s",
      text, quant != NULL ? ", or stowage shrink --quantize " : "", quant != NULL ? quant : "");
}

stow_status weights_parse_prune(weights_options *o, const char *text) {
  char *end;
  if (strcmp(text, "2:4") == 0) return o->prune_2_4 = true, STOW_OK;
  double part = strtod(text, &end);
  if (end != text && strcmp(end, "%") == 0 && part > 0 && part < 100) {
    o->prune = part / 100;
    return STOW_OK;
  }
  return stow_fail(STOW_ERR_INVALID,
                   "prune: \"%.32s\": use a percentage below 100, as 50%%, or 2:4", text);
}

/* ---- which tensors ---- */

/* Returns whether the tensor is chosen for quantizing and pruning. */
static bool chosen(const weights_result *r, const weights_options *o, const tensor *t) {
  if (packed_holds(&r->packed, t) || weights_named(t->name, o->exclude, o->exclude_count))
    return false;
  if (o->include_count > 0) return weights_named(t->name, o->include, o->include_count);
  return weights_left_by(r->in.format, t) == NULL;
}

/* ---- what they become ---- */

/* Returns whether it is the output layer, which llama.cpp keeps at 6 bits in files of 4 bits. If
 * the two are tied, it is the embedding. */
static bool is_output_layer(const weights_result *r, const char *name) {
  if (strcmp(name, "output.weight") == 0) return true;
  return strcmp(name, "token_embd.weight") == 0 && model_find(&r->in, "output.weight") == NULL;
}

static tensor_type block_type(const weights_result *r, const weights_options *o, const tensor *t) {
  tensor_type to = quant_type(o->quantize);
  uint64_t row = t->dims > 0 ? t->shape[t->dims - 1] : 1;
  if (o->include_count == 0 && is_output_layer(r, t->name) &&
      (to == TENSOR_Q4_0 || to == TENSOR_Q4_K))
    to = TENSOR_Q6_K;
  if (row % tensor_type_get(to)->block != 0) to = TENSOR_Q8_0;
  return row % tensor_type_get(to)->block == 0 ? to : TENSOR_NONE;
}

/* Returns the type that --dtype requests. GGUF keeps vectors in float32, as its programs expect. */
static tensor_type cast_type(const weights_result *r, const weights_options *o, const tensor *t) {
  if (o->type == TENSOR_NONE || weights_named(t->name, o->exclude, o->exclude_count))
    return t->stored;
  if (o->include_count > 0 && o->quantize == WEIGHTS_NO_QUANT &&
      !weights_named(t->name, o->include, o->include_count))
    return t->stored;
  if (r->in.format == MODEL_GGUF && o->include_count == 0 &&
      weights_left_by(r->in.format, t) != NULL)
    return t->stored;
  if (packed_holds(&r->packed, t) && (o->include_count == 0 || !weights_is_scale(t)))
    return t->stored;
  return weights_can_decode(t->stored) ? o->type : t->stored;
}

static bool has_values(tensor_type t) {
  return tensor_type_is_float(t) || weights_can_decode(t);
}

/* Returns whether readers take the matrix for a linear layer, for sure or because the caller says
 * so.
 */
static bool is_linear(const weights_result *r, const weights_options *o, const tensor *t) {
  if (o->include_count > 0) return true;
  linear_answer answer = linear_is_known(r->model_type, t->name);
  return answer == LINEAR_YES ||
         (answer == LINEAR_OR_TURNED && transposed_of(&r->transposed, t->name) == TRANSPOSED_NO);
}

static void choose(const weights_result *r, const weights_options *o, weights_item *item) {
  const tensor *t = item->from.facts;
  bool picked = t->count > 0 && chosen(r, o, t), quantizable = picked && has_values(t->stored);
  bool prune = o->prune > 0 || o->prune_2_4, any = prune || o->quantize != WEIGHTS_NO_QUANT;
  item->row = t->dims > 0 ? t->shape[t->dims - 1] : 1;
  item->to = cast_type(r, o, t);
  item->action = item->to != t->stored ? ACTION_CAST : ACTION_COPY;
  if (picked && any && !quantizable) item->skip = SKIP_VALUES;
  if (quantizable && prune && !tensor_type_is_float(t->stored)) {
    item->skip = SKIP_VALUES;
  } else if (quantizable && o->prune_2_4 && item->row % 4 != 0) {
    item->skip = SKIP_ROWS;
  } else if (quantizable && prune) {
    item->pruned = true;
    item->action = ACTION_CAST;
  }
  if (!quantizable || o->quantize == WEIGHTS_NO_QUANT) return;
  if (r->in.format == MODEL_GGUF) {
    tensor_type to = block_type(r, o, t);
    item->skip = to == TENSOR_NONE ? SKIP_ROWS : SKIP_NONE;
    /* Already that small: quantizing again would only add error. */
    if (to != TENSOR_NONE && tensor_type_bytes(to, t->count) >= t->bytes) item->skip = SKIP_SMALL;
    if (item->skip != SKIP_NONE) return;
    item->to = to;
    item->action = ACTION_BLOCKS;
    item->requantized = tensor_type_get(t->stored)->block > 1;
    return;
  }
  if (t->dims != 2)
    item->skip = SKIP_SHAPE;
  else if (!tensor_type_is_float(t->stored))
    item->skip = SKIP_SMALL;
  else if (weights_is_lookup(t))
    item->skip = SKIP_KIND;
  else if (transposed_of(&r->transposed, t->name) == TRANSPOSED_YES)
    item->skip = SKIP_TURNED; /* compressed-tensors reads no such */
  else if (o->quantize == WEIGHTS_INT8 && item->row % 4 != 0)
    item->skip = SKIP_ROWS; /* packed in words of four */
  else if (!is_linear(r, o, t))
    item->skip = SKIP_NAME;
  else
    item->skip = SKIP_NONE;
  if (item->skip != SKIP_NONE) return;
  item->to = quant_type(o->quantize);
  item->action = o->quantize == WEIGHTS_INT8 ? ACTION_INT8 : ACTION_FP8;
}

/* Returns whether a chosen tensor can be stored without its zeros. The layouts are for matrices and
 * name their tensors after the module. 16 columns: narrower rows gain nothing, and a chunk's bits
 * and row offsets fit its buffer. */
static bool can_be_sparse(const weights_result *r, const weights_options *o,
                          const weights_item *item) {
  const tensor *t = item->from.facts;
  return chosen(r, o, t) && is_linear(r, o, t) && t->dims == 2 && t->count > 0 && item->row >= 16 &&
         transposed_of(&r->transposed, t->name) != TRANSPOSED_YES &&
         text_ends(t->name, ".weight") && has_values(t->stored) &&
         (item->to == TENSOR_F16 || item->to == TENSOR_BF16 || item->to == TENSOR_F32 ||
          item->to == TENSOR_F64);
}

static void choose_sparse(const weights_result *r, const weights_options *o, weights_item *item) {
  if (!o->sparse || !can_be_sparse(r, o, item)) return;
  if (!o->prune_2_4)
    item->action = ACTION_BITMASK;
  else if (item->pruned)
    item->action = ACTION_BITMASK_24;
}

/* ---- the tensors of the output ---- */

stow_status weights_add_part(weights_result *r, size_t item, const char *name, weights_role role,
                             tensor_type stored, uint32_t dims, const uint64_t *shape) {
  STOW_TRY(LIST_ROOM(r->parts, r->part_count, r->part_capacity, 64, "tensors"));
  weights_part *p = &r->parts[r->part_count];
  weights_item *from = &r->items[item];
  *p = (weights_part){.facts = {.dims = dims, .count = 1}, .role = role};
  for (uint32_t i = 0; i < dims; i++) p->facts.count *= p->facts.shape[i] = shape[i];
  tensors_set_type(&p->facts, stored);
  p->facts.bytes = tensor_type_bytes(stored, p->facts.count);
  p->facts.name = name;
  if (name != from->from.facts->name) {
    p->name = strdup(name);
    if (p->name == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
    p->facts.name = p->name;
  }
  if (from->part_count++ == 0) from->first_part = (uint32_t)r->part_count;
  from->bytes_after += p->facts.bytes;
  r->part_count++;
  return STOW_OK;
}

/* Adds a part whose name is the item's with another word instead of "weight". */
static stow_status add_named(weights_result *r, size_t i, const char *word, weights_role role,
                             tensor_type stored, uint32_t dims, const uint64_t *shape) {
  const char *given = r->items[i].from.facts->name;
  char name[1024];
  if (strlen(given) + 16 > sizeof name)
    return stow_fail(
        STOW_ERR_UNSUPPORTED,
        "%.100s…: the name is too long for the layouts of compressed-tensors; leave the tensor "
        "out with --exclude",
        given);
  snprintf(name, sizeof name, "%.*s%s", (int)(strlen(given) - strlen("weight")), given, word);
  return weights_add_part(r, i, name, role, stored, dims, shape);
}

#define SHAPE_BYTES 16 /* of weight_shape: two int64 */

static tensor_type scale_type(const tensor *t) {
  return t->stored == TENSOR_F64 ? TENSOR_F32 : t->stored;
}

/* Adds the tensors of compressed-tensors: int8 as "pack-quantized" (four values with an offset of
 * 128 in each word), fp8 as "float-quantized". The scale of a row has the type of the original
 * weight. */
static stow_status add_quantized(weights_result *r, size_t i) {
  const weights_item *item = &r->items[i];
  const tensor *t = item->from.facts;
  tensor_type scale = scale_type(t);
  uint64_t packed[2] = {t->shape[0], t->shape[1] / 4}, two = 2, scales[2] = {t->shape[0], 1};
  if (item->action == ACTION_FP8) {
    STOW_TRY(weights_add_part(r, i, t->name, ROLE_VALUES, TENSOR_F8_E4M3, 2, t->shape));
    return add_named(r, i, "weight_scale", ROLE_ROWS, scale, 2, scales);
  }
  STOW_TRY(add_named(r, i, "weight_packed", ROLE_ROWS, TENSOR_I32, 2, packed));
  STOW_TRY(add_named(r, i, "weight_scale", ROLE_ROWS, scale, 2, scales));
  return add_named(r, i, "weight_shape", ROLE_SHAPE, TENSOR_I64, 1, &two);
}

/* Adds the tensors of compressed-tensors' "sparse-bitmask" and "sparse-24-bitmask". The bit of a
 * value is bit column % 8 of byte column / 8 of its row. */
static stow_status add_sparse(weights_result *r, size_t i) {
  const weights_item *item = &r->items[i];
  const uint64_t *shape = item->from.facts->shape;
  uint64_t half[2] = {shape[0], shape[1] / 2}, bits[2] = {shape[0], (shape[1] + 7) / 8};
  uint64_t column[2] = {2, 1}, two = 2;
  if (item->action == ACTION_BITMASK_24) {
    STOW_TRY(add_named(r, i, "compressed", ROLE_ROWS, item->to, 2, half));
    STOW_TRY(add_named(r, i, "bitmask", ROLE_ROWS, TENSOR_U8, 2, bits));
    return add_named(r, i, "shape", ROLE_SHAPE, TENSOR_I64, 2, column);
  }
  STOW_TRY(add_named(r, i, "compressed", ROLE_KEPT, item->to, 1, &item->kept));
  STOW_TRY(add_named(r, i, "bitmask", ROLE_ROWS, TENSOR_U8, 2, bits));
  STOW_TRY(add_named(r, i, "row_offsets", ROLE_ROWS, TENSOR_I64, 1, shape));
  return add_named(r, i, "shape", ROLE_SHAPE, TENSOR_I64, 1, &two);
}

stow_status weights_add_parts(weights_result *r, size_t i) {
  weights_item *item = &r->items[i];
  const tensor *t = item->from.facts;
  switch (item->action) {
  case ACTION_INT8:
  case ACTION_FP8: STOW_TRY(add_quantized(r, i)); break;
  case ACTION_BITMASK:
  case ACTION_BITMASK_24: STOW_TRY(add_sparse(r, i)); break;
  default: STOW_TRY(weights_add_part(r, i, t->name, ROLE_VALUES, item->to, t->dims, t->shape));
  }
  r->bytes_after += item->bytes_after;
  r->changed += item->action != ACTION_COPY;
  return STOW_OK;
}

static stow_status check_request(const weights_result *r, const weights_options *o,
                                 const char *out) {
  bool gguf = r->in.format == MODEL_GGUF, to_gguf = text_ends(out, ".gguf");
  if (!gguf && to_gguf)
    return stow_fail(STOW_ERR_INVALID,
                     "%s: a GGUF file also needs the tokenizer and the architecture's metadata; "
                     "make it with llama.cpp's convert_hf_to_gguf.py, then shrink the GGUF file",
                     out);
  if (gguf && !to_gguf)
    return stow_fail(STOW_ERR_INVALID,
                     "%s: a GGUF model is written as GGUF: name an output that ends with .gguf "
                     "(transformers reads GGUF with from_pretrained(…, gguf_file=…) and can save "
                     "safetensors)",
                     out);
  bool blocks = o->quantize >= WEIGHTS_Q8_0 && o->quantize <= WEIGHTS_Q6_K;
  if (o->quantize != WEIGHTS_NO_QUANT && blocks != gguf)
    return stow_fail(STOW_ERR_INVALID, "--quantize %s: %s files take %s",
                     weights_quant_name(o->quantize), gguf ? "GGUF" : "safetensors",
                     gguf ? "q8_0, q6_k, q4_k and q4_0" : "int8 and fp8");
  if (o->sparse && gguf)
    return stow_fail(STOW_ERR_INVALID,
                     "--sparse: the sparse layouts are for safetensors; GGUF has none");
  if (o->sparse && o->quantize != WEIGHTS_NO_QUANT)
    return stow_fail(STOW_ERR_INVALID,
                     "--sparse and --quantize exclude each other: quantized tensors are stored "
                     "dense; leave one of them out");
  if (gguf && (o->shard_bytes > 0 || o->join))
    return stow_fail(STOW_ERR_INVALID,
                     "--shard and --join are for safetensors; for GGUF use llama.cpp's "
                     "llama-gguf-split");
  return STOW_OK;
}

/* Checks the patterns: one that matches nothing is a mistake in the command. */
static stow_status check_patterns(const weights_result *r, const char *const *patterns,
                                  size_t count, const char *option) {
  for (size_t i = 0; i < count; i++) {
    bool found = false;
    for (size_t k = 0; k < r->in.count && !found; k++)
      found = fnmatch(patterns[i], r->in.list[k].facts->name, 0) == 0;
    if (!found)
      return stow_fail(
          STOW_ERR_INVALID,
          "%s \"%.100s\": no tensor has such a name; `stowage inspect --json` lists them", option,
          patterns[i]);
  }
  return STOW_OK;
}

/* The rows of --quantize q8_0 come in blocks of 32 values; int8 and 2:4 take four at once. */
static const char *skip_text(const weights_result *r, weights_skip skip) {
  switch (skip) {
  case SKIP_ROWS:
    return r->in.format == MODEL_GGUF ? "with rows that are no multiple of 32 values"
                                      : "with rows that are no multiple of 4 values";
  case SKIP_SMALL: return "already that small";
  case SKIP_VALUES: return "without float values";
  case SKIP_SHAPE: return "that are no matrices";
  case SKIP_KIND: return "of embeddings or routers, which nothing reads in 8 bits";
  case SKIP_TURNED: return "stored as inputs x outputs";
  default: return "not known to be linear layers";
  }
}

const char *weights_skip_text(const weights_result *r, const weights_item *item) {
  return skip_text(r, item->skip);
}

bool weights_skipped(const weights_result *r, buffer *to) {
  uint64_t counts[SKIP_NAME + 1] = {0}, all = 0;
  for (size_t i = 0; i < r->item_count; i++) counts[r->items[i].skip]++;
  for (size_t k = SKIP_NONE + 1; k <= SKIP_NAME; k++) {
    if (counts[k] == 0) continue;
    if (all == 0)
      buffer_printf(to, "%" PRIu64 " tensor%s %s", counts[k], text_s(counts[k]),
                    skip_text(r, (weights_skip)k));
    else
      buffer_printf(to, ", %" PRIu64 " %s", counts[k], skip_text(r, (weights_skip)k));
    all += counts[k];
  }
  return all > 0;
}

static bool any_unknown(const weights_result *r) {
  for (size_t i = 0; i < r->item_count; i++)
    if (r->items[i].skip == SKIP_NAME) return true;
  return false;
}

static stow_status fail_skipped(const weights_result *r) {
  buffer reasons = BUFFER_INIT;
  stow_status status;
  if (!weights_skipped(r, &reasons))
    status = STOW_OK;
  else if (reasons.status != STOW_OK)
    status = reasons.status;
  else
    status = stow_fail(STOW_ERR_INVALID, "nothing to do: what was chosen stays as it is: %s%s",
                       reasons.data,
                       any_unknown(r) ? "; choose those that are with --include PATTERN" : "");
  buffer_free(&reasons);
  return status;
}

#define REASONS_MAX 16 /* of weights_left_by */

/* Appends how many tensors the default choice leaves out, by the reason. */
static void list_left(const weights_result *r, buffer *to) {
  struct {
    const char *why;
    uint64_t count;
  } list[REASONS_MAX] = {0};
  for (size_t i = 0; i < r->item_count; i++) {
    const char *why = weights_left_by(r->in.format, r->items[i].from.facts);
    size_t k = 0;
    if (why == NULL) continue;
    while (k < REASONS_MAX - 1 && list[k].why != NULL && list[k].why != why) k++;
    list[k].why = why;
    list[k].count++;
  }
  for (size_t k = 0; k < REASONS_MAX && list[k].why != NULL; k++)
    buffer_printf(to, "%s%" PRIu64 "%s %s", k == 0 ? "left out by default: " : ", ", list[k].count,
                  k > 0                ? ""
                  : list[k].count == 1 ? " tensor"
                                       : " tensors",
                  list[k].why);
}

static stow_status fail_nothing(const weights_result *r, const weights_options *o) {
  static const char choose_some[] = "choose tensors with --include PATTERN";
  buffer left = BUFFER_INIT;
  if (o->quantize != WEIGHTS_NO_QUANT || o->prune > 0 || o->prune_2_4) list_left(r, &left);
  stow_status status = left.status;
  if (status == STOW_OK)
    status = stow_fail(STOW_ERR_INVALID, "nothing to do: %s; %s",
                       left.length > 0 ? left.data : "every tensor already has the requested type",
                       choose_some);
  buffer_free(&left);
  return status;
}

static const char nothing_included[] =
    "nothing to do: every tensor that --include and --exclude choose already has the requested "
    "type";
static const char turned_only[] =
    "nothing to do: this model stores its layers as inputs x outputs (Conv1D, as GPT-2 does), and "
    "compressed-tensors reads only linear layers; use --dtype, or make a GGUF file and quantize "
    "that";

static const char quantized_already[] =
    "nothing to do: the model is already quantized, and its scales keep their type; start from the "
    "model before quantizing";

static bool any_transposed(const weights_result *r) {
  for (size_t i = 0; i < r->item_count; i++)
    if (transposed_of(&r->transposed, r->items[i].from.facts->name) == TRANSPOSED_YES) return true;
  return false;
}

/* ---- mixtures ---- */

/* Writes what the experts of a layer have in common, "layers.0.mlp.experts..gate_up"; false if the
 * tensor is of no expert. transformers joins the matrices of one such name while it loads. */
static bool joined_name(char *to, size_t size, const char *name) {
  static const char *const joined[] = {"gate_proj.weight", "up_proj.weight", "w1.weight",
                                       "w3.weight"};
  const char *experts = strstr(name, "experts.");
  if (experts == NULL) return false;
  const char *number = experts + strlen("experts."), *end = number;
  while (*end >= '0' && *end <= '9') end++;
  if (end == number || *end != '.') return false;
  const char *leaf = end + 1;
  for (size_t i = 0; i < sizeof joined / sizeof joined[0]; i++)
    if (strcmp(end + 1, joined[i]) == 0) leaf = "gate_up";
  return snprintf(to, size, "%.*s.%s", (int)(number - name), name, leaf) < (int)size;
}

static bool is_packed(const weights_item *item) {
  return item->action == ACTION_INT8 || item->action == ACTION_FP8;
}

/* Refuses patterns that quantize some experts of a layer: readers join them. */
static stow_status check_experts(const weights_result *r, const weights_options *o) {
  map seen = {0};
  stow_status status = STOW_OK;
  if ((o->quantize != WEIGHTS_INT8 && o->quantize != WEIGHTS_FP8) ||
      o->include_count + o->exclude_count == 0)
    return STOW_OK;
  for (size_t i = 0; i < r->item_count && status == STOW_OK; i++) {
    const weights_item *item = &r->items[i];
    char name[1024];
    if (item->from.facts->dims != 2 || !joined_name(name, sizeof name, item->from.facts->name))
      continue;
    uint64_t hash = hash_bytes(name, strlen(name), 0);
    const uint64_t *other = map_get(&seen, hash);
    bool packed = is_packed(item);
    if (other == NULL)
      status = map_put(&seen, hash, i);
    else if (packed != is_packed(&r->items[*other]))
      status = stow_fail(STOW_ERR_INVALID,
                         "%.200s and %.200s would differ: readers join the experts of a layer, so "
                         "that all of them are quantized or none; change --include or --exclude",
                         r->items[*other].from.facts->name, item->from.facts->name);
  }
  map_free(&seen);
  return status;
}

/* Refuses models whose experts are replaced by linear layers while they load. */
static stow_status check_stacks(const weights_result *r, const weights_options *o) {
  for (size_t i = 0; i < r->in.count; i++) {
    const tensor *t = r->in.list[i].facts;
    if ((o->quantize == WEIGHTS_INT8 || o->quantize == WEIGHTS_FP8) && t->dims == 3 &&
        text_ends(t->name, ".feed_forward.experts.gate_up_proj"))
      return stow_fail(STOW_ERR_UNSUPPORTED,
                       "%.200s: the experts of Llama 4 are stacked in one tensor, and readers of "
                       "%s expect a layer for each expert; use --dtype bf16, or make a GGUF file "
                       "and quantize that",
                       t->name, weights_quant_name(o->quantize));
  }
  return STOW_OK;
}

/* Refuses to quantize a model a part of which is quantized: config.json describes one method, and
 * the layers of the other would no longer load. */
static stow_status check_packed(const weights_result *r, const weights_options *o) {
  bool quantize = o->quantize == WEIGHTS_INT8 || o->quantize == WEIGHTS_FP8;
  if (quantize && r->packed.sparse)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "some layers are stored without their zeros (sparse-bitmask), and config.json "
                     "describes one layout; start from the dense model");
  if (!r->packed.any || !(quantize || o->sparse)) return STOW_OK;
  return stow_fail(STOW_ERR_UNSUPPORTED,
                   "the model is already quantized, at least in part (%s): config.json describes "
                   "one method, so that those layers would no longer load; start from the model "
                   "before quantizing",
                   packed_method(&r->packed));
}

stow_status weights_plan(weights_result *r, const weights_options *o, const char *out) {
  STOW_TRY(check_request(r, o, out));
  STOW_TRY(check_patterns(r, o->include, o->include_count, "--include"));
  STOW_TRY(check_patterns(r, o->exclude, o->exclude_count, "--exclude"));
  STOW_TRY(check_stacks(r, o));
  size_t to_count = 0;
  STOW_TRY(transposed_find(&r->transposed, &r->in));
  STOW_TRY(packed_find(&r->packed, &r->in));
  STOW_TRY(check_packed(r, o));
  r->items = calloc(r->in.count + 1, sizeof *r->items);
  if (r->items == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  r->item_count = r->in.count;
  r->home_count = r->in.file_count;
  for (size_t i = 0; i < r->item_count; i++) {
    weights_item *item = &r->items[i];
    item->from = r->in.list[i];
    item->home = item->from.file;
    choose(r, o, item);
    choose_sparse(r, o, item);
    r->bytes += item->from.facts->bytes;
    r->pruned += item->pruned;
    to_count += item->action == ACTION_BITMASK; /* weights_count_kept adds its parts */
    if (item->action != ACTION_BITMASK) STOW_TRY(weights_add_parts(r, i));
  }
  STOW_TRY(check_experts(r, o));
  bool asked = o->type != TENSOR_NONE || o->quantize != WEIGHTS_NO_QUANT || o->prune > 0 ||
               o->prune_2_4 || o->sparse;
  if (!asked || r->changed + to_count > 0 || o->shard_bytes > 0 || o->join) return STOW_OK;
  bool only_type = o->type != TENSOR_NONE && o->quantize == WEIGHTS_NO_QUANT && o->prune == 0 &&
                   !o->prune_2_4 && !o->sparse;
  if (only_type && r->in.format == MODEL_TORCH) return STOW_OK; /* becomes safetensors */
  if (r->packed.any) return stow_fail(STOW_ERR_INVALID, "%s", quantized_already);
  if (any_transposed(r)) return stow_fail(STOW_ERR_INVALID, "%s", turned_only);
  STOW_TRY(fail_skipped(r));
  if (o->include_count > 0) return stow_fail(STOW_ERR_INVALID, "%s", nothing_included);
  return fail_nothing(r, o);
}

/* Returns the size of a GGUF file made from another format: its names differ, so every matrix
 * counts. */
static uint64_t bytes_as_gguf(const model *m, tensor_type to) {
  uint64_t sum = 0;
  for (size_t i = 0; i < m->count; i++) {
    const tensor *t = m->list[i].facts;
    uint64_t row = t->dims > 0 ? t->shape[t->dims - 1] : 1;
    bool matrix = t->dims >= 2 && tensor_type_is_float(t->stored);
    bool head = strstr(t->name, "lm_head") != NULL && (to == TENSOR_Q4_0 || to == TENSOR_Q4_K);
    tensor_type now = head ? TENSOR_Q6_K : to;
    if (row % tensor_type_get(now)->block != 0) now = TENSOR_Q8_0;
    if (row % tensor_type_get(now)->block != 0) matrix = false;
    sum += matrix ? tensor_type_bytes(now, t->count) : t->bytes;
  }
  return sum;
}

uint64_t weights_bytes_as(const model *m, const weights_options *o, bool gguf) {
  uint64_t sum = 0;
  weights_result r = {.in = *m};
  if (gguf && m->format != MODEL_GGUF) return bytes_as_gguf(m, quant_type(o->quantize));
  if (transposed_find(&r.transposed, m) != STOW_OK)
    transposed_free(&r.transposed); /* then a few bytes too few */
  (void)config_look(&r);            /* then without the type of the model */
  if (packed_find(&r.packed, m) != STOW_OK) packed_free(&r.packed);
  for (size_t i = 0; i < m->count; i++) {
    const tensor *t = m->list[i].facts;
    weights_item item = {.from = m->list[i]};
    choose(&r, o, &item);
    sum += tensor_type_bytes(item.to, t->count);
    if (item.action == ACTION_INT8 || item.action == ACTION_FP8)
      sum += tensor_type_bytes(scale_type(t), t->shape[0]);
    if (item.action == ACTION_INT8) sum += SHAPE_BYTES;
  }
  transposed_free(&r.transposed);
  packed_free(&r.packed);
  return sum;
}
