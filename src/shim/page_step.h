/* Page step: the steps of a training program, as trim.py or the program itself reports them. */
#ifndef SHIM_PAGE_STEP_H
#define SHIM_PAGE_STEP_H

#include <stdbool.h>

/* Called at the end of a training step: its time counts as one with or without spilled memory. */
void page_step_ended(void);
/* Called between two training steps: returns whether the program should release its cache, because
 * some of its memory is on the host and pages do not move. */
bool page_trim_wanted(void);
/* Called when the calling thread starts and ends such a release. */
void page_trimming(bool begins);

#endif
