/* Patch: installs hooks in the loaded libraries of a running process. */
#ifndef SHIM_PROFILE_PATCH_H
#define SHIM_PROFILE_PATCH_H

#include <stdbool.h>

/* Makes every loaded library call find(name) instead of the function `name`, if that is not NULL.
 * Called again, it patches the libraries loaded since. Requires the interpreter's lock. */
void patch_all(void *(*find)(const char *name));

#endif
