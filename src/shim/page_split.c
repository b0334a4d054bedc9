/* Page split: one page in both tiers.
 *
 * A framework that takes all it may use in one request (JAX and TensorFlow do) requests more than
 * vram has, because the total that it sees includes the spill budget. Neither tier has that much
 * alone, so the page is vram up to a point and host memory after it. Such a page is never moved and
 * never cached. */
#include "base/assert.h"
#include "shim/host_tier.h"
#include "shim/page_table.h"

/* A request of at least this part of vram is split. The pages of which a framework builds its
 * blocks are smaller, and they move. */
#define LEAST_PART  8
#define LEAST_BYTES ((uint64_t)64 << 20)

static cu_result make(page_class *class, uint64_t vram_bytes, page **out) {
  ASSERT(vram_bytes > 0 && vram_bytes < class->bytes);
  uint64_t host_bytes = class->bytes - vram_bytes;
  cu_handle real, rest;
  cu_result code = page_vram_create(class, &real, vram_bytes);
  if (code != CU_OK) return code;
  code = host_tier_page_create(&rest, host_bytes, class->device, class->prop.location.id);
  page *p = code == CU_OK ? page_new(class, real, TIER_HOST) : NULL;
  if (p == NULL) {
    if (code == CU_OK) host_tier_page_release(rest, host_bytes, class->device);
    page_vram_release(class, real, vram_bytes);
    return CU_ERROR_OUT_OF_MEMORY;
  }
  p->rest = rest;
  p->vram_bytes = vram_bytes;
  ledger_note_peak(account_ledger(), class->device);
  *out = p;
  return CU_OK;
}

cu_result page_split(token *t, bool all) {
  ASSERT(lock_held(&pages_lock));
  ASSERT(t->page == NULL);
  page_class *class = t->class;
  uint64_t whole, room = host_tier_vram_room(class->device, &whole);
  uint64_t left = all ? 0 : whole / HOST_TIER_LEAVES_PART;
  uint64_t vram_bytes = room > left ? (room - left) / SHIM_GRANULE * SHIM_GRANULE : 0;
  page *p;
  if (vram_bytes == 0 || vram_bytes >= class->bytes || class->bytes < whole / LEAST_PART ||
      class->bytes < LEAST_BYTES)
    return CU_ERROR_OUT_OF_MEMORY;
  cu_result code = make(class, vram_bytes, &p);
  if (code != CU_OK) return code;
  class->promised[TIER_HOST]++;
  t->tier = TIER_HOST;
  token_have(t, p);
  t->pinned = true;
  return CU_OK;
}
