/* Staging: batches on their way to a device. They are read into memory that the device reads by
 * itself (pinned), copied on the caller's stream while the caller goes on, and that memory is read
 * into again only when its copy is done.
 *
 * Called by batches, one thread at a time. The device must outlive every buffer of the pool. */
#ifndef DATA_STAGING_H
#define DATA_STAGING_H

#include <stowage/batches.h>

/* Copies on the way at once: what the plan takes the caller to hold. */
#define STAGING_COPIES 2

typedef struct staging staging;

stow_status staging_open(staging **s, stow_device *device, uint32_t parts);
/* Waits for what is on the way. NULL is fine. */
void staging_close(staging *s);

/* The pool's memory: pinned, of that device. */
stow_batches_memory staging_memory(stow_device *device);

/* Waits until another copy may begin, and puts the buffers of those that are done into their pool.
 */
stow_status staging_wait(staging *s);
/* Waits for all of them. */
stow_status staging_finish(staging *s);
/* Copies each part's `bytes` from `data`, buffers of the pool, to the device's address `to`, on
 * `stream`. The buffers are the staging's from then on; after an error they are the caller's, and
 * no copy of them is on its way. */
stow_status staging_send(staging *s, void *const *data, const uint64_t *bytes, const uint64_t *to,
                         stow_stream stream);

#endif
