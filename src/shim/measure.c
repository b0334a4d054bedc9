/* Measure: measures what the driver holds for this process without individual requests.
 *
 * Pools keep freed memory, and memory nodes of graphs are backed at launch, so their reserve is
 * queried from the driver. What the driver holds beyond everything counted (contexts, code, its own
 * buffers) is the difference to what NVML says this process holds. If that is unknown, it is the
 * difference to the used figure of the whole device: once a context has been measured, its share
 * may change only a little; larger changes come from programs outside the run, whose growth must
 * not reduce the run's limit. */
#include "shim/measure.h"

#include <string.h>

#include "base/assert.h"
#include "base/list.h"
#include "base/lock.h"
#include "shim/capture.h"
#include "shim/own_memory.h"

/* CUgraphMem_attribute */
enum { GRAPH_RESERVED = 2 };
/* CUpointer_attribute */
enum { POINTER_RANGE_SIZE = 12, POINTER_MEMPOOL = 17 };
/* A context: 0.3 to 0.7 GiB as measured, and code that is loaded after it was. */
#define CONTEXT_MOST   ((uint64_t)1 << 30)
#define CONTEXT_GROWTH ((uint64_t)256 << 20)

typedef struct pool_entry {
  void *pool;
  unsigned device;
  uint64_t reserved_bytes;
  bool shared;         /* it can be exported */
  bool ended;          /* destroyed, but it exists until its last block is freed */
  uint64_t used_bytes; /* for a destroyed pool */
} pool_entry;

static lock pools_lock = LOCK_INIT(LOCK_POOL); /* never held together with holdings_lock */
static pool_entry *pools;                      /* guarded by pools_lock, as the two below */
static size_t pool_count, pool_capacity;
static uint64_t growing_bytes[LEDGER_DEVICES_MAX]; /* guarded by pools_lock: announced */
static _Atomic size_t ended_count;                 /* destroyed pools that still exist */

/* For this process, by device: the number of its contexts, and what they used when measured (0: not
 * measured yet). */
static _Atomic unsigned context_count[LEDGER_DEVICES_MAX];
static _Atomic uint64_t context_first[LEDGER_DEVICES_MAX];

static void after_fork(void) {
  lock_init(&pools_lock, LOCK_POOL);
  pools = NULL; /* leaked in the child: another thread may have been changing it */
  pool_count = pool_capacity = 0;
  ended_count = 0;
  memset(growing_bytes, 0, sizeof growing_bytes);
  for (unsigned i = 0; i < LEDGER_DEVICES_MAX; i++) {
    atomic_store(&context_count[i], 0);
    atomic_store(&context_first[i], 0);
  }
}
SHIM_AFTER_FORK(after_fork);

uint64_t measure_pool_figure(void *pool, int which) {
  ASSERT(which == POOL_RESERVED || which == POOL_USED);
  uint64_t bytes = 0;
  const cuda_driver *driver = shim_driver();
  if (driver->cuMemPoolGetAttribute == NULL ||
      driver->cuMemPoolGetAttribute(pool, which, &bytes) != CU_OK)
    return 0;
  return bytes;
}

/* Publishes the last measurement plus the announced bytes in the ledger. Requires pools_lock, so
 * that no announcement is lost. */
static void publish(unsigned device) {
  ASSERT(lock_held(&pools_lock));
  uint64_t sum = device < LEDGER_DEVICES_MAX ? growing_bytes[device] : 0;
  for (size_t i = 0; i < pool_count; i++)
    if (pools[i].device == device) sum += pools[i].reserved_bytes;
  ledger *l = account_ledger();
  if (l->header != NULL) ledger_set(l, device, LEDGER_POOLS, sum);
}

void measure_pool_grown(unsigned device, void *pool, uint64_t announced_bytes) {
  ASSERT(pool != NULL);
  uint64_t bytes = measure_pool_figure(pool, POOL_RESERVED);
  bool changed = announced_bytes > 0;
  lock_acquire(&pools_lock);
  size_t i = 0;
  while (i < pool_count && pools[i].pool != pool) i++;
  if (i == pool_count && LIST_ROOM(pools, pool_count, pool_capacity, 16, "pools") == STOW_OK)
    pools[pool_count++] = (pool_entry){.pool = pool, .device = device};
  if (i < pool_count) {
    changed = changed || pools[i].reserved_bytes != bytes;
    pools[i].reserved_bytes = bytes;
  }
  if (device < LEDGER_DEVICES_MAX) growing_bytes[device] -= announced_bytes;
  if (changed) publish(i < pool_count ? pools[i].device : device);
  lock_release(&pools_lock);
  /* The announced bytes are in the ledger already, so publishing them did not raise the sum. */
  if (announced_bytes > 0) ledger_note_peak(account_ledger(), device);
}

void measure_pool(unsigned device, void *pool) {
  measure_pool_grown(device, pool, 0);
}

bool measure_pool_announce(unsigned device, uint64_t bytes) {
  ASSERT(device < LEDGER_DEVICES_MAX);
  lock_acquire(&pools_lock);
  bool fits = ledger_charge(account_ledger(), device, LEDGER_POOLS, bytes);
  if (fits) growing_bytes[device] += bytes;
  lock_release(&pools_lock);
  return fits;
}

static void forget(void *pool) {
  lock_acquire(&pools_lock);
  for (size_t i = 0; i < pool_count; i++)
    if (pools[i].pool == pool) {
      unsigned device = pools[i].device;
      ended_count -= pools[i].ended;
      pools[i] = pools[--pool_count];
      publish(device);
      break;
    }
  lock_release(&pools_lock);
}

void measure_note_pool(unsigned device, void *pool, bool shared) {
  forget(pool); /* an old one with this handle that ended unnoticed */
  measure_pool(device, pool);
  lock_acquire(&pools_lock);
  for (size_t i = 0; i < pool_count; i++)
    if (pools[i].pool == pool) pools[i].shared = shared;
  lock_release(&pools_lock);
}

unsigned measure_pool_device(void *pool, unsigned otherwise) {
  lock_acquire(&pools_lock);
  for (size_t i = 0; i < pool_count; i++)
    if (pools[i].pool == pool) otherwise = pools[i].device;
  lock_release(&pools_lock);
  return otherwise;
}

bool measure_pool_shared(void *pool) {
  bool shared = false;
  lock_acquire(&pools_lock);
  for (size_t i = 0; i < pool_count; i++)
    if (pools[i].pool == pool) shared = pools[i].shared;
  lock_release(&pools_lock);
  return shared;
}

uint64_t measure_fixed(unsigned device) {
  uint64_t sum = ledger_own(account_ledger(), device, LEDGER_GRAPHS);
  lock_acquire(&pools_lock);
  for (size_t i = 0; i < pool_count; i++)
    if (pools[i].device == device && pools[i].shared) sum += pools[i].reserved_bytes;
  lock_release(&pools_lock);
  return sum;
}

void measure_pool_ended(void *pool, uint64_t used_bytes) {
  if (used_bytes == 0) {
    forget(pool);
    return;
  }
  lock_acquire(&pools_lock);
  for (size_t i = 0; i < pool_count; i++)
    if (pools[i].pool == pool && !pools[i].ended) {
      pools[i].ended = true;
      pools[i].used_bytes = used_bytes;
      ended_count++;
    }
  lock_release(&pools_lock);
}

pool_block measure_block(cu_addr addr) {
  pool_block block = {0};
  size_t bytes = 0;
  const cuda_driver *driver = shim_driver();
  if (ended_count == 0 || driver->cuPointerGetAttribute == NULL ||
      driver->cuPointerGetAttribute(&block.pool, POINTER_MEMPOOL, addr) != CU_OK ||
      driver->cuPointerGetAttribute(&bytes, POINTER_RANGE_SIZE, addr) != CU_OK)
    return (pool_block){0};
  block.bytes = bytes;
  return block;
}

void measure_block_gone(const pool_block *block) {
  ASSERT(block->pool != NULL);
  bool gone = false;
  lock_acquire(&pools_lock);
  for (size_t i = 0; i < pool_count; i++) {
    pool_entry *p = &pools[i];
    if (p->pool != block->pool || !p->ended) continue;
    p->used_bytes -= block->bytes < p->used_bytes ? block->bytes : p->used_bytes;
    /* As seen on an H200 (driver 580): such a pool releases what it need not keep. */
    uint64_t least = (p->used_bytes + POOL_STEP - 1) / POOL_STEP * POOL_STEP;
    if (p->reserved_bytes > least) p->reserved_bytes = least;
    gone = p->used_bytes == 0;
    publish(p->device);
  }
  lock_release(&pools_lock);
  if (gone) forget(block->pool);
}

/* Returns one of the device's pools at position `*at` or after it, and advances `*at`; NULL at the
 * end. The list may change meanwhile: a pool that is then visited twice or not at all is measured
 * another time. */
static void *next_pool(unsigned device, size_t *at) {
  ASSERT(at != NULL);
  void *found = NULL;
  lock_acquire(&pools_lock);
  for (; found == NULL && *at < pool_count; (*at)++)
    if (pools[*at].device == device && !pools[*at].ended) found = pools[*at].pool;
  lock_release(&pools_lock);
  return found;
}

void measure_trim_pools(unsigned device) {
  const cuda_driver *driver = shim_driver();
  void *pool;
  for (size_t at = 0; (pool = next_pool(device, &at)) != NULL;) {
    if (driver->cuMemPoolTrimTo != NULL) driver->cuMemPoolTrimTo(pool, 0);
    measure_pool(device, pool);
  }
}

static void measure_graphs(unsigned device, cu_device ordinal, ledger *l) {
  ASSERT(l->header != NULL);
  uint64_t bytes = 0;
  const cuda_driver *driver = shim_driver();
  if (driver->cuDeviceGetGraphMemAttribute != NULL &&
      driver->cuDeviceGetGraphMemAttribute(ordinal, GRAPH_RESERVED, &bytes) == CU_OK)
    ledger_set(l, device, LEDGER_GRAPHS, bytes);
}

void measure_context_begins(unsigned device) {
  ledger *l = account_ledger();
  if (l->header == NULL || device >= LEDGER_DEVICES_MAX) return;
  atomic_store(&context_first[device], 0);
  ledger_set_begun(l, device, true);
}

void measure_context_made(unsigned device, bool made) {
  ledger *l = account_ledger();
  if (device >= LEDGER_DEVICES_MAX || l->header == NULL) return;
  if (made)
    atomic_fetch_add(&context_count[device], 1);
  else
    ledger_set_begun(l, device, false);
  measure_soon();
}

void measure_context_ended(unsigned device) {
  ledger *l = account_ledger();
  if (device >= LEDGER_DEVICES_MAX || l->header == NULL) return;
  atomic_store(&context_first[device], 0);
  if (context_count[device] > 0 && atomic_fetch_sub(&context_count[device], 1) > 1) {
    measure_soon(); /* for the share of the others */
    return;
  }
  ledger_set(l, device, LEDGER_CONTEXT, 0);
  ledger_set_begun(l, device, false); /* it may have ended before it was measured */
}

bool measure_primary_active(cu_device ordinal) {
  unsigned flags;
  int active = 0;
  const cuda_driver *driver = shim_driver();
  return driver->cuDevicePrimaryCtxGetState != NULL &&
         driver->cuDevicePrimaryCtxGetState(ordinal, &flags, &active) == CU_OK && active;
}

/* Returns what the contexts of this process use, as NVML says; OWN_UNKNOWN if that is unknown, or
 * no figure of a context: a request is charged before it is made, and a PID may be another
 * namespace's.
 */
static uint64_t known_share(unsigned device, const ledger *l) {
  ASSERT(device < LEDGER_DEVICES_MAX);
  uint64_t held = own_memory(l->header->uuids[device]), counted = 0;
  for (int kind = 0; kind < LEDGER_VRAM_KINDS; kind++)
    if (kind != LEDGER_CONTEXT) counted += ledger_own(l, device, (ledger_kind)kind);
  if (held == OWN_UNKNOWN || held <= counted || held - counted > CONTEXT_MOST) return OWN_UNKNOWN;
  return held - counted;
}

static void measure_context(unsigned device, ledger *l) {
  ASSERT(l->header != NULL);
  uint64_t others = device < LEDGER_DEVICES_MAX ? atomic_load(&l->header->others_bytes[device])
                                                : LEDGER_UNLIMITED;
  size_t left, total;
  const cuda_driver *driver = shim_driver();
  if (others == LEDGER_UNLIMITED || driver->cuMemGetInfo_v2 == NULL ||
      driver->cuMemGetInfo_v2(&left, &total) != CU_OK)
    return;
  uint64_t first = atomic_load(&context_first[device]);
  ledger_totals totals;
  ledger_reap(l);
  ledger_sum(l, device, &totals);
  /* Another process of the run is creating its context: it measures what appears now. */
  if (first != 0 && totals.begun > 0) return;
  uint64_t was = ledger_own(l, device, LEDGER_CONTEXT);
  uint64_t counted = totals.vram_bytes - was;
  uint64_t rest = total - left > counted ? total - left - counted : 0; /* ours and the others' */
  uint64_t share = known_share(device, l);
  uint64_t most = first != 0 ? first + CONTEXT_GROWTH : was + CONTEXT_MOST;
  bool known = share != OWN_UNKNOWN;
  if (!known) share = rest > others ? rest - others : 0;
  if (share < first) share = first;
  if (!known && share > most)
    share = first != 0 ? was : most; /* no code is that large: another program has started */
  ledger_set(l, device, LEDGER_CONTEXT, share);
  atomic_store(&l->header->others_bytes[device], rest > share ? rest - share : 0);
  if (first == 0) atomic_store(&context_first[device], share);
  ledger_set_begun(l, device, false);
}

void measure_device(unsigned device, cu_device ordinal) {
  ledger *l = account_ledger();
  /* A call that the driver considers unsafe during a capture would invalidate the capture. */
  if (l->header == NULL || capture_on()) return;
  void *pool;
  for (size_t at = 0; (pool = next_pool(device, &at)) != NULL;) measure_pool(device, pool);
  measure_graphs(device, ordinal, l);
  measure_context(device, l);
}

/* ---- when ---- */

/* Bytes allocated between two measurements of the driver's own share, which grows as code is
 * loaded. */
#define MEASURE_EVERY ((uint64_t)256 << 20)
static _Atomic uint64_t unmeasured_bytes = MEASURE_EVERY;

bool measure_here(unsigned device) {
  unsigned here;
  cu_context context;
  cu_device ordinal;
  if (!account_here(&here, &context, &ordinal) || here != device) return false;
  atomic_store(&unmeasured_bytes, 0);
  measure_device(device, ordinal);
  return true;
}

void measure_look(unsigned device, uint64_t bytes) {
  const ledger *l = account_ledger();
  if (l->header != NULL && ledger_limit(l, device) != LEDGER_UNLIMITED &&
      atomic_fetch_add(&unmeasured_bytes, bytes) >= MEASURE_EVERY)
    measure_here(device);
}

void measure_soon(void) {
  atomic_store(&unmeasured_bytes, MEASURE_EVERY);
}

bool measure_take(unsigned device, ledger_kind kind, uint64_t bytes) {
  ASSERT((unsigned)kind < LEDGER_KIND_COUNT);
  ledger *l = account_ledger();
  if (l->header == NULL) return true;
  measure_look(device, bytes);
  return ledger_charge(l, device, kind, bytes) ||
         (measure_here(device) && ledger_charge(l, device, kind, bytes));
}
