/* Run profile: what `stowage run --profile` reports at the end: host and device memory by line and
 * by function of the program.
 *
 * Host memory is sampled in each Python process by libstowage-profile.so (run/profile.h). Device
 * memory is exact: from the traces that the shim wrote. */
#ifndef CLI_RUN_PROFILE_H
#define CLI_RUN_PROFILE_H

#include "base/status.h"

/* Sets up the profile for the command: preloads the library and names the folder. */
stow_status run_profile_begin(const char *folder);

/* Reads the profiles and traces of the folder, prints the tables on standard error, and writes
 * them to `json_path` unless it is NULL. */
stow_status run_profile_end(const char *folder, const char *json_path);

#endif
