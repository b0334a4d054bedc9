/* Command: finds the `stowage` command, for code that starts it as a child: the probe of the host
 * tier (device/cuda_probe) and the HDF5 reader (arrays/hdf5). */
#ifndef BASE_COMMAND_H
#define BASE_COMMAND_H

#include "base/status.h"

#define COMMAND_PATH_MAX 4096

/* Writes the path of the command: $STOWAGE_COMMAND; beside the library or program that contains
 * this code, or in ../bin or ../../bin from there; on PATH. STOW_ERR_NOT_FOUND lists the places. */
stow_status command_find(char path[COMMAND_PATH_MAX]);

/* Returns the environment without LD_PRELOAD, so that no shim follows the child, and without the
 * variable `drop` (NULL: none). NULL if memory is short. Free the array, not its texts. */
char **command_environment(const char *drop);

#endif
