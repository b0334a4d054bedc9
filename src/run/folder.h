/* Run folder: holds the files of one run. Its path is $XDG_STATE_HOME/stowage/runs/DATE-TIME-PID
 * (or under ~/.local/state); the link `last` beside it points to the newest run. If a launcher
 * started several ranks, each with its own `stowage run`, they share one folder with a subfolder
 * rankN for each. Used by `stowage run` and `stowage explain --last`. */
#ifndef RUN_FOLDER_H
#define RUN_FOLDER_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include <stowage/status.h>

/* Creates the folder, readable by its owner only. STOW_ERR_IO names what could not be created. */
stow_status run_folder_make(char path[PATH_MAX]);

/* Finds the folder of the newest run. STOW_ERR_NOT_FOUND if there is none. */
stow_status run_folder_last(char path[PATH_MAX]);

/* Finds the rank that failed first (or the lowest rank) in a folder that ranks share. Sets `path`
 * to the rank's folder and `rank` to its number. Returns false and changes nothing for any other
 * folder. */
bool run_folder_rank(char path[PATH_MAX], char rank[32]);

/* How a run ended, kept in its folder. */
typedef struct run_end {
  int code;          /* exit code of the command */
  int signal_number; /* the signal that ended it; 0: none */
  char command[160];
  bool by_kernel; /* the kernel killed a process of the run because host memory ran out */
} run_end;
void run_folder_write_end(const char *path, const run_end *end);
/* *known is false if the run has not ended yet, or `stowage run` itself was killed. STOW_ERR_IO if
 * the file exists and cannot be read. */
stow_status run_folder_read_end(const char *path, run_end *end, bool *known);
/* The same for callers that treat an unreadable file like a missing one. */
bool run_folder_end(const char *path, run_end *end);

/* Lists the folders of running runs, newest first, at most `max`; for a run that ranks share, the
 * folder of each rank. Returns their number. */
size_t run_folder_live(char (*paths)[PATH_MAX], size_t max);

/* Removes old runs. Keeps the newest twenty, those still running, and those it cannot remove. */
void run_folder_tidy(const char *path);

#endif
