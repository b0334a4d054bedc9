/* Touches: which allocations each kernel of an estimate uses.
 *
 * Only an estimate's recording is read: its launches name whole blocks. A live recording names
 * addresses inside them, and not all of them. */
#ifndef ADVISE_TOUCHES_H
#define ADVISE_TOUCHES_H

#include "advise/evidence.h"

#define TOUCHES_MAX 64 /* of one kernel; the rest is ignored */

/* One kernel: the lifetimes it uses, and the tick of the event before it. */
typedef struct touches {
  uint32_t list[TOUCHES_MAX];
  uint32_t count, tick;
} touches;

/* Returns whether the recording shows what kernels use. */
bool touches_known(const evidence *e);
/* Calls `visit` for each kernel, in order. */
stow_status touches_walk(const evidence *e, void (*visit)(void *user, const touches *t),
                         void *user);

/* Returns the youngest of the allocations: what the kernel writes, unless it writes in place. */
uint32_t touches_youngest(const evidence *e, const touches *t);

#endif
