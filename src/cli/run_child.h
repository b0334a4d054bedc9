/* Run child: starting the command, passing signals on, and ending as it ended. Used by
 * `stowage run`. */
#ifndef CLI_RUN_CHILD_H
#define CLI_RUN_CHILD_H

#include <sys/types.h>

#include "cli/run_program.h"

/* Before anything is said: notes the signals as they are, for the command, and keeps a reader that
 * has gone from ending this process. */
void child_prepare(void);

/* Starts argv (ended by NULL) as a child that inherits environment, files and signal settings.
 * 0, or 125 to 127 with the thread's message set. From here on signals sent to this process go to
 * the child. */
int child_start(pid_t *child, char **argv);

/* Waits for the child; `*how` receives the status of waitpid. Calls `beat` meanwhile, first after
 * `beat_ms` (0: never), then after as many milliseconds as it returns. */
void child_wait(pid_t child, int *how, int beat_ms, int (*beat)(void *user), void *user);

/* Sends a signal to everything this process started: the child first (0: as the others). */
void child_signal_all(pid_t child, int number);

/* The exit code to end with. Where the child was killed by a signal this process ends by the same
 * one, so that whoever started us sees the same end; the code is for where that fails. */
int child_end(int how);

#endif
