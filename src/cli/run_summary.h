/* Run summary: the final report of `stowage run` about memory, on standard error. */
#ifndef CLI_RUN_SUMMARY_H
#define CLI_RUN_SUMMARY_H

#include <stdbool.h>

#include "cli/run_limits.h"
#include "run/host_record.h"
#include "run/ledger.h"

/* Reports where memory was at the peak, one line per used device. If the command failed and a
 * request was refused, also reports why. `quiet`: reports only processes that were not counted.
 * `crossed_bytes`: bytes over the bus while memory was spilled (0: not measured). */
void run_summary(const ledger *l, const run_limits *limits, bool failed, bool quiet,
                 uint64_t crossed_bytes);

/* Reports the peak of host and device memory, the largest holder with its line and, if something is
 * clearly wrong, what was wasted and what to change. Prints one line if all is well, and nothing if
 * very little was held and `always` is false. `l` may be a ledger that is not open; device peaks go
 * into the line unless run_summary has them. `explained`: the failure was explained, so the holder
 * is not repeated. */
void run_summary_peak(const ledger *l, const run_limits *limits, host_record *h, bool explained,
                      bool always);

#endif
