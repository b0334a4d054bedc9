/* Names: which tensors --quantize and --prune take by default (weights.h). The rules are those of
 * the tools whose files these are: llama.cpp for GGUF, llm-compressor for compressed-tensors. */
#include <fnmatch.h>
#include <string.h>

#include "base/text.h"
#include "data/weights/parts.h"

static const char vector[] = "of one dimension";
static const char not_a_weight[] = "not named .weight";

/* A part of a name, and what it says about the tensor. */
typedef struct left_name {
  const char *part, *why;
} left_name;

bool weights_named(const char *name, const char *const *patterns, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (fnmatch(patterns[i], name, 0) == 0) return true;
  return false;
}

/* llama.cpp, llama-quant.cpp, tensor_allows_quantization (007dbbf3): what it does not quantize. */
static const char *left_of_gguf(const tensor *t) {
  static const char norm[] = "of norms", router[] = "of routers",
                    position[] = "of positions and token types";
  static const char small[] = "of the small matrices of RWKV", tiny[] = "of small projections";
  static const char conv[] = "of small convolutions", image[] = "of the input of images and audio";
  static const left_name kept[] = {{"_norm.weight", norm},
                                   {"ffn_gate_inp.weight", router},
                                   {"ffn_gate_tid2eid.weight", router},
                                   {"altup", tiny},
                                   {"laurel", tiny},
                                   {"per_layer_model_proj", tiny},
                                   {"indexer.k_proj.weight", tiny},
                                   {"indexer.q_proj.weight", tiny},
                                   {"position_embd", position},
                                   {"token_types", position},
                                   {"attn_rel_b.weight", position},
                                   {"ssm_conv1d", conv},
                                   {"shortconv.conv.weight", conv},
                                   {"time_mix_first.weight", small},
                                   {"time_mix_w0.weight", small},
                                   {"time_mix_w1.weight", small},
                                   {"time_mix_w2.weight", small},
                                   {"time_mix_v0.weight", small},
                                   {"time_mix_v1.weight", small},
                                   {"time_mix_v2.weight", small},
                                   {"time_mix_a0.weight", small},
                                   {"time_mix_a1.weight", small},
                                   {"time_mix_a2.weight", small},
                                   {"time_mix_g1.weight", small},
                                   {"time_mix_g2.weight", small},
                                   {"time_mix_decay_w1.weight", small},
                                   {"time_mix_decay_w2.weight", small},
                                   {"time_mix_lerp_fused.weight", small},
                                   {"sam.pos_embd", image},
                                   {"sam.neck.", image},
                                   {"sam.net_", image},
                                   {".rel_pos", image},
                                   {".patch_embd", image},
                                   {".patch_merger", image},
                                   {"a.rvq.codebook", image},
                                   {"mm.a.code_embd", image}};
  if (t->dims < 2) return vector;
  if (!text_ends(t->name, "weight")) return not_a_weight;
  for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
    if (strstr(t->name, kept[i].part) != NULL) return kept[i].why;
  return NULL;
}

/* What is no linear layer, by its usual names. This is what llm-compressor leaves out with its
 * default recipes. Convolutions are known from their dimensions: a matrix named "conv" is a linear
 * layer, as pwconv1 of ConvNeXt and conv.in_proj of LFM2 are. */
static const char *left_of_layers(const tensor *t) {
  static const char embedding[] = "of embeddings", head[] = "of output layers and classifiers";
  static const char norm[] = "of norms", router[] = "of routers", bias[] = "of position biases";
  static const left_name kept[] = {{"embed", embedding}, {"wte.", embedding},
                                   {"wpe.", embedding},  {"shared.weight", embedding},
                                   {"lm_head", head},    {"score.", head},
                                   {"classifier", head}, {"pooler", head},
                                   {"norm", norm},       {"ln_", norm},
                                   {".gate.", router},   {"router", router},
                                   {"bias", bias},       {"relative_attention", bias}};
  if (t->dims != 2) return t->dims < 2 ? vector : "with more than two dimensions (convolutions)";
  if (!text_ends(t->name, ".weight")) return not_a_weight;
  for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
    if (strstr(t->name, kept[i].part) != NULL) return kept[i].why;
  return NULL;
}

const char *weights_left_by(model_format format, const tensor *t) {
  return format == MODEL_GGUF ? left_of_gguf(t) : left_of_layers(t);
}

bool weights_is_embedding(const char *module, size_t length) {
  static const char *const words[] = {"wte", "wpe", "shared"};
  const char *leaf = module + length;
  while (leaf > module && leaf[-1] != '.') leaf--;
  length -= (size_t)(leaf - module);
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    if (strlen(words[i]) == length && strncmp(leaf, words[i], length) == 0) return true;
  for (size_t i = 0; i + 5 <= length; i++)
    if (strncmp(leaf + i, "embed", 5) == 0)
      return length != 9 || strncmp(leaf, "embed_out", 9) != 0; /* GPT-NeoX's output layer */
  return false;
}

bool weights_is_lookup(const tensor *t) {
  size_t length = strlen(t->name), cut = strlen(".weight");
  if (!text_ends(t->name, ".weight")) return false;
  return weights_is_embedding(t->name, length - cut) || text_ends(t->name, ".gate.weight") ||
         text_ends(t->name, ".router.weight");
}

const char *const weights_heads[] = {"lm_head",
                                     "lm_head.decoder",
                                     "lm_head.out_proj",
                                     "cls.predictions.decoder",
                                     "predictions.decoder",
                                     "vocab_projector",
                                     "proj_out",
                                     "generator_lm_head",
                                     "embed_out",
                                     "pred_layer.proj",
                                     "output_projection",
                                     "lm_heads.*",
                                     "lm_loss",
                                     "ctc_head",
                                     "unembedding_projection",
                                     "class_embed.*",
                                     "decoder.class_embed",
                                     "bbox_embed.layers.*",
                                     "entity_predictions.decoder",
                                     NULL};
