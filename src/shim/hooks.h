/* Hooks: every function marked HOOK in device/driver.def, and functions that tools may call in a
 * built shim. */
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

/* The driver's own function behind a hook, to forward the program's call; NULL if this driver has
 * none. Calls that Stowage makes for itself go through shim_driver(). */
#define REAL(name) (shim_program_driver()->name)

/* Returns the name of hook `i`; NULL after the last. */
SHIM_HOOK const char *stow_shim_hook(size_t i);
/* Returns the bytes that this process holds of a kind ("pages", "spilled", …; NULL: all vram) on a
 * device by the run's number. Measured kinds are measured again for the calling thread's device. */
SHIM_HOOK uint64_t stow_shim_bytes(unsigned device, const char *kind);
/* For programs with steps, as trim.py is for PyTorch. 0: asks whether the program should release
 * its cached pages now (1: yes). 1: it starts to release them. 2: it has released them. */
SHIM_HOOK int stow_shim_trim(int what);
/* Installs the shim in a process that has already loaded the driver at that path. Returns NULL on
 * success; otherwise the reason, and nothing was changed. */
SHIM_HOOK const char *stow_shim_adopt(const char *driver_path);
/* Returns the path of the driver behind the shim; "" while none is open. */
SHIM_HOOK const char *stow_shim_driver(void);
/* Returns the driver's own function of that name, bypassing the shim; NULL if there is none. */
SHIM_HOOK void *stow_shim_real(const char *name);
/* Returns the version of the shim. Only a copy of the shim has this symbol; a driver does not. */
SHIM_HOOK const char *stow_shim_version(void);

#endif
