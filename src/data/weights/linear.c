/* Linear: see linear.h. The words were gathered from the architectures of transformers 5.23, each
 * built with a small configuration: a word is listed if every matrix with this name is a
 * torch.nn.Linear wherever it is used, and none is an output layer. */
#include "data/weights/linear.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

#include "base/text.h"

/* The last word of a module's name. */
static const char words[] =
    "Wi Wo Wqkv attention_weights b_proj boxes_direct_project boxes_pos_enc_project "
    "class_predictor conv_out decoder_projector dense dense1 dense2 dense_4h_to_h "
    "dense_h_to_4h down_proj dt_proj enc_score_head encoder_projector f_a_proj f_b_proj fc "
    "fc1 fc2 fc3 feat_out feature_extractor final_proj g_a_proj g_b_proj g_proj gate_proj "
    "gate_up_proj in_proj in_proj_a in_proj_b in_proj_qkv in_proj_z input_linear "
    "intermediate_dense k k_lin k_proj kernel key key_proj kv_a_proj_with_mqa kv_b_proj "
    "language_projection layer1 layer2 layer3 lin1 lin2 linear linear1 linear2 linear_1 "
    "linear_2 linear_fc1 linear_fc2 linear_k linear_out linear_pos linear_q linear_v "
    "logits_proj merging_layer mlp modality_projection multi_modal_projector o o_proj out "
    "out_lin out_mid out_proj output_dense output_proj per_layer_input_gate "
    "per_layer_model_projection per_layer_projection pointwise_conv1 pointwise_conv2 proj_in "
    "project_hid project_q projection projection_layer projector pwconv1 q q_a_proj q_b_proj "
    "q_lin q_proj qa_outputs qkv qkv_proj query_key_value query_proj reduction "
    "relative_k_proj sampling_offsets seq_relationship shared_expert_gate summary "
    "temporal_positional_encoding_projection_layer text_proj text_projection to_k to_kv "
    "to_out to_q to_v up_proj v v_lin v_proj value value_proj vision_proj vision_projection "
    "visual_projection vocab_transform w1 w2 w3 weight_proj weights_proj wi wi_0 wi_1 wk wo "
    "wq wq_b wv x_proj";

/* Words before a number: "mlp" of "merger.mlp.0". */
static const char numbered[] = "0 1 2 3 enc_output layers mlp";

/* The same in a numbered layer, as "layers.0.attention.query": outside of layers these words name
 * other modules too, or are rare. Embeddings and output layers are outside. */
static const char inner_words[] =
    "Wk Wq Wv a_proj att_proj attention_out attn_layer attn_out attn_sink_proj "
    "block_inject_weight conv_kernel_layer conv_out_layer correction_coefs dense_in "
    "dense_out e2e_query e2w_query f_proj fc0 fc11 fc12 fc_in fc_out ff0 ff1 ff_out ffn "
    "ffn_output ffw_layer_1 ffw_layer_2 fgate_preact final final_projection gate_attn "
    "gru_rel_pos_linear igate_preact in_proj_ba in_proj_qkvz input_mix_weight_down "
    "input_mix_weight_up intermediate k_head key_global key_net key_protein kv_proj layer_1 "
    "layer_2 layout_key layout_query layout_value linear_end linear_gate linear_left "
    "linear_right linear_start linear_x linear_y matchability message_fc ogate_preact "
    "out_projection out_text_proj out_vision_proj output output_gate output_linear "
    "pointwise_lin1 pointwise_lin2 post post_expert_proj post_proj pre_expert_proj "
    "prediction_coefs proj proj_down proj_out proj_up proj_up_gate project_k project_v "
    "projection_in projection_key projection_out projection_query projection_value pwconv2 "
    "q_head query query_global query_key query_net r_proj receptance temporal_dense to_key "
    "to_query token v_head v_proj_current v_proj_delayed value_global value_net "
    "value_protein values_text_proj values_vision_proj w2e_query w_0 w_1 w_out wgate wk_dv "
    "wkv wkv_a_with_mqa wkv_b wo_a wo_b wo_ud wq_a wq_du wr_du wv_dv";
static const char inner_numbered[] = "4 5 6 7 8 ff ffn net to_out";

/* Linear layers in some architectures, Conv1D in others. */
static const char turned[] = "c_attn c_fc c_proj q_attn";

/* Architectures whose layers of these names are of a class of their own, or are renamed while they
 * load in ways that no list of names can follow. */
static const char own_layers[] = "gradium_phonon_tts ibert inkling2 inkling_mm_model";

/* Finds the word before `end`; NULL: there is none. */
static const char *word_before(const char *name, const char *end) {
  const char *at = end;
  while (at > name && at[-1] != '.') at--;
  return at < end ? at : NULL;
}

static bool is_number(const char *at, const char *end) {
  while (at < end && isdigit((unsigned char)*at)) at++;
  return at == end;
}

/* Returns whether one of the words before `end` is a number. */
static bool in_layer(const char *name, const char *end) {
  for (const char *at = word_before(name, end); at != NULL; at = word_before(name, end)) {
    if (is_number(at, end)) return true;
    end = at > name ? at - 1 : name;
  }
  return false;
}

bool linear_has_word(const char *word, size_t length) {
  return text_lists(words, word, length) || text_lists(inner_words, word, length) ||
         text_lists(turned, word, length);
}

linear_answer linear_is_known(const char *model_type, const char *name) {
  static const char ending[] = ".weight";
  /* Zamba's shared layers are used at several places, but only one of them gets the scales. */
  if (!text_ends(name, ending) || strstr(name, ".shared_transf") != NULL ||
      text_lists(own_layers, model_type, strlen(model_type)))
    return LINEAR_UNKNOWN;
  const char *end = name + strlen(name) - (sizeof ending - 1), *at = word_before(name, end);
  bool number = false;
  for (; at != NULL && at > name && is_number(at, end); at = word_before(name, end)) {
    number = true;
    end = at - 1;
  }
  if (at == NULL) return LINEAR_UNKNOWN;
  size_t length = (size_t)(end - at);
  if (!number && text_lists(turned, at, length)) return LINEAR_OR_TURNED;
  bool known = text_lists(number ? numbered : words, at, length);
  if (!known && at > name && in_layer(name, at - 1))
    known = text_lists(number ? inner_numbered : inner_words, at, length);
  return known ? LINEAR_YES : LINEAR_UNKNOWN;
}
