/* Clock: the times of a simulated device whose memory is reused in the order of one stream.
 *
 * The host submits work ahead of the device. Each direction of the bus carries one copy at a time.
 * All waits are of streams, so the end of everything submitted is known at once. */
#ifndef REPLAY_SPILL_CLOCK_H
#define REPLAY_SPILL_CLOCK_H

#include <stdint.h>

#include "residency/cost.h"

enum {
  CLOCK_IN,
  CLOCK_OUT,
  CLOCK_QUEUE_MAX = 1024, /* launches the host may be ahead of the device (CUDA's queue) */
};

typedef struct spill_clock {
  const residency_costs *cost;
  double host_ns;                /* the host's work so far */
  double device_ns;              /* end of the work submitted to the program's stream */
  double lane_ns[2];             /* end of the copies submitted in each direction */
  double queue[CLOCK_QUEUE_MAX]; /* ends of the last launches */
  uint64_t launches;
  uint32_t launch;    /* of the step, from 1 */
  int64_t live_bytes; /* what PyTorch has allocated, without state on the host */
  int64_t most_bytes; /* the most since the policy looked last */
  int64_t peak_bytes; /* the most in this step */
} spill_clock;

/* Returns the point after what was submitted to the program's stream. */
double clock_mark(const spill_clock *c);
/* Runs work of the program. */
void clock_launch(spill_clock *c, uint64_t gap_ns, uint64_t device_ns);
/* Starts a copy at `from` or later. Returns when it ends. */
double clock_copy(spill_clock *c, int direction, uint64_t bytes, double from);
/* Lets the program's stream wait. Adds the time for which nothing runs to `waited_ns`. */
void clock_wait(spill_clock *c, double until_ns, double *waited_ns);
void clock_allocate(spill_clock *c, int64_t bytes);
/* Waits until the device is idle, as a program does at the end of a step. */
double clock_idle(spill_clock *c);

#endif
