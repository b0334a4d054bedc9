/* Prefetch: background readers that fill batches ahead of the caller, in order.
 *
 *   ring:     slots of the next `ahead` batches, each with its buffers; the caller takes them in
 *             order and arms each slot anew with buffers from the pool
 *   windows:  of a shuffle: one holds the rows being dealt out, the other is being read
 *
 * A reader does what the caller waits for first: it fills the next group of batches if their window
 * is there, else reads another piece of the next window. Called by batches, one thread at a time.
 * Guarantees: what comes out depends on the plan, the seed and the epoch alone; all memory is the
 * plan's; an error is told when its batch is due, and the batch is tried again by the next call. */
#ifndef DATA_PREFETCH_H
#define DATA_PREFETCH_H

#include <stowage/batches.h>

#include "data/buffer_pool.h"
#include "data/plan.h"
#include "data/rows.h"

typedef struct prefetch prefetch;

/* `first` are the rows of the first reader, one for each part, and become the prefetch's own. The
 * plan, the origins and the pool are the caller's and must stay. */
stow_status prefetch_open(prefetch **p, const plan *made, const origin *origins, rows *first,
                          buffer_pool *buffers);
void prefetch_close(prefetch *p);

/* The next batch taken will be `batch` of that epoch. */
stow_status prefetch_begin(prefetch *p, uint64_t seed, uint64_t epoch, uint64_t batch);
/* Waits for the next batch and takes it; not past the last. */
stow_status prefetch_take(prefetch *p, void **data);
/* Waits at most so long for prefetch_take to have something to say: true if it does not wait now.
 */
bool prefetch_wait(prefetch *p, uint64_t wait_us);
/* After the last batch: have the files changed? */
stow_status prefetch_check(prefetch *p);

#endif
