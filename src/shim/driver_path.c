/* Driver path: which driver the shim has opened. Separate from real.c, because dlopen, which
 * opening uses, needs it (open.c). */
#include <stdatomic.h>
#include <stdio.h>

#include "device/cuda_path.h"
#include "shim/shim.h"

static char driver_path[CUDA_PATH_MAX]; /* written before `known` */
static _Atomic bool known;
static _Thread_local bool opening;

const char *shim_driver_path(void) {
  return atomic_load_explicit(&known, memory_order_acquire) ? driver_path : "";
}

/* Sets the path. Called once, with real.c's lock held. */
void shim_driver_path_set(const char *path) {
  snprintf(driver_path, sizeof driver_path, "%s", path);
  atomic_store_explicit(&known, true, memory_order_release);
}

bool shim_opening(void) {
  return opening;
}

void shim_opening_set(bool now) {
  opening = now;
}
