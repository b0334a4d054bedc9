/* Run shim: finds the preloaded library and puts it at the front of LD_PRELOAD. Used by `stowage
 * run`. */
#ifndef CLI_RUN_SHIM_H
#define CLI_RUN_SHIM_H

#include <limits.h>
#include <stdbool.h>

#include <stowage/status.h>

/* Finds the shim: $STOWAGE_SHIM, beside this command, or in the library folder of the installation.
 * STOW_ERR_NOT_FOUND lists the places. */
stow_status run_shim_find(char path[PATH_MAX]);

/* Puts the shim at the front of LD_PRELOAD for the children of this process. With `nvml`, adds the
 * NVML proxy if NVML is installed. */
stow_status run_shim_preload(const char *path, bool nvml);

/* Adds the library that reports the host memory of Python processes, if it is installed. */
void run_shim_preload_host(void);
/* Adds the library that samples host allocations (--profile). */
stow_status run_shim_preload_profile(void);

/* Returns the name of a preloaded library that also intercepts the driver (HAMi and similar), found
 * in LD_PRELOAD or /etc/ld.so.preload; NULL if there is none. */
const char *run_shim_rival(void);

/* Returns the path of the driver; "" if there is none. */
const char *run_shim_driver(void);

#endif
