/* Run folder: where the files of one run are, $XDG_STATE_HOME/stowage/runs/DATE-TIME-PID (or under
 * ~/.local/state), with `last` beside them a link to the newest. Used by `stowage run`. */
#ifndef CLI_RUN_FOLDER_H
#define CLI_RUN_FOLDER_H

#include <limits.h>

#include <stowage/status.h>

/* Makes the folder, readable by its owner only. STOW_ERR_IO says what could not be made. */
stow_status run_folder_make(char path[PATH_MAX]);

/* Keeps the newest twenty runs and removes older ones; those that cannot be removed stay. */
void run_folder_tidy(const char *path);

#endif
