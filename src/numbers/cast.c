/* Cast: the kernels over runs that fit the cache; unaligned areas go through a small aligned copy.
 */
#include "numbers/cast.h"

#include <stdint.h>
#include <string.h>

#include "numbers/kernels.h"

static bool aligned(const void *at, size_t width) {
  return ((uintptr_t)at & (width - 1)) == 0;
}

stow_status cast_values(void *to, dtype to_type, const void *from, dtype from_type, size_t count) {
  size_t to_width = dtype_bytes(to_type), from_width = dtype_bytes(from_type);
  if (to_width == 0 || from_width == 0)
    return stow_fail(STOW_ERR_INVALID, "casting %s to %s: not types of numbers",
                     dtype_name(from_type), dtype_name(to_type));
  cast_kernel kernel = kernels_get()->cast[from_type][to_type];
  bool direct = aligned(to, to_width) && aligned(from, from_width);
  char *out = to;
  const char *in = from;
  for (size_t run; count > 0; count -= run) {
    run = count < KERNEL_RUN ? count : KERNEL_RUN;
    if (direct) {
      kernel(out, in, run);
    } else {
      uint64_t in_copy[KERNEL_RUN], out_copy[KERNEL_RUN];
      memcpy(in_copy, in, run * from_width);
      kernel(out_copy, in_copy, run);
      memcpy(out, out_copy, run * to_width);
    }
    in += run * from_width;
    out += run * to_width;
  }
  return STOW_OK;
}

void cast_swap_bytes(void *values, size_t width, size_t count) {
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
