/* Page: the program's calls, over the table. */
#include "shim/page.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "shim/gate.h"
#include "shim/holdings.h"
#include "shim/host_tier.h"
#include "shim/measure.h"
#include "shim/page_table.h"
#include "shim/record.h"
#include "shim/refusal.h"
#include "shim/resident.h"
#include "shim/retry.h"
#include "shim/retrying.h"
#include "shim/room.h"
#include "shim/torch_block.h"
#include "shim/trim.h"

/* PyTorch has much more memory than it uses: this part of the limit. */
#define SCATTERED_PART 24

/* Marks a token as never to be moved or kept again. */
static void pin(token *t) {
  resident_remove(t);
  token_pin(t);
}

/* ---- making ---- */

bool page_wanted(size_t bytes, const cu_prop *prop, unsigned long long flags) {
  const ledger *l = account_ledger();
  if (l->header == NULL || flags != 0 || bytes == 0 || bytes % SHIM_GRANULE != 0 ||
      prop->type != CU_ALLOCATION_PINNED || prop->location.type != CU_LOCATION_DEVICE ||
      prop->win32_meta != NULL)
    return false;
  if (ledger_limit(l, account_device(prop->location.id)) == LEDGER_UNLIMITED && !host_tier_on())
    return false;
  gate_here(); /* from here on all work passes the gate, however the program found its functions */
  page_enter();
  bool room = page_class_for(bytes, prop) != NULL;
  page_leave();
  return room;
}

/* Promises the token a page of a tier: ensures that there is a free one for it. */
static cu_result promise(token *t, int tier) {
  ASSERT(lock_held(&pages_lock));
  ASSERT(t->page == NULL);
  page_class *class = t->class;
  cu_result code = CU_OK;
  if (page_free_spare(class, tier) == 0) {
    code = page_make(class, tier);
    /* Free pages of other sizes use the memory. */
    if (code == CU_ERROR_OUT_OF_MEMORY && tier == TIER_VRAM &&
        page_free_trim(class->device, tier, class->bytes, class) > 0)
      code = page_make(class, TIER_VRAM);
    if (code == CU_ERROR_OUT_OF_MEMORY && tier == TIER_HOST &&
        resident_give_hosts(class->device, class->bytes) > 0) {
      page_free_trim(class->device, TIER_HOST, class->bytes, class);
      code = page_free_spare(class, TIER_HOST) > 0 ? CU_OK : page_make(class, TIER_HOST);
    }
  }
  if (code == CU_OK && page_free_spare(class, tier) == 0) code = CU_ERROR_OUT_OF_MEMORY;
  if (code != CU_OK) return code;
  t->tier = tier;
  class->promised[tier]++;
  return CU_OK;
}

static cu_result promise_locked(token *t, int tier) {
  page_enter();
  cu_result code = promise(t, tier);
  page_leave();
  return code;
}

/* Promises a token a page that does not fit in vram. */
static cu_result promise_spilled(token *t) {
  ASSERT(!lock_held(&pages_lock));
  page_enter();
  cu_result code = promise(t, TIER_VRAM);
  if (code == CU_ERROR_OUT_OF_MEMORY) resident_begin(t->class);
  if (code == CU_ERROR_OUT_OF_MEMORY) code = page_split(t, false);
  if (code == CU_ERROR_OUT_OF_MEMORY) code = promise(t, TIER_HOST);
  if (code == CU_ERROR_OUT_OF_MEMORY) code = page_split(t, true);
  page_leave();
  if (code == CU_ERROR_OUT_OF_MEMORY) refusal_note(t->class->device, t->class->bytes);
  return code;
}

/* Pages that are too small to move must not end up on the host while others could leave: kernels
 * read the vectors in them many times. */
static void make_room_for_small(const token *t) {
  page_enter();
  unsigned device = t->class->device;
  uint64_t lack = page_small_lack(device);
  if (t->tier == TIER_HOST) resident_small_on_host(device, t->class->bytes);
  if (lack > 0) resident_lend(device, lack);
  page_leave();
}

/* Returns whether PyTorch has much more memory than it uses: its free blocks are too small for the
 * request, or in the wrong places. If it is refused, it releases them and asks again, which takes
 * as long as the device needs to become idle. Making a host page takes longer, and its contents
 * have to be moved again. */
static bool is_scattered(unsigned device, cu_device ordinal, uint64_t bytes) {
  const ledger *l = account_ledger();
  uint64_t live, pages = ledger_own(l, device, LEDGER_PAGES), limit = ledger_limit(l, device);
  if (limit == LEDGER_UNLIMITED) limit = pages;
  uint64_t least = limit / SCATTERED_PART > bytes ? limit / SCATTERED_PART : bytes;
  return torch_block_live(ordinal, &live) && pages > live && pages - live >= least;
}

cu_result page_create(cu_handle *handle, size_t bytes, const cu_prop *prop, page_request request) {
  ASSERT(!lock_held(&pages_lock));
  ASSERT(handle != NULL);
  unsigned device = account_device(prop->location.id);
  spill_note_request();
  if (host_tier_on()) trim_schedule();
  bool reported = host_tier_on() && (request != PAGE_OF_PROGRAM || retrying_caller());
  measure_look(device, bytes);
  page_enter();
  page_class *class = page_class_for(bytes, prop);
  /* Memory that was kept while this process was alone must now be shared with others. */
  if (!token_alone(account_ledger(), device)) page_free_trim(device, TIER_VRAM, UINT64_MAX, NULL);
  token *t = class == NULL ? NULL : token_new(class);
  if (t != NULL) t->reported = reported;
  bool host = request == PAGE_ON_HOST && host_tier_budget(prop->location.id) > 0;
  cu_result code = t == NULL || host ? CU_ERROR_OUT_OF_MEMORY : promise(t, TIER_VRAM);
  page_leave();
  if (t == NULL) return code;
  if (host) {
    page_enter();
    resident_begin(class);
    code = promise(t, TIER_HOST);
    page_leave();
  }
  if (code == CU_ERROR_OUT_OF_MEMORY && room_make(device)) code = promise_locked(t, TIER_VRAM);
  cu_device ordinal = prop->location.id;
  if (code == CU_ERROR_OUT_OF_MEMORY &&
      ((resident_on(device) && !is_scattered(device, ordinal, bytes)) ||
       spill_wanted(device, ordinal, bytes)))
    code = promise_spilled(t);
  else if (code == CU_ERROR_OUT_OF_MEMORY)
    page_table_log("refused");
  if (code == CU_OK) {
    *handle = t->name;
    if (bytes < PAGE_MOVES_LEAST && resident_on(device)) make_room_for_small(t);
    return CU_OK;
  }
  page_enter();
  token_forget(t);
  page_leave();
  return code;
}

cu_result page_release(cu_handle handle) {
  page_enter();
  token *t = token_find(handle);
  bool known = t != NULL && t->handles > 0;
  if (known && --t->handles == 0) token_end(t);
  page_leave();
  return known ? CU_OK : CU_ERROR_INVALID_VALUE;
}

/* ---- mapping ---- */

/* Returns any free, unmapped page of the class and tier that the token was promised. */
static cu_result loose_page(token *t, page **out) {
  ASSERT(lock_held(&pages_lock));
  page *p = page_free_take(t->class, t->tier, 0);
  if (p == NULL) return CU_ERROR_OUT_OF_MEMORY;
  cu_result code = p->at == 0 ? CU_OK : page_unmap(p);
  if (code != CU_OK) page_free_put(p);
  *out = p;
  return code;
}

/* Maps the token's page, or the one it was promised, at `addr`. */
static cu_result map_token(token *t, cu_addr addr) {
  ASSERT(lock_held(&pages_lock));
  ASSERT(addr != 0);
  page *p = t->page;
  if (p != NULL && p->at == addr) return CU_OK;
  if (p == NULL && (p = page_free_take(t->class, t->tier, addr)) != NULL) {
    token_have(t, p);
    return CU_OK;
  }
  cu_result code = page_evict(addr, t->class->bytes);
  if (code != CU_OK) return code;
  if (p != NULL) {
    if (p->at != 0) code = page_unmap(p);
    return code == CU_OK ? page_map_at(p, addr) : code;
  }
  code = loose_page(t, &p);
  if (code != CU_OK) return code;
  code = page_map_at(p, addr);
  if (code == CU_OK)
    token_have(t, p);
  else
    page_free_put(p);
  return code;
}

/* Handles a second mapping of a page, which keeps the page like the first, or a call that the
 * driver will refuse. */
static cu_result map_alias(cu_addr addr, size_t bytes, size_t offset, cu_handle handle,
                           unsigned long long flags) {
  ASSERT(!lock_held(&pages_lock));
  cu_handle real = page_real(handle);
  if (real == 0) return CU_ERROR_OUT_OF_MEMORY;
  cu_result code = page_leave_range(addr, bytes);
  if (code == CU_OK) code = shim_driver()->cuMemMap(addr, bytes, offset, real, flags);
  if (code != CU_OK) return code;
  page_enter();
  token *t = token_find(handle);
  if (t != NULL) t->aliases++;
  page_leave();
  holdings_add(HOLDING_MAPPING, addr, &(holding){.link = handle, .uses = 1});
  return CU_OK;
}

cu_result page_map(cu_addr addr, size_t bytes, size_t offset, cu_handle handle,
                   unsigned long long flags) {
  page_enter();
  token *t = token_find(handle);
  if (t == NULL || addr == 0 || offset != 0 || flags != 0 || t->addr != 0 ||
      bytes != t->class->bytes) {
    page_leave();
    return t == NULL ? CU_ERROR_INVALID_VALUE : map_alias(addr, bytes, offset, handle, flags);
  }
  cu_result code = map_token(t, addr);
  if (code == CU_OK) {
    t->addr = addr;
    resident_add(t);
  }
  bool host = code == CU_OK && t->page->tier == TIER_HOST;
  uint64_t before = host ? t->page->vram_bytes : 0;
  unsigned device = t->class->device;
  page_leave();
  if (host) record_event(STOW_TRACE_SPILL, addr + before, bytes - before, NULL, device, 1);
  if (code == CU_OK) record_event(STOW_TRACE_SEGMENT_MAP, addr, bytes, NULL, device, host);
  return code;
}

/* Returns the page that a token has mapped at exactly this address. */
static page *mapped_at(cu_addr addr) {
  ASSERT(lock_held(&pages_lock));
  const uint64_t *found = map_get(&pages_at, addr);
  page *p = found == NULL ? NULL : (page *)(uintptr_t)*found;
  return p == NULL || page_is_lazy(p) ? NULL : p;
}

/* Returns whether a range consists only of tokens' pages. */
static bool all_mapped(cu_addr addr, size_t bytes) {
  uint64_t done = 0;
  while (done < bytes) {
    const page *p = mapped_at(addr + done);
    if (p == NULL || p->class->bytes > bytes - done) return false;
    done += p->class->bytes;
  }
  return bytes > 0;
}

static cu_result unmap_token(token *t) {
  ASSERT(t->page != NULL && t->addr == t->page->at);
  resident_remove(t);
  page *p = t->page;
  bool host = p->tier == TIER_HOST;
  cu_result code = token_keeping(t) ? CU_OK : page_unmap(p);
  if (code != CU_OK) return code;
  if (!host || p->rest != 0) account_note_released(host ? p->vram_bytes : t->class->bytes);
  t->addr = 0;
  token_end(t);
  return CU_OK;
}

bool page_unmap_range(cu_addr addr, size_t bytes, cu_result *code) {
  uint64_t done = 0;
  unsigned device = 0;
  bool host = false;
  page_enter();
  bool ours = all_mapped(addr, bytes);
  *code = CU_OK;
  while (ours && done < bytes && *code == CU_OK) {
    page *p = mapped_at(addr + done);
    device = p->class->device;
    host = p->tier == TIER_HOST;
    uint64_t size = p->class->bytes;
    *code = unmap_token(p->owner);
    if (*code == CU_OK) done += size;
  }
  page_leave();
  if (done > 0) record_event(STOW_TRACE_SEGMENT_UNMAP, addr, done, NULL, device, host);
  return ours;
}

void page_unmapped(cu_addr addr, size_t bytes) {
  page_enter();
  for (uint64_t done = 0; done < bytes; done += SHIM_GRANULE) {
    page *p = mapped_at(addr + done);
    if (p == NULL) continue;
    token *t = p->owner;
    resident_remove(t);
    p = t->page;
    map_remove(&pages_at, p->at, NULL);
    p->at = 0;
    p->granted = false;
    t->addr = 0;
    token_end(t);
  }
  page_leave();
}

void page_alias_gone(cu_handle handle) {
  page_enter();
  token *t = token_find(handle);
  if (t != NULL && t->aliases > 0) {
    t->aliases--;
    token_end(t);
  }
  page_leave();
}

/* ---- access ---- */

/* Grants access to the pages of a range that do not have it, in as few calls as their neighbourhood
 * allows. */
static cu_result grant_range(cu_addr addr, size_t bytes, const cu_access *access) {
  ASSERT(lock_held(&pages_lock));
  cu_result code = CU_OK;
  uint64_t from = 0; /* start of the adjacent pages up to `done` */
  for (uint64_t done = 0; done <= bytes && code == CU_OK;) {
    const page *p = done < bytes ? mapped_at(addr + done) : NULL;
    bool ends = p == NULL || p->granted;
    if (ends && done > from) code = page_grant_run(addr + from, done - from, access);
    for (page *q; ends && code == CU_OK && from < done; from += q->class->bytes) {
      q = mapped_at(addr + from);
      if (q == NULL) return CU_ERROR_INVALID_VALUE;
      q->granted = true;
    }
    if (p == NULL) break;
    done += p->class->bytes;
    if (ends) from = done;
  }
  return code;
}

/* Returns whether it is access for the device of the class, and for that device only. */
static bool is_own(const page_class *class, const cu_access *access, size_t count) {
  return count == 1 && access != NULL && access->flags == CU_ACCESS_READ_WRITE &&
         access->location.type == class->prop.location.type &&
         access->location.id == class->prop.location.id;
}

/* Returns the same for a range that is all tokens' pages. */
static bool all_own(cu_addr addr, size_t bytes, const cu_access *access, size_t count) {
  const page *p;
  for (uint64_t done = 0; done < bytes; done += p->class->bytes) {
    p = mapped_at(addr + done);
    if (p == NULL || !is_own(p->class, access, count)) return false;
  }
  return true;
}

/* Pins tokens if another device, or another kind of access, is requested: the access stays as the
 * program set it, and later plain requests go to the driver. (By token, because a program may name
 * any range.) */
static void pin_others(cu_addr addr, size_t bytes, const cu_access *access, size_t count) {
  uint64_t name, value;
  for (size_t at = 0; map_next(&tokens, &at, &name, &value);) {
    token *t = (token *)(uintptr_t)value;
    if (t->addr == 0 || t->addr < addr || t->addr - addr >= bytes ||
        is_own(t->class, access, count))
      continue;
    pin(t);
    t->page->granted = false;
  }
}

bool page_set_access(cu_addr addr, size_t bytes, const cu_access *access, size_t count,
                     cu_result *code) {
  page_enter();
  bool ours = all_mapped(addr, bytes) && all_own(addr, bytes, access, count);
  if (ours)
    *code = grant_range(addr, bytes, access);
  else
    pin_others(addr, bytes, access, count);
  page_leave();
  return ours;
}

/* ---- handles ---- */

cu_result page_leave_range(cu_addr addr, size_t bytes) {
  cu_result code = CU_OK;
  page_enter();
  for (size_t i = 0; i < class_count; i++)
    for (int tier = 0; tier < TIER_COUNT; tier++)
      for (size_t k = 0; k < classes[i].free_count[tier] && code == CU_OK; k++) {
        page *p = classes[i].free[tier][k];
        if (p->at != 0 && p->at < addr + bytes && p->at + classes[i].bytes > addr)
          code = page_unmap(p);
      }
  uint64_t name, value;
  for (size_t at = 0; code == CU_OK && map_next(&tokens, &at, &name, &value);) {
    const token *t = (const token *)(uintptr_t)value;
    page *p = t->page;
    if (p != NULL && t->addr == 0 && p->at != 0 && p->at < addr + bytes &&
        p->at + t->class->bytes > addr)
      code = page_unmap(p);
  }
  page_leave();
  return code;
}

/* Returns the page that a token has mapped around an address. */
static page *mapped_around(cu_addr addr) {
  ASSERT(lock_held(&pages_lock));
  cu_addr at = addr / SHIM_GRANULE * SHIM_GRANULE;
  uint64_t before = 0;
  for (size_t i = 0; i < class_count; i++)
    if (classes[i].bytes > before) before = classes[i].bytes;
  for (uint64_t back = 0; back < before && back <= at; back += SHIM_GRANULE) {
    page *p = mapped_at(at - back);
    if (p != NULL) return back < p->class->bytes ? p : NULL;
  }
  return NULL;
}

bool page_retain(cu_handle *handle, const void *addr) {
  page_enter();
  const page *p = mapped_around((uintptr_t)addr);
  if (p != NULL) {
    p->owner->handles++;
    *handle = p->owner->name;
  }
  page_leave();
  return p != NULL;
}

bool page_spilled(cu_addr addr, cu_device *ordinal) {
  if (atomic_load_explicit(&token_held_on_host, memory_order_relaxed) == 0) return false;
  page_enter();
  const page *p = mapped_around(addr);
  bool spilled = p != NULL && p->tier == TIER_HOST;
  if (spilled) *ordinal = p->class->prop.location.id;
  page_leave();
  return spilled;
}

cu_handle page_real(cu_handle handle) {
  cu_handle real = 0;
  page_enter();
  token *t = token_find(handle);
  page *p = t == NULL ? NULL : t->page;
  if (t != NULL && p == NULL && loose_page(t, &p) == CU_OK) token_have(t, p);
  if (t != NULL && t->page != NULL) {
    pin(t);
    real = t->page->rest != 0 ? 0 : t->page->real; /* one handle cannot name both */
  }
  page_leave();
  return real;
}

void page_pin_range(cu_addr addr, size_t bytes) {
  page_enter();
  uint64_t name, value;
  for (size_t at = 0; map_next(&tokens, &at, &name, &value);) {
    token *t = (token *)(uintptr_t)value;
    if (t->addr != 0 && t->addr < addr + bytes && t->addr + t->class->bytes > addr) pin(t);
  }
  page_leave();
}

bool page_prop(cu_prop *prop, cu_handle handle) {
  page_enter();
  const token *t = token_find(handle);
  if (t != NULL) *prop = t->class->prop;
  page_leave();
  return t != NULL;
}

void page_context_ended(unsigned device, cu_context context) {
  page_enter();
  resident_context_ended(device, context);
  page_leave();
}
