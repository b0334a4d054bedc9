/* Streams: which streams of the program have work, and when it is done.
 *
 * Uses only events, so it works with every driver, and it does not wait for Stowage's own copies.
 * All functions require pages_lock and must not be called during a capture. */
#ifndef SHIM_STREAMS_H
#define SHIM_STREAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "device/cuda_driver.h"

/* Called when the calling thread is about to submit work to a stream (NULL: the default one). */
void streams_used(cu_stream stream);

/* Marks the end of the work submitted so far. Returns the number of the mark; marks are numbered in
 * order. If too many are pending, the last one moves to this point. 0: the driver refused. */
uint64_t streams_mark(void);
/* Returns whether all work before a mark is done: CU_OK, CU_ERROR_NOT_READY or an error. */
cu_result streams_passed(uint64_t mark);
/* Returns the last mark before which all work is done. */
uint64_t streams_last_passed(void);

/* Called when the program destroys a stream; its work continues. */
void streams_destroyed(cu_stream stream);
/* Called when a context ended; NULL: an unknown one, so all are forgotten. */
void streams_context_ended(cu_context context);

/* Returns whether work before the first streams_used call, or in more streams than are tracked, may
 * be running. Then only the whole context can be waited for. */
bool streams_lost(void);
void streams_found(void);
/* Called when work was submitted that streams_used was not called for. */
void streams_lose(void);

#endif
