/* Trim: makes PyTorch release its cache, from inside its own process, when that helps spilling
 * (trim.py decides when). Called by page.c when pages are requested. */
#ifndef SHIM_TRIM_H
#define SHIM_TRIM_H

/* Makes trim.py run soon, until it has done its work. Cheap. */
void trim_schedule(void);

#endif
