/* Shelf: the buffers that batches travel in. A buffer is of one kind (one file's rows of a batch);
 * it is taken from the shelf, filled, handed to the caller, and put back by its address alone, from
 * any thread, even after the batches were closed: the shelf lives until its last buffer is back.
 *
 * Called by prefetch and by stow_batches_release. What the plan counts is kept for the next
 * taker; what the caller keeps longer is his memory, not the batches'. */
#ifndef DATA_SHELF_H
#define DATA_SHELF_H

#include <stddef.h>
#include <stdint.h>

#include <stowage/batches.h>

#define SHELF_ALIGN 64

typedef struct shelf shelf;

/* Buffers of `bytes[kind]`, `planned` of each kind, here and out there: where there are more, what
 * is given back goes. `memory` may be all NULL. */
stow_status shelf_open(shelf **s, const uint64_t *bytes, uint32_t kinds, uint64_t planned,
                       const stow_batches_memory *memory);
/* Nothing is taken any more; buffers out there stay good. */
void shelf_close(shelf *s);
stow_status shelf_take(shelf *s, uint32_t kind, void **data);
/* STOW_ERR_STATE for one that is on the shelf already. */
stow_status shelf_put(void *data);
/* What one buffer of `bytes` takes, its own book-keeping included. */
uint64_t shelf_buffer_bytes(uint64_t bytes);

#endif
