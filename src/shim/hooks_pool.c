/* Hooks of stream-ordered allocation. The ledger counts what the pool holds reserved, as the driver
 * reports it, and not what was requested. A request is refused if the pool would have to grow past
 * the limit. During a graph capture a request becomes a node, and its pool does not grow. */
#include "base/assert.h"
#include "shim/capture.h"
#include "shim/holdings.h"
#include "shim/hooks.h"
#include "shim/host_tier.h"
#include "shim/measure.h"
#include "shim/plain.h"
#include "shim/record.h"
#include "shim/refusal.h"
#include "shim/retry.h"
#include "shim/room.h"
#include "shim/spill.h"

/* Returns how much the pool must grow at least to serve `bytes`. */
static uint64_t growth(cu_pool pool, uint64_t bytes) {
  uint64_t reserved = measure_pool_figure(pool, POOL_RESERVED),
           used = measure_pool_figure(pool, POOL_USED);
  if (bytes > UINT64_MAX / 2) return bytes;
  if (used + bytes <= reserved) return 0;
  return (used + bytes - reserved + POOL_STEP - 1) / POOL_STEP * POOL_STEP;
}

static bool limited(unsigned device) {
  const ledger *l = account_ledger();
  return l->header != NULL && ledger_limit(l, device) != LEDGER_UNLIMITED;
}

/* Returns whether the pool may grow within the limit. The bytes stay reserved for the coming call,
 * so that no other thread or process gets them too. */
static bool pool_fits(unsigned device, cu_pool pool, uint64_t bytes, uint64_t *kept) {
  if (!limited(device)) return true;
  for (int turn = 0; turn < 2; turn++) {
    uint64_t more = growth(pool, bytes);
    if (more == 0) return true;
    if (room_pool_grows(device, more)) {
      *kept = more;
      return true;
    }
    /* Like the driver, which reclaims idle pages of its pools before it reports out of memory. */
    measure_trim_pools(device);
  }
  return false;
}

typedef struct pool_call {
  unsigned device;
  cu_context context;
  cu_device ordinal;
  cu_pool pool;
  bool known;
  bool captured;           /* it becomes a node of a graph */
  bool away;               /* the pool is another device's than the context */
  uint64_t reserved_bytes; /* reserve of the pool before the call, if there is a limit */
  uint64_t kept_bytes;     /* bytes of the limit reserved for the growth of the pool */
} pool_call;

/* Finds the pool for a request without one. */
static bool default_pool(pool_call *call) {
  const cuda_driver *driver = shim_driver();
  return driver->cuDeviceGetMemPool != NULL &&
         driver->cuDeviceGetMemPool(&call->pool, call->ordinal) == CU_OK && call->pool != NULL;
}

/* Prepares a call. Returns false if the limit is reached. */
static bool begin(pool_call *call, cu_pool pool, size_t bytes) {
  *call = (pool_call){.pool = pool};
  call->known = account_here(&call->device, &call->context, &call->ordinal);
  /* Querying a pool's figures would invalidate the capture (seen on an H200, driver 580). */
  call->captured = capture_on();
  if (!call->known || call->captured) return true;
  call->known = pool != NULL || default_pool(call);
  if (!call->known) return true;
  unsigned device = measure_pool_device(call->pool, call->device);
  call->known = device < LEDGER_DEVICES_MAX; /* otherwise it is on the host, which has no limit */
  if (!call->known) return true;
  call->away = device != call->device;
  call->device = device;
  spill_note_request();
  bool fits = pool_fits(call->device, call->pool, bytes, &call->kept_bytes);
  if (limited(call->device)) call->reserved_bytes = measure_pool_figure(call->pool, POOL_RESERVED);
  return fits;
}

/* Serves a request whose pool cannot grow from the heap or the host. It never refuses for a retry:
 * PyTorch does not retry with these pools. */
static cu_result elsewhere(const pool_call *call, cu_addr *addr, size_t bytes, cu_stream stream) {
  ASSERT(call->known);
  ledger_kind kind;
  /* Blocks of other processes and of other devices must be where they were requested. */
  bool fixed = call->away || measure_pool_shared(call->pool);
  bool host = !fixed && host_tier_budget(call->ordinal) > 0;
  cu_result code = CU_ERROR_OUT_OF_MEMORY;
  if (!fixed)
    code = plain_alloc(addr, bytes, host, &kind, call->device, call->ordinal, call->context);
  if (code == CU_OK)
    record_taken(*addr, bytes, stream, call->device, kind);
  else if (host) /* it belongs to no context, like memory from a pool */
    code = spill_plain(addr, bytes, call->device, call->ordinal, NULL);
  else {
    refusal_note(call->device, bytes);
    code = CU_ERROR_OUT_OF_MEMORY;
  }
  return code;
}

/* The forms of the driver's functions for a call: for the legacy default stream, or per thread. */
typedef struct pool_forms {
  __typeof__(&cuMemFreeAsync) free;
  cu_result (*wait)(cu_stream);
} pool_forms;

static pool_forms forms(bool per_thread) {
  return per_thread
             ? (pool_forms){REAL(cuMemFreeAsync_ptsz), shim_driver()->cuStreamSynchronize_ptsz}
             : (pool_forms){REAL(cuMemFreeAsync), shim_driver()->cuStreamSynchronize};
}

/* Frees the block again if the pool grew beyond the limit. Fragmentation may make a pool grow
 * although its figures show enough space. Returns true if it was freed. */
static bool undone(const pool_call *call, const pool_forms *f, cu_addr addr, cu_stream stream) {
  ASSERT(call->known);
  const ledger *l = account_ledger();
  uint64_t limit = l->header == NULL ? LEDGER_UNLIMITED : ledger_limit(l, call->device);
  ledger_totals totals;
  if (limit == LEDGER_UNLIMITED || f->free == NULL || f->wait == NULL) return false;
  ledger_sum(l, call->device, &totals);
  if (totals.vram_bytes <= limit ||
      measure_pool_figure(call->pool, POOL_RESERVED) <= call->reserved_bytes ||
      f->free(addr, stream) != CU_OK)
    return false;
  f->wait(stream);
  measure_trim_pools(call->device);
  return true;
}

/* Returns the result for the program, after the driver returned `code` (or was not called). */
static cu_result end(const pool_call *call, const pool_forms *f, cu_result code, cu_addr *addr,
                     size_t bytes, cu_stream stream) {
  if (!call->known) return code;
  if (!call->captured) {
    if (code == CU_OK || call->kept_bytes > 0)
      measure_pool_grown(call->device, call->pool, call->kept_bytes);
    if (code == CU_OK && undone(call, f, *addr, stream)) code = CU_ERROR_OUT_OF_MEMORY;
    if (code == CU_ERROR_OUT_OF_MEMORY) {
      code = elsewhere(call, addr, bytes, stream);
      if (code == CU_OK) spill_served();
      return code;
    }
  }
  if (code == CU_OK) {
    record_taken(*addr, bytes, stream, call->device, LEDGER_POOLS);
    spill_served();
  }
  return code;
}

static cu_result alloc(__typeof__(&cuMemAllocAsync) real, bool per_thread, cu_addr *addr,
                       size_t bytes, cu_stream stream) {
  pool_call call;
  pool_forms f = forms(per_thread);
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  if (addr == NULL) return real(addr, bytes, stream);
  bool fits = begin(&call, NULL, bytes);
  return end(&call, &f, fits ? real(addr, bytes, stream) : CU_ERROR_OUT_OF_MEMORY, addr, bytes,
             stream);
}

static cu_result alloc_from(__typeof__(&cuMemAllocFromPoolAsync) real, bool per_thread,
                            cu_addr *addr, size_t bytes, cu_pool pool, cu_stream stream) {
  pool_call call;
  pool_forms f = forms(per_thread);
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  if (addr == NULL) return real(addr, bytes, pool, stream);
  bool fits = begin(&call, pool, bytes);
  return end(&call, &f, fits ? real(addr, bytes, pool, stream) : CU_ERROR_OUT_OF_MEMORY, addr,
             bytes, stream);
}

/* Frees a block. Blocks of the pool itself are not in holdings.c; the others belong to the heap or
 * were spilled. */
static cu_result free_on(__typeof__(&cuMemFreeAsync) real, cu_addr addr, cu_stream stream) {
  holding gone;
  uint64_t bytes;
  unsigned from;
  ledger_kind kind;
  bool in_heap;
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  /* Waits for every stream, including this one. */
  if (plain_free(addr, &in_heap, &bytes, &from, &kind)) {
    record_given(addr, bytes, stream, from, kind);
    return CU_OK;
  }
  if (in_heap) return CU_ERROR_INVALID_VALUE;
  if (!holdings_remove(HOLDING_ADDRESS, addr, &gone)) {
    unsigned device = 0;
    cu_context context;
    cu_device ordinal;
    if (account_here(&device, &context, &ordinal))
      record_given(addr, 0, stream, device, LEDGER_POOLS);
    pool_block block = measure_block(addr);
    cu_result code = real(addr, stream);
    if (code == CU_OK && block.pool != NULL) measure_block_gone(&block);
    return code;
  }
  record_given(addr, gone.bytes, stream, gone.device, gone.kind);
  bool ours = gone.kind == LEDGER_SPILLED;
  cu_result code = ours ? spill_plain_free(addr, &gone) : real(addr, stream);
  if (code != CU_OK)
    holdings_add(HOLDING_ADDRESS, addr, &gone);
  else if (!ours)
    account_uncharge(gone.device, gone.kind, gone.bytes);
  return code;
}

cu_result cuMemAllocAsync(cu_addr *addr, size_t bytes, cu_stream stream) {
  return alloc(REAL(cuMemAllocAsync), false, addr, bytes, stream);
}

cu_result cuMemAllocAsync_ptsz(cu_addr *addr, size_t bytes, cu_stream stream) {
  return alloc(REAL(cuMemAllocAsync_ptsz), true, addr, bytes, stream);
}

cu_result cuMemAllocFromPoolAsync(cu_addr *addr, size_t bytes, cu_pool pool, cu_stream stream) {
  return alloc_from(REAL(cuMemAllocFromPoolAsync), false, addr, bytes, pool, stream);
}

cu_result cuMemAllocFromPoolAsync_ptsz(cu_addr *addr, size_t bytes, cu_pool pool,
                                       cu_stream stream) {
  return alloc_from(REAL(cuMemAllocFromPoolAsync_ptsz), true, addr, bytes, pool, stream);
}

cu_result cuMemFreeAsync(cu_addr addr, cu_stream stream) {
  return free_on(REAL(cuMemFreeAsync), addr, stream);
}

cu_result cuMemFreeAsync_ptsz(cu_addr addr, cu_stream stream) {
  return free_on(REAL(cuMemFreeAsync_ptsz), addr, stream);
}

cu_result cuMemPoolCreate(cu_pool *pool, const cu_pool_props *props) {
  __typeof__(&cuMemPoolCreate) real = REAL(cuMemPoolCreate);
  cu_result code = real == NULL ? CU_ERROR_NOT_SUPPORTED : real(pool, props);
  if (code == CU_OK)
    measure_note_pool(props->location.type == CU_LOCATION_DEVICE
                          ? account_device(props->location.id)
                          : LEDGER_DEVICES_MAX,
                      *pool, props->handle_types != 0);
  return code;
}

cu_result cuMemPoolTrimTo(cu_pool pool, size_t keep) {
  __typeof__(&cuMemPoolTrimTo) real = REAL(cuMemPoolTrimTo);
  unsigned device;
  cu_context context;
  cu_device ordinal;
  cu_result code = real == NULL ? CU_ERROR_NOT_SUPPORTED : real(pool, keep);
  if (code == CU_OK && !capture_on() && account_here(&device, &context, &ordinal))
    measure_pool(measure_pool_device(pool, device), pool);
  return code;
}

cu_result cuMemPoolDestroy(cu_pool pool) {
  __typeof__(&cuMemPoolDestroy) real = REAL(cuMemPoolDestroy);
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  uint64_t used = pool == NULL || capture_on() ? 0 : measure_pool_figure(pool, POOL_USED);
  cu_result code = real(pool);
  if (code == CU_OK) measure_pool_ended(pool, used);
  return code;
}
