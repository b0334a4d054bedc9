/* Budget: how much memory a data job may use, and what it used at its peak.
 *
 * Called by the data verbs. A job sizes every buffer from its budget, so that the process stays
 * within budget + 16 MiB of resident memory whatever the file is. */
#ifndef DATA_BUDGET_H
#define DATA_BUDGET_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "numbers/scan.h"

#define BUDGET_LEAST (UINT64_C(4) << 20) /* below this no reader is fast */

/* Returns a quarter of what the host can still give, including cgroup limits; at least
 * BUDGET_LEAST. */
uint64_t budget_default(void);
/* Returns STOW_ERR_INVALID for a budget under BUDGET_LEAST. */
stow_status budget_check(uint64_t bytes);
/* Returns the peak of resident memory so far (VmHWM) of this process and its largest HDF5 worker; 0
 * if the kernel does not report it. */
uint64_t budget_peak(void);

/* Called with a job's progress in bytes; any result but STOW_OK stops the job and is returned. */
typedef stow_status (*budget_progress)(void *context, uint64_t done, uint64_t total);

/* Passed to every job in this folder. */
typedef struct budget {
  uint64_t bytes;
  unsigned threads;         /* 0 and 1: only the caller's */
  scan_purpose purpose;     /* what the values are for */
  budget_progress progress; /* NULL: none */
  void *context;
  struct team *team;             /* the other processes of the job; NULL: none */
  struct checkpoint *checkpoint; /* NULL: no checkpoint */
  uint64_t item;                 /* the current array of a file with several; keeps its steps
                                  * apart */
} budget;

static inline stow_status budget_report(const budget *b, uint64_t done, uint64_t total) {
  return b->progress != NULL ? b->progress(b->context, done, total) : STOW_OK;
}

#endif
