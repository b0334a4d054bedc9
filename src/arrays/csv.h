/* Csv: tables of text, one row at a time: comma, tab or semicolon, plain or gz.
 *
 * RFC 4180 quoting (a quoted field may hold delimiters, line ends and doubled quotes), LF and CRLF,
 * a byte order mark, lines without anything passed over. Each field comes with what it reads as.
 * Guarantees: a row with another number of fields is refused with its line number, memory is one
 * window, one row's fields and one row of unescaped text, rows no longer than the caller allows.
 * Parsing never writes to the window: a caller may parse the same bytes again. */
#ifndef ARRAYS_CSV_H
#define ARRAYS_CSV_H

#include "arrays/decimal.h"
#include "files/input.h"

typedef enum csv_kind {
  CSV_MISSING,  /* nothing, or NA, N/A, null */
  CSV_SIGNED,   /* value.i */
  CSV_UNSIGNED, /* past int64: value.u */
  CSV_FLOAT,    /* value.d; nan and inf too */
  CSV_BOOL,     /* value.i: true or false in any of Python's, R's and JSON's spellings */
  CSV_TEXT
} csv_kind;

typedef struct csv_field {
  csv_kind kind;
  uint32_t length;
  const char *text; /* without its quotes; valid until the next row */
  decimal value;
} csv_field;

typedef struct csv {
  input in;
  char delimiter;
  uint64_t line;     /* of the row last read, the first line of the file being 1 */
  uint64_t lines;    /* read so far: a quoted field may hold several */
  csv_field *fields; /* of the row last read */
  size_t columns;    /* fields in every row; 0 before the first */
  size_t capacity;
  size_t row_max; /* bytes */
  size_t fields_max;
  char *unescaped; /* fields of this row that hold doubled quotes, without the doubling */
  size_t unescaped_used, unescaped_capacity;
} csv;

/* Opens the file; `row_max` bounds a row's bytes and, with it, its fields. The delimiter is the one
 * of ",", tab, ";" and "|" that the first line has most of; a space between numbers, as
 * numpy.savetxt writes them. */
stow_status csv_open(csv *c, const char *path, size_t row_max);
stow_status csv_open_memory(csv *c, const void *bytes, size_t count, const char *name,
                            size_t row_max);
void csv_close(csv *c);

/* The next row into c->fields; *more false at the end of the file. */
stow_status csv_next(csv *c, bool *more);

/* Refuses the row that begins on `line` because it is longer than row_max. */
stow_status csv_long_row(const csv *c, uint64_t line);

/* The end of the row at `at`: its '\n', or NULL if that is not before `end`. */
const char *csv_row_end(const csv *c, const char *at, const char *end);

/* Decides whether the row last read, the first of the file, names the columns. Looks at the rows
 * behind it that the window holds, without consuming them. (csv_header.c) */
stow_status csv_find_header(const csv *c, bool *header);

#endif
