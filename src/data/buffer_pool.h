/* Buffer pool: the buffers of batches. A buffer has one kind (one file's rows of a batch). It is
 * taken from the pool, filled, passed to the caller, and returned by its address alone, from any
 * thread, even after the batches were closed: the pool lives until its last buffer is back.
 *
 * Called by prefetch and by stow_batches_release. The buffers in the plan are in one block per kind
 * and are kept for reuse. Buffers that the caller keeps longer count as the caller's memory and are
 * allocated and freed one by one. */
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
  uint64_t bytes[STOW_BATCHES_FILES_MAX]; /* size of a buffer of each kind */
  bool room[STOW_BATCHES_FILES_MAX];      /* direct reads go into it: see buffer_pool_shift */
  uint64_t planned;           /* planned buffers of each kind, in the pool and with the caller;
                               * returned buffers beyond that are freed */
  stow_batches_memory memory; /* all NULL: the system's */
  bool singly;                /* no blocks: memory is allocated per buffer */
} buffer_pool_options;

stow_status buffer_pool_open(buffer_pool **s, const buffer_pool_options *options);
/* Closes the pool: no buffer is taken after this. Buffers that the caller holds stay valid. */
void buffer_pool_close(buffer_pool *s);
stow_status buffer_pool_take(buffer_pool *s, uint32_t kind, void **data);
/* Returns STOW_ERR_STATE if it is already in the pool. */
stow_status buffer_pool_put(void *data);
/* Returns what one buffer of `bytes` uses, including its bookkeeping. */
uint64_t buffer_pool_buffer_bytes(uint64_t bytes, bool room);

/* ---- direct reads into a buffer that has room ----
 *
 * They begin and end at multiples of SOURCE_DIRECT_UNIT of the file. So the address must have the
 * same alignment as the file offset, and the memory around the rows is overwritten, including the
 * buffer's own bookkeeping, which buffer_pool_settle restores. */

typedef struct buffer_pool_kept {
  uint64_t words[BUFFER_POOL_ALIGN / sizeof(uint64_t)];
} buffer_pool_kept;

/* Moves the start of a buffer to `within` (a multiple of BUFFER_POOL_ALIGN) after a multiple of the
 * unit. Returns its new address. Until buffer_pool_settle, no other code may use the buffer. */
void *buffer_pool_shift(void *data, size_t within, buffer_pool_kept *kept);
void buffer_pool_settle(void *data, const buffer_pool_kept *kept);

#endif
