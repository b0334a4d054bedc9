/* stowage merge: adds LoRA adapters into the model they were trained for. */
#include <stdlib.h>
#include <string.h>

#include <stowage/size.h>

#include "base/status.h"
#include "cli/data_options.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "data/weights/merge.h"
#include "data/weights/text.h"

static stow_status print(const verb_call *call, const merge_result *r, const weights_options *o,
                         const budget *b) {
  const char *base = call->operands[0], *out = verb_value(call, "output");
  buffer text = BUFFER_INIT;
  stow_status status = verb_flag(call, "json")
                           ? weights_json(&text, &r->weights, base, out, o, budget_peak())
                           : merge_text(&text, r, base, out, o, output_color());
  return data_print(call, &text, status, b);
}

static int run(verb_call *call) {
  weights_options o = {.dry_run = verb_flag(call, "dry-run"),
                       .resume = verb_flag(call, "resume"),
                       .verify = verb_flag(call, "verify"),
                       .allow_nan = verb_flag(call, "allow-nan"),
                       .no_sync = verb_flag(call, "no-sync"),
                       .join = verb_flag(call, "join")};
  merge_result r;
  budget b;
  progress bar;
  const char *out = verb_value(call, "output");
  if (out == NULL && !o.dry_run)
    return verb_usage(call, "no output given: add -o merged/, or -o merged.safetensors");
  stow_status status = data_budget(call, &b, &bar, "merging");
  if (status == STOW_OK) status = verb_memory(call, "shard", &o.shard_bytes);
  if (status == STOW_OK && !o.dry_run) interrupt_watch("merge", out, WEIGHTS_JOURNAL_EMPTY);
  if (status == STOW_OK)
    status = weights_merge(&r, call->operands[0], (const char *const *)call->operands + 1,
                           (size_t)call->operand_count - 1, out, &o, &b);
  progress_end(&bar);
  if (status != STOW_OK) return verb_fail(call, status);
  status = print(call, &r, &o, &b);
  merge_free(&r);
  return status == STOW_OK ? EXIT_DONE : verb_fail(call, status);
}

static const verb_option options[] = {
    {"output", "FILE", "the output (also -o): a folder, or a name ending in .safetensors"},
    {"shard", "SIZE", "start a new file before its tensors exceed this size; writes an index"},
    {"join", NULL, "write one file instead of shards"},
    {"dry-run", NULL, "check that the adapters fit; write nothing"},
    {"verify", NULL, "read the output back and compare checksums"},
    {"allow-nan", NULL, "write it even if values are NaN or infinite"},
    VERB_OPTION_RESUME,
    VERB_OPTION_NO_SYNC,
    VERB_OPTION_MEMORY,
    VERB_OPTION_THREADS,
    VERB_OPTION_JSON,
    VERB_OPTIONS_END,
};

static const verb_rule rules[] = {
    {"join", VERB_EXCLUDES, {"shard"}},
    VERB_RULES_END,
};

const verb verb_merge = {
    .name = "merge",
    .summary = "add LoRA adapters into the model they were trained for",
    .example = "stowage merge Llama-3-8B/ adapter/ -o merged/\n"
               "stowage merge base.safetensors style/ task/ -o merged.safetensors",
    .operands = "BASE ADAPTER…",
    .operands_min = 2,
    .operands_max = VERB_ANY_NUMBER,
    .options = options,
    .rules = rules,
    .run = run,
};
