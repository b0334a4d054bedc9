/* Host tier: the path to the host, the budget, host pages. */
#include "shim/host_tier.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/hostmem.h"
#include "base/lock.h"
#include "device/cuda_device_id.h"
#include "device/cuda_probe.h"
#include "shim/capture.h"
#include "shim/counted.h"

static lock path_lock = LOCK_INIT(LOCK_DEVICE);
static bool path_known;     /* guarded by path_lock, as the two below */
static cuda_driver started; /* a copy of the driver's functions, with its version */
static cuda_probe path;

static void after_fork(void) {
  lock_init(&path_lock, LOCK_DEVICE);
}
SHIM_AFTER_FORK(after_fork);

/* Finds the path. The result is cached between processes (cuda_cache.h). */
static cuda_probe find_path(cu_device ordinal) {
  ASSERT(ordinal >= 0);
  lock_acquire(&path_lock);
  if (!path_known) {
    path = (cuda_probe){.backing = STOW_HOST_NONE, .numa_node = -1};
    started = *shim_driver();
    if (cuda_driver_start(&started) == STOW_OK && started.has_vmm)
      cuda_probe_device(&path, &started, ordinal, false);
    shim_log("host pages: path %s", cuda_backing_name(path.backing));
    path_known = true;
  }
  cuda_probe answer = path;
  lock_release(&path_lock);
  return answer;
}

stow_host_backing host_tier_path(cu_device ordinal) {
  return find_path(ordinal).backing;
}

bool host_tier_on(void) {
  const ledger *l = account_ledger();
  return l->header != NULL && ledger_spill_limit(l) > 0;
}

uint64_t host_tier_budget(cu_device ordinal) {
  ledger *l = account_ledger();
  uint64_t limit = l->header == NULL ? 0 : ledger_spill_limit(l);
  if (limit == 0) return 0;
  cuda_probe found = find_path(ordinal);
  uint64_t reported = found.backing == STOW_HOST_NUMA || found.backing == STOW_HOST_LOCATION
                          ? LEDGER_PATH_PAGES
                      : found.backing == STOW_HOST_PINNED ? LEDGER_PATH_PINNED
                                                          : LEDGER_PATH_NONE;
  if (atomic_load(&l->header->host_path) == LEDGER_PATH_UNKNOWN) {
    /* Processes that probe at the same time write the same. */
    snprintf(l->header->host_reason, sizeof l->header->host_reason, "%.255s", found.reason);
    atomic_store(&l->header->host_path, reported);
  }
  return reported == LEDGER_PATH_NONE ? 0 : limit;
}

/* For cuBLAS, cuDNN and the like, and for pages that are too small to move: the vectors of a model
 * that generates one token at a time are in them, and every kernel reads them many times. A small
 * limit is not made smaller. */
#define RESERVE_BYTES ((uint64_t)128 << 20)
#define RESERVE_SMALL ((uint64_t)32 << 20)
#define RESERVE_FROM  ((uint64_t)1 << 30)

uint64_t host_tier_reserve(unsigned device, bool moves) {
  const ledger *l = account_ledger();
  if (l->header == NULL || ledger_spill_limit(l) == 0) return 0;
  uint64_t limit = ledger_limit(l, device);
  if (limit == LEDGER_UNLIMITED || limit < RESERVE_FROM) return 0;
  uint64_t plain = ledger_own(l, device, LEDGER_PLAIN);
  return (plain < RESERVE_BYTES ? RESERVE_BYTES - plain : 0) + (moves ? RESERVE_SMALL : 0);
}

bool host_tier_has(uint64_t bytes) {
  hostmem memory;
  return hostmem_read(&memory) == STOW_OK && memory.usable_bytes >= bytes;
}

uint64_t host_tier_vram_room(unsigned device, uint64_t *whole) {
  ASSERT(whole != NULL);
  const ledger *l = account_ledger();
  size_t left = 0, total = 0;
  const cuda_driver *driver = shim_driver();
  *whole = 0;
  if (l->header == NULL || capture_on() || driver->cuMemGetInfo_v2 == NULL ||
      driver->cuMemGetInfo_v2(&left, &total) != CU_OK)
    return 0;
  uint64_t limit = ledger_limit(l, device);
  *whole = limit < total ? limit : total;
  if (limit == LEDGER_UNLIMITED) return left;
  uint64_t room = account_room(device);
  return room < left ? room : left;
}

/* ---- making ---- */

/* A physical_account function: `who` is a counted. */
static bool charge_spilled(const void *who, uint64_t bytes) {
  ASSERT(((const counted *)who)->kind == LEDGER_SPILLED);
  return host_tier_has(bytes) && counted_charge(who, bytes);
}

static void made_spilled(const void *who, uint64_t bytes) {
  ASSERT(account_ledger()->header != NULL);
  atomic_fetch_add(&account_ledger()->header->spilled_total_bytes, bytes);
  counted_made(who, bytes);
}

static void undo_spilled(const void *who, uint64_t bytes, cu_result code) {
  ASSERT(code != CU_OK);
  shim_log("%llu bytes on the host: CUDA error %d", (unsigned long long)bytes, code);
  counted_uncharge(who, bytes);
}

static const physical_account SPILLED = {.charge = charge_spilled,
                                         .made = made_spilled,
                                         .undo = undo_spilled,
                                         .uncharge = counted_uncharge};

/* Maps an error: for the program, a full host is a device without memory. */
static cu_result answer(cu_result code) {
  return code == CU_OK ? CU_OK : CU_ERROR_OUT_OF_MEMORY;
}

cu_result host_tier_page_create(cu_handle *page, uint64_t bytes, unsigned device,
                                cu_device ordinal) {
  ASSERT(page != NULL && bytes % SHIM_GRANULE == 0);
  cuda_probe how = find_path(ordinal);
  counted who = {device, LEDGER_SPILLED};
  physical maker = {shim_driver(), &SPILLED, &who};
  cu_prop prop;
  if (!physical_host_prop(&prop, how.backing, how.numa_node)) return CU_ERROR_OUT_OF_MEMORY;
  return answer(physical_page_create(&maker, page, bytes, &prop, 0));
}

cu_result host_tier_page_release(cu_handle page, uint64_t bytes, unsigned device) {
  ASSERT(page != 0);
  counted who = {device, LEDGER_SPILLED};
  physical maker = {shim_driver(), &SPILLED, &who};
  return physical_page_release(&maker, page, bytes);
}

cu_result host_tier_pinned_alloc(cu_addr *addr, void **host, uint64_t bytes, unsigned device) {
  ASSERT(addr != NULL && host != NULL);
  counted who = {device, LEDGER_SPILLED};
  physical maker = {shim_driver(), &SPILLED, &who};
  return answer(physical_pinned_alloc(&maker, addr, host, bytes));
}

cu_result host_tier_pinned_free(void *host, uint64_t bytes, unsigned device) {
  ASSERT(host != NULL);
  counted who = {device, LEDGER_SPILLED};
  physical maker = {shim_driver(), &SPILLED, &who};
  return physical_pinned_free(&maker, host, bytes);
}
