/* The result of shrink, as a table for people and as JSON (shrink_text.h). */
#include "data/shrink_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <stowage/size.h>

#include "base/json.h"
#include "base/table.h"
#include "base/text.h"
#include "data/inspect_text.h"

const char *shrink_name(const shrink_result *r, size_t i) {
  if (r->facts.table) return r->facts.columns[i].name;
  return r->facts.arrays[i].name[0] != '\0' ? r->facts.arrays[i].name : "-";
}

const char *shrink_type(const shrink_result *r, size_t i) {
  return r->facts.table ? r->facts.columns[i].type_name : r->facts.arrays[i].type_name;
}

static const char *becomes(const shrink_result *r, size_t i, char *text, size_t size) {
  const shrink_item *item = &r->items[i];
  const char *layout = "";
  if (item->sparse)
    layout = r->facts.arrays[i].sparse          ? r->facts.arrays[i].layout
             : r->facts.arrays[i].fortran_order ? "csc"
                                                : "csr";
  bool text_column = r->facts.table && r->facts.columns[i].text && !r->facts.columns[i].time;
  if (text_column && item->to == DTYPE_NONE) {
    snprintf(text, size, "UTF-8%s", r->facts.columns[i].layout.texts.fixed ? ", fixed width" : "");
    return text;
  }
  if (item->to == DTYPE_NONE)
    snprintf(text, size, "%s", shrink_type(r, i));
  else
    snprintf(text, size, "%s%s%s%s", dtype_name(item->to), text_column ? " codes" : "",
             item->sparse ? " " : "", layout);
  return text;
}

static double saved(uint64_t before, uint64_t after) {
  return before > 0 ? 100 * (1 - (double)after / (double)before) : 0;
}

/* Reports the size of the output, and whether it is larger than the input. */
static void size_note(buffer *to, const shrink_result *r, const char *out,
                      const shrink_options *o) {
  char a[STOW_SIZE_TEXT_MAX], c[STOW_SIZE_TEXT_MAX], name[TEXT_PATH_MAX];
  uint64_t made = o->dry_run ? r->bytes_after : r->file_bytes;
  bool larger = made > r->facts.file_bytes;
  if (o->dry_run && (!larger || !r->facts.table)) return;
  buffer_printf(to, "%s: %s", text_show(name, sizeof name, out), stow_size_format(a, made));
  if (larger)
    buffer_printf(to, ", larger than the input's %s", stow_size_format(c, r->facts.file_bytes));
  buffer_char(to, '\n');
}

/* Lists columns that could not keep their name in the archive. */
static void renamed_note(buffer *to, const shrink_result *r) {
  char name[TEXT_PATH_MAX], member[TEXT_PATH_MAX];
  for (size_t i = 0; i < r->item_count; i++)
    if (r->items[i].member != NULL && strcmp(r->items[i].member, shrink_name(r, i)) != 0)
      buffer_printf(to,
                    "column \"%s\" is member \"%s\": the name is taken or unsafe in an archive\n",
                    text_show(name, sizeof name, shrink_name(r, i)),
                    text_show(member, sizeof member, r->items[i].member));
}

/* Lists columns of text that readers of UTF-8 reject. */
static void encoding_note(buffer *to, const shrink_result *r) {
  char name[TEXT_PATH_MAX];
  for (size_t i = 0; i < r->item_count; i++)
    if (r->items[i].not_utf8)
      buffer_printf(to,
                    "column %s: some text is not UTF-8 and was written as it is; if that is not "
                    "intended, read the table in its encoding (--encoding cp1252)\n",
                    text_show(name, sizeof name, shrink_name(r, i)));
}

/* Notes that signs of zeros are lost: SciPy's matrices have one zero. */
static void signs_note(buffer *to, const shrink_result *r) {
  char name[TEXT_PATH_MAX];
  for (size_t i = 0; i < r->item_count && !r->facts.table; i++) {
    uint64_t count = r->facts.arrays[i].values.minus_zeros;
    if (r->items[i].sparse && !r->facts.arrays[i].sparse && count > 0)
      buffer_printf(to,
                    "array %s: %" PRIu64 " negative zero%s (-0.0) become%s 0 in the sparse form\n",
                    text_show(name, sizeof name, shrink_name(r, i)), count, text_s(count),
                    count == 1 ? "s" : "");
  }
}

/* Types whose arithmetic surprises people, where shrink chose them. */
static void surprise_note(buffer *to, const shrink_result *r, const shrink_options *o) {
  bool halves = false, unsigneds = false;
  for (size_t i = 0; i < r->item_count; i++) {
    const shrink_item *item = &r->items[i];
    dtype was = r->facts.table ? r->facts.columns[i].values.type : r->facts.arrays[i].type;
    if (item->skipped || item->to == DTYPE_NONE || (r->facts.table && r->facts.columns[i].text))
      continue;
    halves = halves || (item->to == DTYPE_F16 && was != DTYPE_F16);
    unsigneds = unsigneds || (dtype_kind(item->to) == CLASS_UNSIGNED &&
                              (was == DTYPE_NONE || dtype_kind(was) != CLASS_UNSIGNED));
  }
  if (o->type != DTYPE_NONE) return; /* requested by name */
  if (halves)
    buffer_text(to, "float16: sums overflow above 65504; convert before you compute, or use "
                    "--for arithmetic\n");
  if (unsigneds)
    buffer_text(to, "unsigned: differences wrap below 0; convert before you compute, or use "
                    "--for arithmetic\n");
}

/* Datasets of HDF5 that npz has no form for. */
static void left_out_note(buffer *to, const shrink_result *r) {
  char name[TEXT_PATH_MAX], type[TEXT_PATH_MAX];
  for (size_t i = 0; i < r->item_count && !r->facts.table; i++)
    if (r->items[i].skipped)
      buffer_printf(to, "left out: dataset \"%s\" is %s\n",
                    text_show(name, sizeof name, shrink_name(r, i)),
                    text_show(type, sizeof type, shrink_type(r, i)));
}

static void left_out_json(json *j, const shrink_result *r) {
  json_key(j, "left_out");
  json_begin_array(j);
  for (size_t i = 0; i < r->item_count; i++) {
    if (!r->items[i].skipped) continue;
    json_begin_object(j);
    json_key(j, "name"), json_text(j, shrink_name(r, i));
    json_key(j, "type"), json_text(j, shrink_type(r, i));
    json_end_object(j);
  }
  json_end_array(j);
}

stow_status shrink_text(buffer *to, const shrink_result *r, const char *in, const char *out,
                        const shrink_options *o, bool bold) {
  char a[STOW_SIZE_TEXT_MAX], c[STOW_SIZE_TEXT_MAX], word[ARRAY_DTYPE_MAX + 32];
  table t = TABLE_INIT(6, 1u << 3 | 1u << 4 | 1u << 5);
  static const char *const heads[] = {"array", "from", "to", "bytes", "after", "saved"};
  for (size_t i = 0; i < 6; i++) table_cell(&t, r->facts.table && i == 0 ? "column" : heads[i]);
  double worst = 0;
  for (size_t i = 0; i < r->item_count; i++) {
    if (r->items[i].skipped) continue;
    table_cell(&t, shrink_name(r, i));
    table_cell(&t, shrink_type(r, i));
    table_cell(&t, becomes(r, i, word, sizeof word));
    table_size(&t, r->items[i].bytes);
    table_size(&t, r->items[i].bytes_after);
    table_printf(&t, "%.0f%%", saved(r->items[i].bytes, r->items[i].bytes_after));
    if (r->items[i].error > worst) worst = r->items[i].error;
  }
  char name[TEXT_PATH_MAX];
  buffer_printf(to, "%s: ", text_show(name, sizeof name, in));
  if (r->facts.table) {
    inspect_rows_text(to, &r->facts);
    buffer_text(to, "; ");
  }
  buffer_printf(to, "%s in memory, %s after (%.0f%% less)\n", stow_size_format(a, r->bytes),
                stow_size_format(c, r->bytes_after), saved(r->bytes, r->bytes_after));
  table_write(&t, to, 2, bold);
  if (worst > 0)
    buffer_printf(to, "rounded: off by at most %.3g%s (tolerance %g)\n", worst,
                  o->relative ? " of a value" : "", o->tolerance);
  else if (o->tolerance > 0)
    buffer_text(to, "rounded: nothing; every value is exact\n");
  if (o->dry_run)
    buffer_text(to, "nothing was written (--dry-run)\n");
  else if (o->resume && r->resumed)
    buffer_text(to, "resumed: continued an interrupted run\n");
  else if (o->resume)
    buffer_text(to, "started over: there is no checkpoint for this input, these options and this "
                    "number of ranks\n");
  renamed_note(to, r);
  encoding_note(to, r);
  left_out_note(to, r);
  signs_note(to, r);
  surprise_note(to, r, o);
  size_note(to, r, out, o);
  return to->status;
}

stow_status shrink_json(buffer *to, const shrink_result *r, const char *in, const char *out,
                        const shrink_options *o, uint64_t peak_bytes) {
  json j = JSON_PRETTY(to);
  char name[TEXT_PATH_MAX];
  json_begin_object(&j);
  json_key(&j, "input"), json_text(&j, text_show(name, sizeof name, in));
  json_key(&j, "output"), json_text(&j, o->dry_run ? NULL : out);
  json_key(&j, "for"), json_text(&j, scan_purpose_name(r->facts.purpose));
  json_key(&j, "bytes"), json_u64(&j, r->bytes);
  json_key(&j, "bytes_after"), json_u64(&j, r->bytes_after);
  json_key(&j, "file_bytes"), json_u64(&j, r->facts.file_bytes);
  json_key(&j, "file_bytes_after"), json_u64(&j, r->file_bytes);
  if (r->facts.table) inspect_rows_json(&j, &r->facts);
  json_key(&j, r->facts.table ? "columns" : "arrays");
  json_begin_array(&j);
  for (size_t i = 0; i < r->item_count; i++) {
    const shrink_item *item = &r->items[i];
    if (item->skipped) continue;
    json_begin_object(&j);
    json_key(&j, "name"), json_text(&j, shrink_name(r, i));
    if (r->facts.table) json_key(&j, "member"), json_text(&j, item->member);
    json_key(&j, "from"), json_text(&j, shrink_type(r, i));
    json_key(&j, "to");
    json_text(&j, item->to != DTYPE_NONE ? dtype_name(item->to) : shrink_type(r, i));
    if (r->facts.table) {
      const column_facts *c = &r->facts.columns[i];
      json_key(&j, "text_layout"),
          json_text(&j, c->text && !c->time ? text_layout_name(&c->layout) : NULL);
      if (item->not_utf8) json_key(&j, "utf8"), json_bool(&j, false);
    }
    json_key(&j, "sparse"), json_bool(&j, item->sparse);
    if (item->sparse && !r->facts.arrays[i].sparse)
      json_key(&j, "negative_zeros"), json_u64(&j, r->facts.arrays[i].values.minus_zeros);
    json_key(&j, "exact"), json_bool(&j, !item->rounded);
    json_key(&j, "error"), json_double(&j, item->error);
    json_key(&j, "bytes"), json_u64(&j, item->bytes);
    json_key(&j, "bytes_after"), json_u64(&j, item->bytes_after);
    json_end_object(&j);
  }
  json_end_array(&j);
  if (strcmp(r->facts.format, "hdf5") == 0) left_out_json(&j, r);
  json_key(&j, "resumed"), json_bool(&j, r->resumed);
  if (peak_bytes > 0) json_number(&j, "peak_memory_bytes", peak_bytes);
  json_end_object(&j);
  return to->status;
}
