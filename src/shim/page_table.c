/* Page table: pages, the driver's calls on them, and the free ones. */
#include "shim/page_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "shim/counted.h"
#include "shim/host_tier.h"

lock pages_lock = LOCK_INIT(LOCK_PAGES);
map pages_at;
map tokens;
page_class classes[CLASSES_MAX];
size_t class_count;

/* For the log: driver calls since the last entry, and their time. */
enum { MADE, MAPPED, UNMAPPED, GRANTED, CALL_COUNT };
static _Atomic unsigned calls[CALL_COUNT];
static _Atomic uint64_t calls_ns;

static void called(int which, uint64_t start) {
  atomic_fetch_add_explicit(&calls[which], 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&calls_ns, clock_ns() - start, memory_order_relaxed);
}

void page_table_log(const char *when) {
  unsigned count[CALL_COUNT];
  for (int i = 0; i < CALL_COUNT; i++) count[i] = atomic_exchange(&calls[i], 0);
  shim_log("%s: %u pages made, %u mapped, %u unmapped, %u granted in %llu us", when, count[MADE],
           count[MAPPED], count[UNMAPPED], count[GRANTED],
           (unsigned long long)(atomic_exchange(&calls_ns, 0) / 1000));
}

/* The peak is updated when a page is complete (page_make.c): half of a split page does not
 * count. */
static const physical_account PAGES = {
    .charge = counted_charge, .undo = counted_undo, .uncharge = counted_uncharge};

cu_result page_vram_create(const page_class *class, cu_handle *real, uint64_t bytes) {
  ASSERT(lock_held(&pages_lock));
  ASSERT(bytes % SHIM_GRANULE == 0);
  counted who = {class->device, LEDGER_PAGES};
  physical maker = {shim_driver(), &PAGES, &who};
  return physical_page_create(&maker, real, bytes, &class->prop, 0);
}

cu_result page_vram_release(const page_class *class, cu_handle real, uint64_t bytes) {
  ASSERT(real != 0);
  counted who = {class->device, LEDGER_PAGES};
  physical maker = {shim_driver(), &PAGES, &who};
  return physical_page_release(&maker, real, bytes);
}

/* By device; the last: devices that the ledger cannot count. Guarded by pages_lock. */
static uint64_t host_unused[LEDGER_DEVICES_MAX + 1];

static void after_fork(void) {
  memset(host_unused, 0, sizeof host_unused);
}
SHIM_AFTER_FORK(after_fork);

uint64_t *page_host_unused(const page_class *class) {
  ASSERT(lock_held(&pages_lock));
  return &host_unused[class->device < LEDGER_DEVICES_MAX ? class->device : LEDGER_DEVICES_MAX];
}

page *page_new(page_class *class, cu_handle real, int tier) {
  ASSERT(lock_held(&pages_lock));
  ASSERT(tier == TIER_VRAM || tier == TIER_HOST);
  called(MADE, clock_ns());
  page *p = calloc(1, sizeof *p);
  if (p == NULL) return NULL;
  *p = (page){.real = real, .class = class, .tier = tier};
  if (tier == TIER_HOST) *page_host_unused(class) += class->bytes;
  return p;
}

static void give_back(const page *p, cu_handle handle, int tier, uint64_t bytes) {
  cu_result code = tier == TIER_HOST ? host_tier_page_release(handle, bytes, p->class->device)
                                     : page_vram_release(p->class, handle, bytes);
  if (code != CU_OK) shim_log("releasing a page: CUDA error %d", code);
}

void page_drop(page *p) {
  ASSERT(lock_held(&pages_lock));
  if (p->tier == TIER_HOST) {
    ASSERT(*page_host_unused(p->class) >= p->class->bytes);
    *page_host_unused(p->class) -= p->class->bytes;
  }
  if (p->borrowed) {
    if (p->at == 0 || page_unmap(p) == CU_OK) free(p);
    return;
  }
  /* A page that cannot be unmapped is lost and stays counted, because its memory is still in
   * use. */
  if (p->stage != 0 && shim_driver()->cuMemUnmap(p->stage, p->class->bytes) == CU_OK)
    shim_driver()->cuMemAddressFree(p->stage, p->class->bytes);
  if (p->at == 0 || page_unmap(p) == CU_OK) {
    uint64_t vram_bytes = p->rest != 0 ? p->vram_bytes : 0;
    if (p->rest != 0) give_back(p, p->real, TIER_VRAM, vram_bytes);
    give_back(p, p->rest != 0 ? p->rest : p->real, p->tier, p->class->bytes - vram_bytes);
  }
  free(p);
}

/* Unmaps each handle's range separately, because only that is certain to work in every driver. */
static cu_result unmap_both(const page *p, cu_addr addr) {
  ASSERT(addr != 0);
  uint64_t first = p->rest != 0 ? p->vram_bytes : p->class->bytes;
  cu_result code = shim_driver()->cuMemUnmap(addr, first);
  if (code == CU_OK && p->rest != 0)
    code = shim_driver()->cuMemUnmap(addr + first, p->class->bytes - first);
  return code;
}

cu_result page_map_at(page *p, cu_addr addr) {
  ASSERT(lock_held(&pages_lock));
  ASSERT(p->at == 0 && addr != 0);
  uint64_t start = clock_ns();
  uint64_t first = p->rest != 0 ? p->vram_bytes : p->class->bytes;
  cu_result code = shim_driver()->cuMemMap(addr, first, 0, p->real, 0);
  if (code == CU_OK && p->rest != 0) {
    code = shim_driver()->cuMemMap(addr + first, p->class->bytes - first, 0, p->rest, 0);
    if (code != CU_OK) shim_driver()->cuMemUnmap(addr, first);
  }
  called(MAPPED, start);
  if (code != CU_OK) return code;
  if (map_put(&pages_at, addr, (uintptr_t)p) != STOW_OK) {
    unmap_both(p, addr);
    return CU_ERROR_OUT_OF_MEMORY;
  }
  p->at = addr;
  p->granted = false;
  return CU_OK;
}

cu_result page_unmap(page *p) {
  ASSERT(lock_held(&pages_lock));
  ASSERT(p->at != 0);
  uint64_t start = clock_ns();
  cu_result code = unmap_both(p, p->at);
  called(UNMAPPED, start);
  if (code != CU_OK) {
    shim_log("unmapping a page: CUDA error %d", code);
    return code;
  }
  map_remove(&pages_at, p->at, NULL);
  p->at = 0;
  p->granted = false;
  return CU_OK;
}

cu_result page_grant_run(cu_addr addr, uint64_t bytes, const cu_access *access) {
  uint64_t start = clock_ns();
  cu_result code = shim_driver()->cuMemSetAccess(addr, bytes, access, 1);
  called(GRANTED, start);
  return code;
}

cu_result page_grant(page *p) {
  ASSERT(p->at != 0);
  cu_access grant = {p->class->prop.location, CU_ACCESS_READ_WRITE};
  cu_result code = p->granted ? CU_OK : page_grant_run(p->at, p->class->bytes, &grant);
  p->granted = code == CU_OK;
  return code;
}

cu_result page_stage(page *p) {
  ASSERT(lock_held(&pages_lock));
  ASSERT(p->rest == 0);
  const cuda_driver *driver = shim_driver();
  cu_access grant = {p->class->prop.location, CU_ACCESS_READ_WRITE};
  cu_addr at;
  if (p->stage != 0) return CU_OK;
  cu_result code = driver->cuMemAddressReserve(&at, p->class->bytes, 0, 0, 0);
  if (code != CU_OK) return code;
  code = shim_driver()->cuMemMap(at, p->class->bytes, 0, p->real, 0);
  if (code == CU_OK) {
    code = shim_driver()->cuMemSetAccess(at, p->class->bytes, &grant, 1);
    if (code != CU_OK) shim_driver()->cuMemUnmap(at, p->class->bytes);
  }
  if (code == CU_OK)
    p->stage = at;
  else
    shim_driver()->cuMemAddressFree(at, p->class->bytes);
  return code;
}

bool page_is_lazy(const page *p) {
  return p->owner == NULL || p->owner->addr == 0;
}

cu_result page_evict(cu_addr addr, uint64_t bytes) {
  ASSERT(lock_held(&pages_lock));
  ASSERT(bytes > 0);
  uint64_t before = 0;
  for (size_t i = 0; i < class_count; i++)
    if (classes[i].bytes > before) before = classes[i].bytes;
  /* A page that begins before the range may reach into it. */
  cu_addr from = addr > before ? addr - before : 0;
  for (cu_addr at = from; at < addr + bytes; at += SHIM_GRANULE) {
    const uint64_t *found = map_get(&pages_at, at);
    page *p = found == NULL ? NULL : (page *)(uintptr_t)*found;
    if (p == NULL || at + p->class->bytes <= addr || !page_is_lazy(p)) continue;
    cu_result code = page_unmap(p);
    if (code != CU_OK) return code;
  }
  return CU_OK;
}

/* ---- the free ones ---- */

void page_free_put(page *p) {
  ASSERT(lock_held(&pages_lock));
  ASSERT(p->rest == 0 && !p->borrowed);
  page_class *c = p->class;
  int tier = p->tier;
  p->owner = NULL;
  if (c->free_count[tier] == c->free_capacity[tier]) {
    size_t capacity = c->free_capacity[tier] < 64 ? 64 : 2 * c->free_capacity[tier];
    page **list = realloc(c->free[tier], capacity * sizeof(page *));
    if (list == NULL) {
      page_drop(p);
      return;
    }
    c->free[tier] = list;
    c->free_capacity[tier] = capacity;
  }
  p->slot = c->free_count[tier]++;
  c->free[tier][p->slot] = p;
}

static page *take_out(page_class *class, int tier, size_t slot) {
  ASSERT(slot < class->free_count[tier]);
  page **list = class->free[tier], *p = list[slot];
  list[slot] = list[--class->free_count[tier]];
  list[slot]->slot = slot;
  return p;
}

page *page_free_take(page_class *class, int tier, cu_addr addr) {
  ASSERT(lock_held(&pages_lock));
  size_t count = class->free_count[tier], best = count;
  if (addr != 0) {
    const uint64_t *found = map_get(&pages_at, addr);
    const page *p = found == NULL ? NULL : (const page *)(uintptr_t)*found;
    bool fits = p != NULL && p->owner == NULL && p->class == class && p->tier == tier;
    return fits ? take_out(class, tier, p->slot) : NULL;
  }
  for (size_t i = 0; i < count; i++) {
    const page *p = class->free[tier][i];
    /* An unmapped one needs no unmap. Otherwise the highest one: programs grow upwards, so the
     * lowest addresses are mapped again first. */
    if (p->at == 0) return take_out(class, tier, i);
    if (best == count || p->at > class->free[tier][best]->at) best = i;
  }
  return best == count ? NULL : take_out(class, tier, best);
}

void page_free_loosen(page_class *class, int tier) {
  ASSERT(lock_held(&pages_lock));
  for (size_t i = 0; i < class->free_count[tier]; i++)
    if (class->free[tier][i]->at != 0 && page_unmap(class->free[tier][i]) != CU_OK) return;
}

size_t page_free_spare(const page_class *class, int tier) {
  return class->free_count[tier] > class->promised[tier]
             ? class->free_count[tier] - class->promised[tier]
             : 0;
}

void page_free_end(page_class *class) {
  ASSERT(lock_held(&pages_lock));
  ASSERT(class->tokens == 0);
  for (int tier = 0; tier < TIER_COUNT; tier++) {
    while (class->free_count[tier] > 0) page_drop(page_free_take(class, tier, 0));
    free(class->free[tier]);
  }
  *class = (page_class){.bytes = 0};
}

uint64_t page_free_trim(unsigned device, int tier, uint64_t bytes, const page_class *except) {
  ASSERT(lock_held(&pages_lock));
  uint64_t given = 0;
  for (size_t i = 0; i < class_count && given < bytes; i++) {
    page_class *c = &classes[i];
    if (c->device != device || c == except) continue;
    while (given < bytes && page_free_spare(c, tier) > 0) {
      page_drop(page_free_take(c, tier, 0));
      given += c->bytes;
    }
  }
  return given;
}
