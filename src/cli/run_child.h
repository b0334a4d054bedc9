/* Run child: starts the command, forwards signals, and ends the way the command ended. Used by
 * `stowage run`. */
#ifndef CLI_RUN_CHILD_H
#define CLI_RUN_CHILD_H

#include <sys/types.h>

#include "cli/run_program.h"

/* Saves the signal settings for the command, and ignores SIGPIPE so that a closed reader does not
 * end this process. Call it before printing anything. */
void child_prepare(void);

/* Starts argv (ended by NULL) as a child that inherits environment, files and signal settings.
 * Returns 0, or 125 to 127 with the thread's message set. From here on, signals sent to this
 * process go to the child. */
int child_start(pid_t *child, char **argv);

/* Waits for the child; `*how` receives the status of waitpid. Calls `beat` while it waits, first
 * after `beat_ms` (0: never), then after as many milliseconds as it returns. */
void child_wait(pid_t child, int *how, int beat_ms, int (*beat)(void *user), void *user);

/* Sends a signal to everything that this process started, the child first. `child` 0: in any
 * order. */
void child_signal_all(pid_t child, int number);

/* Returns the exit code to end with. If a signal killed the child, this process ends with the same
 * signal, so that its parent sees the same end; the code is only for when that fails. */
int child_end(int how);

#endif
