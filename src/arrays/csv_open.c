/* Csv open: one file, or several tables of the same columns as one input in front of csv.
 *
 * The first file decides the delimiter and whether a first row names the columns. Every other file
 * is opened once before anything is read, so that one with other columns is an error at the start.
 * Its row of names is left out. Errors name the file and its own line: csv_where. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrays/csv.h"

typedef struct csv_shards {
  const char *first;
  const csv_options *options; /* with the other files */
  csv_options each;           /* for one file */
  size_t row_max;
  char delimiter; /* of the first file */
  bool names;     /* each file begins with a row of names */
  char **columns; /* their names */
  size_t column_count;
  csv now; /* the file being read */
  bool is_open;
  size_t number; /* of the next file to open */
  uint64_t raw_before, lines;
  bool in_line; /* the last byte given did not end a line */
  csv_places places;
} csv_shards;

static const char *path_of(const csv_shards *s, size_t i) {
  return i == 0 ? s->first : s->options->files[i - 1];
}

static size_t file_count(const csv_shards *s) {
  return s->options->file_count + 1;
}

/* ---- the same columns ---- */

static stow_status take_columns(csv_shards *s, const csv *c) {
  s->column_count = c->columns;
  s->columns = calloc(c->columns + 1, sizeof *s->columns);
  if (s->columns == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", s->first);
  for (size_t i = 0; i < c->columns; i++) {
    s->columns[i] = strndup(c->fields[i].text, c->fields[i].length);
    if (s->columns[i] == NULL)
      return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", s->first);
  }
  return STOW_OK;
}

static stow_status compare_columns(const csv_shards *s, const csv *c, const char *path) {
  size_t common = c->columns < s->column_count ? c->columns : s->column_count;
  for (size_t i = 0; i < common && s->names; i++) {
    const csv_field *f = &c->fields[i];
    if (strlen(s->columns[i]) == f->length && memcmp(s->columns[i], f->text, f->length) == 0)
      continue;
    return stow_fail(STOW_ERR_INVALID,
                     "%s: column %zu is \"%.*s\", but \"%.100s\" in %s; all files need the same "
                     "columns in the same order",
                     path, i + 1, f->length < 100 ? (int)f->length : 100, f->text, s->columns[i],
                     s->first);
  }
  if (c->columns == s->column_count) return STOW_OK;
  bool more = c->columns > s->column_count;
  const char *name = more ? "" : s->columns[common];
  int length = (int)strlen(name);
  if (more) {
    name = c->fields[common].text;
    length = c->fields[common].length < 100 ? (int)c->fields[common].length : 100;
  }
  return stow_fail(STOW_ERR_INVALID,
                   "%s has %zu columns, but %s has %zu; column %zu (\"%.*s\") is only in %s", path,
                   c->columns, s->first, s->column_count, common + 1, s->names ? length : 0, name,
                   more ? path : s->first);
}

/* Decides by the first file; checks the others. */
static stow_status look_at(csv_shards *s, size_t i) {
  csv c;
  bool more;
  const char *path = path_of(s, i);
  STOW_TRY(csv_open_one(&c, path, s->row_max, &s->each));
  stow_status status = csv_first(&c, s->options->names, &more);
  if (status == STOW_OK && !more)
    status = stow_fail(STOW_ERR_FORMAT, "%s: the file is empty; leave it out", path);
  if (status == STOW_OK && i == 0) {
    s->delimiter = c.delimiter;
    /* A space is detected in each file, because comments may come before the numbers; and "::". */
    if (c.delimiter != ' ' && c.delimiter != CSV_COLONS) {
      s->each.found = s->each.delimiter == '\0';
      s->each.delimiter = c.delimiter;
    }
    s->names = s->options->names == HEADER_YES;
    if (s->options->names == HEADER_AUTO) status = csv_find_header(&c, &s->names);
    if (status == STOW_OK) status = take_columns(s, &c);
  } else if (status == STOW_OK) {
    status = compare_columns(s, &c, path);
  }
  csv_close(&c);
  return status;
}

/* ---- reading ---- */

static stow_status open_next(csv_shards *s) {
  const char *path = path_of(s, s->number);
  bool more = true;
  STOW_TRY(csv_open_one(&s->now, path, s->row_max, &s->each));
  s->is_open = true;
  if (s->number > 0 && s->names) STOW_TRY(csv_next(&s->now, &more));
  s->places.list[s->number++] = (csv_place){path, s->lines, s->now.lines};
  atomic_store_explicit(&s->places.count, s->number, memory_order_release);
  return STOW_OK;
}

static void close_now(csv_shards *s) {
  s->raw_before += s->now.in.raw_bytes;
  csv_close(&s->now);
  s->is_open = false;
}

static stow_status read_shards(void *user, uint8_t *to, size_t room, size_t *got) {
  csv_shards *s = user;
  *got = 0;
  while (*got == 0 && room > 0) {
    if (!s->is_open && s->number == file_count(s)) return STOW_OK;
    if (!s->is_open) STOW_TRY(open_next(s));
    input *in = &s->now.in;
    STOW_TRY(input_fill(in, 1));
    size_t left = input_left(in);
    if (left == 0) { /* its last row may have no line end */
      close_now(s);
      if (s->in_line) to[(*got)++] = '\n';
    } else {
      *got = left < room ? left : room;
      memcpy(to, in->at, *got);
      in->at += *got;
    }
    for (size_t i = 0; i < *got; i++) s->lines += to[i] == '\n';
    if (*got > 0) s->in_line = to[*got - 1] != '\n';
  }
  return STOW_OK;
}

static uint64_t raw_bytes(void *user) {
  const csv_shards *s = user;
  return s->raw_before + (s->is_open ? s->now.in.raw_bytes : 0);
}

static void close_shards(void *user) {
  csv_shards *s = user;
  if (s->is_open) csv_close(&s->now);
  for (size_t i = 0; s->columns != NULL && i < s->column_count; i++) free(s->columns[i]);
  free(s->columns);
  free(s->places.list);
  free(s);
}

static stow_status open_shards(csv *c, const char *path, size_t row_max,
                               const csv_options *options) {
  csv_shards *s = calloc(1, sizeof *s);
  if (s == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", path);
  s->first = path;
  s->options = options;
  s->row_max = row_max;
  s->each = *options;
  s->each.files = NULL;
  s->each.file_count = 0;
  s->places.list = calloc(file_count(s), sizeof *s->places.list);
  stow_status status = STOW_OK;
  if (s->places.list == NULL) status = stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", path);
  for (size_t i = 0; i < file_count(s) && status == STOW_OK; i++) status = look_at(s, i);
  if (status != STOW_OK) {
    close_shards(s);
    return status;
  }
  input_reader reader = {
      .read = read_shards, .raw_bytes = raw_bytes, .close = close_shards, .user = s};
  return csv_open_joined(c, &reader, &s->places, s->delimiter, path, row_max, options);
}

stow_status csv_open(csv *c, const char *path, size_t row_max, const csv_options *options) {
  bool several = options != NULL && options->file_count > 0;
  return several ? open_shards(c, path, row_max, options) : csv_open_one(c, path, row_max, options);
}

static stow_status open_packed(input *in, bool *packed, const char *path, const char *member) {
  static const input_limits no_limits = {.max_bytes = UINT64_MAX, .max_ratio = UINT64_MAX};
  STOW_TRY(input_open(in, path, &no_limits));
  *packed = in->inflater != NULL || in->unpack != NULL;
  if (*packed) return STOW_OK;
  bool zipped =
      input_fill(in, 4) == STOW_OK && input_left(in) >= 4 && memcmp(in->at, "PK\x03\x04", 4) == 0;
  if (!zipped) return STOW_OK;
  input_close(in);
  *in = (input){0};
  *packed = true;
  return csv_zip_open(in, path, member);
}

stow_status csv_unpack(const char *path, const char *member) {
  input in = {0};
  bool packed = false;
  stow_status status = open_packed(&in, &packed, path, member);
  if (status != STOW_OK) return status;
  while (packed && status == STOW_OK && !(in.at_eof && in.at == in.end)) {
    in.at = in.end;
    status = input_fill(&in, 1);
  }
  input_close(&in);
  return status;
}
