/* stowage estimate: how much GPU memory a program or a model will need, without a GPU.
 *
 * PyTorch is a Python library, so the work is done by the Python package
 * (python/stowage/_estimate_command.py). This verb checks the command line and then executes
 * Python. */
#include "cli/python.h"

static int run(verb_call *call) {
  const char *python = verb_value(call, "python");
  uint64_t bytes = 0, number = 0;
  stow_status status = verb_memory(call, "vram", &bytes);
  static const char *const counts[] = {"steps", "batch", "length"};
  for (size_t i = 0; status == STOW_OK && i < sizeof counts / sizeof *counts; i++)
    status = verb_number(call, counts[i], 1, 1000000, &number);
  if (status != STOW_OK) return verb_fail(call, status);
  if (verb_value(call, "gpu") == NULL && verb_value(call, "vram") == NULL)
    return verb_usage(call, "name the GPU (--gpu T4) or its memory (--vram 16G)");
  return python_become(call, python, "_estimate_command");
}

static const verb_option options[] = {
    {"gpu", "NAME", "the GPU: T4, A100-80G, H100, \"RTX 4090\", …"},
    {"vram", "SIZE", "the memory of the GPU, if its name is unknown"},
    {"steps", "N", "steps to run (2)"},
    {"record", "FILE", "keep the estimated trace, for stowage report and replay"},
    {"batch", "N", "model folder: sequences in a batch (1)"},
    {"length", "N", "model folder: tokens in each sequence (2048, or the model's limit)"},
    {"train", "adamw|sgd|adamw8bit|lora", "model folder: train instead of generating"},
    {"dtype", "float32|bfloat16|float16", "model folder: the type of the weights"},
    {"python", "FILE", "the Python that has PyTorch and the package stowage (python3)"},
    VERB_OPTION_JSON,
    VERB_OPTIONS_END,
};

const verb verb_estimate = {
    .name = "estimate",
    .summary = "predict whether a program or a model fits on a GPU, before it runs",
    .example = "stowage estimate train.py:make --gpu T4\n"
               "stowage estimate ./Llama-3-8B --vram 24G --length 4096",
    .operands = "SCRIPT:FUNCTION|MODEL_FOLDER",
    .operands_min = 1,
    .operands_max = 1,
    .options = options,
    .run = run,
};
