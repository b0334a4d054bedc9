/* Disk shuffle parts: what its files share: disk_shuffle.c (opening, the scratch file),
 * disk_shuffle_build.c (filling it) and disk_shuffle_size.c. */
#ifndef DATA_DISK_SHUFFLE_PARTS_H
#define DATA_DISK_SHUFFLE_PARTS_H

#include <stdatomic.h>

#include "data/disk_shuffle.h"
#include "data/disk_shuffle_share.h"
#include "data/shuffle.h"

#define DISK_SHUFFLE_GROUPS 2 /* at the same time: one is read, one is written */

struct disk_shuffle {
  disk_shuffle_options options;
  const char *folder;
  rows first[STOW_BATCHES_FILES_MAX]; /* of the first member; closed when the scratch file is built
                                       */
  uint64_t row_bytes[STOW_BATCHES_FILES_MAX];
  disk_shuffle_layout layout;
  uint64_t rows, groups;
  uint64_t step_rows; /* pieces begin at multiples: at whole units of the scratch file */
  uint32_t members;   /* threads that read and write */
  sequence order;     /* of the files' blocks */
  atomic_bool cancelled, failed;
  int fds[STOW_BATCHES_FILES_MAX], direct[STOW_BATCHES_FILES_MAX]; /* -1: none */
  origin origins[STOW_BATCHES_FILES_MAX];
  bool mapped[STOW_BATCHES_FILES_MAX]; /* written from a mapping, not from memory */
  void *bounce;                        /* of the first member, which the sources in `first` use */
  disk_shuffle_share *share;           /* NULL: not shared */
  bool built;
};

/* Fails with STOW_ERR_IO: the scratch folder `what`, for the reason in errno. */
stow_status disk_shuffle_refuse(const disk_shuffle *d, const char *what);
/* Returns the rows that fill whole units of the scratch file, if a piece has several times as many;
 * else 1. */
uint64_t disk_shuffle_step_rows(const disk_shuffle *d, const rows *files);
/* Returns how many groups there are at the same time. */
uint32_t disk_shuffle_groups_for(const rows *files, uint32_t parts);
/* Reads the files, mixes their rows, and writes the scratch file. */
stow_status disk_shuffle_fill(disk_shuffle *d);

#endif
