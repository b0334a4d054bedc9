/* Run summary: the last words of `stowage run` about memory. */
#ifndef CLI_RUN_SUMMARY_H
#define CLI_RUN_SUMMARY_H

#include <stdbool.h>

#include "cli/run_limits.h"
#include "run/ledger.h"

/* Where memory lived at the peak, one line a device that was used, and, where the command failed
 * and a request had been turned down, why. `crossed_bytes` went over the bus while memory was
 * spilled (0: not measured). On standard error. */
void run_summary(const ledger *l, const run_limits *limits, bool failed, uint64_t crossed_bytes);

#endif
