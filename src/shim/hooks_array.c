/* Hooks of arrays. The driver does not report how much memory an array takes. The ledger counts its
 * elements, rounded up to 64 KiB, the smallest block that the driver uses for arrays. */
#include "base/assert.h"
#include "shim/holdings.h"
#include "shim/hooks.h"
#include "shim/refusal.h"
#include "shim/room.h"

#define ARRAY_UNIT ((uint64_t)64 << 10)
/* CUDA_ARRAY3D_SPARSE, CUDA_ARRAY3D_DEFERRED_MAPPING: no memory until pages are mapped to it. */
#define ARRAY_UNBACKED 0xc0u

/* CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_CUBEMAP: every level has all layers. */
#define ARRAY_LAYERS 0x05u

/* Bits of an element by CUarray_format: per channel or, if the channels are packed, compressed or
 * subsampled, for all of them. */
static const struct {
  uint8_t first, last, channel_bits, element_bits;
} FORMATS[] = {
    {0x01, 0x01, 8, 0},  {0x02, 0x02, 16, 0}, {0x03, 0x03, 32, 0}, /* unsigned */
    {0x08, 0x08, 8, 0},  {0x09, 0x09, 16, 0}, {0x0a, 0x0a, 32, 0}, /* signed */
    {0x10, 0x10, 16, 0}, {0x20, 0x20, 32, 0},                      /* half, float */
    {0xc0, 0xc2, 8, 0},  {0xc3, 0xc5, 16, 0},                      /* normalised, unsigned */
    {0xc6, 0xc8, 8, 0},  {0xc9, 0xcb, 16, 0},                      /* signed formats too */
    {0x50, 0x50, 0, 32},                                           /* 10, 10, 10, 2 */
    {0x91, 0x92, 0, 4},  {0x93, 0x96, 0, 8},                       /* BC1; BC2, BC3 */
    {0x97, 0x98, 0, 4},  {0x99, 0x9e, 0, 8},                       /* BC4; BC5 to BC7 */
    {0xb0, 0xb0, 0, 12}, {0x9f, 0xa1, 0, 24},                      /* 4:2:0: NV12; P010, P016 */
    {0xa2, 0xa2, 0, 16}, {0xa3, 0xa4, 0, 32},                      /* 4:2:2: NV16; P210, P216 */
    {0xa5, 0xa5, 0, 16}, {0xa6, 0xa7, 0, 32},                      /* YUY2; Y210, Y216 */
    {0xa8, 0xa9, 0, 32}, {0xb1, 0xb1, 0, 64},                      /* 4:4:4: AYUV, Y410; Y416 */
    {0xb2, 0xb2, 0, 24}, {0xb3, 0xb3, 0, 48},                      /* planar, 8 and 10 bits */
    {0xb4, 0xb4, 0, 24}, {0xb5, 0xb5, 0, 48},                      /* two planes, 8 and 16 bits */
};

static uint64_t element_bits(int format, unsigned channels) {
  for (size_t i = 0; i < sizeof FORMATS / sizeof FORMATS[0]; i++)
    if (format >= FORMATS[i].first && format <= FORMATS[i].last)
      return FORMATS[i].element_bits + (uint64_t)FORMATS[i].channel_bits * channels;
  return (uint64_t)8 * channels; /* one of a later driver */
}

static uint64_t at_least_one(uint64_t count) {
  return count > 0 ? count : 1;
}

static uint64_t array_bytes(const cu_array3d_size *size, unsigned levels) {
  uint64_t bits = element_bits(size->format, size->channels);
  uint64_t sum = 0, width = size->width, height = size->height, depth = size->depth;
  if (size->flags & ARRAY_UNBACKED) return 0;
  for (unsigned i = 0; i < levels; i++) {
    uint64_t count;
    if (__builtin_mul_overflow(at_least_one(width), at_least_one(height), &count) ||
        __builtin_mul_overflow(count, at_least_one(depth), &count) ||
        __builtin_mul_overflow(count, bits, &count) || __builtin_add_overflow(sum, count / 8, &sum))
      return 0; /* the driver will refuse it */
    width /= 2, height /= 2;
    if (!(size->flags & ARRAY_LAYERS)) depth /= 2;
  }
  return sum > UINT64_MAX - ARRAY_UNIT ? 0 : (sum + ARRAY_UNIT - 1) / ARRAY_UNIT * ARRAY_UNIT;
}

typedef struct array_take {
  unsigned device;
  cu_context context;
  uint64_t bytes;
  bool known;
} array_take;

/* Counts the array. Returns false if it exceeds the limit. */
static bool begin(array_take *take, const cu_array3d_size *size, unsigned levels) {
  cu_device ordinal;
  *take = (array_take){0};
  take->known = size != NULL && account_here(&take->device, &take->context, &ordinal);
  if (!take->known) return true;
  take->bytes = array_bytes(size, levels);
  if (room_charge(take->device, LEDGER_ARRAYS, take->bytes)) return true;
  refusal_note(take->device, take->bytes);
  return false;
}

static cu_result end(const array_take *take, cu_result code, const cu_array *array) {
  ASSERT(take->bytes == 0 || take->known);
  if (!take->known) return code;
  if (code == CU_OK)
    holdings_add(HOLDING_ARRAY, (uintptr_t)*array,
                 &(holding){take->bytes, LEDGER_ARRAYS, take->device, take->context, 0, 1, false});
  else
    ledger_uncharge(account_ledger(), take->device, LEDGER_ARRAYS, take->bytes);
  return code;
}

static cu_result drop(cu_result (*real)(cu_array), cu_array array) {
  holding gone;
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  bool known = holdings_remove(HOLDING_ARRAY, (uintptr_t)array, &gone);
  cu_result code = real(array);
  if (known && code != CU_OK) holdings_add(HOLDING_ARRAY, (uintptr_t)array, &gone);
  if (known && code == CU_OK) account_uncharge(gone.device, gone.kind, gone.bytes);
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
