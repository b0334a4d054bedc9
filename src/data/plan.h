/* Plan: how a budget is spent on batches: buffers ahead, readers, blocks and windows of a shuffle.
 *
 * Called by batches when it opens and when it loads a state. All sizes follow from the files, the
 * options and the budget, never from timing, so that the order of rows is the same on every run. */
#ifndef DATA_PLAN_H
#define DATA_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include <stowage/batches.h>

/* From rows of this size on, a shuffle reads them one by one: a random read of 64 KiB costs about
 * what its bytes cost. */
#define PLAN_LARGE_ROW (UINT64_C(64) << 10)

typedef struct plan {
  /* what is asked */
  uint32_t parts;                                 /* files */
  uint64_t row_bytes[STOW_BATCHES_FILES_MAX];     /* as handed out */
  uint64_t file_row_bytes;                        /* of all files together */
  uint64_t scratch_least[STOW_BATCHES_FILES_MAX]; /* to convert; 0: not converted */
  uint64_t rows, rank_rows, first_place; /* of the files; of this rank, from that place on */
  uint64_t batch_rows, batch_count;
  bool shuffle, one_reader, remote;
  bool foreign;           /* the buffers are the caller's memory, and lie as he likes */
  uint64_t cache_bytes;   /* of each reader's connections */
  uint64_t chunk_rows;    /* HDF5: rows that are unpacked together; 0: any number */
  uint64_t outside_bytes; /* HDF5: memory of the workers, part of memory_bytes */
  uint32_t readers_asked;
  uint64_t memory_bytes;
  bool drop_cache; /* the files are too large to stay in the page cache */
  /* what follows */
  uint32_t readers;
  bool caller_reads;      /* the caller reads too, rather than wait: the file may be cached */
  bool one_core;          /* where it is, a reader would only take the caller's turn */
  uint32_t ahead;         /* batches filled or being filled */
  uint32_t group;         /* batches filled by one task, so that a read is large */
  uint64_t scratch_bytes; /* of each reader (the caller is one) and file that converts */
  uint64_t stage_bytes;   /* of each reader: where a group is read before it is dealt out */
  uint64_t block_rows;    /* 0: the file's own order */
  uint64_t window_rows;   /* 0: no window; else a multiple of batch_rows, or all rows of the rank */
  uint32_t windows;       /* 2: one is read while the other is dealt out; 1: it holds everything */
  uint64_t piece_rows;    /* read at a time into a window */
  uint64_t bounce_bytes;  /* of each reader, to read past the page cache; 0: none does */
  uint64_t drop_bytes;    /* page cache is given back in pieces of this size */
  uint64_t planned_bytes;
} plan;

/* Buffers of each file: ahead, and with the caller. */
uint64_t plan_buffers(const plan *p);
/* Have the buffers of that file room for direct reads into them? */
bool plan_room(const plan *p, uint32_t part);
/* Fills in what follows. STOW_ERR_BUDGET with what would do. */
stow_status plan_make(plan *p);
/* The same with the blocks and the window of a state: STOW_ERR_BUDGET if they do not fit. */
stow_status plan_adopt(plan *p, uint64_t block_rows, uint64_t window_rows);

#endif
