/* Retrying: callers that drop their cache and ask again after "out of memory".
 *
 * PyTorch's allocator does; other libraries in the same process (cuBLAS) ask once and give up. So
 * it is the caller that counts, found by the addresses on its stack. */
#ifndef SHIM_RETRYING_H
#define SHIM_RETRYING_H

#include <stdbool.h>

/* Returns whether the process has loaded a framework that retries. Cheap. */
bool retrying_known(void);
/* Returns whether the caller of the current request is such a framework. Walks the stack. */
bool retrying_caller(void);

#endif
