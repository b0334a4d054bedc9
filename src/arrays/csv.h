/* Csv: reads text tables row by row: separated by comma, tab, semicolon, bar or runs of spaces,
 * plain, compressed (gzip, zstd, xz) or in a zip archive.
 *
 * RFC 4180 quoting (a quoted field may hold delimiters, line ends and doubled quotes), LF, CRLF and
 * CR, a byte order mark. Blank lines are skipped. Each field comes with its parsed value.
 * Guarantees: a row with fewer fields than the first lacks its last ones, which are missing; a row
 * with more is an error that names its line. Memory is
 * one window, one row's fields and one row of unescaped text; the caller bounds the length of a
 * row. Parsing never writes to the window, so a caller may parse the same bytes again. */
#ifndef ARRAYS_CSV_H
#define ARRAYS_CSV_H

#include "arrays/decimal.h"
#include "base/dtype.h"
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

typedef enum csv_encoding {
  CSV_UTF8, /* or what a byte order mark says */
  CSV_LATIN1,
  CSV_CP1252,
  CSV_UTF16, /* the byte order mark decides; little endian without one */
  CSV_UTF16LE,
  CSV_UTF16BE
} csv_encoding;

/* Does the first row name the columns? HEADER_AUTO: the first rows decide. */
typedef enum table_header { HEADER_AUTO, HEADER_YES, HEADER_NO } table_header;

/* What the caller wants of one column. */
typedef struct csv_rule {
  const char *name;
  bool numbers;     /* numbers, whatever zeros are in front */
  bool text, times; /* text as it is; times, or an error */
  dtype type;       /* of the numbers in the output; DTYPE_NONE: the smallest */
  double tolerance; /* 0: that of the job */
  bool relative;
} csv_rule;

/* What the caller knows about the text. All zero: everything is detected. */
typedef struct csv_options {
  char delimiter;        /* '\0': detected from the first lines */
  bool found;            /* delimiter was detected in the first of several files */
  bool spaces;           /* runs of spaces or tabs separate the columns; delimiter is ' ' */
  bool colons;           /* "::" separates the columns; delimiter is CSV_COLONS */
  char decimal;          /* ',' or '.'; '\0': '.' */
  char comment;          /* lines that begin with it are no rows; '\0': none */
  csv_encoding encoding; /* a byte order mark has precedence */
  uint64_t skip;         /* lines before the table */
  /* Words for missing values, in columns of text too. NULL: the usual ones (NA, null, …), which
   * stay as they are in a column of text. */
  const char *const *na;
  size_t na_count;
  const csv_rule *rules;
  size_t rule_count;
  const char *member; /* of a zip archive; NULL: its only table */
  /* Further files, whose rows follow: with the same columns, each with its row of names. */
  const char *const *files;
  size_t file_count;
  table_header names; /* used only with further files */
} csv_options;

/* Where each of several files begins among the lines of all of them. */
typedef struct csv_place {
  const char *name;
  uint64_t lines_before; /* of the files before it */
  uint64_t own_lines;    /* of the file that are not in the stream: names, comments */
} csv_place;

typedef struct csv_places {
  csv_place *list;
  _Atomic(size_t) count; /* read by threads that report an error */
} csv_places;

typedef struct csv {
  input in;
  const csv_places *places;   /* of several files read as one; NULL: one file */
  const csv_options *options; /* owned by the caller */
  bool careful;               /* an option changes how fields are read: csv_classify */
  char point;                 /* between whole and fraction: '.' or ',' */
  uint64_t na_lengths;        /* a bit for each length of options->na; 63: that and longer */
  char delimiter;
  uint64_t line;      /* of the last row; the first line of the file is 1 */
  uint64_t lines;     /* read so far; a quoted field may span several */
  csv_field *fields;  /* of the last row */
  size_t columns;     /* fields in every row; 0 before the first */
  size_t given;       /* of them, those that the last row has; the others are missing */
  const bool *padded; /* by column: "007" is the number 7; NULL: in none */
  size_t capacity;
  size_t row_max; /* bytes */
  size_t fields_max;
  char *unescaped; /* fields of this row that had doubled quotes, unescaped */
  size_t unescaped_used, unescaped_capacity;
} csv;

/* Opens the file. `row_max` bounds the bytes of a row and so its number of fields. Detects the
 * delimiter from the first lines: csv_spaces.c says when spaces are one, csv_colons.c when "::" is.
 * `options` may be NULL and must outlive the csv. */
stow_status csv_open(csv *c, const char *path, size_t row_max, const csv_options *options);
/* Unpacks a compressed table, or a member of an archive, to its end. STOW_ERR_FORMAT if that fails;
 * STOW_OK for any other file. */
stow_status csv_unpack(const char *path, const char *member);
/* The same for the first file alone. */
stow_status csv_open_one(csv *c, const char *path, size_t row_max, const csv_options *options);
stow_status csv_open_memory(csv *c, const void *bytes, size_t count, const char *name,
                            size_t row_max, const csv_options *options);
void csv_close(csv *c);

/* Reads the next row into c->fields; *more is false at the end of the file. */
stow_status csv_next(csv *c, bool *more);
/* The same for the first row, which decides how many columns there are. If it holds names and every
 * row below has one field more, as R's write.table and some spreadsheets write row names, the first
 * column has the empty name; the last one if each of these rows ends with a delimiter.
 * (csv_header.c) */
stow_status csv_first(csv *c, table_header header, bool *more);

/* Returns whether the text is one of options->na. */
bool csv_is_given(const csv *c, const char *text, size_t length);
static inline bool csv_is_na(const csv *c, const char *text, size_t length) {
  return (c->na_lengths >> (length < 63 ? length : 63) & 1) != 0 && csv_is_given(c, text, length);
}

/* Classifies the field text[0, length), which has no quotes around it and no doubled quotes,
 * ignoring surrounding spaces. `padded`: "007" is a number. The byte after the field must not
 * belong to a number: a delimiter, a quote, a line end or the '\0' after the window. */
void csv_classify(const csv *c, csv_field *f, bool padded, const char *text, size_t length);
/* Returns whether a text is a number that no type holds: an integer above 64 bits, or beyond the
 * range of a double. */
bool csv_is_beyond(const csv *c, const csv_field *text);

/* Makes `view` read rows of the same table from memory that the caller sets in view->in. */
void csv_view(csv *view, const csv *c);

/* Parses an encoding's name as Python spells it: "latin-1", "cp1252", "utf-16". */
stow_status csv_encoding_parse(csv_encoding *encoding, const char *name);
/* Returns whether it is a line of libsvm: a label, or several with commas between them, and pairs,
 * as in "+1 3:0.5 7:1". (csv_words.c) */
bool csv_is_pairs(const char *text, size_t length);
/* Returns whether it is a complex number as NumPy writes it, "(1.5+2e3j)", in parentheses or not,
 * perhaps with blanks around. It is text, but no name. (csv_words.c) */
bool csv_is_complex(const char *text, size_t length);
/* Returns whether the names in a zip archive's directory say that it holds a table: one that ends
 * with .csv, .tsv, .tab or .txt, and none that ends with .npy. (csv_zip.c) */
struct zip;
bool csv_zip_is(const struct zip *z);
/* Opens the table in a zip archive as an input. (csv_zip.c) */
stow_status csv_zip_open(input *in, const char *path, const char *member);
/* Opens what a reader gives as a table: text in UTF-8 with this delimiter. For csv_open. */
stow_status csv_open_joined(csv *c, const input_reader *reader, const csv_places *places,
                            char delimiter, const char *name, size_t row_max,
                            const csv_options *options);
/* Writes "FILE: line N" for a line of the stream. Returns `text`. Safe in any thread that parses
 * rows. (csv_where.c) */
#define CSV_WHERE_MAX 1040
const char *csv_where(const csv *c, uint64_t line, char text[CSV_WHERE_MAX]);
/* Wraps an open input: converts its text to UTF-8. `in` is closed on failure. (csv_text.c) */
stow_status csv_text_decode(input *in, const csv_options *o);
/* Returns whether the first line of the window ends with CR alone. (csv_text.c) */
bool csv_text_has_cr(const input *in, const csv_options *o);
/* Wraps an open input: empties skipped lines and comments; with `cr`, CR ends a line. `in` is
 * closed on failure. (csv_text.c) */
stow_status csv_text_lines(input *in, const csv_options *o, bool cr);

/* Returns whether runs of spaces or tabs separate the columns of the first lines; sets *columns.
 * (csv_spaces.c) */
bool csv_spaces_is(const csv *c, size_t *columns);
/* Wraps an open input: one space for each run of blanks outside quotes, none around a line. `in` is
 * closed on failure. (csv_spaces.c) */
stow_status csv_spaces_wrap(input *in);

/* Takes the place of "::": the ASCII character that separates units. */
#define CSV_COLONS '\x1f'
/* Returns whether "::" separates the columns of the first lines. (csv_colons.c) */
bool csv_colons_is(const input *in);
/* Wraps an open input: CSV_COLONS for each "::" outside quotes. `in` is closed on failure.
 * (csv_colons.c) */
stow_status csv_colons_wrap(input *in);

/* Fails because the row that begins on `line` is longer than row_max. */
stow_status csv_long_row(const csv *c, uint64_t line);

/* Returns the end of the row at `at` (its '\n'), or NULL if no row end comes before `end`. */
const char *csv_row_end(const csv *c, const char *at, const char *end);

/* Returns whether the text is the word, in any case. (csv_words.c) */
bool csv_is_word(const char *text, size_t length, const char *word);
/* Returns whether it is one of the usual words for a missing value: NA, null, #N/A, …
 * (csv_words.c) */
bool csv_is_missing(const char *text, size_t length);

/* Decides whether the last row read, the first of the file, names the columns. Looks at the
 * following rows in the window without consuming them. (csv_header.c) */
stow_status csv_find_header(const csv *c, bool *header);

/* Returns whether the line has nothing but blanks. It is not a row, as in pandas. */
static inline bool csv_is_blank(const char *at, const char *stop, char delimiter) {
  while (at < stop && (*at == ' ' || *at == '\t') && *at != delimiter) at++;
  return at == stop;
}

/* Returns whether the text is digits with a needless zero in front ("007", "-05"): a zip code or an
 * id. It is text, because a number would lose the zeros. The byte after the text must be
 * readable. */
static inline bool csv_keeps_zeros(const char *text, size_t length) {
  text += length > 0 && (text[0] == '-' || text[0] == '+');
  return text[0] == '0' && (unsigned char)(text[1] - '0') < 10;
}

#endif
