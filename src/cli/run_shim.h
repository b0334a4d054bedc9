/* Run shim: where the preloaded library is, and putting it before what is preloaded already. Used
 * by `stowage run`. */
#ifndef CLI_RUN_SHIM_H
#define CLI_RUN_SHIM_H

#include <limits.h>
#include <stdbool.h>

#include <stowage/status.h>

/* $STOWAGE_SHIM; beside this command, or in the library folder it was installed with.
 * STOW_ERR_NOT_FOUND says where it was looked for. */
stow_status run_shim_find(char path[PATH_MAX]);

/* Puts the shim at the front of LD_PRELOAD of this process, for its children, behind the library
 * `first` unless that is ""; with `nvml` the proxy of NVML too, where there is an NVML for it to
 * stand before. */
stow_status run_shim_preload(const char *path, const char *first, bool nvml);

/* Puts the library that asks Python processes about their host memory there too, where it can be.
 */
void run_shim_preload_host(void);
/* The same for the library that samples host allocations (--profile). */
stow_status run_shim_preload_profile(void);

/* A preloaded library of another that also stands before the driver (HAMi and its kin), found by
 * name in LD_PRELOAD or /etc/ld.so.preload: its name, or NULL. */
const char *run_shim_rival(void);

/* Is there a driver for the shim to stand before? Its path, "" if there is none. */
const char *run_shim_driver(void);

#endif
