/* Curve: live and reserved bytes of each device over a recording. For the exporters.
 *
 *   curve c; curve_begin(&c, r);
 *   for (i…) if (curve_step(&c, &r->events[i])) … curve_at(&c, &r->events[i]) …
 *   curve_free(&c);
 *
 * If the recording starts late, the bytes already allocated are derived from its end, or from the
 * minimum of the sums. */
#ifndef RECORDINGS_CURVE_H
#define RECORDINGS_CURVE_H

#include "recordings/recording.h"

typedef struct curve_point {
  int64_t live_bytes, reserved_bytes;
} curve_point;

typedef struct curve {
  const recording *r;
  curve_point *points; /* by device */
  size_t device_count; /* highest device + 1, at least 1 */
} curve;

stow_status curve_begin(curve *c, const recording *r);
/* Returns true if the event changed its device's point. */
bool curve_step(curve *c, const event *e);
void curve_free(curve *c);

/* Returns the point of the event's device. */
static inline curve_point *curve_at(const curve *c, const event *e) {
  return &c->points[event_origin(c->r, e)->device];
}

#endif
