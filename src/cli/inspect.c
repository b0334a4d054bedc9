/* stowage inspect: shows what data and model files hold, how much memory they need, and how little
 * they could need. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/size.h>

#include "base/json.h"
#include "base/status.h"
#include "cli/data_options.h"
#include "cli/output.h"
#include "cli/python.h"
#include "data/inspect_text.h"
#include "data/weights/inspect.h"

static stow_status print_text(const char *path, const file_facts *f) {
  buffer out = BUFFER_INIT;
  stow_status status = inspect_text(&out, path, f, output_color());
  if (status == STOW_OK) return output_buffer(&out);
  buffer_free(&out);
  return status;
}

/* ---- models ---- */

static stow_status print_model(verb_call *call, json *j, const char *path, uint64_t vram,
                               const budget *b) {
  model_facts f;
  buffer out = BUFFER_INIT;
  STOW_TRY(model_inspect(&f, path, b));
  stow_status status = STOW_OK;
  if (verb_flag(call, "json"))
    model_json(j, &f, path, vram, budget_peak());
  else
    status = model_text(&out, &f, path, vram, output_color());
  model_facts_free(&f);
  if (status == STOW_OK && !verb_flag(call, "json")) return output_buffer(&out);
  buffer_free(&out);
  return status;
}

/* Exits as diff does: 0 if the models are equal, 1 if they differ. */
static int compare(verb_call *call, const budget *b, progress *bar) {
  model_diff d;
  buffer out = BUFFER_INIT;
  if (call->operand_count != 2)
    return verb_usage(call, "--diff compares two models: stowage inspect --diff A B");
  const char *first = call->operands[0], *second = call->operands[1];
  stow_status status = model_compare(&d, first, second, b);
  progress_end(bar);
  if (status != STOW_OK) return verb_fail(call, status);
  bool equal = model_diff_equal(&d);
  if (verb_flag(call, "json")) {
    json j = JSON_PRETTY(&out);
    model_diff_json(&j, &d, first, second);
  } else {
    status = model_diff_text(&out, &d, first, second, output_color());
  }
  model_diff_free(&d);
  if (status == STOW_OK) status = output_buffer(&out);
  buffer_free(&out);
  if (status != STOW_OK) return verb_fail(call, status);
  return equal ? EXIT_DONE : EXIT_FAILED;
}

static stow_status inspect_all(verb_call *call, const inspect_options *o, const budget *b,
                               uint64_t vram, progress *bar) {
  bool as_json = verb_flag(call, "json");
  buffer out = BUFFER_INIT;
  json j = JSON_PRETTY(&out);
  stow_status status = STOW_OK;
  if (as_json && call->operand_count > 1) json_begin_array(&j);
  for (int i = 0; i < call->operand_count && status == STOW_OK; i++) {
    file_facts f;
    if (o->raw.type == DTYPE_NONE && model_is(call->operands[i])) {
      status = print_model(call, &j, call->operands[i], vram, b);
      progress_end(bar);
      continue;
    }
    status = inspect_file(&f, call->operands[i], o, b);
    progress_end(bar);
    if (status != STOW_OK) break;
    if (as_json)
      inspect_json(&j, call->operands[i], &f, budget_peak());
    else
      status = print_text(call->operands[i], &f);
    inspect_free(&f);
  }
  if (as_json && call->operand_count > 1) json_end_array(&j);
  if (as_json && status == STOW_OK) return output_buffer(&out);
  buffer_free(&out);
  if (status == STOW_OK) {
    char peak[STOW_SIZE_TEXT_MAX], most[STOW_SIZE_TEXT_MAX];
    output_printf("peak memory %s, budget %s\n", stow_size_format(peak, budget_peak()),
                  stow_size_format(most, b->bytes));
  }
  return status;
}

/* Parquet, Arrow and JSON lines are read by the Python package. */
static int inspect_in_python(verb_call *call) {
  for (int i = 0; i < call->operand_count; i++)
    if (!python_reads(call->operands[i]))
      return verb_usage(call, "%s is read by Python and %s is not; inspect them one by one",
                        output_name(call->operands[0]), output_name(call->operands[i]));
  return python_become(call, NULL, "_data_command");
}

static int run(verb_call *call) {
  if (python_reads(call->operands[0]) && !model_is_beside(call->operands[0]))
    return inspect_in_python(call);
  inspect_options o = {.header = data_header(call)};
  budget b;
  progress bar;
  stow_status status = data_budget(call, &b, &bar, "reading");
  const char *type = verb_value(call, "dtype"), *shape = verb_value(call, "shape");
  if (status == STOW_OK && type != NULL) status = dtype_parse(&o.raw.type, type);
  table_options t = {0};
  if (status == STOW_OK) status = data_table(call, &t);
  o.csv = t.csv;
  if (status == STOW_OK && shape != NULL) status = data_shape(shape, &o.raw);
  uint64_t vram = 0;
  if (status == STOW_OK) status = verb_memory(call, "vram", &vram);
  if (status == STOW_OK && verb_value(call, "vram") != NULL && vram == 0)
    status = stow_fail(STOW_ERR_INVALID, "--vram 0: give the memory of a device, such as 16G");
  if (status == STOW_OK && verb_flag(call, "diff")) {
    table_options_free(&t);
    return compare(call, &b, &bar);
  }
  if (status == STOW_OK) status = inspect_all(call, &o, &b, vram, &bar);
  progress_end(&bar);
  table_options_free(&t);
  return status == STOW_OK ? EXIT_DONE : verb_fail(call, status);
}

static const verb_option options[] = {
    {"dtype", "TYPE", "read the file as raw values of this type, such as float32 or i16"},
    {"shape", "N,N", "the shape of raw values; default one dimension"},
    VERB_OPTION_FOR,
    {"type", "NAME=TYPE",
     "table: read a column as this type: float32, …, text or datetime; repeatable"},
    {"vram", "SIZE", "model: show which types fit on a device with this much memory"},
    {"diff", NULL, "compare two models; the exit code is 1 if they differ"},
    VERB_OPTION_NAMES,
    VERB_OPTIONS_TABLE,
    VERB_OPTION_HEADER,
    VERB_OPTION_MIN_RATE,
    VERB_OPTION_MEMORY,
    VERB_OPTION_THREADS,
    VERB_OPTION_JSON,
    VERB_OPTIONS_END,
};

const verb verb_inspect = {
    .name = "inspect",
    .summary = "show what data and model files hold, what they take and what they could take",
    .example = "stowage inspect train.npz labels.npy table.csv.gz\n"
               "stowage inspect --dtype float32 --shape 1000,64 weights.bin\n"
               "stowage inspect Llama-3-8B/ --vram 16G\n"
               "stowage inspect --diff model-f16.gguf model-q8.gguf",
    .operands = "FILE…",
    .operands_min = 1,
    .operands_max = VERB_ANY_NUMBER,
    .options = options,
    .run = run,
};
