/* Hooks of arrays. How much the driver takes for one is not told; it is counted as the elements it
 * has, in blocks of 64 KiB, the smallest the driver lays arrays out in. */
#include "shim/account.h"
#include "shim/hooks.h"

#define ARRAY_UNIT ((uint64_t)64 << 10)
/* CUDA_ARRAY3D_SPARSE, CUDA_ARRAY3D_DEFERRED_MAPPING: no memory until pages are mapped to it. */
#define ARRAY_UNBACKED 0xc0u

/* Bytes of one channel of an element (CUarray_format). */
static uint64_t format_bytes(int format) {
  switch (format) {
  case 0x01: /* UNSIGNED_INT8 */
  case 0x08: return 1;
  case 0x02: /* UNSIGNED_INT16 */
  case 0x09:
  case 0x10: return 2; /* HALF */
  case 0x03:           /* UNSIGNED_INT32 */
  case 0x0a:
  case 0x20: return 4; /* FLOAT */
  default: return 1;   /* packed and compressed ones: at most this many */
  }
}

static uint64_t array_bytes(const cu_array3d_size *size, unsigned levels) {
  uint64_t sum = 0, width = size->width, height = size->height, depth = size->depth;
  if (size->flags & ARRAY_UNBACKED) return 0;
  for (unsigned i = 0; i < levels; i++) {
    uint64_t bytes = width > 0 ? width : 1;
    if (__builtin_mul_overflow(bytes, height > 0 ? height : 1, &bytes) ||
        __builtin_mul_overflow(bytes, depth > 0 ? depth : 1, &bytes) ||
        __builtin_mul_overflow(bytes, format_bytes(size->format) * size->channels, &bytes) ||
        __builtin_add_overflow(sum, bytes, &sum))
      return 0; /* the driver will refuse it */
    width /= 2, height /= 2, depth /= 2;
  }
  return sum > UINT64_MAX - ARRAY_UNIT ? 0 : (sum + ARRAY_UNIT - 1) / ARRAY_UNIT * ARRAY_UNIT;
}

typedef struct array_take {
  unsigned device;
  cu_context context;
  uint64_t bytes;
  bool known;
} array_take;

/* False: over the limit. */
static bool begin(array_take *take, const cu_array3d_size *size, unsigned levels) {
  cu_device card;
  *take = (array_take){0};
  take->known = size != NULL && account_here(&take->device, &take->context, &card);
  if (!take->known) return true;
  take->bytes = array_bytes(size, levels);
  if (account_take(take->device, LEDGER_ARRAYS, take->bytes)) return true;
  account_refused(take->device, take->bytes);
  return false;
}

static cu_result end(const array_take *take, cu_result code, const cu_array *array) {
  if (!take->known) return code;
  if (code == CU_OK)
    book_add(BOOK_ARRAY, (uintptr_t)*array,
             &(holding){take->bytes, LEDGER_ARRAYS, take->device, take->context, 0, 1, false});
  else
    ledger_give(account_ledger(), take->device, LEDGER_ARRAYS, take->bytes);
  return code;
}

static cu_result drop(cu_result (*real)(cu_array), cu_array array) {
  holding gone;
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  bool known = book_remove(BOOK_ARRAY, (uintptr_t)array, &gone);
  cu_result code = real(array);
  if (known && code != CU_OK) book_add(BOOK_ARRAY, (uintptr_t)array, &gone);
  if (known && code == CU_OK) account_give(gone.device, gone.kind, gone.bytes);
  return code;
}

cu_result cuArrayCreate_v2(cu_array *array, const cu_array_size *size) {
  __typeof__(&cuArrayCreate_v2) real = REAL(cuArrayCreate_v2);
  cu_array3d_size same = {0};
  array_take take;
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  if (size != NULL)
    same = (cu_array3d_size){size->width, size->height, 0, size->format, size->channels, 0};
  if (!begin(&take, size != NULL ? &same : NULL, 1)) return CU_ERROR_OUT_OF_MEMORY;
  return end(&take, real(array, size), array);
}

cu_result cuArray3DCreate_v2(cu_array *array, const cu_array3d_size *size) {
  __typeof__(&cuArray3DCreate_v2) real = REAL(cuArray3DCreate_v2);
  array_take take;
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  if (!begin(&take, size, 1)) return CU_ERROR_OUT_OF_MEMORY;
  return end(&take, real(array, size), array);
}

cu_result cuMipmappedArrayCreate(cu_array *array, const cu_array3d_size *size, unsigned levels) {
  __typeof__(&cuMipmappedArrayCreate) real = REAL(cuMipmappedArrayCreate);
  array_take take;
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  if (!begin(&take, size, levels < 32 ? levels : 32)) return CU_ERROR_OUT_OF_MEMORY;
  return end(&take, real(array, size, levels), array);
}

cu_result cuArrayDestroy(cu_array array) {
  return drop(REAL(cuArrayDestroy), array);
}

cu_result cuMipmappedArrayDestroy(cu_array array) {
  return drop(REAL(cuMipmappedArrayDestroy), array);
}
