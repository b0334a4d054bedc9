/* Readers: see readers.h. Each type was tried: a small model of random weights was quantized,
 * loaded with transformers 5.23 and compared with its values. A type that is in no list was not
 * tried. */
#include "data/weights/readers.h"

#include <string.h>

#include "base/text.h"

/* Both load. */
static const char both[] =
    "afmoe aimv2 aimv2_vision_model albert apertus arcee aria aria_text "
    "audio-spectrogram-transformer audioflamingo3 audioflamingo3_encoder axk1 axk2 bamba "
    "bart beam beit bert bert-generation big_bird bigbird_pegasus biogpt bitnet blenderbot "
    "blenderbot-small blip blip_2_qformer bloom bros camembert canary canine clip "
    "clip_text_model clip_vision_model codegen cohere cohere2 cohere2_moe cohere_asr "
    "cohere_compass_vision convbert cosmos3_edge_vision cosmos3_omni cpmant ctrl cwm "
    "data2vec-text data2vec-vision dbrx deberta deberta-v2 decision_transformer deepseek_v2 "
    "deepseek_v3 deepseek_v32 deepseek_v4 deit diffllama distilbert doge dots1 dpr electra "
    "encoder-decoder ernie ernie4_5 ernie4_5_moe esm eurobert exaone4 exaone4_5 "
    "exaone4_5_vision exaone_moe flava flex_olmo flint fnet fun_asr_nano_encoder funnel fuyu "
    "gemma gemma2 gemma3_text gemma3n_audio gemma4_audio gemma4_vision git glm glm4 glm46v "
    "glm4_moe glm4_moe_lite glm4v glm4v_moe glm4v_moe_text glm4v_moe_vision glm4v_text "
    "glm4v_vision glm5_next_vision glm_image glm_image_text glm_image_vision glm_moe_dsa "
    "glm_ocr glm_ocr_text glm_ocr_vision glmasr glmasr_encoder glmga glpn got_ocr2 gpt_neo "
    "gpt_neox gpt_neox_japanese gpt_oss gptj granite granite_docling granite_docling_text "
    "granite_docling_vision granite_speech granite_swa granitemoe granitemoe_swa "
    "granitemoehybrid granitemoeshared helium higgs_audio_v2 hubert hunyuan_v1_dense "
    "hunyuan_v1_moe hunyuan_vl hunyuan_vl_text hunyuan_vl_vision hy_v3 hy_v4 hyperclovax "
    "hyperclovax_vision_v2 idefics idefics2 idefics3 idefics3_vision inkling2_text "
    "inkling_text internlm3 internvl internvl_vision iquestcoder jais2 jamba jetmoe "
    "kimi_k25_vision kolibri1 laguna lasr_ctc lasr_encoder layoutlm layoutlmv3 led lfm2 lfm3 "
    "lfm3_vl lfm3_vl_vision lightglue lighton_ocr lilt llama llava llava_next "
    "llava_next_video longformer lxmert m2m_100 marian markuplm mbart megatron-bert mellum "
    "metaclip_2 mimo_v2_flash minicpm3 minicpm_ocr minicpm_ocr_vision minicpmv4_6 "
    "minicpmv4_7 minicpmv4_7_vision minimax minimax_m2 minimax_m3_vl_text ministral "
    "ministral3 mistral mistral3 mistral_large4_text mixtral mobilebert mobilevit moonshine "
    "moshi moss_transcribe_diarize moss_transcribe_diarize_audio mpnet mpt mra "
    "muse_glimmer_assistant muse_glimmer_text muse_glimmer_vision muse_spark_text "
    "muse_spark_vision musicflamingo mvp nemotron nemotron3_5_asr "
    "nemotron3_5_transcribe_asr_audio nemotron3_diarization_audio nemotron_asr_streaming "
    "nemotron_asr_streaming_encoder nemotron_h nllb-moe nystromformer olmo olmo2 olmo3 olmoe "
    "openai_privacy_filter opt ovis2 paddleocr_vl parakeet_ctc parakeet_encoder "
    "parakeet_rnnt patchtsmixer patchtst pegasus pegasus_x persimmon phi phi3 phimoe pixio "
    "plbart qwen2 qwen2_5_vl_text qwen2_audio qwen2_moe qwen2_vl qwen3 qwen3_5_moe "
    "qwen3_5_moe_vision qwen3_5_vision qwen3_asr_encoder qwen3_moe qwen3_next "
    "qwen3_omni_moe_thinker qwen3_vl qwen3_vl_moe_text qwen3_vl_text qwen4_exp roberta "
    "seed_oss segformer smollm3 stablelm starcoder2 swin vit whisper xglm xlnet";

/* fp8 loads, int8 does not: packed layers have no `weight`, which the initialization of these types
 * or the conversion of their names needs. */
static const char only_fp8[] =
    "altclip aya_vision bailing_hybrid blip-2 bridgetower chinese_clip "
    "chinese_clip_vision_model clipseg clvp data2vec-audio deepseek_vl dinov3_vit falcon "
    "falcon_mamba fastspeech2_conformer gemma3 gpt_bigcode granite_speech_plus groupvit gte "
    "hrm_text ijepa instructblip instructblipvideo jina_embeddings_v3 kimi_k25 kimi_linear "
    "kosmos-2 kosmos-2.5 lfm2_vl llava_onevision longt5 lw_detr mamba mamba2 mgp-str "
    "minimax_m3_vl mistral_large4 mlcd_vision_model modernbert modernbert-decoder "
    "modernvbert molmo2_text mt5 nanochat nomic_bert olmo_hybrid owlv2 owlvit paligemma pi0 "
    "pop2piano qianfan_ocr qwen2_5_omni_thinker rwkv siglip siglip_vision_model t5 wav2vec2";

/* Neither loads: their layers are renamed or joined while they load. */
static const char neither[] =
    "depth_anything dinov2 dinov2_with_registers inkling_mm_model prompt_depth_anything";

readers_answer readers_load(const char *model_type, bool int8) {
  if (text_lists(both, model_type, strlen(model_type))) return READERS_YES;
  if (text_lists(only_fp8, model_type, strlen(model_type))) return int8 ? READERS_NO : READERS_YES;
  return text_lists(neither, model_type, strlen(model_type)) ? READERS_NO : READERS_UNKNOWN;
}
