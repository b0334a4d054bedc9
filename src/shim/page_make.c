/* Page make: new pages of a class, counted in the ledger. */
#include "base/assert.h"
#include "shim/counted.h"
#include "shim/gate.h"
#include "shim/host_tier.h"
#include "shim/page_table.h"

/* Returns whether the reserve is untouched by a page of `bytes`. Not to the byte among processes:
 * only the limit itself is exact. */
static bool leaves_reserve(unsigned device, uint64_t bytes) {
  const ledger *l = account_ledger();
  uint64_t reserve = host_tier_reserve(device, bytes >= PAGE_MOVES_LEAST);
  ledger_totals totals;
  if (reserve == 0) return true;
  ledger_sum(l, device, &totals);
  uint64_t limit = ledger_limit(l, device) - reserve;
  return bytes <= limit && totals.vram_bytes <= limit - bytes;
}

uint64_t page_small_lack(unsigned device) {
  const ledger *l = account_ledger();
  uint64_t reserve = host_tier_reserve(device, true), small = reserve;
  ledger_totals totals;
  if (reserve == 0) return 0;
  small -= host_tier_reserve(device, false);
  ledger_sum(l, device, &totals);
  uint64_t limit = ledger_limit(l, device), wanted = totals.vram_bytes + reserve;
  return wanted > limit + small / 2 ? wanted - limit : 0;
}

static cu_result make_vram(page_class *class) {
  ASSERT(lock_held(&pages_lock));
  cu_handle real;
  if (!leaves_reserve(class->device, class->bytes)) return CU_ERROR_OUT_OF_MEMORY;
  cu_result code = page_vram_create(class, &real, class->bytes);
  if (code != CU_OK) return code;
  page *p = page_new(class, real, TIER_VRAM);
  if (p == NULL) {
    page_vram_release(class, real, class->bytes);
    return CU_ERROR_OUT_OF_MEMORY;
  }
  ledger_note_peak(account_ledger(), class->device);
  page_free_put(p);
  return CU_OK;
}

static cu_result make_host(page_class *class) {
  ASSERT(lock_held(&pages_lock));
  cu_handle real;
  ledger_set_unused(account_ledger(), class->device, *page_host_unused(class) + class->bytes);
  cu_result code =
      host_tier_page_create(&real, class->bytes, class->device, class->prop.location.id);
  if (code != CU_OK) return CU_ERROR_OUT_OF_MEMORY;
  page *p = page_new(class, real, TIER_HOST);
  if (p == NULL) {
    host_tier_page_release(real, class->bytes, class->device);
    return CU_ERROR_OUT_OF_MEMORY;
  }
  /* Creating the page took 20 times as long as this, and moves must not wait for it later. */
  if (gate_here()) page_stage(p);
  page_free_put(p);
  return CU_OK;
}

cu_result page_make(page_class *class, int tier) {
  ASSERT(tier == TIER_VRAM || tier == TIER_HOST);
  return tier == TIER_HOST ? make_host(class) : make_vram(class);
}
