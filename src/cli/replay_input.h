/* What `replay` and `tune` are both told: a recording, a card or a limit, settings. */
#ifndef CLI_REPLAY_INPUT_H
#define CLI_REPLAY_INPUT_H

#include "base/buffer.h"
#include "cli/verb.h"
#include "replay/replay.h"

/* Memory of a card that its user never gets: the CUDA context and loaded kernels. Measured on an
 * H200 (driver 580, PyTorch 2.11): 15.62 GiB in use by a process whose allocator had
 * reserved 14.955. */
#define REPLAY_CONTEXT_BYTES (UINT64_C(680) << 20)

typedef struct replay_input {
  const char *path;
  recording record;
  steps steps;
  replay_options options;
  uint64_t card_bytes; /* --vram; 0: none */
} replay_input;

/* Reads operand 0, --vram and --vram-limit; `settings` (NULL: none) goes over the recording's own.
 * Undo with replay_input_close, also after a failure. */
stow_status replay_input_open(replay_input *in, const verb_call *call, const char *settings);
void replay_input_close(replay_input *in);
/* The lines above a table: what was read, what could not be, what the card leaves. */
void replay_input_describe(const replay_input *in, buffer *out);

#endif
