/* Streams: which streams of the program have work, and when it is done.
 *
 * Needs events only, so it works with every driver, and it does not wait for copies that Stowage
 * itself has under way. All calls are made with pages_lock held, never during a capture. */
#ifndef SHIM_STREAMS_H
#define SHIM_STREAMS_H

#include <stdbool.h>

#include "device/cuda_driver.h"

/* The calling thread is about to submit work to a stream (NULL: the default one). */
void streams_used(cu_stream stream);

/* Marks the end of the work submitted so far. False: the driver refused. */
bool streams_mark(void);
/* Returns whether all work before the last mark is done: CU_OK, CU_ERROR_NOT_READY or an error. */
cu_result streams_passed(void);

/* The program destroys a stream: its work goes on. */
void streams_destroyed(cu_stream stream);
/* A context ended; NULL: one that is not known, so all are forgotten. */
void streams_context_ended(cu_context context);

/* Returns whether work before the first streams_used call, or in more streams than are kept, may
 * be under way: then only the context itself can be waited for. */
bool streams_lost(void);
void streams_found(void);
/* Work was submitted that was not shown to streams_used. */
void streams_lose(void);

#endif
