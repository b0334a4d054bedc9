/* stowage inspect: what data files hold, what they take in memory, and what they could take. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/size.h>

#include "base/json.h"
#include "base/status.h"
#include "cli/data_options.h"
#include "cli/output.h"
#include "data/inspect.h"
#include "report/table.h"

/* ---- for people ---- */

static void range_cell(table *t, const scan *s) {
  if (s->count == 0 || s->least > s->most)
    table_cell(t, "-");
  else if (dtype_kind(s->type) == CLASS_SIGNED)
    table_printf(t, "%" PRId64 " to %" PRId64, s->least_int, (int64_t)s->most_int);
  else if (dtype_kind(s->type) != CLASS_FLOAT)
    table_printf(t, "%" PRIu64 " to %" PRIu64, (uint64_t)s->least_int, s->most_int);
  else
    table_printf(t, "%.6g to %.6g", s->least, s->most);
}

static void percent_cell(table *t, uint64_t part, uint64_t whole) {
  if (whole == 0)
    table_cell(t, "-");
  else
    table_printf(t, "%.1f%%", 100 * ((double)part / (double)whole));
}

static void sparse_cell(table *t, const array_facts *a) {
  char size[STOW_SIZE_TEXT_MAX];
  if (a->sparse)
    table_printf(t, "is %s", a->layout);
  else if (a->sparse_bytes == 0)
    table_cell(t, "-");
  else
    table_printf(t, "%s, %s", a->sparse_is_smaller ? "yes" : "no",
                 stow_size_format(size, a->sparse_bytes));
}

static void arrays_text(buffer *out, const file_facts *f, bool bold) {
  table t = TABLE_INIT(11, 1u << 3 | 1u << 4 | 1u << 5 | 1u << 6 | 1u << 7 | 1u << 9);
  static const char *const heads[] = {"array", "type",  "shape",    "range", "NaN",   "inf",
                                      "zeros", "bytes", "smallest", "after", "sparse"};
  for (size_t i = 0; i < 11; i++) table_cell(&t, heads[i]);
  for (size_t i = 0; i < f->array_count; i++) {
    const array_facts *a = &f->arrays[i];
    char shape[1600];
    table_cell(&t, a->name[0] != '\0' ? a->name : "-");
    table_printf(&t, "%s%s", a->type_name, a->fortran_order ? " F" : "");
    table_cell(&t, data_shape_text(shape, sizeof shape, a->shape, a->dims));
    if (a->scanned) {
      range_cell(&t, &a->values);
      table_printf(&t, "%" PRIu64, a->values.nans);
      table_printf(&t, "%" PRIu64, a->values.infs);
      percent_cell(&t, a->zeros, a->count);
    } else {
      for (int k = 0; k < 4; k++) table_cell(&t, "-");
    }
    table_size(&t, a->bytes);
    table_cell(&t, a->scanned ? dtype_name(a->smallest) : "-");
    table_size(&t, a->bytes_after);
    sparse_cell(&t, a);
  }
  table_write(&t, out, 2, bold);
}

static void columns_text(buffer *out, const file_facts *f, bool bold) {
  table t = TABLE_INIT(9, 1u << 2 | 1u << 3 | 1u << 4 | 1u << 5 | 1u << 6 | 1u << 8);
  static const char *const heads[] = {"column",   "type",  "range",    "missing", "zeros",
                                      "distinct", "bytes", "smallest", "after"};
  for (size_t i = 0; i < 9; i++) table_cell(&t, heads[i]);
  for (size_t i = 0; i < f->column_count; i++) {
    const column_facts *c = &f->columns[i];
    table_cell(&t, c->name);
    table_printf(&t, "%s%s", c->type_name, c->mixed ? " (mixed)" : "");
    if (c->text)
      table_printf(&t, "to %" PRIu64 " letters", c->longest);
    else
      range_cell(&t, &c->values);
    table_printf(&t, "%" PRIu64, c->missing);
    if (c->text)
      table_cell(&t, "-");
    else
      percent_cell(&t, c->values.zeros, f->rows);
    if (c->text && c->distinct_known)
      table_printf(&t, "%" PRIu64, c->distinct);
    else
      table_cell(&t, c->text && !c->mixed ? "many" : "-");
    table_size(&t, c->bytes);
    if (c->text && c->smallest != DTYPE_NONE)
      table_printf(&t, "%s codes", dtype_name(c->smallest));
    else
      table_cell(&t, c->text ? "UTF-8" : dtype_name(c->smallest));
    table_size(&t, c->bytes_after);
  }
  table_write(&t, out, 2, bold);
}

static stow_status print_text(const char *path, const file_facts *f) {
  buffer out = BUFFER_INIT;
  char now[STOW_SIZE_TEXT_MAX], after[STOW_SIZE_TEXT_MAX], file[STOW_SIZE_TEXT_MAX];
  buffer_printf(&out, "%s: %s, %s", output_bold(path), f->format,
                stow_size_format(file, f->file_bytes));
  if (f->table) {
    buffer_text(&out, ", ");
    data_rows_text(&out, f);
  }
  buffer_printf(&out, "; %s in memory", stow_size_format(now, f->bytes));
  if (f->bytes_after < f->bytes)
    buffer_printf(&out, ", %s in the smallest types (%.0f%% less)",
                  stow_size_format(after, f->bytes_after),
                  100 * (1 - (double)f->bytes_after / (double)f->bytes));
  buffer_char(&out, '\n');
  if (f->table)
    columns_text(&out, f, output_color());
  else
    arrays_text(&out, f, output_color());
  return output_buffer(&out);
}

/* ---- for programs ---- */

/* The exact integer where it is one. */
static void json_range(json *j, const scan *s) {
  bool none = s->count == 0 || s->least > s->most;
  for (int most = 0; most < 2; most++) {
    json_key(j, most ? "max" : "min");
    if (none)
      json_null(j);
    else if (dtype_kind(s->type) == CLASS_SIGNED)
      json_i64(j, most ? (int64_t)s->most_int : s->least_int);
    else if (dtype_kind(s->type) != CLASS_FLOAT)
      json_u64(j, most ? s->most_int : (uint64_t)s->least_int);
    else
      json_double(j, most ? s->most : s->least);
  }
  json_number(j, "nan", s->nans);
  json_number(j, "inf", s->infs);
  json_key(j, "whole_numbers"), json_bool(j, dtype_kind(s->type) != CLASS_FLOAT || s->whole);
}

static void json_fraction(json *j, uint64_t part, uint64_t whole) {
  json_key(j, "zero_fraction");
  json_double(j, whole > 0 ? (double)part / (double)whole : 0);
}

static void json_array(json *j, const array_facts *a) {
  json_key(j, "shape");
  json_begin_array(j);
  for (uint32_t i = 0; i < a->dims; i++) json_u64(j, a->shape[i]);
  json_end_array(j);
  json_key(j, "dtype"), json_text(j, a->type_name);
  json_key(j, "fortran_order"), json_bool(j, a->fortran_order);
  json_number(j, "bytes", a->bytes);
  json_key(j, "smallest_dtype"), json_text(j, a->scanned ? dtype_name(a->smallest) : a->type_name);
  json_number(j, "bytes_after", a->bytes_after);
  json_key(j, "sparse"), json_text(j, a->sparse ? a->layout : NULL);
  if (a->scanned) {
    json_fraction(j, a->zeros, a->count);
    json_range(j, &a->values);
  } else {
    json_key(j, "zero_fraction"), json_null(j);
  }
  json_key(j, "sparse_is_smaller"), json_bool(j, a->sparse_is_smaller);
  json_key(j, "sparse_bytes");
  if (a->sparse_bytes > 0)
    json_u64(j, a->sparse_bytes);
  else
    json_null(j);
}

static void json_column(json *j, const file_facts *f, const column_facts *c) {
  json_begin_object(j);
  json_key(j, "name"), json_text(j, c->name);
  json_key(j, "dtype"), json_text(j, c->type_name);
  json_number(j, "missing", c->missing);
  json_number(j, "bytes", c->bytes);
  json_key(j, "smallest_dtype");
  json_text(j, c->smallest != DTYPE_NONE ? dtype_name(c->smallest) : c->type_name);
  json_number(j, "bytes_after", c->bytes_after);
  if (c->text) {
    json_key(j, "mixed"), json_bool(j, c->mixed);
    if (c->mixed) json_number(j, "first_text_line", c->first_text_line);
    json_key(j, "distinct");
    if (c->distinct_known)
      json_u64(j, c->distinct);
    else
      json_null(j);
    json_number(j, "longest_bytes", c->longest);
    json_key(j, "text_layout"), json_text(j, text_layout_name(&c->layout));
  } else {
    json_fraction(j, c->values.zeros, f->rows);
    json_range(j, &c->values);
  }
  json_end_object(j);
}

static void json_file(json *j, const char *path, const file_facts *f) {
  json_begin_object(j);
  json_key(j, "path"), json_text(j, output_name(path));
  json_key(j, "format"), json_text(j, f->format);
  json_number(j, "file_bytes", f->file_bytes);
  bool one = !f->table && f->array_count == 1 && f->arrays[0].name[0] == '\0';
  if (one) {
    json_array(j, &f->arrays[0]);
  } else {
    json_number(j, "bytes", f->bytes);
    json_number(j, "bytes_after", f->bytes_after);
  }
  if (f->table) {
    json_key(j, "shape");
    json_begin_array(j);
    json_u64(j, f->rows);
    json_u64(j, f->column_count);
    json_end_array(j);
    data_rows_json(j, f);
    json_key(j, "columns");
    json_begin_array(j);
    for (size_t i = 0; i < f->column_count; i++) json_column(j, f, &f->columns[i]);
    json_end_array(j);
  } else if (!one) {
    json_key(j, "arrays");
    json_begin_array(j);
    for (size_t i = 0; i < f->array_count; i++) {
      json_begin_object(j);
      json_key(j, "name"), json_text(j, f->arrays[i].name);
      json_array(j, &f->arrays[i]);
      json_end_object(j);
    }
    json_end_array(j);
  }
  json_number(j, "peak_memory_bytes", budget_peak());
  json_end_object(j);
}

/* ---- the verb ---- */

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
      json_file(&j, call->operands[i], &f);
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
