/* Host peak: what to report about the host memory of a run that ended, from its host record.
 *
 * `stowage run` prints it when its command ends; `explain --last` has it for a run that did not run
 * out of memory. It uses the causes of explain_host, and calls wrong only what clearly is. */
#ifndef ADVISE_HOST_PEAK_H
#define ADVISE_HOST_PEAK_H

#include "base/status.h"
#include "run/host_record.h"

typedef struct host_peak {
  char holder[480];      /* the largest object and its line; "" if none is known */
  uint64_t seen_bytes;   /* the process held much more for a moment, in which it was not asked: what
                          * it held when it was; 0: there was no such moment */
  uint64_t wasted_bytes; /* what the first fix would save; 0: nothing significant */
  char cause[512];       /* what is clearly wrong, "" if nothing is */
  char fix[400];         /* and what to change; without a cause: how to use less, for a holder of
                          * much memory; "" if not known */
} host_peak;

stow_status host_peak_find(host_peak *p, const host_record *r);

/* Writes that the command passed a limit that was given, for how long, and why nothing ended it.
 * Returns false if it did not, or was ended. */
bool host_peak_say_limit(char *out, size_t size, const host_record *r);

#endif
