/* Resident small: brings pages that are too small to move with the launches back to vram. See
 * resident.h.
 *
 * PyTorch keeps tensors of up to 1 MiB in pages of 2 MiB. If the vector that a layer passes to the
 * next one is on the host, every matrix product that reads it takes 200 times as long, although its
 * weights are in vram (7B model, one token: 650 ms instead of 120 ms). */
#include "base/assert.h"
#include "shim/resident_parts.h"

/* Launches until the next try, if vram could not be freed for all of them. */
#define AGAIN_LAUNCHES 4096

static bool is_small_on_host(const resident *r, const token *t) {
  const page *p = t->page;
  return t->class->device == r->device && t->class->bytes < PAGE_MOVES_LEAST && !t->pinned &&
         p != NULL && p->tier == TIER_HOST && p->rest == 0;
}

uint64_t resident_small_bytes(const resident *r) {
  ASSERT(lock_held(&pages_lock));
  uint64_t bytes = 0, name, value;
  for (size_t at = 0; map_next(&tokens, &at, &name, &value);) {
    const token *t = (const token *)(uintptr_t)value;
    if (is_small_on_host(r, t)) bytes += t->class->bytes;
  }
  return bytes;
}

/* Gives a token a vram page with the contents of its host page. */
static bool bring_home(resident *r, token *t) {
  ASSERT(t->addr != 0 && t->page->at == t->addr);
  page *from = t->page, *to = resident_unused(t->class, TIER_VRAM);
  if (to == NULL) return false;
  cu_result code = shim_driver()->cuMemcpyAsync(to->stage, t->addr, t->class->bytes, r->own);
  if (code == CU_OK) code = shim_driver()->cuStreamSynchronize(r->own);
  if (code == CU_OK) code = page_unmap(from);
  if (code != CU_OK) {
    page_free_put(to);
    return false;
  }
  code = page_map_at(to, t->addr);
  if (code == CU_OK) code = page_grant(to);
  if (code == CU_OK) {
    from->owner = NULL;
    token_exchange(t, to);
    page_free_put(from);
    return true;
  }
  shim_log("bringing a small page home: CUDA error %d", code);
  if (to->at != 0) page_unmap(to);
  page_free_put(to);
  code = page_map_at(from, t->addr);
  if (code == CU_OK) code = page_grant(from);
  if (code != CU_OK) resident_lose(t->addr, code);
  return false;
}

void resident_small_home(resident *r) {
  ASSERT(lock_held(&pages_lock));
  uint64_t name, value, moved = 0;
  bool room = true;
  for (size_t at = 0; room && map_next(&tokens, &at, &name, &value);) {
    token *t = (token *)(uintptr_t)value;
    if (!is_small_on_host(r, t) || t->addr == 0) continue;
    room = bring_home(r, t);
    moved += room ? t->class->bytes : 0;
  }
  r->small_bytes = resident_small_bytes(r);
  r->small_at = r->number + AGAIN_LAUNCHES;
  if (moved == 0) return;
  shim_log("%llu KiB of small pages came home, %llu KiB are on the host",
           (unsigned long long)(moved >> 10), (unsigned long long)(r->small_bytes >> 10));
}
