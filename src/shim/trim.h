/* Trim: makes PyTorch release its cache, from inside its own process, when that helps spilling
 * (trim.py decides when). Called by page.c when pages are requested. */
#ifndef SHIM_TRIM_H
#define SHIM_TRIM_H

/* Has trim.py run soon, until it has done what there is to do. Cheap. */
void trim_schedule(void);

#endif
