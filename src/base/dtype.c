/* Dtype: one table. */
#include "base/dtype.h"

#include <string.h>
#include <strings.h>

static const struct {
  const char *name, *brief;
  uint8_t bytes;
  dtype_class kind;
} types[DTYPE_COUNT] = {
    [DTYPE_NONE] = {"none", "none", 0, CLASS_UNSIGNED},
    [DTYPE_BOOL] = {"bool", "bool8", 1, CLASS_BOOL},
    [DTYPE_I8] = {"int8", "i8", 1, CLASS_SIGNED},
    [DTYPE_U8] = {"uint8", "u8", 1, CLASS_UNSIGNED},
    [DTYPE_I16] = {"int16", "i16", 2, CLASS_SIGNED},
    [DTYPE_U16] = {"uint16", "u16", 2, CLASS_UNSIGNED},
    [DTYPE_I32] = {"int32", "i32", 4, CLASS_SIGNED},
    [DTYPE_U32] = {"uint32", "u32", 4, CLASS_UNSIGNED},
    [DTYPE_I64] = {"int64", "i64", 8, CLASS_SIGNED},
    [DTYPE_U64] = {"uint64", "u64", 8, CLASS_UNSIGNED},
    [DTYPE_F16] = {"float16", "f16", 2, CLASS_FLOAT},
    [DTYPE_BF16] = {"bfloat16", "bf16", 2, CLASS_FLOAT},
    [DTYPE_F32] = {"float32", "f32", 4, CLASS_FLOAT},
    [DTYPE_F64] = {"float64", "f64", 8, CLASS_FLOAT},
};

static bool known(dtype t) {
  return t > DTYPE_NONE && t < DTYPE_COUNT;
}

size_t dtype_bytes(dtype t) {
  return known(t) ? types[t].bytes : 0;
}

const char *dtype_name(dtype t) {
  return types[known(t) ? t : DTYPE_NONE].name;
}

dtype_class dtype_kind(dtype t) {
  return types[known(t) ? t : DTYPE_NONE].kind;
}

stow_status dtype_parse(dtype *t, const char *text) {
  for (int i = DTYPE_BOOL; i < DTYPE_COUNT; i++) {
    if (strcasecmp(text, types[i].name) != 0 && strcasecmp(text, types[i].brief) != 0) continue;
    *t = (dtype)i;
    return STOW_OK;
  }
  return stow_fail(STOW_ERR_INVALID,
                   "dtype: unknown type \"%.32s\"; use bool, int8 to int64, uint8 to uint64, "
                   "float16, bfloat16, float32 or float64",
                   text);
}

int64_t dtype_least(dtype t) {
  if (dtype_kind(t) != CLASS_SIGNED) return 0;
  /* NOLINTNEXTLINE(clang-analyzer-*): a signed type has 1 to 8 bytes */
  return (int64_t)(UINT64_MAX << (8 * dtype_bytes(t) - 1));
}

uint64_t dtype_most(dtype t) {
  switch (dtype_kind(t)) {
  case CLASS_BOOL: return 1;
  /* NOLINTNEXTLINE(clang-analyzer-*): and here */
  case CLASS_SIGNED: return UINT64_MAX >> (65 - 8 * dtype_bytes(t));
  case CLASS_UNSIGNED: return known(t) ? UINT64_MAX >> (64 - 8 * dtype_bytes(t)) : 0;
  case CLASS_FLOAT: break;
  }
  return 0;
}

void dtype_swap_bytes(void *values, size_t width, size_t count) {
  char *at = values;
  switch (width) {
  case 2:
    for (size_t i = 0; i < count; i++, at += 2) {
      uint16_t v;
      memcpy(&v, at, 2);
      v = __builtin_bswap16(v);
      memcpy(at, &v, 2);
    }
    break;
  case 4:
    for (size_t i = 0; i < count; i++, at += 4) {
      uint32_t v;
      memcpy(&v, at, 4);
      v = __builtin_bswap32(v);
      memcpy(at, &v, 4);
    }
    break;
  case 8:
    for (size_t i = 0; i < count; i++, at += 8) {
      uint64_t v;
      memcpy(&v, at, 8);
      v = __builtin_bswap64(v);
      memcpy(at, &v, 8);
    }
    break;
  default: break;
  }
}
