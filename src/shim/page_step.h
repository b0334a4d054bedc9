/* Page step: the steps of a program that trains, as trim.py or the program itself reports them. */
#ifndef SHIM_PAGE_STEP_H
#define SHIM_PAGE_STEP_H

#include <stdbool.h>

/* A step of training ended: its time counts among those that spilled, or among the others. */
void page_step_ended(void);
/* Between two steps of training: should the program let go of what it caches? Some of what it has
 * is on the host. */
bool page_trim_wanted(void);
/* The calling thread does so because it was asked to, and has done so. */
void page_trimming(bool begins);
/* Within a step: is something on the host that could come home if the program let go of what it
 * does not use any more? */
bool page_home_wanted(void);
/* Brings to vram what is on the host, as far as there is room: the highest addresses first, which a
 * step wrote last and reads first on its way back. At the end of a step (`last`) what is still
 * mapped is no work of it but weights and the optimizer's state: it is settled, and not moved out
 * again. */
void page_come_home(bool last);

/* Returns whether it is known what stays allocated from step to step. */
bool page_settled(void);

#endif
