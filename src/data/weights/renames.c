/* Renames: see renames.h. */
#include "data/weights/renames.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

typedef struct rule {
  const char *from, *to;
} rule;

/* Moves at the front of a name: models of text and images have one prefix for each of their parts.
 */
static const rule fronts[] = {
    {"language_model.model.", "model.language_model."},
    {"language_model.lm_head", "lm_head"},
    {"vision_tower.vision_model.", "model.vision_tower."},
    {"vision_tower.", "model.vision_tower."},
    {"vision_model.", "model.vision_model."},
    {"audio_tower.", "model.audio_tower."},
    {"multi_modal_projector.", "model.multi_modal_projector."},
    {"visual.", "model.visual."},
    {"model.layers.", "model.language_model.layers."},
    {"model.embed_tokens.", "model.language_model.embed_tokens."},
    {"model.norm.", "model.language_model.norm."},
};

/* Words inside: vision transformers (ViTModel and those with its names). Each rule applies to what
 * the ones before it left. */
static const rule vision[] = {
    {"attention.attention.query", "attention.q_proj"},
    {"attention.attention.key", "attention.k_proj"},
    {"attention.attention.value", "attention.v_proj"},
    {"attention.output.dense", "attention.o_proj"},
    {"intermediate.dense", "mlp.fc1"},
    {"output.dense", "mlp.fc2"},
};

/* And mixtures: Mixtral and Phi-MoE, whose router has another name. */
static const rule mixtures[] = {
    {".block_sparse_moe.gate", ".mlp.router"},
    {".block_sparse_moe.", ".mlp."},
};

/* Writes `name` with the first `from` replaced; false if it has none. `to` may not be `name`. */
static bool replace(char to[RENAMES_NAME_MAX], const char *name, const rule *r, bool front) {
  const char *at =
      front ? (strncmp(name, r->from, strlen(r->from)) == 0 ? name : NULL) : strstr(name, r->from);
  return at != NULL && snprintf(to, RENAMES_NAME_MAX, "%.*s%s%s", (int)(at - name), name, r->to,
                                at + strlen(r->from)) < RENAMES_NAME_MAX;
}

static void add(renames *r, const char *name) {
  if (r->count < RENAMES_MAX) snprintf(r->list[r->count++], RENAMES_NAME_MAX, "%s", name);
}

void renames_of(renames *to, const char *name) {
  static const rule layers = {"encoder.layer.", "layers."};
  static const rule plural = {"encoder.layer.", "encoder.layers."};
  char made[RENAMES_NAME_MAX], other[RENAMES_NAME_MAX];
  bool known = false;
  to->count = 0;
  for (size_t i = 0; i < sizeof fronts / sizeof fronts[0]; i++)
    if (replace(made, name, &fronts[i], true)) add(to, made);
  for (size_t i = 0; i < sizeof mixtures / sizeof mixtures[0]; i++)
    if (replace(made, name, &mixtures[i], false)) add(to, made);
  for (size_t i = 0; i < sizeof vision / sizeof vision[0]; i++) {
    if (!replace(made, name, &vision[i], false)) continue;
    add(to, made);
    if (replace(other, made, &layers, false)) add(to, other);
    known = true;
    break;
  }
  if (replace(made, name, &plural, false)) add(to, made);
  if (!known && replace(made, name, &layers, false)) add(to, made);
}

/* ---- layers that stay as they are ---- */

/* The ends of names in transformers 5.23, for linear layers that are not quantized. A star stands
 * for a number. */
static const rule endings[] = {
    {"audio_adapter.proj.*", "adapter.fc1"},
    {"audio_adapter.proj.*", "adapter.fc2"},
    {"decoder_order_head.*", "relative_order_head.proj.*"},
    {"decoder_roor_order_head.*", "successor_order_head.proj.*"},
    {"depth_head.depth_head", "decoder.head"},
    {"encoder_decoder_proj", "decoder.proj"},
    {"ffn.net.*", "mlp.fc1"},
    {"ffn.net.*", "mlp.fc2"},
    {"final_layer.adaLN_modulation.*", "final_layer.adaln_proj"},
    {"flow_lm.out_eos", "eos_head"},
    {"flow_net.cond_embed", "flow_head.cond_proj"},
    {"flow_net.input_proj", "flow_head.input_proj"},
    {"image_pooling_2d.wq", "image_pooling_2d.q_proj"},
    {"image_pooling_2d.wv", "image_pooling_2d.v_proj"},
    {"image_vit.patch_embedding", "vision_tower.patch_embedding"},
    {"input_layernorm.W_down", "mlp.fc1"},
    {"input_layernorm.W_up", "mlp.fc2"},
    {"mlp.fc11", "mlp.up_proj"},
    {"mlp.fc12", "mlp.gate_proj"},
    {"mlp1.*", "multi_modal_projector.linear_1"},
    {"mlp1.*", "multi_modal_projector.linear_2"},
    {"mm_projector.proj.*", "mm_projector.in_proj"},
    {"mm_projector.proj.*", "mm_projector.out_proj"},
    {"model.decoder_order_head.*", "relative_order_head.proj.*"},
    {"model.decoder_roor_order_head.*", "successor_order_head.proj.*"},
    {"model.encoder_decoder_proj", "decoder.proj"},
    {"model.vision_projector", "model.projector"},
    {"normals_head.normals_head", "decoder.head"},
    {"patch_generator.embedder", "embeddings.patch_projection"},
    {"patch_generator.video_embedder", "embeddings.video_patch_projection"},
    {"patchifier", "patch_embed"},
    {"perception.proj", "model.multi_modal_projector"},
    {"post_attention_layernorm.W_down", "mlp.fc1"},
    {"post_attention_layernorm.W_up", "mlp.fc2"},
    {"pre_encode.proj", "embedder.projection"},
    {"projector.layers", "model.multi_modal_projector"},
    {"projector.layers", "multi_modal_projector"},
    {"resampler_model.spatial_linear.*", "spatial_linear.fc1"},
    {"resampler_model.spatial_linear.*", "spatial_linear.fc2"},
    {"resampler_model.temporal_linear.*", "temporal_linear.fc1"},
    {"resampler_model.temporal_linear.*", "temporal_linear.fc2"},
    {"segmentation_head.query_features_proj", "query_features_proj"},
    {"segmentation_head.segmentation_head", "decoder.head"},
    {"sortformer_modules.encoder_proj", "model.proj"},
    {"sortformer_modules.first_hidden_to_hidden", "classifier.dense"},
    {"sortformer_modules.single_hidden_to_spks", "classifier.out_proj"},
    {"speech_encoder.conv_out", "conv_stem.conv_out"},
    {"time_embed.*.mlp.*", "timestep_embeddings.*.fc1"},
    {"time_embed.*.mlp.*", "timestep_embeddings.*.fc2"},
    {"vision_language_adapter.w_in", "multi_modal_projector.linear_1"},
    {"vision_language_adapter.w_out", "multi_modal_projector.linear_2"},
    {"vision_tower.patchifier", "vision_tower.patch_embed"},
    {"visual.proj_in", "merger.linear_1"},
    {"visual.proj_out", "merger.linear_2"},
    {"vit_large_projector", "model.multi_modal_projector"},
};

const char *renames_ending(const char *name, size_t *at) {
  size_t length = strlen(name);
  while (*at < sizeof endings / sizeof endings[0]) {
    const rule *r = &endings[(*at)++];
    size_t end = strlen(r->from);
    if (length >= end && strcmp(name + length - end, r->from) == 0 &&
        (length == end || name[length - end - 1] == '.'))
      return r->to;
  }
  return NULL;
}
