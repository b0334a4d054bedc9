/* Tree: the host memory of a process and everything it started, as the kernel tells it.
 *
 * What counts as held is what the kernel cannot drop: anonymous and shared memory. Where several
 * processes hold much, each counts its share of the pages they have in common (a worker made by
 * fork shares its parent's until it writes). Used by `stowage run --ram-limit`. */
#ifndef WATCH_TREE_H
#define WATCH_TREE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"
#include "run/host_record.h"

typedef struct tree {
  tree_process *list; /* the largest first */
  size_t count;
  uint64_t held_bytes;
} tree;

/* Every descendant of `root`, not itself. What ends meanwhile is left out. Free in any case. */
stow_status tree_read(tree *t, pid_t root);
void tree_free(tree *t);

/* ---- one process in detail ---- */

/* Resident bytes by kind, and the largest mappings (at most `max`, summed by path); how many. */
size_t tree_maps(pid_t pid, uint64_t kinds[TREE_MAP_KINDS], tree_map *largest, size_t max);

/* The largest regular files it has open; how many. */
size_t tree_files(pid_t pid, tree_file *largest, size_t max);

#endif
