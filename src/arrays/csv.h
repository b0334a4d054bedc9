/* Csv: reads text tables row by row: separated by comma, tab, semicolon or bar, plain or gzip.
 *
 * RFC 4180 quoting (a quoted field may hold delimiters, line ends and doubled quotes), LF and CRLF,
 * a byte order mark. Empty lines are skipped. Each field comes with its parsed value.
 * Guarantees: a row with a different number of fields is an error that names its line. Memory is
 * one window, one row's fields and one row of unescaped text; the caller bounds the length of a
 * row. Parsing never writes to the window, so a caller may parse the same bytes again. */
#ifndef ARRAYS_CSV_H
#define ARRAYS_CSV_H

#include "arrays/decimal.h"
#include "files/input.h"

typedef enum csv_kind {
  CSV_MISSING,  /* empty, or NA, N/A, null */
  CSV_SIGNED,   /* value.i */
  CSV_UNSIGNED, /* above INT64_MAX: value.u */
  CSV_FLOAT,    /* value.d; also nan and inf */
  CSV_BOOL,     /* value.i: true or false as Python, R or JSON write it */
  CSV_TEXT
} csv_kind;

typedef struct csv_field {
  csv_kind kind;
  uint32_t length;
  const char *text; /* without quotes; valid until the next row */
  decimal value;
} csv_field;

typedef struct csv {
  input in;
  char delimiter;
  uint64_t line;     /* line number of the last row; the first line of the file is 1 */
  uint64_t lines;    /* read so far; a quoted field may span several */
  csv_field *fields; /* fields of the last row */
  size_t columns;    /* fields in every row; 0 before the first */
  size_t capacity;
  size_t row_max; /* bytes */
  size_t fields_max;
  char *unescaped; /* fields of this row that had doubled quotes, unescaped */
  size_t unescaped_used, unescaped_capacity;
} csv;

/* Opens the file. `row_max` bounds the bytes of a row and so its number of fields. Detects the
 * delimiter from the first lines; a space only between numbers, as numpy.savetxt writes them. */
stow_status csv_open(csv *c, const char *path, size_t row_max);
stow_status csv_open_memory(csv *c, const void *bytes, size_t count, const char *name,
                            size_t row_max);
void csv_close(csv *c);

/* Reads the next row into c->fields; *more is false at the end of the file. */
stow_status csv_next(csv *c, bool *more);

/* Classifies the field text[0, length), which has no quotes around it and no doubled quotes,
 * ignoring surrounding spaces. The byte after it must not belong to a number: a delimiter, a quote,
 * a line end or the '\0' after the window. */
void csv_classify(csv_field *f, const char *text, size_t length);

/* Fails because the row that begins on `line` is longer than row_max. */
stow_status csv_long_row(const csv *c, uint64_t line);

/* Returns the end of the row at `at` (its '\n'), or NULL if no row end comes before `end`. */
const char *csv_row_end(const csv *c, const char *at, const char *end);

/* Decides whether the last row read, the first of the file, names the columns. Looks at the
 * following rows in the window without consuming them. (csv_header.c) */
stow_status csv_find_header(const csv *c, bool *header);

#endif
