/* Page step: the steps of a training program, as trim.py or the program itself reports them. */
#ifndef SHIM_PAGE_STEP_H
#define SHIM_PAGE_STEP_H

#include <stdbool.h>

/* Called at the end of a training step: its time counts as one with or without spilled memory. */
void page_step_ended(void);
/* Called between two training steps: returns whether the program should release its cache, because
 * some of its memory is on the host. */
bool page_trim_wanted(void);
/* Called when the calling thread starts and ends such a release. */
void page_trimming(bool begins);
/* Called within a step: returns whether memory on the host could come back to vram if the program
 * released what it no longer uses. */
bool page_home_wanted(void);
/* Brings memory from the host to vram, as far as there is space: the highest addresses first, which
 * a step wrote last and reads first in its backward pass. At the end of a step (`last`), what is
 * still mapped is weights and optimizer state: it is marked as settled and not moved out again. */
void page_come_home(bool last);

/* Returns whether it is known which memory stays allocated from step to step. */
bool page_settled(void);

#endif
