/* What shrink did to a model (text.h). */
#include "data/weights/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <stowage/size.h>

#include "base/table.h"
#include "base/text.h"
#include "data/weights/parts.h"
#include "data/weights/readers.h"

double weights_relative_error(const quant_error *e) {
  return e->sum_squares > 0 ? sqrt(e->sum_error_squares / e->sum_squares) : 0;
}

const char *weights_becomes(const weights_item *item) {
  return item->action == ACTION_INT8  ? "int8"
         : item->action == ACTION_FP8 ? "fp8"
                                      : tensor_type_name(item->to);
}

static bool is_sparse(const weights_item *item) {
  return item->action >= ACTION_BITMASK;
}

/* Writes the cell of the type that a tensor becomes. */
static void becomes_cell(table *t, const weights_item *item) {
  table_printf(t, "%s%s", weights_becomes(item), is_sparse(item) ? ", sparse" : "");
}

/* Returns the model's name for a tensor: a merged tensor may come from an adapter, under another
 * name. */
static const char *name_of(const weights_result *r, const weights_item *item) {
  return r->in.list[item - r->items].facts->name;
}

static void error_cells(table *t, const weights_item *item) {
  if (item->action == ACTION_COPY) {
    table_cell(t, "same");
    table_cell(t, "-");
  } else if (item->error.sum_error_squares == 0 && item->error.clipped == 0) {
    table_cell(t, "exact");
    table_cell(t, "0");
  } else {
    table_printf(t, "%.3g%%", 100 * weights_relative_error(&item->error));
    table_printf(t, "%.3g", item->error.max_error);
  }
}

static void tensor_table(buffer *to, const weights_result *r, bool bold) {
  bool pruned = r->pruned > 0;
  table t = TABLE_INIT(pruned ? 8 : 7, 1u << 3 | 1u << 4 | 1u << 5 | 1u << 6 | 1u << 7);
  static const char *const heads[] = {"tensor", "type",      "becomes",   "bytes",
                                      "after",  "RMS error", "max error", "zeros"};
  for (size_t i = 0; i < (pruned ? 8u : 7u); i++) table_cell(&t, heads[i]);
  for (size_t i = 0; i < r->item_count; i++) {
    const weights_item *item = &r->items[i];
    char name[512];
    table_cell(&t, text_show(name, sizeof name, name_of(r, item)));
    table_cell(&t, item->from.facts->type_name);
    becomes_cell(&t, item);
    table_size(&t, item->from.facts->bytes);
    table_size(&t, item->bytes_after);
    error_cells(&t, item);
    if (pruned && item->pruned)
      table_printf(&t, "%.1f%%", 100 * ((double)item->zeros / (double)item->from.facts->count));
    else if (pruned)
      table_cell(&t, "-");
  }
  table_write(&t, to, 2, bold);
}

/* Writes one line for each pair of types. */
static void type_table(buffer *to, const weights_result *r, bool bold) {
  table t = TABLE_INIT(7, 1u << 2 | 1u << 3 | 1u << 4 | 1u << 5 | 1u << 6);
  static const char *const heads[] = {"type",  "becomes",   "tensors",  "bytes",
                                      "after", "RMS error", "max error"};
  for (size_t i = 0; i < 7; i++) table_cell(&t, heads[i]);
  for (size_t i = 0; i < r->item_count; i++) {
    const weights_item *first = &r->items[i];
    weights_item sum = {.action = first->action};
    uint64_t count = 0, bytes = 0;
    bool seen = false;
    for (size_t k = 0; k < r->item_count && !seen; k++) {
      const weights_item *item = &r->items[k];
      if (item->from.facts->stored != first->from.facts->stored || item->to != first->to ||
          is_sparse(item) != is_sparse(first) ||
          (item->action == ACTION_COPY) != (first->action == ACTION_COPY))
        continue;
      seen = k < i;
      count++;
      bytes += item->from.facts->bytes;
      sum.bytes_after += item->bytes_after;
      sum.error.sum_squares += item->error.sum_squares;
      sum.error.sum_error_squares += item->error.sum_error_squares;
      if (item->error.max_error > sum.error.max_error) sum.error.max_error = item->error.max_error;
    }
    if (seen) continue;
    table_cell(&t, first->from.facts->type_name);
    becomes_cell(&t, first);
    table_printf(&t, "%" PRIu64, count);
    table_size(&t, bytes);
    table_size(&t, sum.bytes_after);
    error_cells(&t, &sum);
  }
  table_write(&t, to, 2, bold);
}

static const weights_item *worst(const weights_result *r) {
  const weights_item *found = NULL;
  for (size_t i = 0; i < r->item_count; i++)
    if (r->items[i].error.sum_error_squares > 0 &&
        (found == NULL ||
         weights_relative_error(&r->items[i].error) > weights_relative_error(&found->error)))
      found = &r->items[i];
  return found;
}

static bool any_requantized(const weights_result *r) {
  for (size_t i = 0; i < r->item_count; i++)
    if (r->items[i].requantized) return true;
  return false;
}

/* Writes what is known of whether transformers loads this kind of model in 8 bits; false: it does.
 */
static bool not_loaded(const weights_result *r, const weights_options *o, char *to, size_t size) {
  bool int8 = o->quantize == WEIGHTS_INT8, fp8 = o->quantize == WEIGHTS_FP8;
  if (!(int8 || fp8) || !r->to_folder || !r->has_config || r->diffusers) return false;
  const char *quant = weights_quant_name(o->quantize);
  readers_answer answer = readers_load(r->model_type, int8);
  if (answer == READERS_NO)
    snprintf(to, size, "transformers 5.23 does not load %s of this kind of model (%s); use %s",
             quant, r->model_type,
             int8 && readers_load(r->model_type, false) != READERS_NO ? "--quantize fp8"
                                                                      : "--dtype bf16");
  else if (answer == READERS_UNKNOWN)
    snprintf(to, size,
             "nobody has tried whether transformers loads %s of this kind of model (%s): load it "
             "and compare it with the original before you use it%s",
             quant, r->model_type[0] != '\0' ? r->model_type : "unknown",
             int8 ? "; fp8 loads in more cases" : "");
  return answer != READERS_YES;
}

/* Appends a warning for each choice that is known to cost quality. Returns how many. */
static size_t warnings(buffer *to, const weights_result *r, const weights_options *o,
                       const char *prefix, const char *suffix) {
  size_t count = 0;
  bool four = o->quantize == WEIGHTS_Q4_0 || o->quantize == WEIGHTS_Q4_K;
  const char *text[10];
  char unread[384];
  if (four)
    text[count++] = "4 bits per weight change what the model says; q6_k and q8_0 stay closer. "
                    "Measure yours before you use it";
  if (o->prune_2_4)
    text[count++] = "pruning 2:4 by magnitude alone took Llama-2-7B from perplexity 5.12 to 54.6; "
                    "train it further, or use --quantize instead";
  else if (o->prune > 0)
    text[count++] = "pruning 50% by magnitude alone took Llama-2-7B from perplexity 5.12 to 14.9; "
                    "prune less, train it further, or use --quantize instead";
  if (any_requantized(r))
    text[count++] = "some tensors were quantized before; quantizing the original model loses less";
  bool packed = o->quantize == WEIGHTS_INT8 || o->quantize == WEIGHTS_FP8 || o->sparse;
  if (o->sparse)
    text[count++] = "the sparse layouts are read by compressed-tensors 0.9 to 0.14; later releases "
                    "dropped them. Keep the dense model";
  if (packed && (!r->to_folder || r->in.folder == NULL))
    text[count++] = "a reader also needs quantization_config in config.json; shrink the model's "
                    "folder into a folder to get it";
  else if (packed && r->diffusers)
    text[count++] = "a part of a diffusers pipeline: diffusers does not read the layouts of "
                    "compressed-tensors; use --dtype";
  else if (packed && !r->has_config)
    text[count++] = "the folder has no config.json, so that no reader learns how the layers are "
                    "stored; add the model's config.json and shrink it again";
  if (r->unknown[0] != '\0') text[count++] = r->unknown;
  if (not_loaded(r, o, unread, sizeof unread)) text[count++] = unread;
  for (size_t i = 0; i < count; i++) buffer_printf(to, "%s%s%s", prefix, text[i], suffix);
  return count;
}

/* Returns how many tensors got blocks of 32 values, because their rows do not fill those of 256. */
static uint64_t count_wider(const weights_result *r, const weights_options *o) {
  uint64_t count = 0;
  if (o->quantize != WEIGHTS_Q4_K && o->quantize != WEIGHTS_Q6_K) return 0;
  for (size_t i = 0; i < r->item_count; i++)
    count += r->items[i].action == ACTION_BLOCKS && r->items[i].to == TENSOR_Q8_0;
  return count;
}

#define NAMES_SHOWN 4

/* Writes the name with a star for each number: the layers of a model have few such names. */
static void without_numbers(char *to, size_t size, const char *name) {
  size_t at = 0;
  for (const char *c = name; *c != '\0' && at + 1 < size; c++) {
    bool digit = *c >= '0' && *c <= '9', alone = c == name || c[-1] == '.' || to[at - 1] == '*';
    if (!digit || !alone)
      to[at++] = *c;
    else if (at == 0 || to[at - 1] != '*')
      to[at++] = '*';
  }
  to[at] = '\0';
}

/* Names the tensors that only --include takes. */
static void unknown_names(buffer *to, const weights_result *r) {
  char shown[NAMES_SHOWN][256], safe[512];
  size_t count = 0;
  bool more = false;
  for (size_t i = 0; i < r->item_count; i++) {
    char name[256];
    size_t k = 0;
    if (r->items[i].skip != SKIP_NAME) continue;
    without_numbers(name, sizeof name, name_of(r, &r->items[i]));
    while (k < count && strcmp(shown[k], name) != 0) k++;
    more = more || (k == count && count == NAMES_SHOWN);
    if (k == count && count < NAMES_SHOWN) snprintf(shown[count++], sizeof name, "%s", name);
  }
  if (count == 0) return;
  buffer_text(to, "not known to be linear layers: ");
  for (size_t k = 0; k < count; k++)
    buffer_printf(to, "%s%s", k > 0 ? ", " : "", text_show(safe, sizeof safe, shown[k]));
  buffer_printf(to, "%s; --include, which replaces the default choice, takes them\n",
                more ? ", …" : "");
}

static void summary(buffer *to, const weights_result *r, const weights_options *o,
                    const char *out) {
  char name[TEXT_PATH_MAX], before[STOW_SIZE_TEXT_MAX], after[STOW_SIZE_TEXT_MAX];
  double less = r->bytes > 0 ? 100 * (1 - (double)r->bytes_after / (double)r->bytes) : 0;
  const weights_item *most = worst(r);
  buffer_printf(to, "%zu tensor%s, %" PRIu64 " changed: %s becomes %s", r->item_count,
                text_s(r->item_count), r->changed, stow_size_format(before, r->bytes),
                stow_size_format(after, r->bytes_after));
  if (less >= 0.5) buffer_printf(to, " (%.0f%% less)", less);
  buffer_char(to, '\n');
  if (most != NULL)
    buffer_printf(to, "error: %.3g%% RMS over what changed, at most %.3g; largest in %s, %.3g%%\n",
                  100 * weights_relative_error(&r->error), r->error.max_error,
                  text_show(name, sizeof name, name_of(r, most)),
                  100 * weights_relative_error(&most->error));
  else if (r->changed > 0)
    buffer_text(to, "error: none, every value is exact\n");
  if (r->error.not_finite + r->error.clipped > 0)
    buffer_printf(to, "not finite: %" PRIu64 " value%s NaN or infinite, %" PRIu64 " became so\n",
                  r->error.not_finite, r->error.not_finite == 1 ? " was" : "s were",
                  r->error.clipped);
  buffer skipped = BUFFER_INIT;
  if (weights_skipped(r, &skipped))
    buffer_printf(to, "left as they are: %s\n", skipped.status == STOW_OK ? skipped.data : "");
  buffer_free(&skipped);
  unknown_names(to, r);
  uint64_t wider = count_wider(r, o);
  if (wider > 0)
    buffer_printf(to,
                  "q8_0 instead of %s: %" PRIu64 " tensor%s with rows that are no multiple of 256 "
                  "values\n",
                  weights_quant_name(o->quantize), wider, text_s(wider));
  if (o->resume && !o->dry_run && !r->resumed)
    buffer_text(to, "started over: there is no checkpoint for this input and these options\n");
  if (!o->dry_run)
    buffer_printf(to, "%s: %s in %zu file%s%s%s\n", text_show(name, sizeof name, out),
                  stow_size_format(after, r->file_bytes), r->file_count, text_s(r->file_count),
                  r->verified ? ", read back and equal" : "", r->resumed ? ", resumed" : "");
  if (r->carried > 0) buffer_printf(to, "other files: %" PRIu64 " carried over\n", r->carried);
  if (r->left_out > 0)
    buffer_printf(to, "left out: %" PRIu64 " other file%s with weights\n", r->left_out,
                  text_s(r->left_out));
  if (r->linked_folders > 0)
    buffer_printf(to, "left out: %" PRIu64 " linked folder%s\n", r->linked_folders,
                  text_s(r->linked_folders));
}

stow_status weights_text(buffer *to, const weights_result *r, const char *in, const char *out,
                         const weights_options *o, bool bold) {
  char name[TEXT_PATH_MAX];
  buffer_printf(to, "%s%s%s: %s\n", bold ? "\033[1m" : "", text_show(name, sizeof name, in),
                bold ? "\033[0m" : "", model_format_name(r->in.format));
  if (o->dry_run)
    tensor_table(to, r, bold);
  else
    type_table(to, r, bold);
  summary(to, r, o, out);
  warnings(to, r, o, "warning: ", "\n");
  return to->status;
}

static void json_error(json *j, const quant_error *e) {
  json_key(j, "relative_rms_error"), json_double(j, weights_relative_error(e));
  json_key(j, "max_error"), json_double(j, e->max_error);
  json_number(j, "clipped", e->clipped);
  json_number(j, "not_finite", e->not_finite);
}

static void json_item(json *j, const weights_result *r, const weights_item *item) {
  const tensor *t = item->from.facts;
  json_begin_object(j);
  json_key(j, "name"), json_text(j, name_of(r, item));
  json_key(j, "shape");
  json_begin_array(j);
  for (uint32_t i = 0; i < t->dims; i++) json_u64(j, t->shape[i]);
  json_end_array(j);
  json_key(j, "from_dtype"), json_text(j, t->type_name);
  json_key(j, "to_dtype"), json_text(j, weights_becomes(item));
  json_number(j, "bytes", t->bytes);
  json_number(j, "bytes_after", item->bytes_after);
  json_key(j, "changed"), json_bool(j, item->action != ACTION_COPY);
  json_key(j, "sparse"), json_bool(j, is_sparse(item));
  json_error(j, &item->error);
  if (item->skip != SKIP_NONE)
    json_key(j, "left_because"), json_text(j, weights_skip_text(r, item));
  if (item->pruned) json_number(j, "pruned_values", item->zeros);
  json_end_object(j);
}

stow_status weights_json(buffer *to, const weights_result *r, const char *in, const char *out,
                         const weights_options *o, uint64_t peak_bytes) {
  char name[TEXT_PATH_MAX];
  json j = JSON_PRETTY(to);
  buffer text = BUFFER_INIT;
  json_begin_object(&j);
  json_key(&j, "path"), json_text(&j, text_show(name, sizeof name, in));
  json_key(&j, "output"), json_text(&j, out != NULL ? text_show(name, sizeof name, out) : NULL);
  json_key(&j, "format"), json_text(&j, model_format_name(r->in.format));
  json_key(&j, "dry_run"), json_bool(&j, o->dry_run);
  json_number(&j, "bytes", r->bytes);
  json_number(&j, "bytes_after", r->bytes_after);
  json_number(&j, "file_bytes", o->dry_run ? 0 : r->file_bytes);
  json_number(&j, "tensors_changed", r->changed);
  json_error(&j, &r->error);
  json_key(&j, "verified"), json_bool(&j, r->verified);
  json_key(&j, "resumed"), json_bool(&j, r->resumed);
  json_key(&j, "files");
  json_begin_array(&j);
  for (size_t i = 0; i < r->file_count; i++) json_text(&j, r->files[i].name);
  json_end_array(&j);
  json_key(&j, "warnings");
  json_begin_array(&j);
  warnings(&text, r, o, "", "\n");
  for (const char *at = text.data, *end; at != NULL && (end = strchr(at, '\n')) != NULL;
       at = end + 1)
    json_text_n(&j, at, (size_t)(end - at));
  json_end_array(&j);
  json_key(&j, "tensors");
  json_begin_array(&j);
  for (size_t i = 0; i < r->item_count; i++) json_item(&j, r, &r->items[i]);
  json_end_array(&j);
  if (peak_bytes > 0) json_number(&j, "peak_memory_bytes", peak_bytes);
  json_end_object(&j);
  if (to->status == STOW_OK) to->status = text.status;
  buffer_free(&text);
  return to->status;
}
