/* Cuda command: starting the `stowage` command as a child that tries something for us.
 *
 * Used by the probe only. The child is spawned, never forked: a copy of a process that holds a
 * driver and threads is in no state to do anything. It starts without LD_PRELOAD, so that a shim
 * does not follow it, and is gone when the call returns, whatever it did. */
#ifndef DEVICE_CUDA_COMMAND_H
#define DEVICE_CUDA_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct cuda_command_end {
  bool timed_out;
  int signal;    /* that killed it; 0 if none, or if the program took the news of its end for
                    itself (a SIGCHLD handler that waits for all) */
  int exit_code; /* -1 when not known */
} cuda_command_end;

/* Runs `path` with `argv` and keeps what it wrote to standard output (ended with '\0', cut to
 * `size`). After `deadline_ms` it is killed. STOW_ERR_IO: it could not be started. */
stow_status cuda_command_run(const char *path, char *const argv[], int deadline_ms, char *output,
                             size_t size, cuda_command_end *end);

#endif
