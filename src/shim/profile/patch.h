/* Patch: puts hooks into the libraries of a process that already runs. */
#ifndef SHIM_PROFILE_PATCH_H
#define SHIM_PROFILE_PATCH_H

#include <stdbool.h>

/* Makes every loaded library call find(name) instead of the function `name`, where that is not
 * NULL. With the interpreter's lock. */
void patch_all(void *(*find)(const char *name));

#endif
