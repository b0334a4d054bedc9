/* The result of inspect, as a table for people and as JSON (inspect_text.h). */
#include "data/inspect_text.h"

#include <inttypes.h>
#include <stdio.h>

#include <stowage/size.h>

#include "base/table.h"
#include "base/text.h"

/* ---- for people ---- */

/* Writes "(3, 4)", as NumPy prints a shape. Returns `text`. */
static const char *shape_text(char *text, size_t size, const uint64_t *shape, uint32_t dims) {
  size_t at = (size_t)snprintf(text, size, "(");
  for (uint32_t i = 0; i < dims && at + 24 < size; i++)
    at += (size_t)snprintf(text + at, size - at, "%s%" PRIu64, i > 0 ? ", " : "", shape[i]);
  snprintf(text + at, size - at, dims == 1 ? ",)" : ")");
  return text;
}

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
    table_cell(&t, shape_text(shape, sizeof shape, a->shape, a->dims));
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
    if (a->left_out)
      table_cell(&t, "left out");
    else
      table_size(&t, a->bytes_after);
    sparse_cell(&t, a);
  }
  table_write(&t, out, 2, bold);
}

static void time_cell(table *t, const column_facts *c, uint64_t rows) {
  char first[40], last[40];
  if (c->missing == rows) {
    table_cell(t, "-");
    return;
  }
  table_printf(t, "%s to %s%s", csv_date_text(first, c->earliest), csv_date_text(last, c->latest),
               c->zoned ? " UTC" : "");
}

static void columns_text(buffer *out, const file_facts *f, bool bold) {
  table t = TABLE_INIT(9, 1u << 2 | 1u << 3 | 1u << 4 | 1u << 5 | 1u << 6 | 1u << 8);
  static const char *const heads[] = {"column",   "type",  "range",    "missing", "zeros",
                                      "distinct", "bytes", "smallest", "after"};
  for (size_t i = 0; i < 9; i++) table_cell(&t, heads[i]);
  for (size_t i = 0; i < f->column_count; i++) {
    const column_facts *c = &f->columns[i];
    table_cell(&t, c->apart != NULL ? c->apart : c->name);
    table_printf(&t, "%s%s", c->type_name,
                 c->padded   ? " (leading zeros)"
                 : c->beyond ? " (too large numbers)"
                 : c->rounds ? " (long integers)"
                 : c->mixed  ? " (mixed)"
                             : "");
    if (c->time)
      time_cell(&t, c, f->rows);
    else if (c->text)
      table_printf(&t, "up to %" PRIu64 " bytes", c->longest);
    else
      range_cell(&t, &c->values);
    table_printf(&t, "%" PRIu64, c->missing);
    if (c->text)
      table_cell(&t, "-");
    else
      percent_cell(&t, c->values.zeros, f->rows);
    if (c->time)
      table_cell(&t, "-");
    else if (c->text && c->distinct_known)
      table_printf(&t, "%" PRIu64, c->distinct);
    else
      table_cell(&t, c->text && !c->mixed ? "many" : "-");
    table_size(&t, c->bytes);
    if (c->time)
      table_cell(&t, c->type_name);
    else if (c->text && c->smallest != DTYPE_NONE)
      table_printf(&t, "%s codes", dtype_name(c->smallest));
    else
      table_cell(&t, c->text ? "UTF-8" : dtype_name(c->smallest));
    table_size(&t, c->bytes_after);
  }
  table_write(&t, out, 2, bold);
}

void inspect_rows_text(buffer *to, const file_facts *f) {
  buffer_printf(to, "%" PRIu64 " row%s of %zu column%s, %s", f->rows, text_s(f->rows),
                f->column_count, text_s(f->column_count),
                f->has_header ? "names in the first row" : "no names (--names yes if there are)");
  if (f->pandas_index) buffer_text(to, ", column \"index\" is a pandas index");
  if (f->short_rows > 0)
    buffer_printf(to, ", %" PRIu64 " row%s with fewer fields (the rest is missing)", f->short_rows,
                  text_s(f->short_rows));
}

stow_status inspect_text(buffer *out, const char *path, const file_facts *f, bool bold) {
  char name[TEXT_PATH_MAX];
  char now[STOW_SIZE_TEXT_MAX], after[STOW_SIZE_TEXT_MAX], file[STOW_SIZE_TEXT_MAX];
  buffer_printf(out, "%s%s%s: %s, %s", bold ? "\033[1m" : "", text_show(name, sizeof name, path),
                bold ? "\033[0m" : "", f->format, stow_size_format(file, f->file_bytes));
  if (f->table) {
    buffer_text(out, ", ");
    inspect_rows_text(out, f);
  }
  buffer_printf(out, "; %s in memory", stow_size_format(now, f->bytes));
  if (f->bytes_after < f->bytes)
    buffer_printf(out, ", %s in the smallest types (%.0f%% less)",
                  stow_size_format(after, f->bytes_after),
                  100 * (1 - (double)f->bytes_after / (double)f->bytes));
  if (f->table) buffer_printf(out, ", %s as .npz", stow_size_format(after, f->npz_bytes));
  buffer_char(out, '\n');
  if (f->table)
    columns_text(out, f, bold);
  else
    arrays_text(out, f, bold);
  return out->status;
}

/* ---- for programs ---- */

/* Writes the exact integer if it is one. */
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
  json_key(j, "left_out"), json_bool(j, a->left_out);
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
  json_key(j, "name"), json_text(j, c->apart != NULL ? c->apart : c->name);
  json_key(j, "dtype"), json_text(j, c->type_name);
  json_number(j, "missing", c->missing);
  json_number(j, "bytes", c->bytes);
  json_key(j, "smallest_dtype");
  json_text(j, c->smallest != DTYPE_NONE ? dtype_name(c->smallest) : c->type_name);
  json_number(j, "bytes_after", c->bytes_after);
  if (c->time) {
    char day[40];
    bool known = c->missing < f->rows;
    json_key(j, "first_date"), json_text(j, known ? csv_date_text(day, c->earliest) : NULL);
    json_key(j, "last_date"), json_text(j, known ? csv_date_text(day, c->latest) : NULL);
    json_key(j, "utc"), json_bool(j, c->zoned);
  } else if (c->text) {
    json_key(j, "mixed"), json_bool(j, c->mixed);
    json_key(j, "leading_zeros"), json_bool(j, c->padded);
    json_key(j, "too_large_numbers"), json_bool(j, c->beyond);
    json_key(j, "long_integers"), json_bool(j, c->rounds);
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

void inspect_rows_json(json *j, const file_facts *f) {
  json_key(j, "rows"), json_u64(j, f->rows);
  json_key(j, "header"), json_bool(j, f->has_header);
  json_key(j, "pandas_index"), json_text(j, f->pandas_index ? f->columns[0].name : NULL);
  json_key(j, "short_rows"), json_u64(j, f->short_rows);
}

void inspect_json(json *j, const char *path, const file_facts *f, uint64_t peak_bytes) {
  char name[TEXT_PATH_MAX];
  json_begin_object(j);
  json_key(j, "path"), json_text(j, text_show(name, sizeof name, path));
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
    inspect_rows_json(j, f);
    json_number(j, "npz_bytes", f->npz_bytes);
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
  if (peak_bytes > 0) json_number(j, "peak_memory_bytes", peak_bytes);
  json_end_object(j);
}
