/* Shelf: the buffers that batches travel in. A buffer is of one kind (one file's rows of a batch);
 * it is taken from the shelf, filled, handed to the caller, and put back by its address alone, from
 * any thread, even after the batches were closed: the shelf lives until its last buffer is back.
 *
 * Called by prefetch and by stow_batches_release. The buffers that the plan counts stand in one
 * block of each kind and are kept for the next taker; what the caller keeps longer is his memory,
 * not the batches', and is allocated and freed one by one. */
#ifndef DATA_SHELF_H
#define DATA_SHELF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stowage/batches.h>

#define SHELF_ALIGN 64

typedef struct shelf shelf;

typedef struct shelf_options {
  uint32_t kinds;
  uint64_t bytes[STOW_BATCHES_FILES_MAX]; /* of a buffer of each kind */
  bool room[STOW_BATCHES_FILES_MAX];      /* direct reads go into it: see shelf_shift */
  uint64_t planned;           /* of each kind, here and out there: where there are more, what is
                                 given back goes */
  stow_batches_memory memory; /* all NULL: the system's */
  bool singly;                /* no blocks: memory is asked for by the buffer */
} shelf_options;

stow_status shelf_open(shelf **s, const shelf_options *options);
/* Nothing is taken any more; buffers out there stay good. */
void shelf_close(shelf *s);
stow_status shelf_take(shelf *s, uint32_t kind, void **data);
/* STOW_ERR_STATE for one that is on the shelf already. */
stow_status shelf_put(void *data);
/* What one buffer of `bytes` takes, its own book-keeping included. */
uint64_t shelf_buffer_bytes(uint64_t bytes, bool room);

/* ---- direct reads into a buffer that has room ----
 *
 * They begin and end at multiples of SOURCE_DIRECT_UNIT of the file, so the address has to lie as
 * the file's offset does, and what lies around the rows is overwritten: the buffer's own
 * book-keeping too, which shelf_settle puts back. */

typedef struct shelf_kept {
  uint64_t words[SHELF_ALIGN / sizeof(uint64_t)];
} shelf_kept;

/* Moves the beginning of a buffer to `within` (a multiple of SHELF_ALIGN) behind a multiple of the
 * unit: its address from now on. Between this and shelf_settle nobody else may have the buffer. */
void *shelf_shift(void *data, size_t within, shelf_kept *kept);
void shelf_settle(void *data, const shelf_kept *kept);

#endif
