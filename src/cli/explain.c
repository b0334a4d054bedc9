/* stowage explain: explains why a program ran out of memory and what to change, from an error text,
 * a recording or a run. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "advise/decode.h"
#include "advise/explain.h"
#include "advise/explain_run.h"
#include "base/status.h"
#include "cli/losses.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "recordings/recording_file.h"
#include "run/folder.h"

static const char NOTHING_GIVEN[] = "give an error text (a file, a notebook, or through a pipe), a "
                                    "recording (a PyTorch snapshot, a "
                                    ".stow trace, the folder of a run), or --last for the last run";

#define RECORDING_BYTES (UINT64_C(8) << 30) /* limit in memory: about 100 million events */
/* Enough for an allocator's dump of a million chunks. */
#define MESSAGE_BYTES (UINT64_C(64) << 20)

/* Appends the rest of `in`. */
static stow_status read_rest(buffer *text, input *in) {
  stow_status status = STOW_OK;
  while ((status = input_fill(in, 1)) == STOW_OK && input_left(in) > 0) {
    size_t count = input_left(in);
    if (text->length + count > MESSAGE_BYTES)
      return stow_fail(STOW_ERR_BUDGET,
                       "%s: the text is longer than %llu MiB; give the part with the error",
                       in->name, (unsigned long long)(MESSAGE_BYTES >> 20));
    STOW_TRY(buffer_append(text, in->at, count));
    STOW_TRY(input_skip(in, count));
  }
  return status;
}

/* Reads the whole text of a file, or of standard input for "-". */
static stow_status read_text(buffer *text, const char *path) {
  input in;
  STOW_TRY(input_open(&in, path, NULL));
  stow_status status = read_rest(text, &in);
  input_close(&in);
  return status;
}

static stow_status show(const explanation *x, const verb_call *call) {
  buffer out = BUFFER_INIT;
  stow_status status = verb_flag(call, "json")    ? explanation_json(x, &out)
                       : verb_flag(call, "short") ? explanation_short(x, &out)
                                                  : explanation_text(x, &out, output_color());
  if (status == STOW_OK) return output_buffer(&out);
  buffer_free(&out);
  return status;
}

/* Finds the folder of the run that --last or the operand names; "" if they name none. */
static stow_status run_named(const verb_call *call, char folder[PATH_MAX]) {
  struct stat info;
  folder[0] = '\0';
  if (verb_flag(call, "last")) return run_folder_last(folder);
  if (call->operand_count > 0 && stat(call->operands[0], &info) == 0 && S_ISDIR(info.st_mode))
    snprintf(folder, PATH_MAX, "%s", call->operands[0]);
  return STOW_OK;
}

static stow_status explain_run(const verb_call *call, const char *folder) {
  static run_explanation s; /* 70 KB: too much for a small stack */
  stow_status status = run_explanation_read(&s, folder);
  if (status == STOW_OK) status = show(&s.says, call);
  run_explanation_free(&s);
  return status;
}

/* Returns whether it is text. A recording has zero bytes near its beginning; a text has none,
 * unless it is UTF-16, as Windows PowerShell writes it. */
static bool is_text(const input *in) {
  const char *at = (const char *)in->at;
  size_t count = input_left(in) < 512 ? input_left(in) : 512;
  return count > 0 &&
         (memchr(at, '\0', count) == NULL || decode_is_utf16((scan_text){at, at + count}));
}

/* Reads the operand: a recording into `r`, or a text into `text`. */
static stow_status read_operand(recording *r, bool *recorded, buffer *text, const char *path) {
  input in;
  recording_kind kind;
  STOW_TRY(input_open(&in, path, NULL));
  stow_status status = recording_sniff(&kind, &in);
  *recorded = kind != KIND_AUTO || !is_text(&in);
  if (status == STOW_OK)
    status = *recorded ? recording_read_input(r, &in, kind, 0) : read_rest(text, &in);
  input_close(&in);
  return status;
}

/* Explains the operand. For a recording, the text of --message is used too. */
static stow_status explain_operand(explanation *x, recording *r, buffer *text, const char *path,
                                   uint64_t device_bytes) {
  buffer own = BUFFER_INIT;
  bool recorded = false;
  stow_status status = read_operand(r, &recorded, &own, path);
  if (status == STOW_OK && !recorded && text->length > 0)
    status = stow_fail(STOW_ERR_INVALID,
                       "%s is a text file, and --message gives another text; give only one of them",
                       path);
  if (status == STOW_OK && !recorded && device_bytes > 0)
    status =
        stow_fail(STOW_ERR_INVALID,
                  "%s is a text file, but --vram needs a recording to replay; omit --vram", path);
  if (status == STOW_OK && recorded) {
    explain_options options = {
        .message = text->data, .message_bytes = text->length, .device_bytes = device_bytes};
    losses_warn(r, path);
    status = explain_recording(x, r, &options);
  } else if (status == STOW_OK) {
    status = explain_message(x, own.data != NULL ? own.data : "", own.length);
  }
  buffer_free(&own);
  return status;
}

static stow_status explain(const verb_call *call) {
  char folder[PATH_MAX];
  STOW_TRY(run_named(call, folder));
  if (folder[0] != '\0') return explain_run(call, folder);
  const char *path = verb_value(call, "message");
  if (path == NULL && call->operand_count == 0) path = "-";
  buffer text = BUFFER_INIT;
  recording r;
  explanation x = {0};
  uint64_t device_bytes = 0;
  STOW_TRY(verb_memory(call, "vram", &device_bytes));
  recording_init(&r, RECORDING_BYTES);
  stow_status status = path != NULL ? read_text(&text, path) : STOW_OK;
  if (status == STOW_OK && call->operand_count > 0)
    status = explain_operand(&x, &r, &text, call->operands[0], device_bytes);
  else if (status == STOW_OK && text.length == 0 && verb_value(call, "message") == NULL)
    status = stow_fail(STOW_ERR_INVALID, "%s", NOTHING_GIVEN);
  else if (status == STOW_OK)
    status = explain_message(&x, text.data != NULL ? text.data : "", text.length);
  if (status == STOW_OK) status = show(&x, call);
  explanation_free(&x);
  recording_free(&r);
  buffer_free(&text);
  return status;
}

static int run(verb_call *call) {
  if (verb_flag(call, "json") && verb_flag(call, "short"))
    return verb_usage(call, "--json and --short: choose one");
  if (verb_flag(call, "last") && (call->operand_count > 0 || verb_value(call, "message") != NULL))
    return verb_usage(call,
                      "--last cannot be combined with other inputs: it explains the last run");
  const char *text = call->operand_count > 0 ? call->operands[0] : verb_value(call, "message");
  if (!verb_flag(call, "last") && (text == NULL || strcmp(text, "-") == 0) &&
      isatty(STDIN_FILENO) == 1)
    output_error("Paste the error text, then press Ctrl-D on an empty line:\n");
  struct stat info;
  bool folder =
      call->operand_count > 0 && stat(call->operands[0], &info) == 0 && S_ISDIR(info.st_mode);
  if (verb_value(call, "vram") != NULL && (call->operand_count == 0 || folder))
    return verb_usage(call, "--vram needs a recording (a PyTorch snapshot or a .stow trace): "
                            "stowage explain snapshot.pickle --vram 16G");
  stow_status status = explain(call);
  return status == STOW_OK ? EXIT_DONE : verb_fail(call, status);
}

static const verb_option options[] = {
    {"message", "FILE", "the error text, if the recording lacks it; - for standard input"},
    {"last", NULL, "use the last run of stowage run"},
    {"vram", "SIZE", "explain as on a device of this size, less the CUDA context, by replay"},
    {"short", NULL, "print one line"},
    VERB_OPTION_JSON,
    VERB_OPTIONS_END};

const verb verb_explain = {
    .name = "explain",
    .summary = "explain why a program ran out of memory, and what to change",
    .example = "stowage explain error.txt\nstowage explain notebook.ipynb\n"
               "python train.py 2>&1 | stowage explain\n"
               "stowage explain snapshot.pickle\nstowage explain snapshot.pickle --vram 16G\n"
               "stowage explain --last",
    .operands = "[FILE]",
    .operands_min = 0,
    .operands_max = 1,
    .options = options,
    .run = run,
};
