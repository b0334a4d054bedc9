/* Spill: the times of a simulated device (spill_clock.h). */
#include "replay/spill_clock.h"

static double later(double a, double b) {
  return a > b ? a : b;
}

double clock_mark(const spill_clock *c) {
  return later(c->host_ns, c->device_ns);
}

void clock_launch(spill_clock *c, uint64_t gap_ns, uint64_t device_ns) {
  double *slot = &c->queue[c->launches++ % CLOCK_QUEUE_MAX];
  c->host_ns = later(c->host_ns + (double)gap_ns, *slot);
  *slot = c->device_ns = clock_mark(c) + (double)device_ns;
}

double clock_copy(spill_clock *c, int direction, uint64_t bytes, double from) {
  double begin = later(later(from, c->host_ns), c->lane_ns[direction]);
  bool both = c->lane_ns[!direction] > begin;
  double per_byte = both ? c->cost->both_ns_per_byte : c->cost->copy_ns_per_byte;
  c->lane_ns[direction] = begin + (double)bytes * per_byte;
  return c->lane_ns[direction];
}

void clock_wait(spill_clock *c, double until_ns, double *waited_ns) {
  double now = clock_mark(c);
  if (until_ns > now) *waited_ns += until_ns - now;
  c->device_ns = later(c->device_ns, until_ns);
}

void clock_allocate(spill_clock *c, int64_t bytes) {
  c->live_bytes += bytes;
  if (c->live_bytes > c->most_bytes) c->most_bytes = c->live_bytes;
  if (c->live_bytes > c->peak_bytes) c->peak_bytes = c->live_bytes;
}

double clock_idle(spill_clock *c) {
  c->host_ns = c->device_ns = clock_mark(c);
  return c->host_ns;
}
