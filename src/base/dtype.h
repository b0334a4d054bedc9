/* Dtype: the kinds of number that files and tensors hold, by the names people use for them.
 *
 * Both spellings are read ("f16", "float16"; "u8", "uint8"); NumPy's is printed. bfloat16 has no
 * NumPy name of its own and is printed as "bfloat16". Complex, text and structured types are not
 * numbers here: readers refuse or pass them over. */
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum dtype {
  DTYPE_NONE = 0,
  DTYPE_BOOL,
  DTYPE_I8,
  DTYPE_U8,
  DTYPE_I16,
  DTYPE_U16,
  DTYPE_I32,
  DTYPE_U32,
  DTYPE_I64,
  DTYPE_U64,
  DTYPE_F16,
  DTYPE_BF16,
  DTYPE_F32,
  DTYPE_F64,
  DTYPE_COUNT
} dtype;

typedef enum dtype_class { CLASS_BOOL, CLASS_SIGNED, CLASS_UNSIGNED, CLASS_FLOAT } dtype_class;

/* Bytes of one value; 0 for DTYPE_NONE. */
size_t dtype_bytes(dtype t);
/* "float32"; "none" for DTYPE_NONE. */
const char *dtype_name(dtype t);
dtype_class dtype_kind(dtype t);
/* Reads a name in either spelling, any letter case; STOW_ERR_INVALID names the text and the types
 * there are. */
stow_status dtype_parse(dtype *t, const char *text);

/* The least and greatest value of an integer type, as far as 64 bits hold them. */
int64_t dtype_least(dtype t);
uint64_t dtype_most(dtype t);

#endif
