/* stowage shrink: rewrites a data file in the smallest types that hold it, or a model file in the
 * requested types. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <stowage/size.h>

#include "base/status.h"
#include "base/text.h"
#include "cli/data_options.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/python.h"
#include "data/shards.h"
#include "data/shrink_text.h"
#include "data/team.h"
#include "data/weights/text.h"

static stow_status print(const verb_call *call, const char *given, const shrink_result *r,
                         const shrink_options *o, const budget *b) {
  char in[PATH_MAX];
  const char *out = verb_value(call, "output");
  shards_title(given, in, sizeof in);
  buffer text = BUFFER_INIT;
  stow_status status = verb_flag(call, "json") ? shrink_json(&text, r, in, out, o, budget_peak())
                                               : shrink_text(&text, r, in, out, o, output_color());
  return data_print(call, &text, status, b);
}

/* The last --tolerance that names no column. */
static stow_status read_tolerance(const verb_call *call, shrink_options *o) {
  const char *text = NULL;
  for (size_t i = 0; i < call->given_count; i++)
    if (strcmp(call->given[i].option->name, "tolerance") == 0 &&
        strchr(call->given[i].value, '=') == NULL)
      text = call->given[i].value;
  return text != NULL ? tolerance_parse(&o->tolerance, &o->relative, text) : STOW_OK;
}

/* Lists every value of an option that may be given several times. The caller frees the list. */
static stow_status read_lists(const verb_call *call, const char *name, const char *const **lists,
                              size_t *count) {
  const char **made = calloc(call->given_count + 1, sizeof *made);
  if (made == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  for (size_t i = 0; i < call->given_count; i++)
    if (strcmp(call->given[i].option->name, name) == 0) made[(*count)++] = call->given[i].value;
  *lists = made;
  return STOW_OK;
}

static stow_status read_options(const verb_call *call, shrink_options *o, table_options *t) {
  const char *type = verb_value(call, "dtype");
  const char *raw = verb_value(call, "from-dtype"), *shape = verb_value(call, "shape");
  o->dry_run = verb_flag(call, "dry-run");
  o->no_sync = verb_flag(call, "no-sync");
  o->resume = verb_flag(call, "resume");
  o->force = verb_flag(call, "force");
  o->in.header = data_header(call);
  STOW_TRY(data_table(call, t));
  o->in.csv = t->csv;
  STOW_TRY(read_lists(call, "columns", &o->columns, &o->column_count));
  STOW_TRY(read_lists(call, "drop", &o->drop, &o->drop_count));
  if (type != NULL) STOW_TRY(dtype_parse(&o->type, type));
  STOW_TRY(read_tolerance(call, o));
  if (raw != NULL) STOW_TRY(dtype_parse(&o->in.raw.type, raw));
  return shape != NULL ? data_shape(shape, &o->in.raw) : STOW_OK;
}

/* Every rank of a team does its part; the first one prints the result. */
static stow_status shrink_and_print(verb_call *call, const shrink_options *o, const budget *b,
                                    progress *bar) {
  const char *out = verb_value(call, "output");
  shrink_result r;
  buffer in = BUFFER_INIT;
  for (int i = 0; i < call->operand_count; i++)
    buffer_printf(&in, "%s%s", i > 0 ? "\n" : "", call->operands[i]);
  stow_status status = in.status;
  if (status == STOW_OK) status = shrink_file(&r, in.data, out, o, b);
  progress_end(bar);
  if (status != STOW_OK) return buffer_free(&in), status;
  if (b->team->rank == 0) status = print(call, in.data, &r, o, b);
  buffer_free(&in);
  shrink_free(&r);
  return status;
}

/* ---- models ---- */

static stow_status read_weights_options(const verb_call *call, weights_options *o) {
  const char *type = verb_value(call, "dtype"), *quantize = verb_value(call, "quantize");
  const char *prune = verb_value(call, "prune"), *by = verb_value(call, "prune-by");
  o->dry_run = verb_flag(call, "dry-run");
  o->no_sync = verb_flag(call, "no-sync");
  o->resume = verb_flag(call, "resume");
  o->verify = verb_flag(call, "verify");
  o->allow_nan = verb_flag(call, "allow-nan");
  o->join = verb_flag(call, "join");
  o->sparse = verb_flag(call, "sparse");
  o->prune_model = by != NULL && strcmp(by, "model") == 0;
  STOW_TRY(read_lists(call, "include", &o->include, &o->include_count));
  STOW_TRY(read_lists(call, "exclude", &o->exclude, &o->exclude_count));
  if (type != NULL) STOW_TRY(weights_parse_type(&o->type, type));
  if (quantize != NULL) STOW_TRY(weights_parse_quant(&o->quantize, quantize));
  if (prune != NULL) STOW_TRY(weights_parse_prune(o, prune));
  if (o->prune_2_4 && by != NULL)
    return stow_fail(STOW_ERR_INVALID,
                     "--prune 2:4 has no threshold, so that --prune-by does not apply; omit it");
  STOW_TRY(verb_memory(call, "shard", &o->shard_bytes));
  if (verb_value(call, "shard") != NULL && o->shard_bytes == 0)
    return stow_fail(STOW_ERR_INVALID, "--shard 0: give the size of a file, such as 2G");
  return STOW_OK;
}

/* Rejects options for tables and arrays, which do not apply to a model. */
static stow_status refuse_data_options(const verb_call *call) {
  static const char *const names[] = {"tolerance", "from-dtype", "shape",    "columns",   "drop",
                                      "type",      "for",        "names",    "delimiter", "decimal",
                                      "comment",   "skip",       "encoding", "na"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (verb_flag(call, names[i]))
      return stow_fail(STOW_ERR_INVALID, "--%s is for arrays and tables; %s is a model", names[i],
                       output_name(call->operands[0]));
  return STOW_OK;
}

static stow_status print_weights(const verb_call *call, const weights_result *r,
                                 const weights_options *o, const budget *b) {
  const char *in = call->operands[0], *out = verb_value(call, "output");
  buffer text = BUFFER_INIT;
  stow_status status = verb_flag(call, "json") ? weights_json(&text, r, in, out, o, budget_peak())
                                               : weights_text(&text, r, in, out, o, output_color());
  return data_print(call, &text, status, b);
}

static int run_weights(verb_call *call) {
  weights_options o = {0};
  weights_result r;
  budget b;
  progress bar;
  const char *in = call->operands[0], *out = verb_value(call, "output");
  stow_status status = data_budget(call, &b, &bar, "shrinking");
  if (status == STOW_OK) status = refuse_data_options(call);
  if (status == STOW_OK) status = read_weights_options(call, &o);
  if (status == STOW_OK && !o.dry_run) interrupt_watch("shrink", out, WEIGHTS_JOURNAL_EMPTY);
  if (status == STOW_OK) {
    status = weights_shrink(&r, in, out, &o, &b);
    progress_end(&bar);
    if (status == STOW_OK) {
      status = print_weights(call, &r, &o, &b);
      weights_free(&r);
    }
  }
  free((void *)(uintptr_t)o.include);
  free((void *)(uintptr_t)o.exclude);
  return status == STOW_OK ? EXIT_DONE : verb_fail(call, status);
}

static const char *const model_options[] = {"quantize", "prune", "prune-by", "sparse", "include",
                                            "exclude",  "shard", "join",     "verify", "allow-nan"};
#define MODEL_OPTIONS (sizeof model_options / sizeof model_options[0])

static bool asks_for_model(const verb_call *call) {
  for (size_t i = 0; i < MODEL_OPTIONS; i++)
    if (verb_flag(call, model_options[i])) return true;
  return false;
}

/* Returns whether the output is one of a model: a folder, or a file with such a name. */
static bool names_model(const char *out) {
  const char *slash = out != NULL ? strrchr(out, '/') : NULL;
  const char *name = slash != NULL ? slash + 1 : out;
  return out != NULL && strcmp(out, "-") != 0 &&
         (text_ends(out, ".safetensors") || text_ends(out, ".gguf") || strchr(name, '.') == NULL);
}

/* Rejects options for models, which do not apply to other files. */
static int refuse_model_options(const verb_call *call) {
  for (size_t i = 0; i < MODEL_OPTIONS; i++)
    if (verb_flag(call, model_options[i]))
      return verb_usage(call,
                        "--%s is for model files (safetensors, GGUF, PyTorch); %s is not a model",
                        model_options[i], output_name(call->operands[0]));
  return EXIT_DONE;
}

static int run(verb_call *call) {
  shrink_options o = {0};
  table_options t = {0};
  budget b;
  progress bar;
  team ranks;
  /* As in `convert IN OUT`: the second file does not exist because it is the output. */
  if (verb_value(call, "output") == NULL && call->operand_count == 2 &&
      access(call->operands[1], F_OK) != 0)
    return verb_usage(call, "no output given: did you mean -o %.200s?",
                      output_name(call->operands[1]));
  bool is_model = model_is(call->operands[0]);
  bool planned = verb_flag(call, "dry-run") && is_model; /* needs no name */
  if (verb_value(call, "output") == NULL && !planned)
    return verb_usage(call, "no output given: add -o small.npy, small.npz, small.safetensors, "
                            "small.gguf or a folder");
  if (!model_is_beside(call->operands[0]) &&
      (python_reads(call->operands[0]) || python_reads(verb_value(call, "output"))))
    return python_become(call, NULL, "_data_command"); /* Parquet, Arrow and JSON lines */
  if (is_model && call->operand_count > 1)
    return verb_usage(call, "%s is a model; shrink models one by one",
                      output_name(call->operands[0]));
  if (is_model) return run_weights(call);
  bool to_model = names_model(verb_value(call, "output"));
  if ((to_model || asks_for_model(call)) && model_is_pickle(call->operands[0]))
    return run_weights(call); /* says why it is refused */
  for (int i = 0; i < call->operand_count && (to_model || asks_for_model(call)); i++)
    if (access(call->operands[i], F_OK) != 0 && errno == ENOENT && !text_is_url(call->operands[i]))
      return verb_fail(call, stow_fail(STOW_ERR_NOT_FOUND, "%s: does not exist; check the path",
                                       call->operands[i]));
  int refused = refuse_model_options(call);
  if (refused != EXIT_DONE) return refused;
  stow_status status = team_join(&ranks);
  if (status != STOW_OK) return verb_fail(call, status);
  status = data_budget(call, &b, &bar, "shrinking");
  b.team = &ranks;
  if (ranks.size > 1 && verb_value(call, "threads") == NULL)
    b.threads = 1; /* a rank uses one
                    * thread */
  if (ranks.rank > 0) b.progress = NULL;
  if (status == STOW_OK) status = read_options(call, &o, &t);
  if (ranks.size == 1 && !o.dry_run) interrupt_watch("shrink", verb_value(call, "output"), 0);
  if (status == STOW_OK) status = shrink_and_print(call, &o, &b, &bar);
  free((void *)(uintptr_t)o.columns);
  free((void *)(uintptr_t)o.drop);
  table_options_free(&t);
  status = team_agree(&ranks, status);
  int code = verb_exit_code(status);
  /* Only the first rank that failed prints its message. */
  if (status != STOW_OK && ranks.failed == ranks.rank) code = verb_fail(call, status);
  team_leave(&ranks);
  return code;
}

static const verb_option options[] = {
    {"output", "FILE",
     "the output (also -o): .npy, .npz, .parquet, …; for a model .safetensors, .gguf or a folder"},
    {"dtype", "TYPE", "write this type instead of the smallest; for a model f16, bf16 or f32"},
    {"quantize", "TYPE", "model: write large layers as q8_0, q6_k, q4_k, q4_0, int8 or fp8"},
    {"prune", "P", "model: set the smallest values to 0: 50% or 2:4"},
    {"prune-by", "tensor|model", "one threshold per tensor (default) or for the whole model"},
    {"sparse", NULL, "model: store layers without their zeros (compressed-tensors bitmask or 2:4)"},
    {"include", "PATTERN", "model: change only tensors with these names; repeatable"},
    {"exclude", "PATTERN", "model: leave tensors with these names unchanged; repeatable"},
    {"shard", "SIZE",
     "model: start a new file before its tensors exceed this size; writes an index"},
    {"join", NULL, "model: write one file instead of shards"},
    {"verify", NULL, "model: read the output back and compare checksums"},
    {"allow-nan", NULL, "model: write it even if values are NaN or infinite"},
    {"tolerance", "T",
     "allow floats to round by the fraction T of each value, or by abs:T; NAME=T: in one column"},
    {"type", "NAME=TYPE",
     "table: read a column as this type: float32, …, text or datetime; repeatable"},
    VERB_OPTION_FOR,
    {"dry-run", NULL, "show what each array or column would become; write nothing"},
    {"from-dtype", "TYPE", "read the file as raw values of this type"},
    {"shape", "N,N", "the shape of raw values; default one dimension"},
    VERB_OPTION_NAMES,
    VERB_OPTIONS_TABLE,
    {"columns", "A,B", "table: write only these columns; repeatable"},
    {"drop", "A,B", "table: leave out these columns; repeatable"},
    {"force", NULL, "write a table even if it is larger than the input"},
    VERB_OPTION_HEADER,
    VERB_OPTION_MIN_RATE,
    VERB_OPTION_RESUME,
    VERB_OPTION_NO_SYNC,
    VERB_OPTION_MEMORY,
    VERB_OPTION_THREADS,
    VERB_OPTION_JSON,
    VERB_OPTIONS_END,
};

static const verb_rule rules[] = {
    {"prune-by", VERB_NEEDS, {"prune"}},
    {"include", VERB_NEEDS, {"quantize", "dtype", "prune", "sparse"}},
    {"exclude", VERB_NEEDS, {"quantize", "dtype", "prune", "sparse"}},
    {"join", VERB_EXCLUDES, {"shard"}},
    VERB_RULES_END,
};

const verb verb_shrink = {
    .name = "shrink",
    .summary = "write a data file in the smallest types that hold every value, or a model smaller",
    .example = "stowage shrink train.npy -o small.npy\n"
               "stowage shrink table.csv.gz -o table.npz --dry-run\n"
               "stowage shrink part-*.csv -o table.npz\n"
               "stowage shrink features.npy -o half.npy --for training --tolerance 1e-3\n"
               "stowage shrink Llama-3-8B/ -o small/ --dtype bf16 --shard 2G\n"
               "stowage shrink model-f16.gguf -o model-q4.gguf --quantize q4_k",
    .operands = "IN…",
    .operands_min = 1,
    .operands_max = VERB_ANY_NUMBER,
    .options = options,
    .rules = rules,
    .run = run,
};
