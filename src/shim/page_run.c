/* Page run: tokens' pages in sequence. See page_run.h. */
#include "shim/page_run.h"

#include <stdlib.h>

#include "base/assert.h"
#include "shim/capture.h"
#include "shim/gate.h"
#include "shim/host_tier.h"
#include "shim/launch.h"
#include "shim/page.h"
#include "shim/resident.h"

/* With a smaller limit, pages of this size are too large. */
#define LEAST_LIMIT ((uint64_t)1 << 30)

bool page_run_wanted(unsigned device, uint64_t bytes) {
  const ledger *l = account_ledger();
  return bytes >= PAGE_RUN_LEAST && l->header != NULL && ledger_limit(l, device) >= LEAST_LIMIT &&
         host_tier_on() && gate_here() && launch_known() && !capture_on();
}

/* Returns how much vram a run can have: what is free, and pages that the program released. A page
 * that gets none after all is created on the host. */
static uint64_t vram_room(unsigned device, uint64_t *whole) {
  ledger_totals totals;
  ledger_sum(account_ledger(), device, &totals);
  return host_tier_vram_room(device, whole) + totals.idle_vram_bytes;
}

bool page_run_fits(unsigned device, cu_device ordinal, uint64_t bytes) {
  const ledger *l = account_ledger();
  uint64_t whole, room = vram_room(device, &whole);
  uint64_t most = host_tier_budget(ordinal), spilled = ledger_spilled(l);
  uint64_t host = most > spilled ? most - spilled : 0;
  if (room < bytes && host < bytes - room) host += resident_kept_hosts(device);
  return room >= bytes || (host >= bytes - room && host_tier_has(bytes - room));
}

/* Returns the size of the page at that offset in the run: the last one is only as long as
 * needed. */
static uint64_t page_bytes(const page_run *run, uint64_t at) {
  ASSERT(at < run->bytes);
  uint64_t left = run->bytes - at;
  return left < PAGE_RUN_BYTES ? left : PAGE_RUN_BYTES;
}

static cu_handle *handle_at(const page_run *run, uint64_t at) {
  return &run->handles[at / PAGE_RUN_BYTES];
}

/* Returns how much of a run may be in vram: all of it, or what is available minus a part for
 * others. */
static uint64_t vram_share(unsigned device, uint64_t bytes) {
  uint64_t whole, room = vram_room(device, &whole);
  if (room >= bytes) return bytes;
  uint64_t left = whole / HOST_TIER_LEAVES_PART;
  return room > left ? room - left : 0;
}

static void release_to(const page_run *run, uint64_t end) {
  for (uint64_t at = 0; at < end; at += page_bytes(run, at)) page_release(*handle_at(run, at));
}

cu_result page_run_create(page_run *run, uint64_t bytes, const cu_prop *prop) {
  ASSERT(bytes > 0 && bytes % SHIM_GRANULE == 0);
  uint64_t count = (bytes - 1) / PAGE_RUN_BYTES + 1, done = 0, last = bytes % PAGE_RUN_BYTES;
  *run = (page_run){.bytes = bytes, .device = account_device(prop->location.id)};
  if (!page_wanted(PAGE_RUN_BYTES, prop, 0) || (last != 0 && !page_wanted(last, prop, 0)))
    return CU_ERROR_NOT_SUPPORTED;
  run->handles = calloc(count, sizeof *run->handles);
  if (run->handles == NULL) return CU_ERROR_NOT_SUPPORTED;
  uint64_t vram = vram_share(run->device, bytes);
  cu_result code = CU_OK;
  while (done < bytes && code == CU_OK) {
    uint64_t size = page_bytes(run, done);
    code = page_create(handle_at(run, done), size, prop,
                       done + size > vram ? PAGE_ON_HOST : PAGE_OF_BLOCK);
    if (code == CU_OK) done += size;
  }
  if (code == CU_OK) return CU_OK;
  release_to(run, done);
  free(run->handles);
  run->handles = NULL;
  return code;
}

cu_result page_run_map(const page_run *run, cu_addr base) {
  ASSERT(run->handles != NULL);
  ASSERT(base != 0);
  cu_result code = CU_OK, undone;
  uint64_t done = 0;
  while (done < run->bytes && code == CU_OK) {
    uint64_t size = page_bytes(run, done);
    code = page_map(base + done, size, 0, *handle_at(run, done), 0);
    if (code == CU_OK) done += size;
  }
  if (code != CU_OK && done > 0 && !page_unmap_range(base, done, &undone)) {
    shim_driver()->cuMemUnmap(base, done);
    for (uint64_t at = 0; at < done; at += page_bytes(run, at))
      page_alias_gone(*handle_at(run, at));
  }
  return code;
}

cu_result page_run_unmap(const page_run *run, cu_addr base) {
  cu_result code = CU_OK;
  return page_unmap_range(base, run->bytes, &code) ? code : CU_ERROR_UNKNOWN;
}

void page_run_release(page_run *run) {
  if (run->handles == NULL) return;
  release_to(run, run->bytes);
  free(run->handles);
  run->handles = NULL;
}
