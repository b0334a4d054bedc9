/* Run trace: what one process of a run recorded, read from the folder of the run.
 *
 * Used by `stowage run` when its command has ended, and by explain. */
#ifndef RECORDINGS_RUN_TRACE_H
#define RECORDINGS_RUN_TRACE_H

#include <stdbool.h>

#include "recordings/recording.h"

/* Reads the trace of the process `name` ("4711"): its file, and what only its ring has yet. */
stow_status run_trace_read(recording *r, const char *folder, const char *name);

/* Adds to the trace what PyTorch saw of its memory when it ran out: the state at the end, the bytes
 * requested for each block, the settings and the error. The trace ends where the view was taken.
 * `*joined` is false, and both are unchanged, if the trace has no such moment or no blocks. */
stow_status run_trace_join(recording *trace, const recording *view, bool *joined);

#endif
