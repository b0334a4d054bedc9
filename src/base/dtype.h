/* Dtype: the number types of files and tensors, and their names.
 *
 * Both spellings are parsed ("f16", "float16"; "u8", "uint8"); NumPy's is printed. bfloat16 has no
 * NumPy name and is printed as "bfloat16". Complex, text and structured types are not numbers here:
 * readers reject or skip them. */
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

/* Returns the size of one value in bytes; 0 for DTYPE_NONE. */
size_t dtype_bytes(dtype t);
/* Returns "float32" and so on; "none" for DTYPE_NONE. */
const char *dtype_name(dtype t);
dtype_class dtype_kind(dtype t);
/* Parses a name in either spelling and any case. The message of STOW_ERR_INVALID lists the types.
 */
stow_status dtype_parse(dtype *t, const char *text);

/* Return the smallest and largest value of an integer type, as far as 64 bits hold them. */
int64_t dtype_least(dtype t);
uint64_t dtype_most(dtype t);

/* Reverses the bytes of each of `count` values of `width` 2, 4 or 8, in place (big-endian files).
 */
void dtype_swap_bytes(void *values, size_t width, size_t count);

#endif
