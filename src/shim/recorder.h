/* Recorder: this process's trace in the run's folder.
 *
 * libstowage.so, which is in the same folder as the shim, writes it. It is opened at the first
 * event, so programs without CUDA do not load it. Each process of a run has a ring in the run's
 * folder and, if the run records, a .stow file. Without a run's folder nothing is recorded. */
#ifndef SHIM_RECORDER_H
#define SHIM_RECORDER_H

#include <stdbool.h>

#include <stowage/trace.h>

/* Returns whether there is a trace to write to. Opens it at the first call. Returns false inside
 * the recorder's own work. */
bool recorder_on(void);
/* Writes an event, with the Python stack of the calling thread if its kind has one. Call it only
 * after recorder_on has returned true. */
void recorder_event(stow_trace_record *event);

/* The number of a name (0: there is no room), and one launch. Only after recorder_on has returned
 * true. */
uint32_t recorder_tag(const char *name);
void recorder_launch(const stow_trace_launch_info *launch);

/* Record the start or the end of the range `name`; record a fact about the process. Neither opens a
 * trace. */
void recorder_mark(const char *name, bool begins);
void recorder_fact(const char *key, const char *value);

#endif
