/* Capture: a count that never falls below zero. */
#include "shim/capture.h"

#include <stdatomic.h>

#include "base/assert.h"
#include "shim/shim.h"

static _Atomic int captures;

void capture_add(int more) {
  ASSERT(more == 1 || more == -1);
  int now = atomic_fetch_add(&captures, more) + more;
  /* An end whose beginning was not seen. */
  if (now < 0) atomic_store(&captures, 0);
}

bool capture_on(void) {
  return atomic_load(&captures) > 0;
}

static void after_fork(void) {
  atomic_store(&captures, 0);
}
SHIM_AFTER_FORK(after_fork);
