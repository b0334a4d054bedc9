/* The heap's background thread while the wall clock is wrong. */
#include <dlfcn.h>
#include <poll.h>
#include <time.h>

#include "memory/sim_device.h"

#define WRONG_S 3600

/* The wall clock, an hour ahead of the kernel's: a wait until one of its moments lasts an hour, as
 * it does where the clock is set back by that much. */
__attribute__((visibility("default"))) int clock_gettime(clockid_t which, struct timespec *now);
int clock_gettime(clockid_t which, struct timespec *now) {
  static int (*next)(clockid_t, struct timespec *);
  if (next == NULL) *(void **)&next = dlsym(RTLD_NEXT, "clock_gettime");
  int code = next(which, now);
  if (code == 0 && which == CLOCK_REALTIME) now->tv_sec += WRONG_S;
  return code;
}

TEST(heap_makes_its_reserve_whatever_the_wall_clock_says)
{
  stow_device *d = sim_device(256 * MIB, 0);
  stow_heap *h;
  stow_heap_options o = STOW_HEAP_OPTIONS_INIT;
  o.device = d;
  o.reserve_bytes = 32 * MIB;
  CHECK_OK(stow_heap_open(&h, &o));
  /* At its first look, after a tenth of a second. */
  int tries = 0;
  while (stats_of(h).tier[STOW_TIER_VRAM].cached_bytes < 32 * MIB && tries++ < 600)
    poll(NULL, 0, 50);
  CHECK_U64(stats_of(h).tier[STOW_TIER_VRAM].cached_bytes, 32 * MIB);
  shut(h, d);
}

TEST_MAIN
