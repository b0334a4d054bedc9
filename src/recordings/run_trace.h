/* Run trace: the recording of one process of a run, read from the run's folder.
 *
 * Used by `stowage run` after its command ended, and by explain. */
#ifndef RECORDINGS_RUN_TRACE_H
#define RECORDINGS_RUN_TRACE_H

#include <stdbool.h>

#include "recordings/recording.h"
#include "recordings/recording_file.h"

/* Reads a recording in the folder of a run. Unlike recording_read, which reads a pipe
 * that the user names, it fails with STOW_ERR_FORMAT if the path is not a regular file: opening a
 * pipe would wait for a writer. */
stow_status run_trace_file(recording *r, const char *path, recording_kind kind);

/* Reads the trace of the process `name` ("4711"): its file, plus what only its ring has. */
stow_status run_trace_read(recording *r, const char *folder, const char *name);

/* Adds to the trace PyTorch's view of its memory when it ran out: the state at the end, the
 * requested bytes of each block, the settings and the error. The trace then ends where the view was
 * taken. Sets *joined to false and changes nothing if the trace has no such moment or no blocks. */
stow_status run_trace_join(recording *trace, const recording *view, bool *joined);

#endif
