/* Pinned: slabs of registered memory, and host pages. See pinned.h. */
#include "shim/pinned.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/list.h"
#include "base/lock.h"
#include "shim/host_tier.h"
#include "shim/resident.h"
#include "shim/shim.h"

#define SLAB_BYTES     ((uint64_t)256 << 20)
#define SLAB_BYTES_MAX ((uint64_t)1 << 30)
#define HUGE_BYTES     ((uint64_t)2 << 20)
#define EVERY_DEVICE   UINT_MAX
enum { THREADS_MAX = 16, PORTABLE = 1 /* CU_MEMHOSTREGISTER_PORTABLE: for every context */ };

static lock slab_lock = LOCK_INIT(LOCK_REGISTRY); /* guards all below */
typedef struct slab {
  uint64_t from, bytes, taken;
  unsigned device; /* the only one that reaches it; EVERY_DEVICE */
} slab;
static slab *slabs; /* by address */
static size_t slab_count, slab_capacity;
static uint64_t page_bytes;               /* of slabs that count as spilled: host pages */
static uint64_t made_bytes, wanted_bytes; /* of other slabs */
static bool preparing;                    /* a thread makes slabs ahead */
static _Atomic bool stopped;

typedef struct part {
  volatile char *from;
  uint64_t bytes, page_bytes;
} part;

static void *touch(void *argument) {
  const part *p = argument;
  for (uint64_t at = 0; at < p->bytes; at += p->page_bytes) p->from[at] = 0;
  return NULL;
}

/* Writes to every page, so that the kernel provides all of them, on as many threads as there are
 * processors for; ahead of time, half of them. */
static void touch_all(char *from, uint64_t bytes, bool ahead) {
  ASSERT(bytes % HUGE_BYTES == 0);
  int count = ahead ? (cpu_count() + 1) / 2 : cpu_count();
  if (count > THREADS_MAX) count = THREADS_MAX;
  if ((uint64_t)count > bytes / HUGE_BYTES) count = (int)(bytes / HUGE_BYTES);
  uint64_t each = (bytes / HUGE_BYTES + (uint64_t)count - 1) / (uint64_t)count * HUGE_BYTES;
  pthread_t threads[THREADS_MAX];
  part parts[THREADS_MAX];
  bool started[THREADS_MAX] = {false};
  sigset_t every, before;
  sigfillset(&every);
  pthread_sigmask(SIG_BLOCK, &every, &before);
  for (int i = 0; i < count; i++) {
    uint64_t at = (uint64_t)i * each, end = at + each < bytes ? at + each : bytes;
    if (at >= end) break;
    parts[i] = (part){from + at, end - at, (uint64_t)sysconf(_SC_PAGESIZE)};
    started[i] = i > 0 && pthread_create(&threads[i], NULL, touch, &parts[i]) == 0;
    if (i > 0 && !started[i]) touch(&parts[i]);
  }
  touch(&parts[0]);
  for (int i = 0; i < count; i++)
    if (started[i]) pthread_join(threads[i], NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static char *make(uint64_t bytes, bool ahead) {
  ASSERT(bytes > 0 && bytes % HUGE_BYTES == 0);
  const cuda_driver *driver = shim_driver();
  if (driver->cuMemHostRegister_v2 == NULL) return NULL;
  char *wide =
      mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (wide == MAP_FAILED) return NULL;
  uint64_t before = round_up((uintptr_t)wide, HUGE_BYTES) - (uintptr_t)wide;
  char *made = wide + before;
  if (before > 0) munmap(wide, before);
  munmap(made + bytes, HUGE_BYTES - before);
  madvise(made, bytes, MADV_HUGEPAGE);
  madvise(made, bytes, MADV_DONTFORK); /* a child's copy would move the parent to other pages */
  touch_all(made, bytes, ahead);
  if (driver->cuMemHostRegister_v2(made, bytes, PORTABLE) == CU_OK) return made;
  munmap(made, bytes);
  return NULL;
}

/* Returns how large the next slab is: a quarter of what there is, because the device may have to
 * become idle for each. */
static uint64_t slab_next(void) {
  uint64_t bytes = (made_bytes + page_bytes) / 4 / HUGE_BYTES * HUGE_BYTES;
  return bytes < SLAB_BYTES ? SLAB_BYTES : bytes < SLAB_BYTES_MAX ? bytes : SLAB_BYTES_MAX;
}

/* Returns the index of the first slab after an address. */
static size_t slab_after(uint64_t addr) {
  size_t low = 0, high = slab_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (slabs[middle].from <= addr)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Lists a slab; `counted` is the sum that it belongs to. Returns false if there is no memory for
 * that: the slab stays where it is, as there is none left for anything. Takes the lock. */
static bool list(uint64_t from, uint64_t bytes, unsigned device, uint64_t *counted) {
  lock_acquire(&slab_lock);
  bool listed = LIST_ROOM(slabs, slab_count, slab_capacity, 64, "slabs") == STOW_OK;
  if (listed) {
    size_t at = slab_after(from);
    memmove(slabs + at + 1, slabs + at, (slab_count++ - at) * sizeof *slabs);
    slabs[at] = (slab){.from = from, .bytes = bytes, .device = device};
    *counted += bytes;
  }
  lock_release(&slab_lock);
  return listed;
}

/* Makes a slab. Returns false if there is no memory for it. */
static bool add(uint64_t bytes, bool ahead) {
  ASSERT(bytes > 0);
  if (!host_tier_has(bytes)) return false;
  char *made = make(bytes, ahead);
  if (made == NULL) return false;
  ledger_count_copies(account_ledger(), bytes);
  return list((uintptr_t)made, bytes, EVERY_DEVICE, &made_bytes);
}

/* ---- ahead ---- */

static pthread_t preparer;
static bool started; /* and not joined since */
static cu_context context;

static void *prepare(void *unused) {
  (void)unused;
  if (shim_driver()->cuCtxPushCurrent_v2(context) != CU_OK) atomic_store(&stopped, true);
  uint64_t bytes = 0, since = clock_ns();
  for (bool more = true; more;) {
    lock_acquire(&slab_lock);
    more = made_bytes + SLAB_BYTES <= wanted_bytes && !atomic_load(&stopped);
    preparing = more;
    uint64_t next = slab_next();
    if (more && next > wanted_bytes - made_bytes) next = SLAB_BYTES;
    lock_release(&slab_lock);
    if (more && !add(next, true)) atomic_store(&stopped, true);
    if (more) bytes += next;
  }
  shim_log("pinned: %llu MiB made ahead in %llu ms", (unsigned long long)(bytes >> 20),
           (unsigned long long)((clock_ns() - since) / 1000000));
  return NULL;
}

/* Ends the thread before the driver ends. */
static void stop_preparing(void) {
  atomic_store(&stopped, true);
  if (started) pthread_join(preparer, NULL);
  started = false;
}

void pinned_prepare(unsigned device, uint64_t bytes) {
  static bool registered;
  uint64_t idle = resident_idle_hosts(device);
  lock_acquire(&slab_lock);
  uint64_t pages = page_bytes + idle;
  if (bytes > pages && bytes - pages > wanted_bytes) wanted_bytes = bytes - pages;
  bool start = !preparing && made_bytes + SLAB_BYTES <= wanted_bytes && !atomic_load(&stopped) &&
               shim_driver()->cuCtxGetCurrent(&context) == CU_OK;
  preparing |= start;
  lock_release(&slab_lock);
  if (!start) return;
  if (started) pthread_join(preparer, NULL); /* it has ended, or is about to */
  sigset_t every, before;
  sigfillset(&every);
  pthread_sigmask(SIG_BLOCK, &every, &before);
  started = pthread_create(&preparer, NULL, prepare, NULL) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!registered) registered = atexit(stop_preparing) == 0;
}

/* Takes memory from the slab with the least space that has enough. Returns its address; 0: there is
 * none. Takes the lock. */
static uint64_t take(unsigned device, uint64_t bytes) {
  slab *best = NULL;
  lock_acquire(&slab_lock);
  for (size_t i = 0; i < slab_count; i++) {
    slab *s = &slabs[i];
    uint64_t space = s->bytes - s->taken;
    if (s->device != device && s->device != EVERY_DEVICE) continue;
    if (space >= bytes && (best == NULL || space < best->bytes - best->taken)) best = s;
  }
  uint64_t taken = best != NULL ? best->from + best->taken : 0;
  if (best != NULL) best->taken += bytes;
  lock_release(&slab_lock);
  return taken;
}

uint64_t pinned_take(unsigned device, uint64_t *bytes, uint64_t most_bytes) {
  ASSERT(*bytes > 0);
  const uint64_t unit = (uint64_t)sysconf(_SC_PAGESIZE);
  if (*bytes > UINT64_MAX / 2) return 0;
  *bytes = round_up(*bytes, unit);
  uint64_t taken = take(device, *bytes), lent = 0;
  if (taken != 0) return taken;
  uint64_t idle = resident_take_host(device, &lent);
  if (idle != 0 && list(idle, lent, device, &page_bytes)) {
    if (*bytes > lent) *bytes = lent;
    return take(device, *bytes);
  }
  lock_acquire(&slab_lock);
  uint64_t want = slab_next(), most = most_bytes > made_bytes ? most_bytes - made_bytes : 0;
  lock_release(&slab_lock);
  if (want > most) want = most;
  if (*bytes > most) return 0;
  if (add(round_up(want < *bytes ? *bytes : want, HUGE_BYTES), false)) return take(device, *bytes);
  /* Slower, for a driver that registers nothing. */
  cu_addr addr;
  void *host;
  if (host_tier_pinned_alloc(&addr, &host, *bytes, device) != CU_OK) return 0;
  return list(addr, *bytes, device, &page_bytes) ? take(device, *bytes) : 0;
}

bool pinned_holds(uint64_t addr) {
  lock_acquire(&slab_lock);
  size_t after = slab_after(addr);
  bool found = after > 0 && addr - slabs[after - 1].from < slabs[after - 1].bytes;
  lock_release(&slab_lock);
  return found;
}

static void after_fork(void) {
  lock_init(&slab_lock, LOCK_REGISTRY);
  slab_count = slab_capacity = 0;
  started = preparing = false;
  atomic_store(&stopped, true); /* the driver does not work in a child */
  slabs = NULL;                 /* leaked in the child: another thread may have been changing it */
}
SHIM_AFTER_FORK(after_fork);
