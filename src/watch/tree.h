/* Tree: the host memory of a process and everything it started, as the kernel reports it.
 *
 * Held memory is what the kernel cannot drop: anonymous and shared memory. If several processes
 * hold much, each counts its share of their common pages (a forked worker shares its parent's pages
 * until it writes). Used by `stowage run --ram-limit`. */
#ifndef WATCH_TREE_H
#define WATCH_TREE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/status.h"
#include "run/host_record.h"

typedef struct tree {
  tree_process *list; /* the largest first */
  size_t count;
  uint64_t held_bytes;
} tree;

/* Lists every descendant of `root`, without `root` itself. Omits processes that end during the
 * call. Free the result even after an error. */
stow_status tree_read(tree *t, pid_t root);
void tree_free(tree *t);

/* ---- one process in detail ---- */

/* Returns the anonymous bytes of one process; 0 if it is gone. Takes 10 us. */
uint64_t tree_anonymous_bytes(pid_t pid);

/* Returns a number that changes when the first thread of a process starts a child or waits for one;
 * 0 if the kernel does not list children. Takes 10 us. */
uint64_t tree_children_hash(pid_t pid);

/* Reads the resident bytes by kind and the largest mappings (at most `max`, summed by path).
 * Returns the number of mappings. */
size_t tree_maps(pid_t pid, uint64_t kinds[TREE_MAP_KINDS], tree_map *largest, size_t max);

/* The same from a text as /proc/PID/smaps has it. */
size_t tree_maps_read(FILE *smaps, uint64_t kinds[TREE_MAP_KINDS], tree_map *largest, size_t max);

/* Reads the largest regular files that the process has open. Returns their number. */
size_t tree_files(pid_t pid, tree_file *largest, size_t max);

#endif
