/* Inside: what the shim has a Python process do once CUDA is at work there: inside.py tells it of
 * what only Python knows (steps of optimizers, named ranges, out-of-memory and what was live). */
#ifndef SHIM_INSIDE_H
#define SHIM_INSIDE_H

/* Has the main thread run inside.py soon. Called at each event, it asks ever more seldom (a
 * framework may be imported later) until everything there was to arm is armed. */
void inside_schedule(void);

#endif
