/* Tensor type: the table. GGUF's numbers, blocks and bytes are those of ggml.h and gguf.h. */
#include "arrays/tensor_type.h"

#include <string.h>

#define PLAIN(safe, number, type, bytes)                                                           \
  { NULL, safe, number, type, 1, bytes }
#define BLOCK(name, number, block, bytes)                                                          \
  { name, NULL, number, DTYPE_NONE, block, bytes }

static const tensor_type_info types[TENSOR_TYPES] = {
    [TENSOR_NONE] = {"none", NULL, -1, DTYPE_NONE, 1, 0},
    [TENSOR_F64] = PLAIN("F64", 28, DTYPE_F64, 8),
    [TENSOR_F32] = PLAIN("F32", 0, DTYPE_F32, 4),
    [TENSOR_F16] = PLAIN("F16", 1, DTYPE_F16, 2),
    [TENSOR_BF16] = PLAIN("BF16", 30, DTYPE_BF16, 2),
    [TENSOR_F8_E4M3] = {"F8_E4M3", "F8_E4M3", -1, DTYPE_NONE, 1, 1},
    [TENSOR_F8_E5M2] = {"F8_E5M2", "F8_E5M2", -1, DTYPE_NONE, 1, 1},
    [TENSOR_F8_E8M0] = {"F8_E8M0", "F8_E8M0", -1, DTYPE_NONE, 1, 1},
    [TENSOR_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", "F8_E4M3FNUZ", -1, DTYPE_NONE, 1, 1},
    [TENSOR_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", "F8_E5M2FNUZ", -1, DTYPE_NONE, 1, 1},
    /* Packed without gaps: the smallest number of values that fills whole bytes is a block. */
    [TENSOR_F6_E2M3] = {"F6_E2M3", "F6_E2M3", -1, DTYPE_NONE, 4, 3},
    [TENSOR_F6_E3M2] = {"F6_E3M2", "F6_E3M2", -1, DTYPE_NONE, 4, 3},
    [TENSOR_F4] = {"F4", "F4", -1, DTYPE_NONE, 2, 1},
    [TENSOR_C64] = {"C64", "C64", -1, DTYPE_NONE, 1, 8},
    [TENSOR_I64] = PLAIN("I64", 27, DTYPE_I64, 8),
    [TENSOR_U64] = PLAIN("U64", -1, DTYPE_U64, 8),
    [TENSOR_I32] = PLAIN("I32", 26, DTYPE_I32, 4),
    [TENSOR_U32] = PLAIN("U32", -1, DTYPE_U32, 4),
    [TENSOR_I16] = PLAIN("I16", 25, DTYPE_I16, 2),
    [TENSOR_U16] = PLAIN("U16", -1, DTYPE_U16, 2),
    [TENSOR_I8] = PLAIN("I8", 24, DTYPE_I8, 1),
    [TENSOR_U8] = PLAIN("U8", -1, DTYPE_U8, 1),
    [TENSOR_BOOL] = PLAIN("BOOL", -1, DTYPE_BOOL, 1),
    [TENSOR_Q4_0] = BLOCK("Q4_0", 2, 32, 18),
    [TENSOR_Q4_1] = BLOCK("Q4_1", 3, 32, 20),
    [TENSOR_Q5_0] = BLOCK("Q5_0", 6, 32, 22),
    [TENSOR_Q5_1] = BLOCK("Q5_1", 7, 32, 24),
    [TENSOR_Q8_0] = BLOCK("Q8_0", 8, 32, 34),
    [TENSOR_Q8_1] = BLOCK("Q8_1", 9, 32, 36),
    [TENSOR_Q2_K] = BLOCK("Q2_K", 10, 256, 84),
    [TENSOR_Q3_K] = BLOCK("Q3_K", 11, 256, 110),
    [TENSOR_Q4_K] = BLOCK("Q4_K", 12, 256, 144),
    [TENSOR_Q5_K] = BLOCK("Q5_K", 13, 256, 176),
    [TENSOR_Q6_K] = BLOCK("Q6_K", 14, 256, 210),
    [TENSOR_Q8_K] = BLOCK("Q8_K", 15, 256, 292),
    [TENSOR_IQ2_XXS] = BLOCK("IQ2_XXS", 16, 256, 66),
    [TENSOR_IQ2_XS] = BLOCK("IQ2_XS", 17, 256, 74),
    [TENSOR_IQ3_XXS] = BLOCK("IQ3_XXS", 18, 256, 98),
    [TENSOR_IQ1_S] = BLOCK("IQ1_S", 19, 256, 50),
    [TENSOR_IQ4_NL] = BLOCK("IQ4_NL", 20, 32, 18),
    [TENSOR_IQ3_S] = BLOCK("IQ3_S", 21, 256, 110),
    [TENSOR_IQ2_S] = BLOCK("IQ2_S", 22, 256, 82),
    [TENSOR_IQ4_XS] = BLOCK("IQ4_XS", 23, 256, 136),
    [TENSOR_IQ1_M] = BLOCK("IQ1_M", 29, 256, 56),
    [TENSOR_TQ1_0] = BLOCK("TQ1_0", 34, 256, 54),
    [TENSOR_TQ2_0] = BLOCK("TQ2_0", 35, 256, 66),
    [TENSOR_MXFP4] = BLOCK("MXFP4", 39, 32, 17),
    [TENSOR_NVFP4] = BLOCK("NVFP4", 40, 64, 36),
    [TENSOR_Q1_0] = BLOCK("Q1_0", 41, 128, 18),
};

static bool known(tensor_type t) {
  return t > TENSOR_NONE && t < TENSOR_TYPES;
}

const tensor_type_info *tensor_type_get(tensor_type t) {
  return &types[known(t) ? t : TENSOR_NONE];
}

const char *tensor_type_name(tensor_type t) {
  const tensor_type_info *info = tensor_type_get(t);
  return info->name != NULL ? info->name : dtype_name(info->type);
}

tensor_type tensor_type_of_safetensors(const char *name, size_t length) {
  for (int i = TENSOR_NONE + 1; i < TENSOR_TYPES; i++) {
    const char *known_name = types[i].safetensors;
    if (known_name != NULL && strlen(known_name) == length && memcmp(known_name, name, length) == 0)
      return (tensor_type)i;
  }
  return TENSOR_NONE;
}

tensor_type tensor_type_of_ggml(uint32_t number) {
  for (int i = TENSOR_NONE + 1; i < TENSOR_TYPES; i++)
    if (types[i].ggml >= 0 && (uint32_t)types[i].ggml == number) return (tensor_type)i;
  return TENSOR_NONE;
}

tensor_type tensor_type_of_dtype(dtype t) {
  for (int i = TENSOR_NONE + 1; i < TENSOR_TYPES && t != DTYPE_NONE; i++)
    if (types[i].type == t) return (tensor_type)i;
  return TENSOR_NONE;
}

uint64_t tensor_type_bytes(tensor_type t, uint64_t count) {
  const tensor_type_info *info = tensor_type_get(t);
  return count / info->block * info->bytes;
}

bool tensor_type_is_float(tensor_type t) {
  dtype type = tensor_type_get(t)->type;
  return type != DTYPE_NONE && dtype_kind(type) == CLASS_FLOAT;
}
