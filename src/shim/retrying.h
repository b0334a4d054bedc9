/* Retrying: recognizes callers that drop their cache and retry after "out of memory".
 *
 * PyTorch's allocator retries; other libraries in the same process (cuBLAS) request once and give
 * up. So the caller decides, found by the addresses on its stack. */
#ifndef SHIM_RETRYING_H
#define SHIM_RETRYING_H

#include <stdbool.h>

/* Returns whether the process has loaded a framework that retries. Cheap. */
bool retrying_known(void);
/* Returns whether the caller of the current request is such a framework. Walks the stack. */
bool retrying_caller(void);

#endif
