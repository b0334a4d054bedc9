/* Page split: one page in both tiers.
 *
 * A framework that takes all it may use in one request (JAX and TensorFlow do) asks for more than
 * vram has, of a total that was told to it with what may be spilled. Neither tier has that alone;
 * its page then is vram up to a point and host memory from there on. It is the program's until it
 * lets go of it: such a page is never moved and never kept. */
#include "shim/hooks.h"
#include "shim/page_table.h"
#include "shim/spill.h"

/* From how much of vram on a request is split. Pages that a framework builds its blocks of are
 * smaller: they move. */
#define LEAST_PART  8
#define LEAST_BYTES ((uint64_t)64 << 20)

static cu_result make(page_class *class, uint64_t vram_bytes, page **out) {
  ledger *l = account_ledger();
  cu_handle real, rest;
  if (!ledger_take(l, class->device, LEDGER_PAGES, vram_bytes)) return CU_ERROR_OUT_OF_MEMORY;
  cu_result code = shim_driver()->cuMemCreate(&real, vram_bytes, &class->prop, 0);
  if (code != CU_OK) {
    ledger_give(l, class->device, LEDGER_PAGES, vram_bytes);
    return code;
  }
  code = spill_page(&rest, class->bytes - vram_bytes, class->device, class->prop.location.id);
  page *p = code == CU_OK ? page_new(class, real, TIER_HOST) : NULL;
  if (p == NULL) {
    if (code == CU_OK) {
      shim_driver()->cuMemRelease(rest);
      ledger_give(l, class->device, LEDGER_SPILLED, class->bytes - vram_bytes);
    }
    shim_driver()->cuMemRelease(real);
    ledger_give(l, class->device, LEDGER_PAGES, vram_bytes);
    return CU_ERROR_OUT_OF_MEMORY;
  }
  p->rest = rest;
  p->vram_bytes = vram_bytes;
  ledger_note_peak(l, class->device);
  *out = p;
  return CU_OK;
}

cu_result page_split(token *t, bool all) {
  page_class *class = t->class;
  uint64_t whole, room = spill_vram_room(class->device, &whole);
  uint64_t left = all ? 0 : whole / SPILL_LEAVES_PART;
  uint64_t vram_bytes = room > left ? (room - left) / SHIM_GRANULE * SHIM_GRANULE : 0;
  page *p;
  if (vram_bytes == 0 || vram_bytes >= class->bytes || class->bytes < whole / LEAST_PART ||
      class->bytes < LEAST_BYTES)
    return CU_ERROR_OUT_OF_MEMORY;
  cu_result code = make(class, vram_bytes, &p);
  if (code != CU_OK) return code;
  class->owed[TIER_HOST]++;
  t->tier = TIER_HOST;
  token_have(t, p);
  t->pinned = true;
  return CU_OK;
}
