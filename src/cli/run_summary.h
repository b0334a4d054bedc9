/* Run summary: the last words of `stowage run` about memory. */
#ifndef CLI_RUN_SUMMARY_H
#define CLI_RUN_SUMMARY_H

#include <stdbool.h>

#include "cli/run_limits.h"
#include "run/host_record.h"
#include "run/ledger.h"

/* Where memory lived at the peak, one line a device that was used, and, where the command failed
 * and a request had been turned down, why. `crossed_bytes` went over the bus while memory was
 * spilled (0: not measured). On standard error. */
void run_summary(const ledger *l, const run_limits *limits, bool failed, uint64_t crossed_bytes);

/* The peak of host and device memory, the largest holder with its line and, if something is clearly
 * wrong, what was wasted and what to change. One line if all is well; nothing if next to nothing
 * was held and `always` is false. `l` may be a ledger that is not open; device peaks go into the
 * line unless run_summary has them. `explained`: the failure was explained, so the holder is not
 * repeated. */
void run_summary_peak(const ledger *l, const run_limits *limits, const host_record *h,
                      bool explained, bool always);

#endif
