/* Placed: blocks made of tokens' pages. See placed.h. */
#include "shim/placed.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/lock.h"
#include "shim/block_book.h"
#include "shim/capture.h"
#include "shim/gate.h"
#include "shim/host_tier.h"
#include "shim/launch.h"
#include "shim/page.h"
#include "shim/plain.h"
#include "shim/spill.h"

/* Smaller requests are the heap's, and what pages leave in vram is for them. A small limit has no
 * place for pages of this size. */
#define LEAST_BYTES ((uint64_t)160 << 20)
#define LEAST_LIMIT ((uint64_t)1 << 30)

typedef struct block {
  placed_block what;
  uint64_t mapped_bytes; /* a multiple of the granule */
  cu_handle *handles;
  struct block *next;
} block;

static lock list_lock = LOCK_INIT(LOCK_DEVICE); /* nothing else is taken while it is held */
static block *blocks;
static _Atomic size_t block_count;

bool placed_wanted(unsigned device, uint64_t bytes) {
  const ledger *l = account_ledger();
  return bytes >= LEAST_BYTES && l->header != NULL && ledger_limit(l, device) >= LEAST_LIMIT &&
         host_tier_on() && gate_here() && launch_known() && !capture_on() && plain_serves(device);
}

/* Returns whether both tiers together have room for it. */
static bool fits(unsigned device, cu_device ordinal, uint64_t bytes) {
  const ledger *l = account_ledger();
  uint64_t whole, room = host_tier_vram_room(device, &whole);
  uint64_t most = host_tier_budget(ordinal), spilled = ledger_spilled(l);
  uint64_t host = most > spilled ? most - spilled : 0;
  return room >= bytes || (host >= bytes - room && host_tier_has(bytes - room));
}

/* ---- pages ---- */

/* The page that begins so far into the block: the last one is as long as the block needs it. */
static uint64_t page_bytes(const block *b, uint64_t at) {
  uint64_t left = b->mapped_bytes - at;
  return left < PLACED_PAGE_BYTES ? left : PLACED_PAGE_BYTES;
}

/* Unmaps and releases the pages up to a point. */
static cu_result drop_pages(const block *b, uint64_t end) {
  cu_result code = CU_OK;
  if (end > 0 && !page_unmap_range(b->what.base, end, &code)) code = CU_ERROR_UNKNOWN;
  for (uint64_t at = 0; at < end; at += page_bytes(b, at))
    page_release(b->handles[at / PLACED_PAGE_BYTES]);
  return code;
}

/* How much of the block may be in vram: all of it, or what there is less a part for others. */
static uint64_t vram_share(unsigned device, uint64_t bytes) {
  uint64_t whole, room = host_tier_vram_room(device, &whole);
  if (room >= bytes) return bytes;
  uint64_t left = whole / HOST_TIER_LEAVES_PART;
  return room > left ? room - left : 0;
}

static cu_result make_pages(block *b) {
  ASSERT(b->mapped_bytes % SHIM_GRANULE == 0);
  cu_prop prop = physical_vram_prop(b->what.ordinal);
  cu_access access = {prop.location, CU_ACCESS_READ_WRITE};
  uint64_t vram = vram_share(b->what.device, b->mapped_bytes), done = 0;
  cu_result code = CU_OK;
  while (done < b->mapped_bytes) {
    cu_handle *handle = &b->handles[done / PLACED_PAGE_BYTES];
    uint64_t bytes = page_bytes(b, done);
    code = page_create(handle, bytes, &prop, done + bytes > vram ? PAGE_ON_HOST : PAGE_OF_BLOCK);
    if (code != CU_OK) break;
    code = page_map(b->what.base + done, bytes, 0, *handle, 0);
    if (code != CU_OK) {
      page_release(*handle);
      break;
    }
    done += bytes;
  }
  if (code == CU_OK && !page_set_access(b->what.base, b->mapped_bytes, &access, 1, &code))
    code = CU_ERROR_UNKNOWN;
  if (code != CU_OK) drop_pages(b, done);
  return code;
}

/* ---- blocks ---- */

static void end(block *b) {
  shim_driver()->cuMemAddressFree(b->what.base, b->mapped_bytes);
  free(b->handles);
  free(b);
}

static cu_result make(block *b) {
  const cuda_driver *driver = shim_driver();
  cu_result code = driver->cuMemAddressReserve(&b->what.base, b->mapped_bytes, 0, 0, 0);
  if (code != CU_OK) {
    free(b->handles);
    free(b);
    return CU_ERROR_NOT_SUPPORTED;
  }
  code = make_pages(b);
  if (code == CU_OK)
    block_book_note(b->what.base, b->what.bytes, b->what.device);
  else
    end(b);
  return code;
}

static void put(block *b) {
  lock_take(&list_lock);
  b->next = blocks;
  blocks = b;
  lock_give(&list_lock);
  atomic_fetch_add(&block_count, 1);
}

cu_result placed_alloc(cu_addr *addr, uint64_t bytes, unsigned device, cu_device ordinal,
                       cu_context context) {
  ASSERT(addr != NULL && bytes >= LEAST_BYTES);
  cu_prop prop = physical_vram_prop(ordinal);
  if (bytes > UINT64_MAX - PLACED_PAGE_BYTES || !page_wanted(PLACED_PAGE_BYTES, &prop, 0) ||
      !fits(device, ordinal, bytes))
    return CU_ERROR_NOT_SUPPORTED;
  block *b = calloc(1, sizeof *b);
  uint64_t count = (bytes + PLACED_PAGE_BYTES - 1) / PLACED_PAGE_BYTES;
  if (b != NULL) b->handles = calloc(count, sizeof *b->handles);
  if (b == NULL || b->handles == NULL) {
    free(b);
    return CU_ERROR_NOT_SUPPORTED;
  }
  b->mapped_bytes = (bytes + SHIM_GRANULE - 1) / SHIM_GRANULE * SHIM_GRANULE;
  b->what =
      (placed_block){.bytes = bytes, .device = device, .ordinal = ordinal, .context = context};
  cu_result code = make(b);
  if (code != CU_OK) return code;
  *addr = b->what.base;
  put(b);
  return CU_OK;
}

/* Takes the block that begins at `addr` out of the list. */
static block *take(cu_addr addr) {
  block *found = NULL;
  lock_take(&list_lock);
  for (block **at = &blocks; *at != NULL && found == NULL; at = &(*at)->next)
    if ((*at)->what.base == addr) {
      found = *at;
      *at = found->next;
      break;
    }
  lock_give(&list_lock);
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
  block_book_note(b->what.base, 0, b->what.device);
  *code = drop_pages(b, b->mapped_bytes);
  if (page_leave_range(b->what.base, b->mapped_bytes) == CU_OK) end(b);
  return true;
}

bool placed_find(cu_addr addr, placed_block *found) {
  ASSERT(found != NULL);
  if (atomic_load_explicit(&block_count, memory_order_relaxed) == 0) return false;
  bool there = false;
  lock_take(&list_lock);
  for (const block *b = blocks; b != NULL && !there; b = b->next)
    if (addr - b->what.base < b->what.bytes) {
      *found = b->what;
      there = true;
    }
  lock_give(&list_lock);
  return there;
}

void placed_context_ended(unsigned device, cu_context context) {
  for (;;) {
    cu_addr addr = 0;
    lock_take(&list_lock);
    for (const block *b = blocks; b != NULL; b = b->next)
      if (b->what.device == device && (context == NULL || b->what.context == context))
        addr = b->what.base;
    lock_give(&list_lock);
    block *b = addr != 0 ? take(addr) : NULL;
    if (b == NULL) return;
    block_book_note(b->what.base, 0, b->what.device);
    drop_pages(b, b->mapped_bytes);
    if (page_leave_range(b->what.base, b->mapped_bytes) == CU_OK) end(b);
  }
}

static void after_fork(void) {
  lock_init(&list_lock, LOCK_DEVICE);
  blocks = NULL;
  atomic_store(&block_count, 0);
}
SHIM_AFTER_FORK(after_fork);
