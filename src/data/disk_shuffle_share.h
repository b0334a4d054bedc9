/* Disk shuffle, shared: one scratch file for several ranks on one machine.
 *
 * FOLDER/stowage-shuffle-KEY.lock is locked (flock) by the rank that writes FOLDER/stowage-shuffle-
 * KEY.0, .1, …; the others wait. Once the files are complete, the lock file says so, and every rank
 * that uses them holds a shared lock. The last one removes them. After a crash they stay: a later
 * run with the same key uses them if they are complete, else it writes them again. Called by
 * disk_shuffle.c. */
#ifndef DATA_DISK_SHUFFLE_SHARE_H
#define DATA_DISK_SHUFFLE_SHARE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct disk_shuffle_share disk_shuffle_share;

/* Waits until the files are complete, or nobody else writes them. STOW_ERR_INTERRUPTED once
 * *cancelled is true. */
stow_status disk_shuffle_share_open(disk_shuffle_share **s, const char *folder, uint64_t key,
                                    const atomic_bool *cancelled);
/* Returns whether the files are complete. */
bool disk_shuffle_share_complete(const disk_shuffle_share *s);
/* Opens the file of a part; creates it where `create` is set. Returns -1 with errno. */
int disk_shuffle_share_file(const disk_shuffle_share *s, uint32_t part, bool create);
/* Marks the files as complete and lets the other ranks in. */
stow_status disk_shuffle_share_ready(disk_shuffle_share *s);
/* Removes the files if no other rank uses them. NULL is allowed. */
void disk_shuffle_share_close(disk_shuffle_share *s, uint32_t parts);

#endif
