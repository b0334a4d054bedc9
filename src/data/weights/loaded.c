/* Loaded: see loaded.h. */
#include "data/weights/loaded.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "data/weights/beside.h"

#define NUMBERS_MAX 4
#define DEPTH_MAX   4

/* ---- rules ---- */

typedef struct rule {
  const char *kinds; /* with single spaces between; "*": all */
  const char *from, *to;
} rule;

/* Of transformers 5.23. Each rule replaces the first place that fits in what the rules before it
 * left. "^" is the start of the name, "#" a number, which is kept. A rule with "|" names the parts
 * of a tensor that is split (Chunk), and ends the list.
 *
 * Left out, so that adapters of these layers are refused: tensors that are joined or transposed
 * while they are loaded, or whose rows change places (PermuteForRope, Interleave, Split). */
static const rule rules[] = {
    /* The whole model. */
    {"nemotron_h nemotron_h_omni", "backbone.", "model."},
    {"*", "language_model.model.", "language_model."},
    /* torch.nn.utils.weight_norm, of speech models, before it was a parametrization. */
    {"*", ".conv.weight_g", ".conv.parametrizations.weight.original0"},
    {"*", ".conv.weight_v", ".conv.parametrizations.weight.original1"},
    {"bailing_hybrid", "^model.word_embeddings.", "model.embed_tokens."},
    {"cosmos3_edge cosmos3_omni", "^layers.", "model.language_model.layers."},
    {"cosmos3_edge cosmos3_omni", "^embed_tokens.", "model.language_model.embed_tokens."},
    {"cosmos3_omni", "^blocks.", "model.visual.blocks."},
    {"cosmos3_omni", "^merger.", "model.visual.merger."},
    {"cosmos3_omni", "^patch_embed.", "model.visual.patch_embed."},
    {"cosmos3_omni", "^deepstack_merger_list.", "model.visual.deepstack_merger_list."},
    {"deepseek_ocr2", "sam_model.blocks.", "vision_tower.sam_encoder.layers."},
    {"deepseek_ocr2", "qwen2_model.model.model.layers.", "vision_tower.vision_encoder.layers."},
    {"deepseek_ocr2", "qwen2_model.query_768.", "vision_tower.query_768_resolution."},
    {"deepseek_ocr2", "qwen2_model.query_1024.", "vision_tower.query_1024_resolution."},
    {"deepseek_v4", "^embed.", "embed_tokens."},
    {"deepseek_v4", "^head.", "lm_head."},
    {"gpt_neox", "^embed_out.", "lm_head."},
    {"gte", "^new.", ""},
    {"hunyuan_vl", "perceive.proj.0.", "perceive.proj_conv."},
    {"hunyuan_vl", "perceive.proj.2.", "perceive.proj_out."},
    {"hunyuan_vl", "perceive.", "patch_merger."},
    {"hunyuan_vl", "^model.layers.", "model.language_model.layers."},
    {"hunyuan_vl", "^model.embed_tokens.", "model.language_model.embed_tokens."},
    {"hunyuan_vl", "^model.vit.", "model.vision_tower."},
    {"hunyuan_vl", "^vit.", "model.vision_tower."},
    {"hyperclovax_vision_v2", "^model.language_model.lm_head", "lm_head"},
    {"hyperclovax_vision_v2", "^model.vision_projector", "model.projector"},
    {"inkling2 inkling2_text inkling_mm_model", "model.llm.unembed.", "lm_head."},
    {"inkling2 inkling_mm_model", "model.llm.", "model.language_model."},
    {"inkling2_text", "model.llm.", "model."},
    {"inkling2 inkling2_text inkling_mm_model", "embed.weight", "embed_tokens.weight"},
    {"inkling2", "model.visual.backbone.", "model.vision_tower."},
    {"inkling2", "model.visual.proj_in.", "model.vision_tower.merger.linear_1."},
    {"inkling2", "model.visual.proj_out.", "model.vision_tower.merger.linear_2."},
    {"inkling_mm_model", "model.audio.", "model.audio_tower."},
    {"inkling_mm_model", "model.visual.", "model.vision_tower."},
    {"kimi_k25", "vision_tower.encoder.blocks.#.mlp.fc1", "model.vision_tower.layers.#.mlp.fc2"},
    {"kimi_k25", "vision_tower.encoder.blocks.#.mlp.fc0", "model.vision_tower.layers.#.mlp.fc1"},
    {"kimi_k25", "vision_tower.encoder.blocks.#.wo.", "model.vision_tower.layers.#.attn.proj."},
    {"kimi_k25", "^mm_projector.proj.0", "model.mm_projector.in_proj"},
    {"kimi_k25", "^mm_projector.proj.2", "model.mm_projector.out_proj"},
    {"kimi_k25", "language_model.blocks", "language_model.layers"},
    {"minimax_m3_vl", "^vision_tower.vision_model.encoder.", "model.vision_tower."},
    {"minimax_m3_vl", "^patch_merge_mlp.linear_#", "model.multi_modal_projector.merge_linear_#"},
    {"mistral_large4", "^vision_encoder.", "model.vision_tower."},
    {"mistral_large4", "^tok_embeddings.", "model.language_model.embed_tokens."},
    {"mistral_large4", "^layers.", "model.language_model.layers."},
    {"mistral_large4", "^output.", "lm_head."},
    {"mistral_large4", "^patch_merger.", "model.multi_modal_projector.patch_merger."},
    {"mistral_large4", "^vision_language_adapter.w_in.", "model.multi_modal_projector.linear_1."},
    {"mistral_large4", "^vision_language_adapter.w_out.", "model.multi_modal_projector.linear_2."},
    {"molmo2", "vision_backbone.image_vit.transformer.resblocks.", "vision_tower.layers."},
    {"molmo2", "vision_backbone.image_vit.", "vision_tower."},
    {"molmo2", "vision_backbone.", "multi_modal_projector."},
    {"molmo2", "transformer.blocks.", "language_model.layers."},
    {"nemotron_h_omni", "^mlp1.1.", "multi_modal_projector.linear_1."},
    {"nemotron_h_omni", "^mlp1.3.", "multi_modal_projector.linear_2."},
    {"nemotron_h_omni", "^sound_encoder.encoder.", "audio_tower."},
    {"nemotron_h_omni", "^sound_projection.linear#.", "embed_audio.linear_#."},
    {"paddleocr_vl", "^mlp_AR", "model.projector"},
    {"paddleocr_vl", "^visual", "model.visual"},
    {"paddleocr_vl", "^model.layers.", "model.language_model.layers."},
    {"paddleocr_vl", "^model.embed_tokens.", "model.language_model.embed_tokens."},
    {"pi0", "^paligemma_with_expert.paligemma.model.", "model.vlm."},
    {"pi0", "^paligemma_with_expert.gemma_expert.model.", "model.dit."},
    {"pi0", "^state_proj", "embed_action_time.state_proj"},
    {"pi0", "^action_in_proj", "embed_action_time.action_in_proj"},
    {"pi0", "^action_time_mlp_", "embed_action_time.action_time_mlp_"},
    {"qianfan_ocr", "^vision_model.", "model.vision_tower."},
    {"qianfan_ocr", "encoder.layers.", "layers."},
    {"qianfan_ocr", "^mlp1.1.", "model.multi_modal_projector.linear_1."},
    {"qianfan_ocr", "^mlp1.3.", "model.multi_modal_projector.linear_2."},
    {"shieldgemma2", "^language_model.", "model.language_model."},
    {"shieldgemma2", "^vision_tower.", "model.vision_tower."},
    {"shieldgemma2", "^multi_modal_projector.", "model.multi_modal_projector."},
    {"step3p7", "^vision_model.", "model.vision_model."},
    {"step3p7", "^vit_large_projector.", "model.multi_modal_projector."},
    {"step3p7", "^model.layers.", "model.language_model.layers."},
    {"step3p7", "^model.embed_tokens.", "model.language_model.embed_tokens."},
    {"tipsv2", "text_encoder", "text_model"},
    {"tipsv2", "vision_encoder", "vision_model"},
    {"tipsv2_dpt", "vision_encoder", "backbone"},
    {"ultrabert", "^ultrabert.", "model."},
    {"ultravbert", "^head.linear#", "projection_head.linear#"},
    {"unlimited_ocr", "sam_model.blocks", "vision_tower.sam_encoder.layers"},
    {"unlimited_ocr", "vision_model.transformer", "vision_tower.vision_encoder.encoder"},
    {"deepseek_ocr2 unlimited_ocr", "projector.layers.", "multi_modal_projector."},
    {"deepseek_ocr2 unlimited_ocr", "^model.layers.", "model.language_model.layers."},
    {"deepseek_ocr2 unlimited_ocr", "^model.embed_tokens.", "model.language_model.embed_tokens."},
    {"deepseek_ocr2 unlimited_ocr", "^layers.", "language_model.layers."},
    {"deepseek_ocr2 unlimited_ocr", "^embed_tokens.", "language_model.embed_tokens."},

    /* Layers of text. */
    {"axk2", "W_down", "mlp.fc1"},
    {"axk2", "W_up", "mlp.fc2"},
    {"axk2", "self_attn.q_b_proj.", "self_attn.q_gate_proj."},
    {"bailing_hybrid", ".attention.", ".self_attn."},
    {"bailing_hybrid", "self_attn.f_proj.", "self_attn.forget_gate.f_proj."},
    {"bailing_hybrid", ".self_attn.dense.", ".self_attn.o_proj."},
    {"cosmos3_edge cosmos3_omni", ".self_attn.to_q.", ".self_attn.q_proj."},
    {"cosmos3_edge cosmos3_omni", ".self_attn.to_k.", ".self_attn.k_proj."},
    {"cosmos3_edge cosmos3_omni", ".self_attn.to_v.", ".self_attn.v_proj."},
    {"cosmos3_edge cosmos3_omni", ".self_attn.to_out.", ".self_attn.o_proj."},
    {"cosmos3_edge", ".mlp.up_proj.", ".mlp.fc1."},
    {"cosmos3_edge", ".mlp.down_proj.", ".mlp.fc2."},
    {"deepseek_v4", ".attn.", ".self_attn."},
    {"deepseek_v4", ".ffn.", ".mlp."},
    {"deepseek_v4", ".indexer.compressor.", ".compressor.indexer."},
    {"deepseek_v4", ".indexer.weights_proj.", ".compressor.indexer.scorer.weights_proj."},
    {"deepseek_v4", ".indexer.wq_b.", ".compressor.indexer.q_b_proj."},
    {"deepseek_v4", ".wq_a.", ".q_a_proj."},
    {"deepseek_v4", ".self_attn.wq_b.", ".self_attn.q_b_proj."},
    {"deepseek_v4", ".wkv.", ".kv_proj."},
    {"deepseek_v4", ".wgate.", ".gate_proj."},
    {"deepseek_v4", ".wo_a.", ".o_a_proj."},
    {"deepseek_v4", ".wo_b.", ".o_b_proj."},
    {"deepseek_v4", ".shared_experts.w1.", ".shared_experts.gate_proj."},
    {"deepseek_v4", ".shared_experts.w2.", ".shared_experts.down_proj."},
    {"deepseek_v4", ".shared_experts.w3.", ".shared_experts.up_proj."},
    {"gte", "encoder.layer.", "layers."},
    {"gte", "attention.o_proj", "self_attn.o_proj"},
    {"hrm_text", ".attn.o_proj.", ".self_attn.o_proj."},
    {"hunyuan_vl", "mlp.dense_h_to_4h", "mlp.fc1"},
    {"hunyuan_vl", "mlp.dense_4h_to_h", "mlp.fc2"},
    {"hy_v3", "mlp.shared_mlp.", "mlp.shared_experts."},
    {"hy_v4", ".linear_gate.", ".gate_proj."},
    {"inkling2 inkling2_text inkling_mm_model", "attn.wq_du", "self_attn.q_proj"},
    {"inkling2 inkling2_text inkling_mm_model", "attn.wk_dv", "self_attn.k_proj"},
    {"inkling2 inkling2_text inkling_mm_model", "attn.wv_dv", "self_attn.v_proj"},
    {"inkling2 inkling2_text inkling_mm_model", "attn.wr_du", "self_attn.r_proj"},
    {"inkling2 inkling2_text inkling_mm_model", "attn.wo_ud", "self_attn.o_proj"},
    {"inkling2 inkling2_text", "attn.gate_attn", "self_attn.gate_proj"},
    {"inkling2 inkling2_text", "attn.attn_sink_proj", "self_attn.sink_proj"},
    {"inkling_mm_model", "mlp.w2_md.", "mlp.down_proj."},
    {"inkling_mm_model", "vision_tower.layers.linear_#",
     "vision_tower.encoder_layers.#.projection"},
    {"jina_embeddings_v3 nomic_bert", "encoder.layers", "layers"},
    {"jina_embeddings_v3", "mixer.out_proj", "self_attn.o_proj"},
    {"glm5_next glm5_next_text kimi_linear", "self_attn.f_a_proj.",
     "self_attn.forget_gate.f_a_proj."},
    {"glm5_next glm5_next_text kimi_linear", "self_attn.f_b_proj.",
     "self_attn.forget_gate.f_b_proj."},
    {"kimi_linear minimax_m3_vl", ".block_sparse_moe.", ".mlp."},
    {"laguna", "mlp.shared_expert.", "mlp.shared_experts."},
    {"lfm3", ".self_attn.gate_proj.", ".self_attn.g_proj."},
    {"mistral_large4", "language_model.layers.#.attention.", "language_model.layers.#.self_attn."},
    {"mistral_large4", "language_model.layers.#.feed_forward.", "language_model.layers.#.mlp."},
    {"mistral_large4_text", "^layers.#.attention.", "layers.#.self_attn."},
    {"mistral_large4_text", "^layers.#.feed_forward.", "layers.#.mlp."},
    {"mistral_large4_text", "layers.#.shared_experts.", "layers.#.mlp.shared_experts."},
    {"mistral_large4_text", "layers.#.experts.", "layers.#.mlp.experts."},
    {"mistral_large4_text", ".self_attn.wq.", ".self_attn.q_proj."},
    {"mistral_large4_text", ".wkv_a_with_mqa.", ".kv_a_proj_with_mqa."},
    {"mistral_large4_text", ".wkv_b.", ".kv_b_proj."},
    {"mistral_large4", ".wv.", ".v_proj."},
    {"mistral_large4", ".wo.", ".o_proj."},
    {"mistral_large4", ".feed_forward.w1.", ".feed_forward.gate_proj."},
    {"mistral_large4", ".feed_forward.w2.", ".feed_forward.down_proj."},
    {"mistral_large4", ".feed_forward.w3.", ".feed_forward.up_proj."},
    {"mistral_large4", ".mlp.w1.", ".mlp.gate_proj."},
    {"mistral_large4", ".mlp.w2.", ".mlp.down_proj."},
    {"mistral_large4", ".mlp.w3.", ".mlp.up_proj."},
    {"mistral_large4", ".shared_experts.w1.", ".shared_experts.gate_proj."},
    {"mistral_large4", ".shared_experts.w2.", ".shared_experts.down_proj."},
    {"mistral_large4", ".shared_experts.w3.", ".shared_experts.up_proj."},
    {"molmo2_text", "self_attn.attn_out", "self_attn.o_proj"},
    {"molmo2_text", "mlp.ff_out", "mlp.down_proj"},
    {"nomic_bert", "attn.out_proj", "self_attn.o_proj"},
    {"nomic_bert", "mlp.fc11", "mlp.up_proj"},
    {"nomic_bert", "mlp.fc12", "mlp.gate_proj"},
    {"nomic_bert", "mlp.fc2", "mlp.down_proj"},
    {"step3p7", ".share_expert.", ".mlp.shared_experts."},
    {"t5gemma2", "^model.encoder.layers.", "model.encoder.text_model.layers."},
    {"t5gemma2", "^encoder.layers.", "encoder.text_model.layers."},
    {"timesfm2_5", "mlp.ff0", "mlp.fc1"},
    {"timesfm2_5", "mlp.ff1", "mlp.fc2"},
    {"tipsv2 tipsv2_text_model", "transformer.resblocks.", "encoder.layers."},
    {"tipsv2 tipsv2_text_model", ".attn.out_proj", ".self_attn.out_proj"},
    {"tipsv2 tipsv2_text_model", ".attn.in_proj_weight", ".self_attn.in_proj_weight"},

    /* Layers of images and sound. */
    {"cohere_asr", "encoder.pre_encode.conv.", "encoder.subsampling.layers."},
    {"cohere_asr", "encoder.pre_encode.out.", "encoder.subsampling.linear."},
    {"cohere_asr", "transf_decoder._embedding.token_embedding", "decoder.embed_tokens"},
    {"cohere_asr", "transf_decoder._decoder.layers", "decoder.layers"},
    {"cohere_asr", "encoder_decoder_proj.", "decoder.proj."},
    {"cohere_asr", ".self_attn.linear_q", ".self_attn.q_proj"},
    {"cohere_asr", ".self_attn.linear_k", ".self_attn.k_proj"},
    {"cohere_asr", ".self_attn.linear_v", ".self_attn.v_proj"},
    {"cohere_asr", ".self_attn.linear_out", ".self_attn.o_proj"},
    {"cohere_asr", ".self_attn.linear_pos", ".self_attn.relative_k_proj"},
    {"cohere_asr", ".first_sub_layer.query_net", ".self_attn.q_proj"},
    {"cohere_asr", ".first_sub_layer.key_net", ".self_attn.k_proj"},
    {"cohere_asr", ".first_sub_layer.value_net", ".self_attn.v_proj"},
    {"cohere_asr", ".first_sub_layer.out_projection", ".self_attn.o_proj"},
    {"cohere_asr", ".second_sub_layer.query_net", ".encoder_attn.q_proj"},
    {"cohere_asr", ".second_sub_layer.key_net", ".encoder_attn.k_proj"},
    {"cohere_asr", ".second_sub_layer.value_net", ".encoder_attn.v_proj"},
    {"cohere_asr", ".second_sub_layer.out_projection", ".encoder_attn.o_proj"},
    {"cohere_asr", ".third_sub_layer.dense_in", ".mlp.fc1"},
    {"cohere_asr", ".third_sub_layer.dense_out", ".mlp.fc2"},
    {"cohere_asr", "log_softmax.mlp.layer0", "proj_out"},
    {"dinov3_vit", "^layer.", "model.layer."},
    {"dinov3_vit", "backbone.layer.", "backbone.model.layer."},
    {"inkling2", "vision_tower.layers.#.mlp.c_fc.", "vision_tower.layers.#.mlp.fc1."},
    {"inkling2", "vision_tower.layers.#.mlp.c_proj.", "vision_tower.layers.#.mlp.fc2."},
    {"lfm3_vl_vision", "patchifier", "patch_embed"},
    {"qianfan_ocr", "layers.#.attn.proj.", "layers.#.attention.projection_layer."},
    {"radio", "radio_model.model.patch_generator.", "embeddings."},
    {"radio", "embeddings.video_embedder", "embeddings.video_patch_projection"},
    {"radio", "embeddings.embedder", "embeddings.patch_projection"},
    {"radio", "radio_model.model.blocks", "encoder.layer"},
    {"radio", "attn.proj", "attention.o_proj"},
    {"rf_detr", "backbone.0.encoder.encoder", "backbone.backbone"},
    {"rf_detr", "transformer.decoder", "decoder"},
    {"rf_detr", "transformer.enc_out", "enc_out"},
    {"rf_detr", "decoder.layers.#.linear1", "decoder.layers.#.mlp.fc1"},
    {"rf_detr", "decoder.layers.#.linear2", "decoder.layers.#.mlp.fc2"},
    {"rf_detr", "refpoint_embed.", "reference_point_embed."},
    {"rf_detr", "attention.attention.query", "attention.q_proj"},
    {"rf_detr", "attention.attention.key", "attention.k_proj"},
    {"rf_detr", "attention.attention.value", "attention.v_proj"},
    {"rf_detr", "attention.output.dense", "attention.o_proj"},
    {"rf_detr", "self_attn.out_proj", "self_attn.o_proj"},
    {"lw_detr", "attention.attention.query", "attention.q_proj"},
    {"lw_detr", "attention.attention.key", "attention.k_proj"},
    {"lw_detr", "attention.attention.value", "attention.v_proj"},
    {"lw_detr", "attention.output.", "attention.o_proj."},
    {"molmo2", ".attention.wq.", ".self_attn.q_proj."},
    {"molmo2", ".attention.wk.", ".self_attn.k_proj."},
    {"molmo2", ".attention.wv.", ".self_attn.v_proj."},
    {"molmo2", ".attention.wo.", ".self_attn.o_proj."},
    {"molmo2", ".feed_forward.w1.", ".mlp.fc1."},
    {"molmo2", ".feed_forward.w2.", ".mlp.fc2."},
    {"molmo2", "image_pooling_2d.wq.", "image_pooling_2d.q_proj."},
    {"molmo2", "image_pooling_2d.wk.", "image_pooling_2d.k_proj."},
    {"molmo2", "image_pooling_2d.wv.", "image_pooling_2d.v_proj."},
    {"molmo2", "image_pooling_2d.wo.", "image_pooling_2d.o_proj."},
    {"molmo2", "image_projector.w1.", "image_projector.gate_proj."},
    {"molmo2", "image_projector.w2.", "image_projector.down_proj."},
    {"molmo2", "image_projector.w3.", "image_projector.up_proj."},
    {"pp_doclayout_v2 pp_doclayout_v3 rt_detr rt_detr_v2", "self_attn.out_proj",
     "self_attn.o_proj"},
    {"pp_doclayout_v2 pp_doclayout_v3 rt_detr rt_detr_v2", "layers.#.fc", "layers.#.mlp.fc"},
    {"pp_doclayout_v2 pp_doclayout_v3 rt_detr rt_detr_v2", "encoder.encoder.#.layers",
     "encoder.aifi.#.layers"},
    {"sapiens2", "blocks.#.", "model.layer.#."},
    {"sapiens2", "attn.proj.", "attention.o_proj."},
    {"sapiens2", "attn.wq.", "attention.q_proj."},
    {"sapiens2", "attn.wk.", "attention.k_proj."},
    {"sapiens2", "attn.wv.", "attention.v_proj."},
    {"sapiens2", "ffn.w3.", "mlp.down_proj."},
    {"segformer", "encoder.block.#.", "stages.#.blocks."},
    {"segformer", "encoder.patch_embeddings.#.", "stages.#.patch_embeddings."},
    {"segformer", "attention.self.sr", "attention.sequence_reduction.sequence_reduction"},
    {"segformer", "attention.self.layer_norm", "attention.sequence_reduction.layer_norm"},
    {"segformer", "encoder.layer_norm.#.", "stages.#.layer_norm."},
    {"segformer", "layer_norm_1", "layernorm_before"},
    {"segformer", "layer_norm_2", "layernorm_after"},
    {"segformer swin", "attention.self.query", "attention.q_proj"},
    {"segformer swin", "attention.self.key", "attention.k_proj"},
    {"segformer swin", "attention.self.value", "attention.v_proj"},
    {"segformer swin", "attention.output.dense", "attention.o_proj"},
    {"segformer", "mlp.dense1", "mlp.fc1"},
    {"segformer", "mlp.dense2", "mlp.fc2"},
    {"segformer", "decode_head.linear_c.", "decode_head.linear_projections."},
    {"swin", "conv_encoder.model.encoder.", "conv_encoder.model.swin.encoder."},
    {"swin", "pixel_level_module.encoder.encoder.", "pixel_level_module.encoder.swin.encoder."},
    {"swin", "intermediate.dense", "mlp.fc1"},
    {"swin", "output.dense", "mlp.fc2"},
    {"step3p7", "vision_model.transformer.resblocks.", "vision_model.layers."},
    {"step3p7", "vision_model.layers.#.mlp.c_fc.", "vision_model.layers.#.mlp.fc1."},
    {"step3p7", "vision_model.layers.#.mlp.c_proj.", "vision_model.layers.#.mlp.fc2."},
    {"step3p7", "vision_model.layers.#.attn.", "vision_model.layers.#.self_attn."},
    {"tipsv2_dpt tipsv2_vision_model", "blocks.", "encoder.layer."},
    {"tipsv2 tipsv2_dpt tipsv2_vision_model", ".attn.proj.", ".attention.o_proj."},
    {"tipsv2 tipsv2_dpt tipsv2_vision_model", ".mlp.w3.", ".mlp.down_proj."},
    {"tipsv2 tipsv2_dpt tipsv2_text_model tipsv2_vision_model", ".mlp.c_fc.", ".mlp.fc1."},
    {"tipsv2 tipsv2_dpt tipsv2_text_model tipsv2_vision_model", ".mlp.c_proj.", ".mlp.fc2."},
    {"tipsv2_dpt", "depth_head.reassemble.", "neck.reassemble."},
    {"tipsv2_dpt", "normals_head.reassemble.", "neck.reassemble."},
    {"tipsv2_dpt", "segmentation_head.reassemble.", "neck.reassemble."},
    {"tipsv2_dpt", "neck.reassemble.readout_projects.#",
     "neck.reassemble_stage.readout_projects.#.layers.0"},
    {"tipsv2_dpt", "depth_head.depth_head.", "decoder.head."},
    {"tipsv2_dpt", "normals_head.normals_head.", "decoder.head."},
    {"tipsv2_dpt", "segmentation_head.segmentation_head.", "decoder.head."},
    {"vit_msn zoedepth", "attention.attention.query", "attention.q_proj"},
    {"vit_msn zoedepth", "attention.attention.key", "attention.k_proj"},
    {"vit_msn zoedepth", "attention.attention.value", "attention.v_proj"},
    {"vit_msn zoedepth", "attention.output.dense", "attention.o_proj"},
    {"vit_msn zoedepth", "intermediate.dense", "mlp.fc1"},
    {"vit_msn zoedepth", "output.dense", "mlp.fc2"},
    {"vit_msn", "^encoder.layer.", "vit.layers."},
    {"zoedepth", "backbone.encoder.layer.", "backbone.beit.layers."},
    {"vit_msn", "encoder.layer.", "layers."},

    /* Tensors that are split. */
    {"gte", "attention.qkv_proj.", "self_attn.q_proj.|self_attn.k_proj.|self_attn.v_proj."},
    {"gte", "mlp.up_gate_proj.", "mlp.up_proj.|mlp.gate_proj."},
    {"hrm_text", "mlp.gate_up_proj.", "mlp.gate_proj.|mlp.up_proj."},
    {"hrm_text", "attn.gqkv_proj.",
     "self_attn.gate_proj.|self_attn.q_proj.|self_attn.k_proj.|self_attn.v_proj."},
    {"jina_embeddings_v3", "mixer.Wqkv.", "self_attn.q_proj.|self_attn.k_proj.|self_attn.v_proj."},
    {"molmo2_text", "mlp.ff_proj.", "mlp.up_proj.|mlp.gate_proj."},
    {"nomic_bert", "attn.Wqkv.", "self_attn.q_proj.|self_attn.k_proj.|self_attn.v_proj."},
    {"qianfan_ocr radio tipsv2 tipsv2_dpt tipsv2_vision_model", "attn.qkv.",
     "attention.q_proj.|attention.k_proj.|attention.v_proj."},
    {"rf_detr tipsv2 tipsv2_text_model", "self_attn.in_proj_weight",
     "self_attn.q_proj.weight|self_attn.k_proj.weight|self_attn.v_proj.weight"},
    {"sapiens2", "ffn.w12.", "mlp.gate_proj.|mlp.up_proj."},
    {"tipsv2 tipsv2_dpt tipsv2_vision_model", "mlp.w12.", "mlp.gate_proj.|mlp.up_proj."},
    {"unlimited_ocr", "self_attn.qkv_proj.",
     "self_attn.q_proj.|self_attn.k_proj.|self_attn.v_proj."},
};

/* ---- names ---- */

typedef struct span {
  const char *at;
  size_t length;
} span;

/* Returns the length of what `from` fits at `at`, and its numbers; 0 if it does not fit. */
static size_t fits_at(const char *from, const char *at, span numbers[NUMBERS_MAX]) {
  const char *start = at;
  for (size_t n = 0; *from != '\0'; from++) {
    if (*from == '#') {
      size_t digits = strspn(at, "0123456789");
      if (digits == 0 || n == NUMBERS_MAX) return 0;
      numbers[n++] = (span){at, digits};
      at += digits;
    } else if (*at++ != *from) {
      return 0;
    }
  }
  return (size_t)(at - start);
}

/* Writes `name` with `place` replaced by the part of `to` before `end`. */
static bool write_name(char made[LOADED_NAME_MAX], const char *name, span place, const char *to,
                       const char *end, const span *numbers) {
  size_t length = (size_t)(place.at - name);
  const char *rest = place.at + place.length;
  if (length >= LOADED_NAME_MAX) return false;
  memcpy(made, name, length);
  for (; to < end; to++) {
    span piece = *to == '#' ? *numbers++ : (span){to, 1};
    if (length + piece.length >= LOADED_NAME_MAX) return false;
    memcpy(made + length, piece.at, piece.length);
    length += piece.length;
  }
  if (length + strlen(rest) >= LOADED_NAME_MAX) return false;
  memcpy(made + length, rest, strlen(rest) + 1);
  return true;
}

/* Applies a rule to the name in `to`, which has one part so far. */
static void apply(loaded_name *to, const rule *r) {
  span numbers[NUMBERS_MAX], place = {NULL, 0};
  const char *from = r->from + (*r->from == '^');
  char name[LOADED_NAME_MAX];
  memcpy(name, to->list[0], sizeof name);
  for (place.at = name; *place.at != '\0'; place.at++) {
    place.length = fits_at(from, place.at, numbers);
    if (place.length > 0 || from != r->from) break;
  }
  if (place.length == 0) return;
  to->count = 0;
  for (const char *part = r->to, *end; part != NULL; part = *end == '|' ? end + 1 : NULL) {
    end = part + strcspn(part, "|");
    if (!write_name(to->list[to->count++], name, place, part, end, numbers)) {
      to->count = 0;
      return;
    }
  }
}

void loaded_name_of(loaded_name *to, const loaded_kinds *k, const char *name) {
  to->count = snprintf(to->list[0], LOADED_NAME_MAX, "%s", name) < LOADED_NAME_MAX;
  const char *word = k->words;
  for (size_t i = 0; i < sizeof rules / sizeof rules[0] && to->count == 1; i++) {
    bool any = rules[i].kinds[0] == '*';
    for (const char *at = word; *at != '\0' && !any; at += *at == ' ') {
      size_t length = strcspn(at, " ");
      any = text_lists(rules[i].kinds, at, length);
      at += length;
    }
    if (any) apply(to, &rules[i]);
  }
}

/* ---- config.json ---- */

static void add_kind(loaded_kinds *k, const char *kind) {
  size_t used = strlen(k->words), length = strlen(kind);
  if (length == 0 || strchr(kind, ' ') != NULL || used + length + 2 > sizeof k->words) return;
  snprintf(k->words + used, sizeof k->words - used, "%s%s", used > 0 ? " " : "", kind);
}

static void add_kinds(loaded_kinds *k, const json_tree *t, const json_node *config, int depth) {
  const char *kind = json_string(t, json_member(t, config, "model_type"));
  if (kind != NULL) add_kind(k, kind);
  for (const json_node *n = json_first(t, config); n != NULL && depth < DEPTH_MAX;
       n = json_next(t, n))
    if (n->kind == JSON_OBJECT) add_kinds(k, t, n, depth + 1);
}

void loaded_kinds_read(loaded_kinds *k, const model *m) {
  beside_config c;
  if (m->format == MODEL_GGUF || !beside_config_open(&c, m)) return;
  add_kinds(k, &c.tree, json_root(&c.tree), 0);
  beside_config_close(&c);
}
