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

typedef struct tree_process {
  pid_t pid, parent;
  char name[32];
  uint64_t held_bytes;                                /* its share */
  uint64_t anonymous_bytes, shared_bytes, file_bytes; /* resident, whole */
  uint64_t read_bytes;                                /* ever, by read and its kin */
} tree_process;

typedef struct tree {
  tree_process *list; /* the largest first */
  size_t count;
  uint64_t held_bytes;
} tree;

/* Every descendant of `root`, not itself. What ends meanwhile is left out. Free in any case. */
stow_status tree_read(tree *t, pid_t root);
void tree_free(tree *t);

/* ---- one process in detail ---- */

typedef enum tree_map_kind {
  TREE_HEAP,      /* what brk gave */
  TREE_ANONYMOUS, /* mappings of no file */
  TREE_SHARED,    /* shared memory: /dev/shm, memfd */
  TREE_FILE,      /* files mapped; the kernel can drop what is not written */
  TREE_MAP_KINDS
} tree_map_kind;
const char *tree_map_name(tree_map_kind kind);

typedef struct tree_map {
  tree_map_kind kind;
  uint64_t bytes; /* resident */
  char path[200]; /* "" where there is none */
} tree_map;

/* Resident bytes by kind, and the largest mappings (at most `max`, summed by path); how many. */
size_t tree_maps(pid_t pid, uint64_t kinds[TREE_MAP_KINDS], tree_map *largest, size_t max);

typedef struct tree_file {
  uint64_t bytes, read_bytes; /* its size, and how far it was read */
  char path[200];
} tree_file;

/* The largest regular files it has open; how many. */
size_t tree_files(pid_t pid, tree_file *largest, size_t max);

#endif
