/* Placed: blocks built from tokens' pages. See placed.h. */
#include "shim/placed.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/lock.h"
#include "device/physical.h"
#include "shim/address.h"
#include "shim/live_blocks.h"
#include "shim/page.h"
#include "shim/page_run.h"
#include "shim/plain.h"
#include "shim/spill.h"

typedef struct block {
  placed_block what;
  page_run run;
  struct block *next;
} block;

static lock list_lock = LOCK_INIT(LOCK_DEVICE); /* no other lock is taken while it is held */
static block *blocks;
static _Atomic size_t block_count;

bool placed_wanted(unsigned device, uint64_t bytes) {
  return page_run_wanted(device, bytes) && plain_serves(device);
}

/* ---- blocks ---- */

static void end(block *b) {
  shim_driver()->cuMemAddressFree(b->what.base, b->run.bytes);
  free(b);
}

static cu_result map_run(block *b) {
  cu_prop prop = physical_vram_prop(b->what.ordinal);
  cu_access access = {prop.location, CU_ACCESS_READ_WRITE};
  cu_result code = page_run_map(&b->run, b->what.base);
  if (code != CU_OK) return code;
  if (!page_set_access(b->what.base, b->run.bytes, &access, 1, &code)) code = CU_ERROR_UNKNOWN;
  if (code != CU_OK) page_run_unmap(&b->run, b->what.base);
  return code;
}

static cu_result make(block *b, uint64_t mapped_bytes) {
  const cuda_driver *driver = shim_driver();
  cu_prop prop = physical_vram_prop(b->what.ordinal);
  if (address_reserve(&b->what.base, mapped_bytes, 0) != CU_OK) return CU_ERROR_NOT_SUPPORTED;
  cu_result code = page_run_create(&b->run, mapped_bytes, &prop);
  if (code == CU_OK) {
    code = map_run(b);
    if (code != CU_OK) page_run_release(&b->run);
  }
  if (code == CU_OK)
    live_blocks_note(b->what.base, b->what.bytes, b->what.device);
  else if (page_leave_range(b->what.base, mapped_bytes) == CU_OK)
    driver->cuMemAddressFree(b->what.base, mapped_bytes);
  return code;
}

/* Frees the block's memory; work that uses it has ended. */
static cu_result drop(block *b) {
  live_blocks_note(b->what.base, 0, b->what.device);
  cu_result code = page_run_unmap(&b->run, b->what.base);
  page_run_release(&b->run);
  if (page_leave_range(b->what.base, b->run.bytes) == CU_OK) end(b);
  return code;
}

static void put(block *b) {
  lock_acquire(&list_lock);
  b->next = blocks;
  blocks = b;
  lock_release(&list_lock);
  atomic_fetch_add(&block_count, 1);
}

cu_result placed_alloc(cu_addr *addr, uint64_t bytes, unsigned device, cu_device ordinal,
                       cu_context context) {
  ASSERT(addr != NULL && bytes >= PAGE_RUN_LEAST);
  if (bytes > UINT64_MAX - PAGE_RUN_BYTES || !page_run_fits(device, ordinal, bytes))
    return CU_ERROR_NOT_SUPPORTED;
  block *b = calloc(1, sizeof *b);
  if (b == NULL) return CU_ERROR_NOT_SUPPORTED;
  b->what =
      (placed_block){.bytes = bytes, .device = device, .ordinal = ordinal, .context = context};
  cu_result code = make(b, (bytes + SHIM_GRANULE - 1) / SHIM_GRANULE * SHIM_GRANULE);
  if (code != CU_OK) {
    free(b);
    return code;
  }
  *addr = b->what.base;
  put(b);
  return CU_OK;
}

/* Removes the block that begins at `addr` from the list. */
static block *take(cu_addr addr) {
  block *found = NULL;
  lock_acquire(&list_lock);
  for (block **at = &blocks; *at != NULL && found == NULL; at = &(*at)->next)
    if ((*at)->what.base == addr) {
      found = *at;
      *at = found->next;
      break;
    }
  lock_release(&list_lock);
  if (found != NULL) atomic_fetch_sub(&block_count, 1);
  return found;
}

bool placed_free(cu_addr addr, placed_block *gone, cu_result *code) {
  ASSERT(gone != NULL && code != NULL);
  block *b = atomic_load_explicit(&block_count, memory_order_relaxed) > 0 ? take(addr) : NULL;
  if (b == NULL) return false;
  *gone = b->what;
  *code = spill_wait_for_work(b->what.context);
  if (*code != CU_OK) {
    put(b);
    return true;
  }
  *code = drop(b);
  return true;
}

bool placed_find(cu_addr addr, placed_block *found) {
  ASSERT(found != NULL);
  if (atomic_load_explicit(&block_count, memory_order_relaxed) == 0) return false;
  bool there = false;
  lock_acquire(&list_lock);
  for (const block *b = blocks; b != NULL && !there; b = b->next)
    if (addr - b->what.base < b->what.bytes) {
      *found = b->what;
      there = true;
    }
  lock_release(&list_lock);
  return there;
}

void placed_context_ended(unsigned device, cu_context context) {
  for (;;) {
    cu_addr addr = 0;
    lock_acquire(&list_lock);
    for (const block *b = blocks; b != NULL; b = b->next)
      if (b->what.device == device && (context == NULL || b->what.context == context))
        addr = b->what.base;
    lock_release(&list_lock);
    block *b = addr != 0 ? take(addr) : NULL;
    if (b == NULL) return;
    drop(b);
  }
}

static void after_fork(void) {
  lock_init(&list_lock, LOCK_DEVICE);
  blocks = NULL;
  atomic_store(&block_count, 0);
}
SHIM_AFTER_FORK(after_fork);
