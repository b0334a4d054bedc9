/* Gate: every call that submits device work passes it. It can be closed while pages move, and a
 * visitor can inspect each call first.
 *
 * Unmapping a page and mapping another in its place are two calls: work that began in between would
 * fault. stubs.S sends kernels, graphs, copies and fills through here, only in runs with a spill or
 * that record launches; elsewhere the stubs are plain jumps to the driver. One thread at a time
 * closes the gate, and it holds pages_lock. */
#ifndef SHIM_GATE_H
#define SHIM_GATE_H

#include <stdbool.h>
#include <stdint.h>

/* Returns whether this process has a gate. Decided once, before the program has a function of the
 * driver. STOWAGE_MOVE=off disables it. */
bool gate_here(void);
/* Returns whether the program has ever passed it. If not, it submits work by another path. */
bool gate_used(void);

/* Closes the gate and waits until no call is inside. Returns false, with the gate open, if a call
 * stays inside too long. */
bool gate_close(void);
void gate_open(void);

/* ---- the visitor ---- */

/* Visits a call that is about to pass: its symbol, the registers with integer arguments in order,
 * and the arguments on the stack. May close and open the gate. */
typedef void gate_visit(unsigned symbol, const uint64_t *registers, const uint64_t *stack);
/* Sets the visitor, which then sees every call. NULL: none. */
void gate_set_visitor(gate_visit *visit);

/* Called by the visitor: sets the number of the calling thread's call, from 1, until the call has
 * passed. */
void gate_number(unsigned device, uint64_t number);
/* Returns the lowest number of a device whose call has not passed yet; UINT64_MAX: none. */
uint64_t gate_oldest(unsigned device);

/* Returns whether a call that the visitor has seen has not passed yet. */
bool gate_pending(void);

/* Called by the visitor: `after` is called once when the calling thread's call has passed. */
void gate_after(void (*after)(void));

/* Called by stubs.S before a call, returning the driver's function, and after it. */
void *shim_gate_enter(unsigned symbol, const uint64_t *registers, const uint64_t *stack);
void shim_gate_leave(void);

#endif
