/* Run folder: where the files of one run are, $XDG_STATE_HOME/stowage/runs/DATE-TIME-PID (or under
 * ~/.local/state), with `last` beside them a link to the newest. Where a launcher started several
 * ranks, each with its own `stowage run`, they share one, with a folder rankN for each. Used by
 * `stowage run` and `stowage explain --last`. */
#ifndef RUN_FOLDER_H
#define RUN_FOLDER_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include <stowage/status.h>

/* Makes the folder, readable by its owner only. STOW_ERR_IO says what could not be made. */
stow_status run_folder_make(char path[PATH_MAX]);

/* Finds the folder of the newest run. STOW_ERR_NOT_FOUND if there is none. */
stow_status run_folder_last(char path[PATH_MAX]);

/* In a folder that ranks share, finds the folder of the rank that failed first, or of the lowest
 * rank; `rank` receives its number. Returns false and changes nothing for any other folder. */
bool run_folder_rank(char path[PATH_MAX], char rank[32]);

/* How a run ended, kept in its folder. */
typedef struct run_end {
  int code;          /* of its command */
  int signal_number; /* that ended it; 0: none */
  char command[160];
  bool by_kernel; /* which killed a process for want of host memory meanwhile */
} run_end;
void run_folder_write_end(const char *path, const run_end *end);
/* *known is false if the run has not ended yet, or `stowage run` itself was killed. STOW_ERR_IO if
 * its end is there and cannot be read. */
stow_status run_folder_read_end(const char *path, run_end *end, bool *known);
/* The same for callers that take an unreadable end as none. */
bool run_folder_end(const char *path, run_end *end);

/* Lists the folders of running runs, newest first, at most `max`; for a run that ranks share, the
 * folder of each rank. Returns their number. */
size_t run_folder_live(char (*paths)[PATH_MAX], size_t max);

/* Removes old runs. Keeps the newest twenty, those still running, and those it cannot remove. */
void run_folder_tidy(const char *path);

#endif
