/* Trim: PyTorch, asked from inside its own process to let go of what it caches at the moments when
 * that serves the spilling (trim.py tells which). Called by page.c as pages are asked for. */
#ifndef SHIM_TRIM_H
#define SHIM_TRIM_H

/* Has trim.py run soon, until it has done what there is to do. Cheap. */
void trim_schedule(void);

#endif
