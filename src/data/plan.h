/* Plan: how batches use the budget: buffers ahead, readers, blocks and windows of a shuffle.
 *
 * Called by batches when it opens and when it loads a state. All sizes follow from the files, the
 * options and the budget, never from timing, so that the order of rows is the same on every run. */
#ifndef DATA_PLAN_H
#define DATA_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include <stowage/batches.h>

/* From this size on, a shuffle reads rows one by one: a random read of 64 KiB costs about as much
 * as transferring its bytes. */
#define PLAN_LARGE_ROW (UINT64_C(64) << 10)
/* Of a reader's own window, for each row: its number, and its place in its batch. */
#define PLAN_OWN_ORDER_BYTES (sizeof(uint32_t) + sizeof(struct iovec))

typedef struct plan {
  /* input */
  uint32_t parts;                                 /* files */
  uint64_t row_bytes[STOW_BATCHES_FILES_MAX];     /* as passed to the caller */
  uint64_t file_row_bytes;                        /* bytes of a row in all files together */
  uint64_t scratch_least[STOW_BATCHES_FILES_MAX]; /* for conversion; 0: none */
  uint64_t rows, rank_rows;                       /* of the files; of this rank */
  uint64_t ranks;                                 /* that share the rows */
  uint64_t shares, share_rows; /* that the rank reads parts of; rows of the largest */
  uint64_t batch_rows, batch_count;
  bool shuffle, one_reader, remote;
  double places_per_row;  /* a file in random order: places of the original per row; 0: in order */
  bool foreign;           /* the buffers are the caller's memory, with any alignment */
  uint64_t cache_bytes;   /* for each reader's connections */
  uint64_t chunk_rows;    /* HDF5: rows that are unpacked together; 0: any number */
  uint64_t outside_bytes; /* HDF5: memory of the workers, part of memory_bytes */
  uint32_t readers_wanted;
  uint64_t memory_bytes;
  bool drop_cache; /* the files are too large to stay in the page cache */
  /* output */
  uint32_t readers;
  bool caller_reads;      /* the caller also reads instead of waiting: the file may be cached */
  bool one_core;          /* if it is cached, a reader would only compete with the caller */
  uint32_t ahead;         /* batches filled or being filled */
  uint32_t group;         /* batches filled by one task, so that reads are large */
  uint64_t scratch_bytes; /* per reader (including the caller) and file that needs conversion */
  uint64_t stage_bytes;   /* per reader: a group is read here before it is distributed */
  uint64_t block_rows;    /* 0: in file order */
  uint64_t window_rows;   /* 0: no window; else a multiple of batch_rows, or all rows of the rank */
  uint32_t windows;       /* 2: one is read while the other is used; 1: it holds everything */
  bool own_windows;       /* one reader reads a whole window and fills its batches */
  uint64_t piece_rows;    /* read at a time into a window, at most */
  uint64_t piece_least;   /* read by one task, if the window has as many left */
  uint64_t bounce_bytes;  /* per reader, for direct reads; 0: none */
  uint64_t drop_bytes;    /* page cache is dropped in pieces of this size */
  uint64_t planned_bytes;
} plan;

/* Returns the buffers per file: ahead, and with the caller. */
uint64_t plan_buffers(const plan *p);
/* Returns whether that file's buffers have room for direct reads. */
bool plan_room(const plan *p, uint32_t part);
/* Returns whether that file's rows are large enough to be read straight into their batches. */
bool plan_scatters(const plan *p, uint32_t part);
/* Returns the bytes by which the rows of a window may be shifted, for direct reads. */
uint64_t plan_shift(const plan *p);
/* Returns the bytes of a reader's own window: the rows of one file that is not read straight into
 * its batches, in whole cache lines, and PLAN_OWN_ORDER_BYTES for each row. */
uint64_t plan_own_rows_bytes(const plan *p);
uint64_t plan_own_bytes(const plan *p);
/* Returns the rows of a block of a shuffle; follows from the files alone, and from whether they are
 * in random order. */
uint64_t plan_block(const plan *p, bool random);
/* The same where ranks share the rows: smaller blocks, so that each share has many. */
uint64_t plan_share_block(const plan *p, bool random);
/* Returns whether every order is equally likely, and every share of the ranks. */
bool plan_uniform(const plan *p);
/* Computes the output. STOW_ERR_BUDGET: the message names a budget that is enough. */
stow_status plan_make(plan *p);
/* The same with the blocks and window of a state, whose batches had `batch_rows`: STOW_ERR_BUDGET
 * if they do not fit. */
stow_status plan_adopt(plan *p, uint64_t block_rows, uint64_t window_rows, uint64_t batch_rows);

#endif
