/* Handle: finds the heap of a public handle. Also what every part of the heap may do: record a lost
 * device and wake the background thread. */
#include "memory/heap.h"

stow_status heap_enter(heap **h, stow_heap *shell) {
  if (!shell) return stow_fail(STOW_ERR_INVALID, "heap: NULL");
  *h = atomic_load_explicit(&shell->inner, memory_order_acquire);
  if (!*h) return stow_fail(STOW_ERR_STATE, "heap: it is closed");
  int dead = atomic_load_explicit(&(*h)->dead, memory_order_relaxed);
  if (dead)
    return stow_fail((stow_status)dead, "heap: its device is lost; close it and open a new one");
  return STOW_OK;
}

stow_status heap_lose(heap *h, stow_status status) {
  if (status == STOW_ERR_DEVICE_LOST) atomic_store(&h->dead, (int)status);
  return status;
}

void background_kick(heap *h) {
  if (!h->thread_runs) return;
  pthread_mutex_lock(&h->wake_lock);
  h->wake_now = true;
  pthread_cond_signal(&h->wake);
  pthread_mutex_unlock(&h->wake_lock);
}
