/* Run record: the traces the processes of a run left, brought to where they were asked for. Used by
 * `stowage run` when the command has ended. */
#ifndef CLI_RUN_RECORD_H
#define CLI_RUN_RECORD_H

#include <limits.h>
#include <stdbool.h>

#include <stowage/status.h>

/* Can a record be written to `path` when the command has ended? Asked before it is started. */
stow_status run_record_check(const char *path);

/* What became of the traces of a run. */
typedef struct run_gathered {
  char kept[PATH_MAX]; /* the first file, "" if there is none */
  int written, failed; /* traces */
} run_gathered;

/* Gathers what the processes recorded in `folder`. With `path` each trace becomes a file: that of
 * the command itself (or the only one) `path`, the others `path` with their name before the ending.
 * Without it, only where the command failed, traces stay in the folder as .stow files. A trace cut
 * off by the end of its process is completed from its ring. Calls `report` for each trace that
 * could not be written, with the process's name; the thread's message says why. */
void run_record_gather(run_gathered *out, const char *folder, const char *path, int pid,
                       bool failed, void (*report)(const char *name, const char *folder));

#endif
