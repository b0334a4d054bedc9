/* stowage estimate: how much GPU memory a program or a model will need, without a GPU.
 *
 * PyTorch is a Python library, so the work is done by the Python package
 * (python/stowage/_estimate_command.py). This verb checks the command line and becomes Python. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/variables.h"
#include "cli/output.h"
#include "cli/verb.h"

#define WORDS_MAX 64

/* Imports the package before anything else, so that a Python without it gets a message and not a
 * traceback. */
static const char start[] =
    "import sys\n"
    "try:\n"
    "    from stowage._estimate_command import main\n"
    "except ImportError as reason:\n"
    "    sys.stderr.write('stowage estimate: ' + sys.executable + ' cannot import the package "
    "stowage (' + str(reason) + '): pip install stowage-memory, or name another Python with "
    "--python\\n')\n"
    "    sys.exit(2)\n"
    "main(sys.argv[1:])\n";

static int become(verb_call *call, const char *python, const char *const *words) {
  execvp(python, (char *const *)words); /* takes them as they are; C has no better type for it */
  int error = errno;
  output_error("stowage %s: %s: cannot start this Python: %s; install Python 3, or name it with "
               "--python\n",
               call->verb->name, output_name(python), strerror(error));
  return EXIT_USAGE;
}

static int run(verb_call *call) {
  const char *python = verb_value(call, "python");
  if (python == NULL) python = getenv(ENV_INTERPRETER);
  if (python == NULL || python[0] == '\0') python = "python3";
  uint64_t bytes = 0, number = 0;
  stow_status status = verb_size(call, "vram", &bytes);
  static const char *const counts[] = {"steps", "batch", "length"};
  for (size_t i = 0; status == STOW_OK && i < sizeof counts / sizeof *counts; i++)
    status = verb_number(call, counts[i], 1, 1000000, &number);
  if (status != STOW_OK) return verb_fail(call, status);
  if (verb_value(call, "gpu") == NULL && verb_value(call, "vram") == NULL)
    return verb_usage(call, "name the GPU (--gpu T4) or its memory (--vram 16G)");
  const char *words[WORDS_MAX];
  char option[WORDS_MAX][32];
  size_t count = 0;
  words[count++] = python;
  words[count++] = "-c";
  words[count++] = start;
  for (size_t i = 0; i < call->given_count; i++) {
    const verb_given *one = &call->given[i];
    if (strcmp(one->option->name, "python") == 0) continue;
    if (count + 4 >= WORDS_MAX) return verb_usage(call, "too many options");
    snprintf(option[i], sizeof option[i], "--%s", one->option->name);
    words[count++] = option[i];
    if (one->value != NULL) words[count++] = one->value;
  }
  words[count++] = "--";
  words[count++] = call->operands[0];
  words[count] = NULL;
  return become(call, python, words);
}

static const verb_option options[] = {
    {"gpu", "NAME", "the GPU: T4, A100-80G, H100, \"RTX 4090\", …"},
    {"vram", "SIZE", "the memory of the GPU, for one that has no name here"},
    {"steps", "N", "steps to run (2)"},
    {"record", "FILE", "keep the estimated trace, for stowage report and replay"},
    {"batch", "N", "of a model folder: sequences at once (1)"},
    {"length", "N", "of a model folder: tokens of each sequence (2048, or the model's limit)"},
    {"train", "adamw|sgd|adamw8bit|lora", "of a model folder: train instead of generate"},
    {"dtype", "float32|bfloat16|float16", "of a model folder: the type of the weights"},
    {"python", "FILE", "the Python that has PyTorch and the package stowage (python3)"},
    VERB_OPTION_JSON,
    VERB_OPTIONS_END,
};

const verb verb_estimate = {
    .name = "estimate",
    .summary = "say before the run whether a program or a model fits on a GPU",
    .example = "stowage estimate train.py:make --gpu T4\n"
               "stowage estimate ./Llama-3-8B --vram 24G --length 4096",
    .operands = "SCRIPT:FUNCTION|MODEL_FOLDER",
    .operands_min = 1,
    .operands_max = 1,
    .options = options,
    .run = run,
};
