/* stowage inspect: what data files hold, what they take in memory, and what they could take. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/size.h>

#include "base/json.h"
#include "base/status.h"
#include "cli/data_options.h"
#include "cli/output.h"
#include "data/inspect_text.h"

static stow_status print_text(const char *path, const file_facts *f) {
  buffer out = BUFFER_INIT;
  stow_status status = inspect_text(&out, path, f, output_color());
  if (status == STOW_OK) return output_buffer(&out);
  buffer_free(&out);
  return status;
}

static stow_status inspect_all(verb_call *call, const inspect_options *o, const budget *b,
                               progress *bar) {
  bool as_json = verb_flag(call, "json");
  buffer out = BUFFER_INIT;
  json j = JSON_PRETTY(&out);
  stow_status status = STOW_OK;
  if (as_json && call->operand_count > 1) json_begin_array(&j);
  for (int i = 0; i < call->operand_count && status == STOW_OK; i++) {
    file_facts f;
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

static int run(verb_call *call) {
  inspect_options o = {.header = data_header(call)};
  budget b;
  progress bar;
  stow_status status = data_budget(call, &b, &bar, "reading");
  const char *type = verb_value(call, "dtype"), *shape = verb_value(call, "shape");
  if (status == STOW_OK && type != NULL) status = dtype_parse(&o.raw.type, type);
  if (status == STOW_OK && shape != NULL) status = data_shape(shape, &o.raw);
  if (status == STOW_OK) status = inspect_all(call, &o, &b, &bar);
  progress_end(&bar);
  return status == STOW_OK ? EXIT_DONE : verb_fail(call, status);
}

static const verb_option options[] = {
    {"dtype", "TYPE", "the file is raw values of this type, as float32 or i16"},
    {"shape", "N,N", "and of this shape; default one dimension"},
    VERB_OPTION_FOR,
    VERB_OPTION_NAMES,
    VERB_OPTION_HEADER,
    VERB_OPTION_MIN_RATE,
    VERB_OPTION_MEMORY,
    VERB_OPTION_THREADS,
    VERB_OPTION_JSON,
    VERB_OPTIONS_END,
};

const verb verb_inspect = {
    .name = "inspect",
    .summary = "show what data files hold, what they take in memory and what they could take",
    .example = "stowage inspect train.npz labels.npy table.csv.gz\n"
               "stowage inspect --dtype float32 --shape 1000,64 weights.bin",
    .operands = "FILE…",
    .operands_min = 1,
    .operands_max = VERB_ANY_NUMBER,
    .options = options,
    .run = run,
};
