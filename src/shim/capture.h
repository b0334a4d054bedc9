/* Capture: how many stream captures the process has open.
 *
 * While a graph is captured, most driver calls would invalidate the capture: nothing is measured,
 * moved or trimmed, and no request is refused. */
#ifndef SHIM_CAPTURE_H
#define SHIM_CAPTURE_H

#include <stdbool.h>

/* Adds 1 when a capture begins, -1 when it ends. */
void capture_add(int more);
/* Returns whether any thread captures. Cheap. */
bool capture_on(void);

#endif
