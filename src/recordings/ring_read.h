/* Reads the ring of a process that runs, ended or was killed into a recording.
 *
 * `run` and `explain` call it in the parent. The file is untrusted: every number is checked before
 * use, and memory stays within the recording's budget plus the ring's texts. */
#ifndef RECORDINGS_RING_READ_H
#define RECORDINGS_RING_READ_H

#include "recordings/recording.h"

/* Adds the events of the ring that `r` lacks, in time order. `r` is empty or was read from the
 * .stow file of the same trace (STOW_ERR_INVALID for another trace); then the two are joined
 * without duplicates. Events that the trace recorded but neither holds are counted in
 * r->skipped_events, damaged records in r->bad_values. On error `r` may be partly filled. */
stow_status ring_read(recording *r, const char *path);

#endif
