/* Python: the interpreter of this process, where it has one, through its C interface found with
 * dlsym: no headers, nothing linked, CPython 3.8 and later.
 *
 * Once CUDA is at work, inside.py is run on the interpreter's main thread: it tells the shim of
 * what only Python knows (steps of optimizers, named ranges, out-of-memory and what was live). It
 * is scheduled as a pending call, so a hook never takes the interpreter's lock: PyTorch holds locks
 * of its own while it calls the driver, and other threads wait for those with the interpreter's
 * lock held. STOWAGE_PYTHON=off keeps all of it out.
 *
 * Guarantees: does nothing in a process without CPython or while it starts or ends, prints nothing,
 * and lets no exception out but the user's own interrupt. */
#ifndef SHIM_PYTHON_H
#define SHIM_PYTHON_H

#include <stdbool.h>
#include <stddef.h>

/* An interpreter is here, started, and not ending. Cheap after the first call. */
bool python_here(void);
/* Its version, 311 for 3.11; 0 where there is none. */
int python_version(void);

/* Has the main thread run inside.py soon, once per process. From any thread, with or without the
 * interpreter's lock. Called again at times (see inside.py: a framework may be imported later), it
 * asks again until everything there was to arm is armed. */
void python_schedule(void);

/* Does the calling thread hold the interpreter's lock? */
bool python_held(void);

/* A symbol of the interpreter's C interface, NULL where it has none. */
void *python_symbol(const char *name);

/* ---- what inside.py calls ---- */

/* Called on the thread that ran an optimizer's step, when it is done. One function, set before
 * python_schedule; it is called with the interpreter's lock held and must be quick. */
void python_on_step(void (*ended)(void));

#endif
