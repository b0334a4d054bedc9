/* The hooks: every function marked HOOK in device/driver.def, and what a tool may ask a built shim.
 */
#ifndef SHIM_HOOKS_H
#define SHIM_HOOKS_H

#include "shim/shim.h"

#define DECLARE_HOOK(name, parameters) SHIM_HOOK cu_result name parameters;
#define DECLARE_GATE(name, parameters)
#define DECLARE_PASS(name, parameters)
#define DRIVER(name, since, need, role, parameters) DECLARE_##role(name, parameters)
#include "device/driver.def"
#undef DECLARE_HOOK
#undef DECLARE_GATE
#undef DECLARE_PASS

/* The driver's own function behind a hook, for passing the program's call on; NULL if this driver
 * has none. Calls that Stowage makes for itself go through shim_driver(). */
#define REAL(name) (shim_program_driver()->name)

/* The name of hook `i`, NULL past the last. */
SHIM_HOOK const char *stow_shim_hook(size_t i);
/* Bytes this process holds of a kind ("pages", "spilled", …; NULL: all that is vram) on a device as
 * the run counts it; what is measured is measured anew for the calling thread's device. */
SHIM_HOOK uint64_t stow_shim_bytes(unsigned device, const char *kind);
/* For a program that has steps, as trim.py has it for PyTorch: 0 asks whether it should let go of
 * the pages it caches now (1: yes), 1 says that it begins to, 2 that it has, 3 that it has within a
 * step. */
SHIM_HOOK int stow_shim_trim(int what);
/* Puts the shim, loaded into a process that has the driver at that path already, beneath it. NULL:
 * done. Otherwise why not, and nothing was changed. */
SHIM_HOOK const char *stow_shim_adopt(const char *driver_path);
/* The path of the driver behind the shim, "" while none is open. */
SHIM_HOOK const char *stow_shim_driver(void);
/* The driver's own function of that name, past the shim; NULL if it has none. */
SHIM_HOOK void *stow_shim_real(const char *name);
/* Returns the version of the shim. Only a copy of the shim has this symbol; a driver does not. */
SHIM_HOOK const char *stow_shim_version(void);

#endif
