/* Recorder: this process's trace in the run's folder.
 *
 * libstowage.so, which lies beside the shim, writes it. It is opened at the first event, so that
 * programs without CUDA do not carry it. Each process of a run has a ring in the run's folder and,
 * if the run records, a .stow file. Without a run's folder nothing is recorded. */
#ifndef SHIM_RECORDER_H
#define SHIM_RECORDER_H

#include <stdbool.h>

#include <stowage/trace.h>

/* Returns whether there is a trace to write to. Opens it at the first call; false inside the
 * recorder's own work. */
bool recorder_on(void);
/* Writes an event, with the Python stack of the calling thread where its kind has one. Only after
 * recorder_on has returned true. */
void recorder_event(stow_trace_record *event);

/* The number of a name (0: there is no room), and one launch. Only after recorder_on has returned
 * true. */
uint32_t recorder_tag(const char *name);
void recorder_launch(const stow_trace_launch_info *launch);

/* The beginning or the end of the range `name`; a fact about the process. Neither opens a trace. */
void recorder_mark(const char *name, bool begins);
void recorder_fact(const char *key, const char *value);

#endif
