/* PyTorch memory snapshot: reads a pickled torch.cuda.memory._snapshot() into a recording.
 *
 * torch_rows.c and torch_lists.c convert the pickle's dicts and lists to tables as they stream by;
 * torch_finish.c puts the tables in order at the end. */
#ifndef RECORDINGS_TORCH_SNAPSHOT_H
#define RECORDINGS_TORCH_SNAPSHOT_H

#include "files/pickle.h"
#include "recordings/recording.h"

/* Reads one snapshot into the empty recording. Needs at most `max_work_bytes` besides the
 * recording. Unknown contents are counted in the recording, not rejected. */
stow_status torch_snapshot_read(recording *r, input *in, uint64_t max_work_bytes);

#endif
