/* Reads the input of `replay` and `tune`. */
#include "cli/replay_input.h"

#include <inttypes.h>
#include <string.h>

#include <stowage/size.h>

#include "base/text.h"
#include "cli/losses.h"
#include "recordings/recording_file.h"

/* A recording may use as much host memory as any file that is given explicitly: 16 GiB of tables
 * hold five hundred million events. */
#define RECORD_BYTES_MAX (UINT64_C(16) << 30)

stow_status replay_input_open(replay_input *in, const verb_call *call, const char *settings) {
  *in = (replay_input){.path = call->operands[0]};
  replay_job_options options = {.settings = settings};
  recording_init(&in->record, RECORD_BYTES_MAX);
  if (verb_value(call, "vram") != NULL && verb_value(call, "vram-limit") != NULL)
    return stow_fail(STOW_ERR_INVALID, "--vram is the size of the device, --vram-limit limits the "
                                       "reserve: give one of them");
  STOW_TRY(verb_memory(call, "vram", &options.device_bytes));
  STOW_TRY(verb_memory(call, "vram-limit", &options.limit_bytes));
  STOW_TRY(replay_job_check(&options)); /* a mistake is reported before a long read */
  STOW_TRY(recording_read(&in->record, in->path, KIND_AUTO, NULL));
  losses_warn(&in->record, in->path);
  return replay_job_open(&in->job, &in->record, in->path, &options);
}

void replay_input_close(replay_input *in) {
  replay_job_close(&in->job);
  recording_free(&in->record);
}

void replay_input_describe(const replay_input *in, buffer *out) {
  const steps *s = &in->job.steps;
  char size[STOW_SIZE_TEXT_MAX], device[STOW_SIZE_TEXT_MAX];
  const char *name = strrchr(in->path, '/');
  buffer_printf(out, "%s: %" PRIu64 " event%s, %" PRIu64 " allocation%s, at most %s live at once\n",
                name != NULL ? name + 1 : in->path, s->event_count, text_s(s->event_count),
                s->alloc_count, text_s(s->alloc_count), stow_size_format(size, s->peak_live_bytes));
  if (s->event_count < in->record.event_count)
    buffer_printf(out, "device %u: %" PRIu64 " event%s of other devices left out\n", s->device,
                  in->record.event_count - s->event_count,
                  text_s(in->record.event_count - s->event_count));
  if (s->initial_blocks > 0)
    buffer_printf(out,
                  "the recording began late: %" PRIu64 " block%s live before it, allocated first\n",
                  s->initial_blocks, text_s(s->initial_blocks));
  if (s->unknown_frees + s->doubled_addresses > 0)
    buffer_printf(out,
                  "left out: %" PRIu64 " free%s of unknown addresses; %" PRIu64
                  " address%s allocated twice without a free between\n",
                  s->unknown_frees, text_s(s->unknown_frees), s->doubled_addresses,
                  s->doubled_addresses == 1 ? "" : "es");
  if (in->job.device_bytes != 0)
    buffer_printf(out,
                  "a device of %s leaves %s: %" PRIu64
                  " MiB is for the CUDA context (measured on an H200; assumed here)\n",
                  stow_size_format(device, in->job.device_bytes),
                  stow_size_format(size, in->job.options.limit_bytes), REPLAY_CONTEXT_BYTES >> 20);
}
