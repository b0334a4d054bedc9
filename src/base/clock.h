/* Clock: monotonic nanoseconds, CPU time, and wall time for records. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_read_ns(clockid_t which) {
  struct timespec now;
  clock_gettime(which, &now);
  return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Returns nanoseconds since a fixed point before the process started. */
static inline uint64_t clock_ns(void) {
  return clock_read_ns(CLOCK_MONOTONIC);
}

/* Returns the CPU time of the calling thread. Does not count while the process is stopped. */
static inline uint64_t clock_cpu_ns(void) {
  return clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* Returns nanoseconds since 1970. */
static inline uint64_t clock_wall_ns(void) {
  return clock_read_ns(CLOCK_REALTIME);
}

#endif
