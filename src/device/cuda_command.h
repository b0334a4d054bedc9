/* Cuda command: runs the `stowage` command as a child process that tries something for us.
 *
 * Used only by the probe. The child is spawned, not forked: after a fork, a process with a driver
 * and threads could not safely do anything. It starts without LD_PRELOAD, so the shim does not
 * follow it, and has always ended when the call returns. */
#ifndef DEVICE_CUDA_COMMAND_H
#define DEVICE_CUDA_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct cuda_command_end {
  bool timed_out;
  int signal;    /* the signal that killed it; 0: none, or the program reaped the child itself (a
                  * SIGCHLD handler that waits for all) */
  int exit_code; /* -1 if unknown */
} cuda_command_end;

/* Runs `path` with `argv` and stores its standard output (terminated with '\0', truncated to
 * `size`). Kills it after `deadline_ms`. STOW_ERR_IO if it could not be started. */
stow_status cuda_command_run(const char *path, char *const argv[], int deadline_ms, char *output,
                             size_t size, cuda_command_end *end);

#endif
