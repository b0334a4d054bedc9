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

/* The folder of the newest run. STOW_ERR_NOT_FOUND: there was none. */
stow_status run_folder_last(char path[PATH_MAX]);

/* Of a folder that ranks share: the folder of the one that failed first, or of the lowest; `rank`
 * is its number. False, and nothing changed: it is no such folder. */
bool run_folder_rank(char path[PATH_MAX], char rank[32]);

/* How a run ended, kept in its folder. */
typedef struct run_end {
  int code;          /* of its command */
  int signal_number; /* that ended it; 0: none */
  char command[160];
  bool by_kernel; /* which killed a process for want of host memory meanwhile */
} run_end;
void run_folder_write_end(const char *path, const run_end *end);
/* False: it has not ended yet, or was cut off itself. */
bool run_folder_end(const char *path, run_end *end);

/* Lists the folders of the runs that go on, the newest first, at most `max`; of a run that ranks
 * share, the folder of each. Returns their number. */
size_t run_folder_live(char (*paths)[PATH_MAX], size_t max);

/* Keeps the newest twenty runs and those that go on, and removes older ones; those that cannot be
 * removed stay. */
void run_folder_tidy(const char *path);

#endif
