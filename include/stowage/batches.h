/* Batches: rows of files far larger than memory, in batches, within a memory budget.
 *
 *   stow_array_options x = STOW_ARRAY_OPTIONS_INIT, y = STOW_ARRAY_OPTIONS_INIT;
 *   x.path = "features.npy", y.path = "labels.npy";
 *   const stow_array_options *files[2] = {&x, &y};
 *   stow_batches_options options = STOW_BATCHES_OPTIONS_INIT;
 *   options.files = files, options.file_count = 2;
 *   options.batch_rows = 256, options.shuffle = true, options.memory_bytes = 256 << 20;
 *   stow_batches *batches;
 *   stow_batches_open(&batches, &options);
 *   void *data[2];
 *   uint64_t rows;
 *   while (stow_batches_next(batches, data, &rows) == STOW_OK && rows > 0) {
 *     … data[0] holds `rows` rows of features, data[1] their labels …
 *     stow_batches_release(data[0]), stow_batches_release(data[1]);
 *   }
 *   stow_batches_close(batches);
 *
 * The files stay in step by row. Every row comes exactly once in an epoch, over all ranks together.
 * The order depends only on the options, never on timing or the number of readers. Background
 * readers fill buffers ahead. The caller owns a buffer from next until release; it may outlive the
 * batches.
 *
 * Shuffled: the file is cut into blocks of contiguous rows, the blocks are put in random order, and
 * each run of them that fills a window (what the budget allows) is mixed row by row. Rows of 64 KiB
 * and more are permuted one by one. If all rows of a rank fit in the window, or rows are permuted
 * one by one, every order is equally likely. Otherwise two rows of one block come within one window
 * of each other (stow_batches_info has both sizes, and the quality that follows from them).
 *
 * Shuffled on disk: the rows are first copied in random order into a scratch file, which is then
 * read in blocks and windows as above. Neighbours in the copy are not neighbours in the file, so
 * the quality is close to 1 in any budget that holds a few batches.
 *
 * Ranks: each epoch of a shuffle divides the rows anew. The blocks are smaller, so that a share has
 * rows of everywhere: about 3,000 in a share, and single rows in a small file.
 *
 * Threads: only one thread at a time may call next, set_epoch and the state functions; any thread
 * may call release. Fork: a child opens its own; it must not use or close its parent's. Link with
 * -lstowage-data. */
#ifndef STOWAGE_BATCHES_H
#define STOWAGE_BATCHES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stowage/array.h>
#include <stowage/device.h>
#include <stowage/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stow_batches stow_batches;

#define STOW_BATCHES_FILES_MAX 16

/* Values of stow_batches_options.shuffle; 0: in file order. */
#define STOW_BATCHES_SHUFFLE_WINDOW 1 /* within windows in memory */
#define STOW_BATCHES_SHUFFLE_DISK   2 /* through a scratch file as large as the files */

/* Allocates and frees the buffers instead of malloc. `allocate` is called only by the thread that
 * calls next; `release` only by threads that call release or close. Part of the options: it never
 * grows. */
typedef struct stow_batches_memory {
  void *(*allocate)(void *user, size_t bytes); /* returns an address that is a multiple of 64; NULL:
                                                * out of memory */
  void (*release)(void *user, void *memory, size_t bytes);
  void *user;
} stow_batches_memory;

typedef struct stow_batches_options {
  uint32_t struct_bytes;                  /* sizeof(stow_batches_options) */
  uint32_t file_count;                    /* at most STOW_BATCHES_FILES_MAX */
  const stow_array_options *const *files; /* pointers; all files must have the same number of
                                           * rows */
  uint64_t batch_rows;
  uint32_t drop_last; /* 1: leave out a short last batch; then all ranks have as many */
  uint32_t shuffle;   /* 0: in file order; or STOW_BATCHES_SHUFFLE_… */
  uint64_t seed;
  uint32_t rank, world;  /* world 0: read RANK and WORLD_SIZE, OMPI_*, PMI_* or SLURM_*; without
                          * them one rank */
  uint32_t readers;      /* background threads; 0: as many as the budget and the machine allow */
  uint32_t reserved;     /* 0 */
  uint64_t memory_bytes; /* the most memory that the batches may use; 0: a quarter of free memory */
  stow_batches_memory memory; /* if allocate is NULL, malloc */
  stow_device *device; /* puts buffers in pinned memory of this device, for stow_batches_send; it
                        * must outlive the batches. NULL: none */
  const char *scratch; /* folder of the scratch file; NULL: $TMPDIR, or /var/tmp */
} stow_batches_options;
#define STOW_BATCHES_OPTIONS_INIT                                                                  \
  {                                                                                                \
    sizeof(stow_batches_options), 0, NULL, 1, 0, 0, 0, 0, 0, 0, 0, 0, {NULL, NULL, NULL}, NULL,    \
        NULL                                                                                       \
  }

/* Opens every file and checks that they have the same number of rows; starts no reader yet.
 * STOW_ERR_BUDGET: the batches do not fit in the budget; the message names a budget that is
 * enough. */
STOW_API stow_status stow_batches_open(stow_batches **batches, const stow_batches_options *options);
/* Stops the readers. Buffers of the caller stay valid until they are released. NULL is allowed.
 */
STOW_API void stow_batches_close(stow_batches *batches);

/* Returns the next batch: one buffer for each file, its rows one after another in C order, aligned
 * to 64. `*rows` is 0 at the end of the epoch. After an error, the next call retries the same
 * batch. */
STOW_API stow_status stow_batches_next(stow_batches *batches, void **data, uint64_t *rows);
/* Waits at most `wait_us` for the next batch, for callers that have other work to do. STOW_OK: next
 * will not block; STOW_ERR_NOT_READY: next would block. */
STOW_API stow_status stow_batches_wait(stow_batches *batches, uint64_t wait_us);
/* Copies the next batch to the device in the options, on `stream`. `to` has one device address for
 * each file, each with room for a whole batch. Returns when the copies are submitted: later work on
 * that stream sees the rows; another stream must wait for an event. The source buffers are reused
 * only after the copies are done. Two batches can be in flight; a third waits for the first.
 * `*rows` and errors as above. */
STOW_API stow_status stow_batches_send(stow_batches *batches, const uint64_t *to,
                                       stow_stream stream, uint64_t *rows);
/* Releases one file's buffer. STOW_ERR_STATE: the buffer was already released. */
STOW_API stow_status stow_batches_release(void *data);

/* Starts an epoch at its first batch; each epoch of a shuffle has a different order. */
STOW_API stow_status stow_batches_set_epoch(stow_batches *batches, uint64_t epoch);

/* A world that read the first part of the epoch, before a state was loaded by another world. Part
 * of the state: it never grows. */
typedef struct stow_batches_earlier {
  uint64_t world, batch_rows;
  uint64_t next_batch; /* batches that each of its ranks took */
} stow_batches_earlier;
#define STOW_BATCHES_EARLIER_MAX 8

/* The position of the batches, as plain numbers for a checkpoint. Loading it in a world of the same
 * size continues with exactly the remaining batches, in the same order, with any budget.
 *
 * Loading it in a world of another size continues the epoch with the rows that remain, each exactly
 * once over all ranks. Take the state when every rank has taken the same number of batches in this
 * epoch, and load one rank's state on all ranks. All ranks must have the same budget, then and now.
 * Batches may have another size. The next epoch is as if this world had begun it. */
typedef struct stow_batches_state {
  uint32_t struct_bytes; /* sizeof(stow_batches_state), set by the caller */
  uint32_t reserved;     /* 0 */
  uint64_t rows, batch_rows, seed, epoch, next_batch;
  uint64_t rank, world, shuffle, drop_last;
  uint64_t block_rows, window_rows; /* rows in one block and in one window of the shuffle */
  uint64_t deck_rows;               /* of the shuffle on disk: rows sorted at a time; 0: none */
  uint64_t earlier_count;           /* worlds that read before this one, in this epoch */
  stow_batches_earlier earlier[STOW_BATCHES_EARLIER_MAX];
} stow_batches_state;
#define STOW_BATCHES_STATE_INIT                                                                    \
  {                                                                                                \
    sizeof(stow_batches_state), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {                        \
      { 0, 0, 0 }                                                                                  \
    }                                                                                              \
  }
STOW_API stow_status stow_batches_get_state(stow_batches *batches, stow_batches_state *state);
/* Continues at a saved position. STOW_ERR_INVALID: the state belongs to other files or options; the
 * message has both values. STOW_ERR_BUDGET: the shuffle's window does not fit in this budget. */
STOW_API stow_status stow_batches_set_state(stow_batches *batches, const stow_batches_state *state);

typedef struct stow_batches_info {
  uint32_t struct_bytes;  /* sizeof(stow_batches_info), set by the caller */
  uint32_t readers;       /* background threads */
  uint64_t rows;          /* in the files */
  uint64_t rank_rows;     /* of this rank, in this epoch */
  uint64_t batch_count;   /* of this rank, in this epoch */
  uint32_t rank, world;   /* as found */
  uint64_t memory_bytes;  /* the budget */
  uint64_t planned_bytes; /* the part of the budget for buffers, including two batches that the
                           * caller holds */
  uint64_t block_rows;    /* rows in one block of the shuffle; 1: rows are shuffled one by one */
  uint64_t window_rows;   /* rows shuffled together; 0: no shuffle, or rows are shuffled one by
                           * one */
  uint32_t drops_cache;   /* 1: the files are large compared with free memory, so their page cache
                           * is dropped */
  uint32_t reserved;
  uint64_t scratch_bytes; /* of disk, for the shuffle on disk; 0: none */
  double shuffle_quality; /* 0 to 1: how many of 1,000 classes a batch of 256 rows of a file that is
                             sorted by class holds, relative to a uniform shuffle (226). 0: not
                             shuffled */
} stow_batches_info;
#define STOW_BATCHES_INFO_INIT                                                                     \
  { sizeof(stow_batches_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
STOW_API stow_status stow_batches_get_info(stow_batches *batches, stow_batches_info *info);
/* Returns the type and shape of one file's buffers; shape[0] is the number of all its rows. */
STOW_API stow_status stow_batches_get_file(stow_batches *batches, uint32_t file,
                                           stow_array_info *info);

#ifdef __cplusplus
}
#endif
#endif
