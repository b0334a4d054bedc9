/* stowage shrink: a data file again, in the smallest types that hold it. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <stowage/size.h>

#include "base/json.h"
#include "base/status.h"
#include "cli/data_options.h"
#include "cli/output.h"
#include "data/shrink.h"
#include "data/team.h"
#include "report/table.h"

static const char *name_of(const shrink_result *r, size_t i) {
  if (r->facts.table) return r->facts.columns[i].name;
  return r->facts.arrays[i].name[0] != '\0' ? r->facts.arrays[i].name : "-";
}

static const char *type_of(const shrink_result *r, size_t i) {
  return r->facts.table ? r->facts.columns[i].type_name : r->facts.arrays[i].type_name;
}

static const char *becomes(const shrink_result *r, size_t i, char *text, size_t size) {
  const shrink_item *item = &r->items[i];
  const char *layout = "";
  if (item->sparse)
    layout = r->facts.arrays[i].sparse          ? r->facts.arrays[i].layout
             : r->facts.arrays[i].fortran_order ? "csc"
                                                : "csr";
  bool text_column = r->facts.table && r->facts.columns[i].text;
  if (text_column && item->to == DTYPE_NONE) {
    snprintf(text, size, "UTF-8%s", r->facts.columns[i].layout.texts.fixed ? ", fixed width" : "");
    return text;
  }
  if (item->to == DTYPE_NONE)
    snprintf(text, size, "%s", type_of(r, i));
  else
    snprintf(text, size, "%s%s%s%s", dtype_name(item->to), text_column ? " codes" : "",
             item->sparse ? " " : "", layout);
  return text;
}

static double saved(uint64_t before, uint64_t after) {
  return before > 0 ? 100 * (1 - (double)after / (double)before) : 0;
}

/* What the output takes, and a word where that is more than the input. */
static void size_note(buffer *text, const shrink_result *r, const char *out,
                      const shrink_options *o) {
  char a[STOW_SIZE_TEXT_MAX], c[STOW_SIZE_TEXT_MAX];
  uint64_t made = o->dry_run ? r->bytes_after : r->file_bytes;
  bool larger = made > r->facts.file_bytes;
  if (o->dry_run && (!larger || !r->facts.table)) return;
  buffer_printf(text, "%s: %s", output_name(out), stow_size_format(a, made));
  if (larger)
    buffer_printf(text, ", larger than the input's %s", stow_size_format(c, r->facts.file_bytes));
  buffer_char(text, '\n');
}

static stow_status print_text(const shrink_result *r, const char *in, const char *out,
                              const shrink_options *o, const budget *b) {
  buffer text = BUFFER_INIT;
  char a[STOW_SIZE_TEXT_MAX], c[STOW_SIZE_TEXT_MAX], word[ARRAY_DTYPE_MAX + 32];
  table t = TABLE_INIT(6, 1u << 3 | 1u << 4 | 1u << 5);
  static const char *const heads[] = {"array", "from", "to", "bytes", "after", "saved"};
  for (size_t i = 0; i < 6; i++) table_cell(&t, r->facts.table && i == 0 ? "column" : heads[i]);
  double worst = 0;
  for (size_t i = 0; i < r->item_count; i++) {
    if (r->items[i].skipped) continue;
    table_cell(&t, name_of(r, i));
    table_cell(&t, type_of(r, i));
    table_cell(&t, becomes(r, i, word, sizeof word));
    table_size(&t, r->items[i].bytes);
    table_size(&t, r->items[i].bytes_after);
    table_printf(&t, "%.0f%%", saved(r->items[i].bytes, r->items[i].bytes_after));
    if (r->items[i].error > worst) worst = r->items[i].error;
  }
  buffer_printf(&text, "%s: ", output_name(in));
  if (r->facts.table) {
    data_rows_text(&text, &r->facts);
    buffer_text(&text, "; ");
  }
  buffer_printf(&text, "%s in memory, %s after (%.0f%% less)\n", stow_size_format(a, r->bytes),
                stow_size_format(c, r->bytes_after), saved(r->bytes, r->bytes_after));
  table_write(&t, &text, 2, output_color());
  if (worst > 0)
    buffer_printf(&text, "rounded: off by at most %.3g%s (tolerance %g)\n", worst,
                  o->relative ? " of a value" : "", o->tolerance);
  else if (o->tolerance > 0)
    buffer_text(&text, "rounded: nothing; every value is exact\n");
  if (o->dry_run)
    buffer_text(&text, "nothing was written (--dry-run)\n");
  else if (o->resume && r->resumed)
    buffer_text(&text, "resumed: went on where a run that was stopped had come to\n");
  else if (o->resume)
    buffer_text(&text, "begun from the start: nothing is noted of this input, with these options "
                       "and this number of ranks\n");
  for (size_t i = 0; i < r->item_count; i++)
    if (r->items[i].member != NULL && strcmp(r->items[i].member, name_of(r, i)) != 0)
      buffer_printf(&text,
                    "column \"%s\" is member \"%s\": the name is taken or unsafe in an archive\n",
                    output_name(name_of(r, i)), output_name(r->items[i].member));
  size_note(&text, r, out, o);
  buffer_printf(&text, "peak memory %s, budget %s\n", stow_size_format(a, budget_peak()),
                stow_size_format(c, b->bytes));
  return output_buffer(&text);
}

static stow_status print_json(const shrink_result *r, const char *in, const char *out,
                              const shrink_options *o) {
  buffer text = BUFFER_INIT;
  json j = JSON_PRETTY(&text);
  json_begin_object(&j);
  json_key(&j, "input"), json_text(&j, output_name(in));
  json_key(&j, "output"), json_text(&j, o->dry_run ? NULL : out);
  json_key(&j, "bytes"), json_u64(&j, r->bytes);
  json_key(&j, "bytes_after"), json_u64(&j, r->bytes_after);
  json_key(&j, "file_bytes"), json_u64(&j, r->facts.file_bytes);
  json_key(&j, "file_bytes_after"), json_u64(&j, r->file_bytes);
  if (r->facts.table) data_rows_json(&j, &r->facts);
  json_key(&j, r->facts.table ? "columns" : "arrays");
  json_begin_array(&j);
  for (size_t i = 0; i < r->item_count; i++) {
    const shrink_item *item = &r->items[i];
    if (item->skipped) continue;
    json_begin_object(&j);
    json_key(&j, "name"), json_text(&j, name_of(r, i));
    if (r->facts.table) json_key(&j, "member"), json_text(&j, item->member);
    json_key(&j, "from"), json_text(&j, type_of(r, i));
    json_key(&j, "to");
    json_text(&j, item->to != DTYPE_NONE ? dtype_name(item->to) : type_of(r, i));
    if (r->facts.table) {
      const column_facts *c = &r->facts.columns[i];
      json_key(&j, "text_layout"), json_text(&j, c->text ? text_layout_name(&c->layout) : NULL);
    }
    json_key(&j, "sparse"), json_bool(&j, item->sparse);
    json_key(&j, "exact"), json_bool(&j, !item->rounded);
    json_key(&j, "error"), json_double(&j, item->error);
    json_key(&j, "bytes"), json_u64(&j, item->bytes);
    json_key(&j, "bytes_after"), json_u64(&j, item->bytes_after);
    json_end_object(&j);
  }
  json_end_array(&j);
  json_key(&j, "resumed"), json_bool(&j, r->resumed);
  json_key(&j, "peak_memory_bytes"), json_u64(&j, budget_peak());
  json_end_object(&j);
  return output_buffer(&text);
}

/* "1e-3" and "rel:1e-3" are a part of each value, "abs:1e-3" an amount. */
static stow_status read_tolerance(shrink_options *o, const char *text) {
  const char *number = text;
  o->relative = strncmp(text, "abs:", 4) != 0;
  if (strncmp(text, "abs:", 4) == 0 || strncmp(text, "rel:", 4) == 0) number += 4;
  char *end;
  errno = 0;
  o->tolerance = strtod(number, &end);
  if (end == number || *end != '\0' || !isfinite(o->tolerance) || o->tolerance <= 0)
    return stow_fail(STOW_ERR_INVALID,
                     "--tolerance \"%.40s\": must be a number above 0, as 1e-3 (of each value), or "
                     "abs:0.01 (an amount)",
                     text);
  return STOW_OK;
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

static stow_status read_options(const verb_call *call, shrink_options *o) {
  const char *type = verb_value(call, "dtype"), *tolerance = verb_value(call, "tolerance");
  const char *raw = verb_value(call, "from-dtype"), *shape = verb_value(call, "shape");
  o->dry_run = verb_flag(call, "dry-run");
  o->no_sync = verb_flag(call, "no-sync");
  o->resume = verb_flag(call, "resume");
  o->force = verb_flag(call, "force");
  o->in.header = data_header(call);
  STOW_TRY(read_lists(call, "columns", &o->columns, &o->column_count));
  STOW_TRY(read_lists(call, "drop", &o->drop, &o->drop_count));
  if (type != NULL) STOW_TRY(dtype_parse(&o->type, type));
  if (tolerance != NULL) STOW_TRY(read_tolerance(o, tolerance));
  if (raw != NULL) STOW_TRY(dtype_parse(&o->in.raw.type, raw));
  return shape != NULL ? data_shape(shape, &o->in.raw) : STOW_OK;
}

/* ---- Ctrl-C ---- */

static char checkpoint_path[PATH_MAX]; /* OUT.resume; written before the handler is installed */

/* Says how to go on, then ends as the signal would have. Calls only what is safe in a handler. */
static void on_interrupt(int number) {
  static const char kept[] =
      "\nstowage shrink: interrupted; the same command with --resume goes on "
      "from the last checkpoint\n";
  static const char none[] = "\nstowage shrink: interrupted before the first checkpoint; the same "
                             "command begins again (--resume goes on once there is one)\n";
  bool there = access(checkpoint_path, F_OK) == 0;
  ssize_t wrote = there ? write(2, kept, sizeof kept - 1) : write(2, none, sizeof none - 1);
  (void)wrote;
  signal(number, SIG_DFL);
  raise(number);
}

/* Leaves an ignored SIGINT ignored (nohup, a background job). */
static void watch_interrupt(const char *out) {
  struct sigaction old, mine = {.sa_handler = on_interrupt};
  sigemptyset(&mine.sa_mask);
  snprintf(checkpoint_path, sizeof checkpoint_path, "%s.resume", out);
  if (sigaction(SIGINT, NULL, &old) == 0 && old.sa_handler == SIG_DFL)
    sigaction(SIGINT, &mine, NULL);
}

/* Every rank of a team does its part; the first one speaks. */
static stow_status shrink_and_tell(verb_call *call, const shrink_options *o, const budget *b,
                                   progress *bar) {
  const char *in = call->operands[0], *out = verb_value(call, "output");
  shrink_result r;
  stow_status status = shrink_file(&r, in, out, o, b);
  progress_end(bar);
  if (status != STOW_OK) return status;
  if (b->team->rank == 0)
    status = verb_flag(call, "json") ? print_json(&r, in, out, o) : print_text(&r, in, out, o, b);
  shrink_free(&r);
  return status;
}

static int run(verb_call *call) {
  shrink_options o = {0};
  budget b;
  progress bar;
  team ranks;
  if (verb_value(call, "output") == NULL)
    return verb_usage(call, "say where to write: -o small.npy, or -o small.npz");
  stow_status status = team_join(&ranks);
  if (status != STOW_OK) return verb_fail(call, status);
  status = data_budget(call, &b, &bar, "shrinking");
  b.team = &ranks;
  if (ranks.size > 1 && verb_value(call, "threads") == NULL) b.threads = 1; /* a rank is one */
  if (ranks.rank > 0) b.progress = NULL;
  if (status == STOW_OK) status = read_options(call, &o);
  if (ranks.size == 1 && !o.dry_run) watch_interrupt(verb_value(call, "output"));
  if (status == STOW_OK) status = shrink_and_tell(call, &o, &b, &bar);
  free((void *)(uintptr_t)o.columns);
  free((void *)(uintptr_t)o.drop);
  status = team_agree(&ranks, status);
  int code = verb_exit_code(status);
  /* One message, of the first that failed. */
  if (status != STOW_OK && ranks.failed == ranks.rank) code = verb_fail(call, status);
  team_leave(&ranks);
  return code;
}

static const verb_option options[] = {
    {"output", "FILE", "what to write, also as -o: a name ending in .npy or .npz"},
    {"dtype", "TYPE", "this type instead of the smallest; refused if it would lose anything"},
    {"tolerance", "T", "float16 or float32 may round by T of each value; abs:T by an amount"},
    {"dry-run", NULL, "say what each array or column would become, write nothing"},
    {"from-dtype", "TYPE", "the file is raw values of this type"},
    {"shape", "N,N", "and of this shape; default one dimension"},
    VERB_OPTION_NAMES,
    {"columns", "A,B", "of a table: write these columns alone; repeatable"},
    {"drop", "A,B", "of a table: leave these columns out; repeatable"},
    {"force", NULL, "write a table even if it takes more bytes than the input"},
    VERB_OPTION_HEADER,
    VERB_OPTION_MIN_RATE,
    {"resume", NULL, "go on where a run that was stopped had come to"},
    {"no-sync", NULL, "do not wait until the output is on the disk; as cp, not as safe"},
    VERB_OPTION_MEMORY,
    VERB_OPTION_THREADS,
    VERB_OPTION_JSON,
    VERB_OPTIONS_END,
};

const verb verb_shrink = {
    .name = "shrink",
    .summary = "write a data file again in the smallest types that hold every value",
    .example = "stowage shrink train.npy -o small.npy\n"
               "stowage shrink table.csv.gz -o table.npz --dry-run\n"
               "stowage shrink features.npy -o half.npy --tolerance 1e-3",
    .operands = "IN",
    .operands_min = 1,
    .operands_max = 1,
    .options = options,
    .run = run,
};
