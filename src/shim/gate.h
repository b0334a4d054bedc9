/* Gate: everything that gives a device work passes it, so that it can be closed while pages are
 * moved.
 *
 * Unmapping a page and mapping another in its place is not one act: work that began in between
 * would fault. stubs.S takes the calls of kernels, graphs, copies and fills through here; only in
 * runs with a spill, elsewhere they are plain jumps to the driver. One thread at a time closes it
 * (page_move.c, under its lock). */
#ifndef SHIM_GATE_H
#define SHIM_GATE_H

#include <stdbool.h>

/* Is there a gate in this process? Decided once, before the program has a function of the driver.
 * STOWAGE_MOVE=off says no. */
bool gate_here(void);
/* Has the program ever passed it? If not, it gives its work another way. */
bool gate_used(void);

/* Lets nobody in, and waits until nobody is inside. False (and open): somebody stays there longer
 * than a call takes. */
bool gate_close(void);
void gate_open(void);

/* Called by stubs.S: before a call, returning the driver's function, and after it. */
void *shim_gate_enter(unsigned symbol);
void shim_gate_leave(void);

#endif
