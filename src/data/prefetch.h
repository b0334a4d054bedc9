/* Prefetch: background readers that fill batches ahead of the caller, in order.
 *
 *   ring:     slots of the next `ahead` batches, each with its buffers; the caller takes them in
 *             order and refills each slot with buffers from the pool
 *   windows:  of a shuffle: one holds the rows in use, the other is being read
 *
 * A reader first does what the caller waits for: it fills the next group of batches if their window
 * is loaded, else reads another piece of the next window. Called by batches, one thread at a time.
 * Guarantees: the output depends only on the plan, the seed and the epoch; all memory is the
 * plan's; an error is reported when its batch is due, and the next call retries the batch. */
#ifndef DATA_PREFETCH_H
#define DATA_PREFETCH_H

#include <stowage/batches.h>

#include "data/buffer_pool.h"
#include "data/disk_shuffle.h"
#include "data/plan.h"
#include "data/rank_order.h"
#include "data/rows.h"

typedef struct prefetch prefetch;

/* `first` are the rows of the first reader, one for each part; prefetch takes them over. The plan,
 * the order (divided into the plan's windows), the disk shuffle, the origins and the pool belong to
 * the caller and must outlive it. With a disk shuffle, `first` is empty: a reader builds it before
 * the first batch, and all read from it. */
stow_status prefetch_open(prefetch **p, const plan *made, const rank_order *along,
                          disk_shuffle *from, const origin *origins, rows *first,
                          buffer_pool *buffers);
void prefetch_close(prefetch *p);

/* Makes `batch` of that epoch the next one. */
stow_status prefetch_begin(prefetch *p, uint64_t seed, uint64_t epoch, uint64_t batch);
/* Waits for the next batch and takes it. Not past the last. */
stow_status prefetch_take(prefetch *p, void **data);
/* Waits at most `wait_us` for the next batch or error; returns true if prefetch_take would not wait
 * now. */
bool prefetch_wait(prefetch *p, uint64_t wait_us);
/* Checks whether the files have changed. Called after the last batch. */
stow_status prefetch_check(prefetch *p);

#endif
