/* Run record: moves the traces that the processes of a run left to the requested path. Used by
 * `stowage run` when the command has ended. */
#ifndef CLI_RUN_RECORD_H
#define CLI_RUN_RECORD_H

#include <limits.h>
#include <stdbool.h>

#include <stowage/status.h>

/* Checks, before the command starts, whether a recording can be written to `path`. */
stow_status run_record_check(const char *path);

/* The result of gathering the traces of a run. */
typedef struct run_gathered {
  char kept[PATH_MAX]; /* path of the first file; "" if there is none */
  int written, failed; /* numbers of traces */
} run_gathered;

/* Gathers what the processes recorded in `folder`. With `path`, each trace becomes a file: the
 * trace of the command itself (or the only one) goes to `path`, the others to `path` with the
 * process's name before the extension. Without it, and only if the command failed, traces stay in
 * the folder as .stow files. A trace cut off by the end of its process is completed from its ring.
 * Calls `report` for each trace that could not be written, with the process's name; the thread's
 * message says why. */
void run_record_gather(run_gathered *out, const char *folder, const char *path, int pid,
                       bool failed, void (*report)(const char *name, const char *folder));

#endif
