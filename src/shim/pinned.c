/* Pinned: slabs of registered memory. See pinned.h. */
#include "shim/pinned.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/cpu.h"
#include "base/list.h"
#include "base/lock.h"
#include "shim/host_tier.h"
#include "shim/shim.h"

#define SLAB_BYTES ((uint64_t)256 << 20)
#define HUGE_BYTES ((uint64_t)2 << 20)
enum { THREADS_MAX = 16, PORTABLE = 1 /* CU_MEMHOSTREGISTER_PORTABLE: for every context */ };

static lock slab_lock = LOCK_INIT(LOCK_REGISTRY); /* guards all below */
static char *slab;
static uint64_t slab_left;
typedef struct slab_range {
  uint64_t addr, bytes;
} slab_range;
static slab_range *slabs;
static size_t slab_count, slab_capacity;

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
 * processors for. */
static void touch_all(char *from, uint64_t bytes) {
  ASSERT(bytes % HUGE_BYTES == 0);
  int count = cpu_count();
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

static char *make(uint64_t bytes) {
  ASSERT(bytes > 0 && bytes % HUGE_BYTES == 0);
  const cuda_driver *driver = shim_driver();
  if (driver->cuMemHostRegister_v2 == NULL || !host_tier_has(bytes)) return NULL;
  char *wide =
      mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (wide == MAP_FAILED) return NULL;
  uint64_t before = round_up((uintptr_t)wide, HUGE_BYTES) - (uintptr_t)wide;
  char *made = wide + before;
  if (before > 0) munmap(wide, before);
  munmap(made + bytes, HUGE_BYTES - before);
  madvise(made, bytes, MADV_HUGEPAGE);
  madvise(made, bytes, MADV_DONTFORK); /* a child's copy would move the parent to other pages */
  touch_all(made, bytes);
  if (driver->cuMemHostRegister_v2(made, bytes, PORTABLE) == CU_OK) return made;
  munmap(made, bytes);
  return NULL;
}

void *pinned_take(uint64_t bytes, uint64_t most_bytes) {
  ASSERT(bytes > 0);
  const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  if (bytes > UINT64_MAX / 2) return NULL;
  bytes = round_up(bytes, page);
  lock_acquire(&slab_lock);
  if (bytes > slab_left) {
    /* What is left of the last slab is lost: it is less than was asked for. */
    uint64_t want = most_bytes < SLAB_BYTES ? most_bytes : SLAB_BYTES;
    if (want < bytes) want = bytes;
    want = round_up(want, HUGE_BYTES);
    bool listed = LIST_ROOM(slabs, slab_count, slab_capacity, 64, "slabs") == STOW_OK;
    char *made = listed ? make(want) : NULL;
    if (made != NULL) {
      slabs[slab_count++] = (slab_range){(uintptr_t)made, want};
      slab = made;
      slab_left = want;
    }
  }
  char *taken = bytes <= slab_left ? slab : NULL;
  if (taken != NULL) {
    slab += bytes;
    slab_left -= bytes;
  }
  lock_release(&slab_lock);
  return taken;
}

bool pinned_holds(uint64_t addr) {
  bool found = false;
  lock_acquire(&slab_lock);
  for (size_t i = 0; i < slab_count && !found; i++) found = addr - slabs[i].addr < slabs[i].bytes;
  lock_release(&slab_lock);
  return found;
}

static void after_fork(void) {
  lock_init(&slab_lock, LOCK_REGISTRY);
  slab_left = 0;
  slab_count = slab_capacity = 0;
  slabs = NULL; /* leaked in the child: another thread may have been changing it */
}
SHIM_AFTER_FORK(after_fork);
