/* Plain: the heaps, and freed memory that waits before it returns to them. See plain.h. */
#include "shim/plain.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/heap.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/lock.h"
#include "base/rank.h"
#include "base/variables.h"
#include "memory/heap.h"
#include "shim/capture.h"
#include "shim/counted.h"
#include "shim/heap_device.h"
#include "shim/host_tier.h"
#include "shim/measure.h"
#include "shim/page_room.h"
#include "shim/retrying.h"

/* Batches of frees that may wait at the same time; further frees wait for a batch to pass. */
#define BATCHES_MAX 8
/* With --fast-malloc a batch is closed after this many frees or bytes (at most a part of the
 * device): an event and its query cost about as much as thirty pairs. */
#define BATCH_COUNT     64
#define BATCH_BYTES     ((uint64_t)512 << 20)
#define BATCH_OF_DEVICE 32
/* What a heap keeps idle: a part of the device with --fast-malloc, otherwise no more than this. */
#define KEEP_OF_DEVICE 4
#define KEEP_BYTES     ((uint64_t)256 << 20)
#define HOST_BYTES_MAX ((uint64_t)1 << 40)

typedef struct freed {
  cu_addr addr;
  uint64_t bytes; /* as the heap counts */
} freed;

typedef struct batch {
  freed *list;
  uint32_t count, capacity;
  uint64_t bytes;
  cu_event event;
  bool passed; /* seen without an event */
} batch;

typedef struct plain {
  unsigned device;
  cu_device ordinal;
  cu_context context;
  stow_device *under;
  stow_heap *heap;
  uint64_t batch_bytes, keep_bytes;
  uint32_t batch_count;
  lock lock;                  /* guards the rest */
  map live;                   /* address to (requested bytes << 1 | on the host) */
  batch batches[BATCHES_MAX]; /* a ring: the closed ones from `first`, then the open one */
  uint32_t first, closed;
  uint64_t out_bytes;  /* allocated from the heap and not returned, including waiting frees */
  uint64_t idle_floor; /* what the last trim could not release */
  struct plain *next;  /* next retired heap */
} plain;

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static plain *_Atomic heaps[LEDGER_DEVICES_MAX]; /* by device */
static _Atomic bool refused[LEDGER_DEVICES_MAX]; /* this device can have none */
static _Atomic bool passing;

/* ---- whether ---- */

static bool fast(void) {
  enum { UNKNOWN, OFF, ON };
  static _Atomic int said;
  int now = atomic_load_explicit(&said, memory_order_relaxed);
  if (now == UNKNOWN) {
    const char *text = secure_getenv(ENV_FAST_MALLOC);
    now = text != NULL && text[0] == '1' ? ON : OFF;
    atomic_store(&said, now);
    if (rank_of_many()) plain_pass("several processes of one job");
  }
  return now == ON;
}

void plain_pass(const char *why) {
  if (!atomic_exchange(&passing, true)) shim_log("plain requests go to the driver: %s", why);
}

bool plain_serves(unsigned device) {
  bool all = fast();
  if (atomic_load_explicit(&passing, memory_order_relaxed)) return false;
  if (all) return true;
  const ledger *l = account_ledger();
  return l->header != NULL &&
         (ledger_limit(l, device) != LEDGER_UNLIMITED || ledger_spill_limit(l) > 0) &&
         !retrying_known();
}

/* ---- opening and ending ---- */

/* Returns whether it is the primary context. Checks carefully, because retaining an unused primary
 * context would create it. */
static bool is_primary(cu_context context, cu_device ordinal) {
  if (!measure_primary_active(ordinal)) return false;
  const cuda_driver *driver = shim_driver();
  cu_context primary = NULL;
  if (driver->cuDevicePrimaryCtxRetain == NULL || driver->cuDevicePrimaryCtxRelease_v2 == NULL ||
      driver->cuDevicePrimaryCtxRetain(&primary, ordinal) != CU_OK)
    return false;
  driver->cuDevicePrimaryCtxRelease_v2(ordinal);
  return primary == context;
}

/* Destroys a heap that could not be created completely. */
static void destroy(plain *p) {
  const cuda_driver *driver = shim_driver();
  if (p->heap != NULL) stow_heap_close(p->heap);
  if (p->under != NULL) stow_device_close(p->under);
  for (int i = 0; i < BATCHES_MAX; i++)
    if (p->batches[i].event != NULL) driver->cuEventDestroy_v2(p->batches[i].event);
  free(p);
}

static void choose_sizes(plain *p) {
  ASSERT(p->under != NULL);
  stow_device_props props = STOW_DEVICE_PROPS_INIT;
  uint64_t most = ledger_limit(account_ledger(), p->device);
  if (stow_device_get_props(p->under, &props) == STOW_OK && props.vram_bytes < most)
    most = props.vram_bytes;
  p->batch_count = 1;
  p->keep_bytes = KEEP_BYTES;
  if (!fast()) return;
  p->batch_count = BATCH_COUNT;
  p->batch_bytes = most / BATCH_OF_DEVICE < BATCH_BYTES ? most / BATCH_OF_DEVICE : BATCH_BYTES;
  p->keep_bytes = most / KEEP_OF_DEVICE;
}

/* Creates a heap for the calling thread's context, which is the device's primary one. */
static plain *make(unsigned device, cu_device ordinal, cu_context context) {
  const cuda_driver *driver = shim_driver();
  plain *p = calloc(1, sizeof *p);
  if (p == NULL || driver->cuEventCreate == NULL) {
    free(p);
    return NULL;
  }
  lock_init(&p->lock, LOCK_REGISTRY);
  p->device = device;
  p->ordinal = ordinal;
  p->context = context;
  stow_heap_options options = STOW_HEAP_OPTIONS_INIT;
  options.background = false;
  uint64_t host = ledger_spill_limit(account_ledger());
  bool made = heap_device_open(&p->under, ordinal, device) == STOW_OK;
  options.device = p->under;
  /* The ledger enforces the budget; a block that exceeds vram has a part there. */
  stow_device_props props = STOW_DEVICE_PROPS_INIT;
  if (host > 0 && made && stow_device_get_props(p->under, &props) == STOW_OK)
    host = host < HOST_BYTES_MAX ? host + props.vram_bytes : HOST_BYTES_MAX;
  options.host_limit_bytes = host < HOST_BYTES_MAX ? host : HOST_BYTES_MAX;
  made = made && stow_heap_open(&p->heap, &options) == STOW_OK;
  for (int i = 0; i < BATCHES_MAX && made; i++)
    made = driver->cuEventCreate(&p->batches[i].event, CU_EVENT_NO_TIMING) == CU_OK;
  if (made) {
    choose_sizes(p);
    return p;
  }
  shim_log("no heap for plain requests: %s", stow_status_message());
  destroy(p);
  return NULL;
}

/* Returns the heap of a context; NULL if it cannot have one. */
static plain *heap_of(unsigned device, cu_device ordinal, cu_context context) {
  if ((unsigned)ordinal >= LEDGER_DEVICES_MAX || atomic_load(&refused[ordinal])) return NULL;
  plain *p = atomic_load_explicit(&heaps[ordinal], memory_order_acquire);
  if (p != NULL) return p->context == context ? p : NULL;
  if (!is_primary(context, ordinal)) return NULL;
  pthread_mutex_lock(&open_lock);
  p = atomic_load(&heaps[ordinal]);
  if (p == NULL) {
    p = make(device, ordinal, context);
    atomic_store_explicit(&heaps[ordinal], p, memory_order_release);
    if (p == NULL) atomic_store(&refused[ordinal], true);
  }
  pthread_mutex_unlock(&open_lock);
  return p != NULL && p->context == context ? p : NULL;
}

/* Its context and events have ended. It and its device are not freed: a thread that works on
 * another device may be searching all heaps for the owner of an address. */
static void retire(plain *p) {
  ASSERT(!lock_held(&p->lock));
  static plain *_Atomic retired;
  lock_acquire(&p->lock);
  stow_heap *ended = p->heap;
  p->heap = NULL;
  map_free(&p->live);
  for (int i = 0; i < BATCHES_MAX; i++) free(p->batches[i].list);
  memset(p->batches, 0, sizeof p->batches);
  p->closed = 0;
  lock_release(&p->lock);
  stow_heap_close(ended);
  p->next = atomic_load(&retired);
  while (!atomic_compare_exchange_weak(&retired, &p->next, p)) {
  }
}

void plain_end(cu_device ordinal) {
  if ((unsigned)ordinal >= LEDGER_DEVICES_MAX) return;
  plain *p = atomic_exchange(&heaps[ordinal], NULL);
  if (p != NULL) retire(p);
}

static void after_fork(void) {
  pthread_mutex_init(&open_lock, NULL);
  /* A child does not inherit the driver; the memory of the parent's heap belongs to the parent. */
  for (int i = 0; i < LEDGER_DEVICES_MAX; i++) atomic_store(&heaps[i], NULL);
}
SHIM_AFTER_FORK(after_fork);

/* ---- waiting; p->lock held ---- */

/* Waits until all work submitted to the context so far is done. */
static cu_result wait_for_context(const plain *p) {
  ASSERT(p->context != NULL);
  cu_context old;
  cu_result code = shim_driver()->cuCtxPushCurrent_v2(p->context);
  if (code != CU_OK) return code;
  code = shim_driver()->cuCtxSynchronize();
  shim_driver()->cuCtxPopCurrent_v2(&old);
  return code;
}

/* Closes the open batch: from here on it is known when it has passed. */
static void close_batch(plain *p) {
  ASSERT(lock_held(&p->lock));
  ASSERT(p->closed < BATCHES_MAX);
  batch *open = &p->batches[(p->first + p->closed) % BATCHES_MAX];
  /* While a graph is captured, no call may query events: the batches wait. */
  if (open->count == 0 || p->closed == BATCHES_MAX - 1 || capture_on()) return;
  const cuda_driver *driver = shim_driver();
  open->passed = false;
  if (driver->cuCtxRecordEvent == NULL ||
      driver->cuCtxRecordEvent(p->context, open->event) != CU_OK) {
    /* A driver older than CUDA 12.5: no event covers unknown streams. */
    if (wait_for_context(p) != CU_OK) return;
    open->passed = true;
  }
  p->closed++;
}

static bool has_passed(const batch *b, bool wait) {
  if (b->passed) return true;
  if (shim_driver()->cuEventQuery(b->event) == CU_OK) return true;
  return wait && shim_driver()->cuEventSynchronize(b->event) == CU_OK;
}

/* Returns the batches that have passed to the heap. Returns whether there were any. */
static bool poll_batches(plain *p, bool wait) {
  ASSERT(lock_held(&p->lock));
  bool any = false;
  while (p->closed > 0 && !capture_on()) {
    batch *b = &p->batches[p->first];
    if (!has_passed(b, wait)) break;
    for (uint32_t i = 0; i < b->count; i++) {
      if (stow_heap_free(p->heap, b->list[i].addr, NULL) != STOW_OK)
        shim_log("plain: %s", stow_status_message());
      p->out_bytes -= b->list[i].bytes;
    }
    b->count = 0;
    b->bytes = 0;
    p->first = (p->first + 1) % BATCHES_MAX;
    p->closed--;
    any = true;
  }
  return any;
}

static bool settle(plain *p) {
  lock_acquire(&p->lock);
  close_batch(p);
  bool any = poll_batches(p, true);
  lock_release(&p->lock);
  return any;
}

static bool push(batch *b, cu_addr addr, uint64_t bytes) {
  ASSERT(addr != 0 && bytes > 0);
  if (b->count == b->capacity) {
    uint32_t capacity = b->capacity == 0 ? BATCH_COUNT : b->capacity * 2;
    freed *grown = realloc(b->list, capacity * sizeof *grown);
    if (grown == NULL) return false;
    b->list = grown;
    b->capacity = capacity;
  }
  b->list[b->count++] = (freed){addr, bytes};
  b->bytes += bytes;
  return true;
}

/* ---- taking ---- */

static void trim_to(plain *p, uint64_t keep, bool host) {
  ASSERT(!lock_held(&p->lock));
  uint64_t went = 0;
  heap_trim_tier(p->heap, STOW_TIER_VRAM, keep, &went);
  if (host || heap_device_lent(p->under)) heap_trim_tier(p->heap, STOW_TIER_HOST, keep, &went);
  lock_acquire(&p->lock);
  uint64_t held =
      heap_device_held(p->under, STOW_TIER_VRAM) + heap_device_held(p->under, STOW_TIER_HOST);
  p->idle_floor = held > p->out_bytes ? held - p->out_bytes : 0;
  lock_release(&p->lock);
}

static uint64_t heap_bytes(uint64_t bytes) {
  return (bytes + STOW_HEAP_UNIT - 1) / STOW_HEAP_UNIT * STOW_HEAP_UNIT;
}

/* Reserves the pages that a request needs at least; returns false if the limit does not allow them.
 * Otherwise two processes could each take some of the last pages, and both would be refused. */
static bool reserve(plain *p, uint64_t bytes) {
  ASSERT(!lock_held(&p->lock));
  uint64_t held = heap_device_held(p->under, STOW_TIER_VRAM);
  lock_acquire(&p->lock);
  uint64_t idle = held > p->out_bytes ? held - p->out_bytes : 0;
  lock_release(&p->lock);
  if (bytes <= idle || ledger_limit(account_ledger(), p->device) == LEDGER_UNLIMITED) return true;
  uint64_t more = (bytes - idle + SHIM_GRANULE - 1) / SHIM_GRANULE * SHIM_GRANULE;
  ledger *l = account_ledger();
  if (!page_take(p->device, LEDGER_PLAIN, more) &&
      !(plain_trim(p->device, false) && ledger_charge(l, p->device, LEDGER_PLAIN, more)))
    return false;
  counted_reserve(&(counted){p->device, LEDGER_PLAIN}, more);
  return true;
}

/* Reserves the host pages that a request needs at least if it may be in both tiers. */
static bool reserve_both(plain *p, uint64_t bytes) {
  ledger *l = account_ledger();
  uint64_t held =
      heap_device_held(p->under, STOW_TIER_VRAM) + heap_device_held(p->under, STOW_TIER_HOST);
  lock_acquire(&p->lock);
  uint64_t idle = held > p->out_bytes ? held - p->out_bytes : 0;
  lock_release(&p->lock);
  uint64_t there = idle + heap_device_room(p->under);
  if (bytes <= there) return true;
  uint64_t more = (bytes - there + SHIM_GRANULE - 1) / SHIM_GRANULE * SHIM_GRANULE;
  if (!host_tier_has(more) || !ledger_charge(l, p->device, LEDGER_SPILLED, more)) return false;
  counted_reserve(&(counted){p->device, LEDGER_SPILLED}, more);
  return true;
}

static stow_status alloc_from_heap(plain *p, cu_addr *addr, size_t bytes, bool host) {
  ASSERT(!lock_held(&p->lock));
  uint64_t got = 0;
  if (!(host ? reserve_both(p, bytes) : reserve(p, bytes))) return STOW_ERR_OUT_OF_MEMORY;
  heap_device_use_host(host);
  stow_status status = stow_heap_alloc(&got, p->heap, bytes, NULL);
  heap_device_use_host(false);
  counted_unreserve();
  *addr = got;
  return status;
}

/* Tries vram, then vram after all waiting frees have passed, then the host. */
static stow_status take(plain *p, cu_addr *addr, size_t bytes, bool host, bool *on_host) {
  *on_host = false;
  stow_status status = alloc_from_heap(p, addr, bytes, false);
  if (status == STOW_ERR_OUT_OF_MEMORY && settle(p))
    status = alloc_from_heap(p, addr, bytes, false);
  if (status != STOW_ERR_OUT_OF_MEMORY || !host) return status;
  *on_host = true;
  return alloc_from_heap(p, addr, bytes, true);
}

cu_result plain_alloc(cu_addr *addr, size_t bytes, bool host, ledger_kind *kind, unsigned device,
                      cu_device ordinal, cu_context context) {
  ASSERT(addr != NULL && kind != NULL);
  plain *p = heap_of(device, ordinal, context);
  if (p == NULL || bytes > UINT64_MAX / 4) return CU_ERROR_NOT_SUPPORTED;
  lock_acquire(&p->lock);
  if (p->closed > 0) poll_batches(p, false);
  lock_release(&p->lock);
  bool on_host;
  stow_status status = take(p, addr, bytes, host, &on_host);
  if (status == STOW_ERR_OUT_OF_MEMORY) {
    if (!capture_on()) trim_to(p, 0, false);
    return CU_ERROR_OUT_OF_MEMORY;
  }
  /* The driver reports every other error itself. */
  if (status != STOW_OK) return CU_ERROR_NOT_SUPPORTED;
  lock_acquire(&p->lock);
  bool noted = map_put(&p->live, *addr, (uint64_t)bytes << 1 | on_host) == STOW_OK;
  if (noted) p->out_bytes += heap_bytes(bytes);
  lock_release(&p->lock);
  if (!noted) {
    stow_heap_free(p->heap, *addr, NULL);
    return CU_ERROR_NOT_SUPPORTED;
  }
  *kind = on_host ? LEDGER_SPILLED : LEDGER_PLAIN;
  return CU_OK;
}

/* ---- giving ---- */

static plain *owner_of(cu_addr addr) {
  for (int i = 0; i < LEDGER_DEVICES_MAX; i++) {
    plain *p = atomic_load_explicit(&heaps[i], memory_order_acquire);
    if (p != NULL && heap_device_owns(p->under, addr)) return p;
  }
  return NULL;
}

/* Returns the idle bytes if they are more than the heap may keep; otherwise 0. p->lock held. */
static uint64_t too_idle(plain *p) {
  ASSERT(lock_held(&p->lock));
  uint64_t held =
      heap_device_held(p->under, STOW_TIER_VRAM) + heap_device_held(p->under, STOW_TIER_HOST);
  uint64_t idle = held > p->out_bytes ? held - p->out_bytes : 0;
  return idle > p->keep_bytes && idle > p->idle_floor + p->keep_bytes / 2 ? idle : 0;
}

bool plain_free(cu_addr addr, bool *ours, uint64_t *bytes, unsigned *device, ledger_kind *kind) {
  ASSERT(ours != NULL && bytes != NULL && device != NULL && kind != NULL);
  plain *p = owner_of(addr);
  uint64_t value;
  *ours = p != NULL;
  if (p == NULL) return false;
  lock_acquire(&p->lock);
  bool live = map_remove(&p->live, addr, &value);
  bool trim = false;
  if (live) {
    batch *open = &p->batches[(p->first + p->closed) % BATCHES_MAX];
    if (!push(open, addr, heap_bytes(value >> 1))) shim_log("no host memory: a block is lost");
    if (open->count >= p->batch_count || open->bytes > p->batch_bytes) {
      close_batch(p);
      poll_batches(p, false);
      trim = too_idle(p) != 0 && !capture_on();
    }
  }
  lock_release(&p->lock);
  if (!live) return false;
  *bytes = value >> 1;
  *device = p->device;
  *kind = value & 1 ? LEDGER_SPILLED : LEDGER_PLAIN;
  if (trim) trim_to(p, p->keep_bytes / 2, true);
  return true;
}

bool plain_trim(unsigned device, bool host) {
  if (heap_device_inside() || capture_on()) return false;
  bool went = false;
  for (int i = 0; i < LEDGER_DEVICES_MAX; i++) {
    plain *p = atomic_load_explicit(&heaps[i], memory_order_acquire);
    if (p == NULL || p->device != device) continue;
    uint64_t before =
        heap_device_held(p->under, STOW_TIER_VRAM) + heap_device_held(p->under, STOW_TIER_HOST);
    settle(p);
    trim_to(p, 0, host);
    uint64_t after =
        heap_device_held(p->under, STOW_TIER_VRAM) + heap_device_held(p->under, STOW_TIER_HOST);
    went = went || after < before;
  }
  return went;
}

/* ---- finding ---- */

bool plain_find(cu_addr addr, plain_block *block) {
  ASSERT(block != NULL);
  plain *p = owner_of(addr);
  if (p == NULL) return false;
  bool found = false;
  size_t at = 0;
  uint64_t base, value;
  lock_acquire(&p->lock);
  /* Usually it is the start of a block. */
  const uint64_t *exact = map_get(&p->live, addr);
  if (exact != NULL) {
    base = addr;
    value = *exact;
    found = true;
  }
  while (!found && map_next(&p->live, &at, &base, &value))
    found = addr >= base && addr - base < value >> 1;
  if (found) *block = (plain_block){base, value >> 1, p->context, p->ordinal};
  lock_release(&p->lock);
  return found;
}
