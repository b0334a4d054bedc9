/* Gate: every call that gives the device work passes it. It can be closed while pages move, and a
 * visitor can look at each call first.
 *
 * Unmapping a page and mapping another in its place are two calls: work that began in between would
 * fault. stubs.S sends kernels, graphs, copies and fills through here, only in runs with a spill or
 * that record launches; elsewhere the stubs are plain jumps to the driver. One thread at a time
 * closes the gate, and it holds pages_lock. */
#ifndef SHIM_GATE_H
#define SHIM_GATE_H

#include <stdbool.h>
#include <stdint.h>

/* Returns whether there is a gate in this process. Decided once, before the program has a function
 * of the driver. STOWAGE_MOVE=off says no. */
bool gate_here(void);
/* Returns whether the program has ever passed it. If not, it submits work in another way. */
bool gate_used(void);

/* Lets nobody in, and waits until nobody is inside. False (and open): somebody stays there longer
 * than a call takes. */
bool gate_close(void);
void gate_open(void);

/* ---- the visitor ---- */

/* A call that is about to pass: its symbol, the registers that carry integer arguments in their
 * order, and the words behind them on the stack. May close and open the gate. */
typedef void gate_visit(unsigned symbol, const uint64_t *registers, const uint64_t *stack);
/* NULL: none. From then on every call is shown to it. */
void gate_set_visitor(gate_visit *visit);

/* Called by the visitor: the calling thread's call has this number, from 1, until it has passed. */
void gate_number(unsigned device, uint64_t number);
/* The lowest number of a device whose call has not passed yet; UINT64_MAX: none. */
uint64_t gate_oldest(unsigned device);

/* Returns whether a call that was shown to the visitor has not passed yet. */
bool gate_pending(void);

/* Called by the visitor: `after` is called once when the calling thread's call has passed. */
void gate_after(void (*after)(void));

/* Called by stubs.S: before a call, returning the driver's function, and after it. */
void *shim_gate_enter(unsigned symbol, const uint64_t *registers, const uint64_t *stack);
void shim_gate_leave(void);

#endif
