/* The hooks: every function of hooks.def, as the driver declares it, and what a tool may ask a
 * built shim. */
#ifndef SHIM_ROUTE_H
#define SHIM_ROUTE_H

#include "shim/shim.h"

SHIM_HOOK cu_result cuGetProcAddress(const char *symbol, void **function, int version,
                                     unsigned long long flags);
SHIM_HOOK cu_result cuGetProcAddress_v2(const char *symbol, void **function, int version,
                                        unsigned long long flags, int *found);

/* The name of hook `i`, NULL past the last. */
SHIM_HOOK const char *stow_shim_hook(size_t i);
/* The version of the shim; how another copy of it is told from a driver. */
SHIM_HOOK const char *stow_shim_version(void);

#endif
