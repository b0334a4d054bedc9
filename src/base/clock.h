/* Clock: nanoseconds that never go back, and wall time for records. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_read_ns(clockid_t which) {
  struct timespec now;
  clock_gettime(which, &now);
  return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Since some fixed point before the process began. */
static inline uint64_t clock_ns(void) {
  return clock_read_ns(CLOCK_MONOTONIC);
}

/* Since 1970. */
static inline uint64_t clock_wall_ns(void) {
  return clock_read_ns(CLOCK_REALTIME);
}

#endif
