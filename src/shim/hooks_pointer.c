/* Hooks that describe an address. The driver knows only the pages of our heap's blocks, so these
 * hooks report a block's bounds, memory type and context as the driver does for its own blocks. A
 * page that was requested on a device and is now on the host is reported as device memory. */
#include <string.h>

#include "shim/hooks.h"
#include "shim/page.h"
#include "shim/placed.h"
#include "shim/plain.h"

/* CUpointer_attribute */
enum {
  POINTER_CONTEXT = 1,
  POINTER_MEMORY_TYPE = 2,
  POINTER_DEVICE_ORDINAL = 9,
  POINTER_RANGE_START = 11,
  POINTER_RANGE_SIZE = 12
};
enum { MEMORY_TYPE_DEVICE = 2 }; /* CU_MEMORYTYPE_DEVICE */

/* Finds our block that contains an address: of the heap, or of pages. */
static bool find_block(cu_addr addr, plain_block *block) {
  placed_block placed;
  if (plain_find(addr, block)) return true;
  if (!placed_find(addr, &placed)) return false;
  *block = (plain_block){placed.base, placed.bytes, placed.context, placed.ordinal};
  return true;
}

cu_result cuMemGetAddressRange_v2(cu_addr *base, size_t *bytes, cu_addr addr) {
  __typeof__(&cuMemGetAddressRange_v2) real = REAL(cuMemGetAddressRange_v2);
  plain_block block;
  if (!find_block(addr, &block))
    return real == NULL ? CU_ERROR_NOT_SUPPORTED : real(base, bytes, addr);
  if (base != NULL) *base = block.base;
  if (bytes != NULL) *bytes = block.bytes;
  return CU_OK;
}

/* Writes an attribute of a block that the driver reports wrongly. Returns false if the driver's
 * answer is right. */
static bool answer(const plain_block *block, int which, void *value) {
  unsigned type = MEMORY_TYPE_DEVICE;
  size_t bytes = block->bytes;
  switch (which) {
  case POINTER_CONTEXT: memcpy(value, &block->context, sizeof block->context); return true;
  case POINTER_MEMORY_TYPE: memcpy(value, &type, sizeof type); return true;
  case POINTER_DEVICE_ORDINAL: memcpy(value, &block->ordinal, sizeof block->ordinal); return true;
  case POINTER_RANGE_START: memcpy(value, &block->base, sizeof block->base); return true;
  case POINTER_RANGE_SIZE: memcpy(value, &bytes, sizeof bytes); return true;
  default: return false;
  }
}

/* Answers for a page that was spilled. */
static bool answer_spilled(cu_device ordinal, int which, void *value) {
  unsigned type = MEMORY_TYPE_DEVICE;
  switch (which) {
  case POINTER_MEMORY_TYPE: memcpy(value, &type, sizeof type); return true;
  case POINTER_DEVICE_ORDINAL: memcpy(value, &ordinal, sizeof ordinal); return true;
  default: return false;
  }
}

cu_result cuPointerGetAttribute(void *value, int which, cu_addr addr) {
  __typeof__(&cuPointerGetAttribute) real = REAL(cuPointerGetAttribute);
  plain_block block;
  cu_device ordinal;
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  if (value != NULL && find_block(addr, &block) && answer(&block, which, value)) return CU_OK;
  if (value != NULL && page_spilled(addr, &ordinal) && answer_spilled(ordinal, which, value))
    return CU_OK;
  return real(value, which, addr);
}

cu_result cuPointerGetAttributes(unsigned count, int *which, void **values, cu_addr addr) {
  __typeof__(&cuPointerGetAttributes) real = REAL(cuPointerGetAttributes);
  plain_block block;
  cu_device ordinal;
  cu_result code = real == NULL ? CU_ERROR_NOT_SUPPORTED : real(count, which, values, addr);
  if (code != CU_OK || which == NULL || values == NULL) return code;
  bool in_heap = find_block(addr, &block), spilled = !in_heap && page_spilled(addr, &ordinal);
  for (unsigned i = 0; (in_heap || spilled) && i < count; i++) {
    if (values[i] == NULL) continue;
    if (in_heap)
      answer(&block, which[i], values[i]);
    else
      answer_spilled(ordinal, which[i], values[i]);
  }
  return code;
}
