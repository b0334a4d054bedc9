/* Buffer pool: the buffers that batches travel in. A buffer is of one kind (one file's rows of a
 * batch); it is taken from the pool, filled, handed to the caller, and put back by its address
 * alone, from any thread, even after the batches were closed: the pool lives until its last buffer
 * is back.
 *
 * Called by prefetch and by stow_batches_release. The buffers that the plan counts stand in one
 * block of each kind and are kept for the next taker; what the caller keeps longer is his memory,
 * not the batches', and is allocated and freed one by one. */
#ifndef DATA_BUFFER_POOL_H
#define DATA_BUFFER_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stowage/batches.h>

#define BUFFER_POOL_ALIGN 64

typedef struct buffer_pool buffer_pool;

typedef struct buffer_pool_options {
  uint32_t kinds;
  uint64_t bytes[STOW_BATCHES_FILES_MAX]; /* of a buffer of each kind */
  bool room[STOW_BATCHES_FILES_MAX];      /* direct reads go into it: see buffer_pool_shift */
  uint64_t planned;           /* of each kind, here and out there: where there are more, what is
                                 given back goes */
  stow_batches_memory memory; /* all NULL: the system's */
  bool singly;                /* no blocks: memory is asked for by the buffer */
} buffer_pool_options;

stow_status buffer_pool_open(buffer_pool **s, const buffer_pool_options *options);
/* Nothing is taken any more; buffers out there stay good. */
void buffer_pool_close(buffer_pool *s);
stow_status buffer_pool_take(buffer_pool *s, uint32_t kind, void **data);
/* STOW_ERR_STATE for one that is in the pool already. */
stow_status buffer_pool_put(void *data);
/* What one buffer of `bytes` takes, its own book-keeping included. */
uint64_t buffer_pool_buffer_bytes(uint64_t bytes, bool room);

/* ---- direct reads into a buffer that has room ----
 *
 * They begin and end at multiples of SOURCE_DIRECT_UNIT of the file, so the address has to lie as
 * the file's offset does, and what lies around the rows is overwritten: the buffer's own
 * book-keeping too, which buffer_pool_settle puts back. */

typedef struct buffer_pool_kept {
  uint64_t words[BUFFER_POOL_ALIGN / sizeof(uint64_t)];
} buffer_pool_kept;

/* Moves the beginning of a buffer to `within` (a multiple of BUFFER_POOL_ALIGN) behind a multiple
 * of the unit: its address from now on. Between this and buffer_pool_settle nobody else may have
 * the buffer. */
void *buffer_pool_shift(void *data, size_t within, buffer_pool_kept *kept);
void buffer_pool_settle(void *data, const buffer_pool_kept *kept);

#endif
