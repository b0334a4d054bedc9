/* Run record: the traces the processes of a run left, brought to where they were asked for. Used by
 * `stowage run` when the command has ended. */
#ifndef CLI_RUN_RECORD_H
#define CLI_RUN_RECORD_H

#include <limits.h>
#include <stdbool.h>

#include <stowage/status.h>

/* Can a record be written to `path` when the command has ended? Asked before it is started. */
stow_status run_record_check(const char *path);

/* Gathers what the processes recorded in `folder`. With `path` each trace becomes a file: that of
 * the command itself (or the only one) `path`, the others `path` with their name before the ending.
 * Without it, only where the command failed, traces stay in the folder as .stow files. A trace cut
 * off by the end of its process is completed from its ring. `*kept` (PATH_MAX) is the first file,
 * "" if there is none. */
stow_status run_record_gather(char kept[PATH_MAX], const char *folder, const char *path, int pid,
                              bool failed);

#endif
