/* Staging: transfers batches to a device. They are read into memory that the device can read itself
 * (pinned) and copied on the caller's stream while the caller continues. The memory is reused only
 * when its copy is done.
 *
 * Called by batches, one thread at a time. The device must outlive every buffer of the pool. */
#ifndef DATA_STAGING_H
#define DATA_STAGING_H

#include <stowage/batches.h>

/* Copies in flight at the same time; the plan assumes that the caller holds as many. */
#define STAGING_COPIES 2

typedef struct staging staging;

stow_status staging_open(staging **s, stow_device *device, uint32_t parts);
/* Waits for copies in flight. `s` may be NULL. */
void staging_close(staging *s);

/* Returns the pool's memory: pinned, of that device. */
stow_batches_memory staging_memory(stow_device *device);

/* Waits until another copy may begin, and returns the buffers of finished copies to their pool. */
stow_status staging_wait(staging *s);
/* Waits for all copies. */
stow_status staging_finish(staging *s);
/* Copies each part's `bytes` from `data`, buffers of the pool, to the device's address `to`, on
 * `stream`. The staging then owns the buffers; after an error the caller owns them, and no copy of
 * them is running. */
stow_status staging_send(staging *s, void *const *data, const uint64_t *bytes, const uint64_t *to,
                         stow_stream stream);

#endif
