/* Tensor type: how the values of a tensor are stored, for every type of safetensors and GGUF.
 *
 * One table for both formats. A block of `block` values takes `bytes` bytes; `block` is 1 for types
 * that are plain numbers. */
#ifndef ARRAYS_TENSOR_TYPE_H
#define ARRAYS_TENSOR_TYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

typedef enum tensor_type {
  TENSOR_NONE,
  TENSOR_F64,
  TENSOR_F32,
  TENSOR_F16,
  TENSOR_BF16,
  TENSOR_F8_E4M3,
  TENSOR_F8_E5M2,
  TENSOR_F8_E8M0,
  TENSOR_F8_E4M3FNUZ,
  TENSOR_F8_E5M2FNUZ,
  TENSOR_F6_E2M3,
  TENSOR_F6_E3M2,
  TENSOR_F4,
  TENSOR_C64,
  TENSOR_I64,
  TENSOR_U64,
  TENSOR_I32,
  TENSOR_U32,
  TENSOR_I16,
  TENSOR_U16,
  TENSOR_I8,
  TENSOR_U8,
  TENSOR_BOOL,
  TENSOR_Q4_0,
  TENSOR_Q4_1,
  TENSOR_Q5_0,
  TENSOR_Q5_1,
  TENSOR_Q8_0,
  TENSOR_Q8_1,
  TENSOR_Q2_K,
  TENSOR_Q3_K,
  TENSOR_Q4_K,
  TENSOR_Q5_K,
  TENSOR_Q6_K,
  TENSOR_Q8_K,
  TENSOR_IQ2_XXS,
  TENSOR_IQ2_XS,
  TENSOR_IQ3_XXS,
  TENSOR_IQ1_S,
  TENSOR_IQ4_NL,
  TENSOR_IQ3_S,
  TENSOR_IQ2_S,
  TENSOR_IQ4_XS,
  TENSOR_IQ1_M,
  TENSOR_TQ1_0,
  TENSOR_TQ2_0,
  TENSOR_MXFP4,
  TENSOR_NVFP4,
  TENSOR_Q1_0,
  TENSOR_TYPES
} tensor_type;

typedef struct tensor_type_info {
  const char *name;        /* the format's name; NULL for plain numbers, which dtype names */
  const char *safetensors; /* NULL: safetensors does not have it */
  int ggml;                /* the number in GGUF; -1: GGUF does not have it */
  dtype type;              /* DTYPE_NONE if it is not one of ours */
  uint16_t block, bytes;
} tensor_type_info;

const tensor_type_info *tensor_type_get(tensor_type t);
/* Returns the name to print: NumPy's if there is one ("float32"), otherwise the format's. */
const char *tensor_type_name(tensor_type t);
/* Return TENSOR_NONE for a name or number that is not known. */
tensor_type tensor_type_of_safetensors(const char *name, size_t length);
tensor_type tensor_type_of_ggml(uint32_t number);
/* Returns the type for a plain number type; TENSOR_NONE if there is none. */
tensor_type tensor_type_of_dtype(dtype t);
/* Returns the bytes of `count` values; `count` is a multiple of the block. */
uint64_t tensor_type_bytes(tensor_type t, uint64_t count);
/* Returns true for float64, float32, float16 and bfloat16. */
bool tensor_type_is_float(tensor_type t);

#endif
