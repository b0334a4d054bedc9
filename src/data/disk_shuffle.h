/* Disk shuffle: the rows of the files in random order, in a scratch file.
 *
 * The files are read once. A group (group_rows rows, as many as the budget allows) takes random
 * blocks of the files and is mixed row by row in memory. Its rows are distributed to all stripes of
 * the scratch file in pieces:
 *
 *   stripe 0: piece 0 of group 0, piece 0 of group 1, …
 *   stripe 1: piece 1 of group 0, piece 1 of group 1, …
 *
 * So a block of the scratch file has rows of many groups, and each group has rows of many places of
 * the file. The batches then shuffle blocks and windows of the scratch file in each epoch.
 *
 * Called by batches, which makes it, and by prefetch, which builds it before the first batch.
 * Guarantees: the same seed and sizes give the same order on every machine; memory is two groups;
 * the scratch file vanishes with the batches. Several ranks on one machine share one. */
#ifndef DATA_DISK_SHUFFLE_H
#define DATA_DISK_SHUFFLE_H

#include <stowage/batches.h>

#include "data/rows.h"

typedef struct disk_shuffle disk_shuffle;

typedef struct disk_shuffle_options {
  uint32_t parts;
  const origin *origins; /* of the files; must outlive it */
  const char *folder;    /* NULL: $TMPDIR, or /var/tmp */
  uint64_t group_rows;   /* of a group */
  uint64_t block_rows;   /* of the files, at most */
  bool chunked;          /* blocks are whole chunks: exactly block_rows */
  uint64_t seed;
  uint64_t bounce_bytes; /* for direct reads; 0: through the page cache */
  bool shared;           /* with other ranks */
} disk_shuffle_options;

/* How the rows are distributed. */
typedef struct disk_shuffle_layout {
  bool forward; /* a part can only be read from front to back */
  uint64_t group_rows, block_rows, stripes;
  uint64_t run_rows; /* neighbours at one place of the files */
} disk_shuffle_layout;

/* `files` are the opened rows of each part. */
disk_shuffle_layout disk_shuffle_lay_out(const disk_shuffle_options *options, const rows *files);

/* Returns the rows of a group that a budget allows, a multiple of `unit_rows` if possible; 0: not
 * even one. */
uint64_t disk_shuffle_group_rows(uint64_t memory_bytes, const rows *files, uint32_t parts,
                                 uint64_t unit_rows);

/* Takes over `first`, the opened rows of each part. Reads and writes nothing yet. */
stow_status disk_shuffle_open(disk_shuffle **d, const disk_shuffle_options *options, rows *first);
void disk_shuffle_close(disk_shuffle *d);
/* Writes the scratch file, unless it is written. Takes as long as reading and writing the files
 * once. STOW_ERR_IO says how many bytes the folder must have free; STOW_ERR_INTERRUPTED after
 * disk_shuffle_cancel. */
stow_status disk_shuffle_build(disk_shuffle *d);
/* Ends a build in another thread, and later ones, until it is called with false. */
void disk_shuffle_cancel(disk_shuffle *d, bool cancel);
/* Returns the origin of a part of the scratch file. Valid after disk_shuffle_build. */
const origin *disk_shuffle_origin(const disk_shuffle *d, uint32_t part);
uint64_t disk_shuffle_bytes(const disk_shuffle *d);
disk_shuffle_layout disk_shuffle_layout_of(const disk_shuffle *d);
/* Returns how many places of the files the rows of a window come from, divided by its rows: each
 * piece has rows of all blocks of its group. The window has blocks of `block_rows` of the scratch
 * file. */
double disk_shuffle_places(const disk_shuffle_layout *l, uint64_t block_rows);

#endif
