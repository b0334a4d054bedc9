/* Page parts: the handles that programs have for runs of pages. See page_parts.h. */
#include "shim/page_parts.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/lock.h"
#include "shim/host_tier.h"
#include "shim/live_blocks.h"
#include "shim/page_run.h"

/* Like token.c's mark: no driver handle looks like this. */
#define PARTS_MARK (UINT64_C(0x5358) << 48)

typedef struct parts {
  cu_handle name;
  page_run run;
  cu_prop prop;
  uint32_t handles; /* the program's handles */
  cu_addr addr;     /* where it is mapped; 0: nowhere */
  struct parts *next;
} parts;

static lock list_lock = LOCK_INIT(LOCK_DEVICE); /* no other lock is taken while it is held */
static parts *list;
static uint64_t last_name;
static _Atomic size_t count;

bool page_parts_is(cu_handle handle) {
  return (handle & (UINT64_C(0xffff) << 48)) == PARTS_MARK;
}

/* Returns whether the program sees one device only. Then it has no peer that would import a page,
 * and a framework requests a handle type without ever using it. */
static bool one_device(void) {
  const cuda_driver *driver = shim_driver();
  int devices = 0;
  return driver != NULL && driver->cuDeviceGetCount != NULL &&
         driver->cuDeviceGetCount(&devices) == CU_OK && devices == 1;
}

bool page_parts_wanted(size_t bytes, const cu_prop *prop, unsigned long long flags) {
  if (flags != 0 || bytes % SHIM_GRANULE != 0 || prop->type != CU_ALLOCATION_PINNED ||
      prop->location.type != CU_LOCATION_DEVICE || prop->win32_meta != NULL)
    return false;
  unsigned device = account_device(prop->location.id);
  uint64_t whole;
  return page_run_wanted(device, bytes) &&
         (prop->handle_types == 0 || one_device() || host_tier_vram_room(device, &whole) < bytes) &&
         page_run_fits(device, prop->location.id, bytes);
}

cu_result page_parts_create(cu_handle *handle, size_t bytes, const cu_prop *prop) {
  ASSERT(handle != NULL);
  parts *p = calloc(1, sizeof *p);
  if (p == NULL) return CU_ERROR_NOT_SUPPORTED;
  cu_result code = page_run_create(&p->run, bytes, prop);
  if (code != CU_OK) {
    free(p);
    return code;
  }
  p->prop = *prop;
  p->handles = 1;
  lock_acquire(&list_lock);
  p->name = PARTS_MARK | ++last_name;
  p->next = list;
  list = p;
  lock_release(&list_lock);
  atomic_fetch_add(&count, 1);
  *handle = p->name;
  return CU_OK;
}

static parts *find(cu_handle handle) {
  ASSERT(lock_held(&list_lock));
  parts *p = list;
  while (p != NULL && p->name != handle) p = p->next;
  return p;
}

/* Removes it from the list if the program has neither a handle nor a mapping of it. */
static bool take_if_done(parts *p) {
  ASSERT(lock_held(&list_lock));
  if (p->handles > 0 || p->addr != 0) return false;
  parts **at = &list;
  while (*at != p) at = &(*at)->next;
  *at = p->next;
  atomic_fetch_sub(&count, 1);
  return true;
}

/* Releases a handle. The handles of the pages are released with the program's last one; after that
 * their mappings keep them. */
cu_result page_parts_release(cu_handle handle) {
  page_run run = {.handles = NULL};
  bool done = false;
  lock_acquire(&list_lock);
  parts *p = find(handle);
  bool known = p != NULL && p->handles > 0;
  if (known && --p->handles == 0) {
    run = p->run;
    p->run.handles = NULL;
    done = take_if_done(p);
  }
  lock_release(&list_lock);
  page_run_release(&run);
  if (done) free(p);
  return known ? CU_OK : CU_ERROR_INVALID_VALUE;
}

cu_result page_parts_map(cu_addr addr, size_t bytes, size_t offset, cu_handle handle,
                         unsigned long long flags) {
  page_run run = {.handles = NULL};
  bool first = false;
  lock_acquire(&list_lock);
  parts *p = find(handle);
  if (p != NULL && p->handles > 0 && addr != 0 && offset == 0 && flags == 0 &&
      bytes == p->run.bytes) {
    run = p->run;
    first = p->addr == 0;
    if (first) p->addr = addr;
  }
  lock_release(&list_lock);
  if (run.handles == NULL) return CU_ERROR_INVALID_VALUE;
  /* After a second mapping its pages no longer move (page.c). */
  cu_result code = page_run_map(&run, addr);
  if (code == CU_OK && first)
    live_blocks_note(addr, bytes, run.device);
  else if (first) {
    lock_acquire(&list_lock);
    p->addr = 0;
    lock_release(&list_lock);
  }
  return code;
}

void page_parts_unmapping(cu_addr addr, size_t bytes) {
  if (atomic_load_explicit(&count, memory_order_relaxed) == 0) return;
  for (;;) {
    unsigned device = 0;
    cu_addr from = 0;
    bool done = false;
    lock_acquire(&list_lock);
    parts *p = list;
    while (p != NULL && (p->addr == 0 || p->addr - addr >= bytes)) p = p->next;
    if (p != NULL) {
      from = p->addr;
      device = p->run.device;
      p->addr = 0;
      done = take_if_done(p);
    }
    lock_release(&list_lock);
    if (p == NULL) return;
    live_blocks_note(from, 0, device);
    if (done) free(p);
  }
}

bool page_parts_retain(cu_handle *handle, const void *addr) {
  ASSERT(handle != NULL);
  if (atomic_load_explicit(&count, memory_order_relaxed) == 0) return false;
  lock_acquire(&list_lock);
  parts *p = list;
  while (p != NULL &&
         (p->addr == 0 || p->handles == 0 || (cu_addr)(uintptr_t)addr - p->addr >= p->run.bytes))
    p = p->next;
  if (p != NULL) {
    p->handles++;
    *handle = p->name;
  }
  lock_release(&list_lock);
  return p != NULL;
}

bool page_parts_prop(cu_prop *prop, cu_handle handle) {
  lock_acquire(&list_lock);
  const parts *p = find(handle);
  if (p != NULL) *prop = p->prop;
  lock_release(&list_lock);
  return p != NULL;
}

static void after_fork(void) {
  lock_init(&list_lock, LOCK_DEVICE);
  list = NULL;
  atomic_store(&count, 0);
}
SHIM_AFTER_FORK(after_fork);
