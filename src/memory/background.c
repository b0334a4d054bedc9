/* Background: one thread per heap. It creates pages ahead of need (a host page of 1 GiB
 * takes 0.2 to 0.3 s, a vram page 7.5 ms while streams are busy), frees blocks whose events have
 * passed, and moves spilled allocations back if there is a gate. When no page was requested for a
 * while, it unmaps stale spans and releases cached pages beyond the reserve. Page work wakes it,
 * and it runs ten times a second. */
#include <errno.h>
#include <time.h>

#include "base/assert.h"
#include "memory/heap.h"

#define LOOK_MS   100
#define HOST_PAGE 5 /* order of host pages created ahead: 64 MiB */
/* Order of vram pages created ahead: 2 MiB, which requests near the limit need. */
#define VRAM_PAGE 0

/* Works in small steps, so that it can stop quickly and react to a new limit. */
#define STEP_BYTES (UINT64_C(256) << 20)

static void fill(heap *h) {
  for (int t = 0; t < POOL_TIERS; t++) {
    uint64_t want = h->reserve[t], made = 0;
    lock_acquire(&h->pool.lock);
    uint64_t cached = h->pool.tier[t].cached;
    lock_release(&h->pool.lock);
    if (want <= cached) continue;
    if (want > cached + STEP_BYTES) want = cached + STEP_BYTES;
    pool_fill(&h->pool, (stow_tier)t, want, t == STOW_TIER_HOST ? HOST_PAGE : VRAM_PAGE, &made);
    if (made > 0) background_kick(h);
  }
}

/* Rounds in a row without a page taken before it releases the surplus: one second. A training step
 * or a token takes less, so a loop keeps the pages it will use again. */
#define IDLE_LOOKS 10

static bool idle(heap *h) {
  uint64_t takes = atomic_load_explicit(&h->pool.takes, memory_order_relaxed);
  if (takes != h->idle_takes) h->idle_looks = 0;
  h->idle_takes = takes;
  return h->idle_looks == IDLE_LOOKS || ++h->idle_looks == IDLE_LOOKS;
}

static void release(heap *h) {
  for (int t = 0; t < POOL_TIERS; t++) {
    lock_acquire(&h->pool.lock);
    uint64_t cached = h->pool.tier[t].cached;
    lock_release(&h->pool.lock);
    if (cached <= h->reserve[t]) continue;
    uint64_t keep = cached - h->reserve[t] > STEP_BYTES ? cached - STEP_BYTES : h->reserve[t];
    heap_lose(h, pool_trim(&h->pool, (stow_tier)t, keep, NULL));
  }
}

static void tidy(heap *h, bool all) {
  stow_status status;
  if (!lock_try(&h->lock)) return; /* another thread holds it */
  if (all)
    heap_settle(h, false, &status);
  else
    heap_poll(h, &status);
  heap_unlock(h);
  heap_lose(h, status);
  if (h->gate.close && h->host_limit > 0) {
    lock_acquire(&h->pool.lock);
    bool spilled = h->pool.tier[STOW_TIER_HOST].held > h->pool.tier[STOW_TIER_HOST].cached;
    lock_release(&h->pool.lock);
    if (spilled) stow_heap_bring_back(h->shell, NULL);
  }
}

static void *background_run(void *user) {
  heap *h = user;
  device_thread_enter(h->device);
  pthread_mutex_lock(&h->wake_lock);
  while (!h->stop) {
    if (!h->wake_now) {
      struct timespec until;
      clock_gettime(CLOCK_MONOTONIC, &until);
      until.tv_nsec += LOOK_MS * 1000000L;
      if (until.tv_nsec >= 1000000000L) until.tv_sec++, until.tv_nsec -= 1000000000L;
      pthread_cond_timedwait(&h->wake, &h->wake_lock, &until);
    }
    bool woken = h->wake_now;
    h->wake_now = false;
    if (h->stop) break;
    pthread_mutex_unlock(&h->wake_lock);
    bool resting = !woken && idle(h);
    if (!atomic_load(&h->dead) && atomic_load(&h->lane_count) > 0) tidy(h, resting);
    if (!atomic_load(&h->dead)) fill(h);
    if (!atomic_load(&h->dead) && resting) release(h);
    pthread_mutex_lock(&h->wake_lock);
  }
  pthread_mutex_unlock(&h->wake_lock);
  return NULL;
}

stow_status background_start(heap *h) {
  ASSERT(!h->thread_runs);
  pthread_mutex_init(&h->wake_lock, NULL);
  /* Not by the wall clock: set back an hour, it would make the thread sleep that long. */
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&h->wake, &monotonic);
  pthread_condattr_destroy(&monotonic);
  if (pthread_create(&h->thread, NULL, background_run, h) != 0)
    return stow_fail(STOW_ERR_HOST_MEMORY, "heap: its background thread could not be started");
  h->thread_runs = true;
  return STOW_OK;
}

void background_stop(heap *h) {
  if (!h->thread_runs) return;
  pthread_mutex_lock(&h->wake_lock);
  h->stop = true;
  pthread_cond_signal(&h->wake);
  pthread_mutex_unlock(&h->wake_lock);
  pthread_join(h->thread, NULL);
  h->thread_runs = false;
  pthread_cond_destroy(&h->wake);
  pthread_mutex_destroy(&h->wake_lock);
}
