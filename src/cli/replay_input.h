/* Replay input: the operands and options that `replay` and `tune` share: a recording, a device size
 * or a limit, settings. */
#ifndef CLI_REPLAY_INPUT_H
#define CLI_REPLAY_INPUT_H

#include "base/buffer.h"
#include "cli/verb.h"
#include "replay/replay_job.h"

typedef struct replay_input {
  const char *path;
  recording record;
  replay_job job;
} replay_input;

/* Reads operand 0, --vram and --vram-limit. `settings` (NULL: none) override those of the
 * recording. Undo with replay_input_close, also after a failure. */
stow_status replay_input_open(replay_input *in, const verb_call *call, const char *settings);
void replay_input_close(replay_input *in);
/* Appends the lines above a table: what was read, what was skipped, and how much memory the device
 * leaves. */
void replay_input_describe(const replay_input *in, buffer *out);

#endif
