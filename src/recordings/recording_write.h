/* Recording writers: write a recording in another tool's format, through an outfile.
 *
 * Called by recording_write. Each writes the whole recording; *left_out counts events that the
 * format cannot express. */
#ifndef RECORDINGS_RECORDING_WRITE_H
#define RECORDINGS_RECORDING_WRITE_H

#include "files/outfile.h"
#include "recordings/recording.h"

/* Writes PyTorch's snapshot pickle, protocol 4, for memory_viz. */
stow_status torch_snapshot_write(const recording *r, outfile *out, uint64_t *left_out);
/* Writes Chrome's trace JSON, which Perfetto reads: memory curves, marks, failures. */
stow_status perfetto_write(const recording *r, outfile *out, uint64_t *left_out);
/* Writes Perfetto's own protobuf format: the same curves and marks, every allocation and free with
 * its call stack, and the live memory by stack at the peak and at the end. */
stow_status pftrace_write(const recording *r, outfile *out, uint64_t *left_out);
/* Writes a TensorBoard event file: memory curves as scalars. */
stow_status tensorboard_write(const recording *r, outfile *out, uint64_t *left_out);
/* Writes one event per row, with a heading. */
stow_status csv_trace_write(const recording *r, outfile *out, uint64_t *left_out);

/* Returns "alloc", "free_requested", …: PyTorch's words if it has one. */
const char *event_kind_name(uint8_t kind);

/* ---- for torch_snapshot_write ---- */

/* The segments and blocks at the end, reconstructed from the events if the recording has none. Free
 * both. */
typedef struct rebuilt {
  segment *segments;
  size_t segment_count;
  block *blocks;
  size_t block_count;
} rebuilt;
stow_status segments_rebuild(rebuilt *out, const recording *r);

#endif
