/* A preloaded clock that jumps.
 *
 * CLOCK_JUMP_S=N: from the CLOCK_JUMP_AFTERth reading of the wall clock on, it shows N seconds more
 * (or less), as if somebody set it. CLOCK_SUSPEND_S=N: the same for the monotonic and the boot-time
 * clock, which only go forward, as if the machine was suspended.
 *
 * The kernel's own clocks do not change: a wait until a moment of a jumped clock takes that much
 * longer. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static int (*next)(clockid_t, struct timespec *);
static long jump_s, suspend_s, after;
static _Atomic long wall_readings, other_readings;

__attribute__((constructor)) static void begin(void) {
  const char *text;
  *(void **)&next = dlsym(RTLD_NEXT, "clock_gettime");
  jump_s = (text = getenv("CLOCK_JUMP_S")) != NULL ? atol(text) : 0;
  suspend_s = (text = getenv("CLOCK_SUSPEND_S")) != NULL ? atol(text) : 0;
  after = (text = getenv("CLOCK_JUMP_AFTER")) != NULL ? atol(text) : 0;
}

static int is_wall(clockid_t which) {
  return which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t which, struct timespec *now) {
  if (next == NULL) begin();
  int code = next(which, now);
  if (code != 0) return code;
  if (is_wall(which)) {
    if (wall_readings++ >= after) now->tv_sec += jump_s;
  } else if (which == CLOCK_MONOTONIC || which == CLOCK_MONOTONIC_COARSE ||
             which == CLOCK_MONOTONIC_RAW || which == CLOCK_BOOTTIME) {
    if (other_readings++ >= after) now->tv_sec += suspend_s;
  }
  return code;
}

__attribute__((visibility("default"))) time_t time(time_t *to) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (to != NULL) *to = now.tv_sec;
  return now.tv_sec;
}

__attribute__((visibility("default"))) int gettimeofday(struct timeval *restrict now,
                                                        void *restrict zone) {
  struct timespec t;
  (void)zone;
  int code = clock_gettime(CLOCK_REALTIME, &t);
  *now = (struct timeval){.tv_sec = t.tv_sec, .tv_usec = t.tv_nsec / 1000};
  return code;
}
