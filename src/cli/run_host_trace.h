/* Run host trace: a .stow recording of the host memory of a command, for --record if the command
 * used no device memory.
 *
 * Each sample adds or removes pieces until the live bytes equal what the command holds. A piece
 * belongs to an object that a Python process reported, with the line that fills it, or to the rest,
 * with the program's current line. The events have tier host. */
#ifndef CLI_RUN_HOST_TRACE_H
#define CLI_RUN_HOST_TRACE_H

#include <limits.h>

#include <stowage/trace.h>

#include "run/host_record.h"

typedef struct run_host_trace run_host_trace;

/* Opens a recording in the folder of a run. Close it even after a failure; it is NULL without
 * memory. */
stow_status run_host_trace_open(run_host_trace **out, const char *folder, const host_record *first);
/* Adds a sample of what is held now. NULL is allowed. */
void run_host_trace_look(run_host_trace *t, const host_record *h);
/* Closes the recording and writes it to `path`, or discards it if `path` is NULL. NULL is allowed
 * for `t`. */
stow_status run_host_trace_close(run_host_trace *t, const char *path);

#endif
