/* Reading a ring: of a process that runs, ended or was killed, into a recording.
 *
 * `run` and `explain` call it in the parent. The file is taken as hostile: every number is checked
 * before it is used, and memory stays within the recording's budget plus the ring's texts. */
#ifndef RECORDINGS_RING_READ_H
#define RECORDINGS_RING_READ_H

#include "recordings/recording.h"

/* Adds to `r` the events of the ring that it does not have yet, in order of time. `r` is empty, or
 * what was read from the .stow file of the same trace (STOW_ERR_INVALID if it is of another): then
 * the two are joined without doubles. Events the trace recorded that neither holds are counted in
 * r->skipped_events, damaged records in r->bad_values. On error `r` may hold a part. */
stow_status ring_read(recording *r, const char *path);

#endif
