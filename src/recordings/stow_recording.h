/* Reads and writes a whole .stow trace file as a recording. For the layout see docs/trace-format.md
 * and trace/stow_file.h. */
#ifndef RECORDINGS_STOW_RECORDING_H
#define RECORDINGS_STOW_RECORDING_H

#include "files/input.h"
#include "recordings/recording.h"
#include "trace/stow_file.h"

/* Writes a whole recording, compressed, chunk by chunk into the sink. */
stow_status recording_write_stow(const recording *r, stowfile_sink sink, void *context);
/* Reads a file into the empty recording. A torn or missing end is not an error: torn_bytes counts
 * the dropped bytes. */
stow_status recording_read_stow(recording *r, input *in, uint64_t max_work_bytes);

#endif
