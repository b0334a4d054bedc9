/* Run host trace: a .stow recording of the host memory of a command, for --record where no device
 * memory was used.
 *
 * Every look adds or removes pieces until the live bytes are what the command holds. A piece
 * belongs to an object that a Python process reported, with the line that fills it, or to the rest,
 * with the line the program was at. The events have tier host. */
#ifndef CLI_RUN_HOST_TRACE_H
#define CLI_RUN_HOST_TRACE_H

#include <limits.h>

#include <stowage/trace.h>

#include "run/host_record.h"

typedef struct run_host_trace run_host_trace;

/* Opens a recording in the folder of a run. Close it even after a failure; NULL: no memory. */
stow_status run_host_trace_open(run_host_trace **out, const char *folder, const host_record *first);
/* Adds what is held now. NULL is allowed. */
void run_host_trace_look(run_host_trace *t, const host_record *h);
/* Closes it and writes it to `path`; NULL: discards it. NULL is allowed for `t`. */
stow_status run_host_trace_close(run_host_trace *t, const char *path);

#endif
