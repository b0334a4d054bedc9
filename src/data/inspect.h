/* Inspect: what a data file contains, in one pass and bounded memory.
 *
 *   file_facts f; inspect_file(&f, "x.npz", NULL, &budget); … inspect_free(&f);
 *
 * Called by `stowage inspect`, and by shrink to make its decisions. Every figure covers all values,
 * never a sample; `scanned` says what was not read. */
#ifndef DATA_INSPECT_H
#define DATA_INSPECT_H

#include "arrays/csv.h"
#include "arrays/csv_time.h"
#include "data/array.h"
#include "data/budget.h"
#include "data/text_layout.h"
#include "numbers/scan.h"

typedef struct array_facts {
  char name[ZIP_NAME_MAX]; /* name of the member, without .npy; "" if the file is one array */
  char type_name[ARRAY_DTYPE_MAX];
  dtype type;
  bool fortran_order;
  uint32_t dims;
  uint64_t shape[ARRAY_DIMS_MAX];
  uint64_t count, bytes;
  bool scanned;           /* the values are numbers and were all read */
  bool opaque;            /* a member of an npz that is not an array of numbers or text */
  bool left_out;          /* HDF5 that an npz cannot hold: texts, compounds, unknown filters */
  scan values;            /* for a sparse matrix: of the stored values */
  dtype smallest;         /* for the purpose of the job; DTYPE_NONE if not scanned */
  uint64_t bytes_after;   /* dense, in that type; `bytes` if not scanned, 0 if left out */
  bool sparse;            /* it is already a SciPy sparse matrix */
  char layout[8];         /* if so: "csr", "csc", … */
  uint64_t places_bytes;  /* its indices, in the narrowest types */
  bool repeats;           /* a position may occur twice: its values keep their type */
  uint64_t zeros;         /* positions that hold 0 */
  bool sparse_is_smaller; /* than bytes_after */
  uint64_t sparse_bytes;  /* 0 if it cannot be CSR (not two-dimensional) */
} array_facts;

typedef struct column_facts {
  char *name;
  char *apart;           /* x.1, if an earlier column is called x; NULL: its name is its own */
  const char *type_name; /* "int64", "float64", "bool", "text" */
  bool text, mixed;      /* mixed: numbers first, then text; its distinct values were not counted */
  /* Text that is written as times; then the layout is one of datetime64[unit]. */
  bool time, zoned;
  csv_unit unit;
  int64_t earliest, latest; /* in seconds */
  bool padded;              /* text because of leading zeros ("007") */
  bool beyond;              /* text because of a number that is too large (1e400) */
  bool not_utf8;            /* some text is not UTF-8; known if shrink keeps the texts */
  bool rounds;              /* text because no number type holds its integers beside its gaps */
  scan values;              /* of the numbers */
  uint64_t missing;
  uint64_t distinct;            /* distinct texts, without the empty one */
  bool distinct_known;          /* false: more than the budget holds, or mixed */
  bool mixed_unknown;           /* it must be read again as text to count them */
  uint64_t text_bytes, longest; /* bytes of all values; of the longest */
  uint64_t first_text_line;     /* first line with text in a mixed column */
  text_layout layout;           /* for text: how shrink writes it */
  dtype smallest;               /* smallest type of the numbers, or of the codes of a dictionary */
  uint64_t bytes, bytes_after;  /* memory needed as stored, and in the smallest types */
} column_facts;

typedef struct file_facts {
  const char *format; /* "npy", "npz", "csv", … */
  scan_purpose purpose;
  uint64_t file_bytes;
  uint64_t stream_bytes; /* for a table: the size of its text, uncompressed */
  array_facts *arrays;
  size_t array_count;
  column_facts *columns; /* for a table */
  size_t column_count;
  uint64_t rows;
  bool table, has_header;
  uint64_t short_rows; /* rows with fewer fields than there are columns */
  bool unnamed_first;  /* the header does not name the first column: it is called "index" */
  bool pandas_index;   /* the first column holds 0 to rows - 1: an index that pandas wrote */
  uint64_t bytes, bytes_after; /* memory needed by everything, as stored and in the smallest
                                * types */
  uint64_t npz_bytes;          /* of a table: the file that shrink writes, with its headers */
} file_facts;

typedef struct inspect_options {
  array_spec raw;      /* if it has a type, the file is raw values */
  table_header header; /* for a table; HEADER_AUTO: the first rows decide */
  const char *member;  /* the only array to read; NULL: all */
  csv_options csv;     /* how a table is written */
} inspect_options;

/* Detects the kind of the file from its contents. `path` may be "file:member" for one array of it.
 * `options` may be NULL. */
stow_status inspect_file(file_facts *f, const char *path, const inspect_options *options,
                         const budget *b);
void inspect_free(file_facts *f);
/* Opens the file or files for a job: splits "file:member", sets the csv options for several tables,
 * opens several arrays as one. `s` must outlive `from` and `o`. */
struct shards;
stow_status inspect_open(source *from, struct shards *s, inspect_options *o, uint64_t *file_bytes);

/* Returns the kind of the file from its first bytes and the options: "npy", "npz", "csv", "raw", …;
 * STOW_ERR_FORMAT if it is not supported. */
/* Returns the error of a file that could not be read as a table: if it is compressed and cannot be
 * unpacked to its end, that error, and otherwise `status` with its message. */
stow_status inspect_blame(const source *from, const char *member, stow_status status);

stow_status inspect_format(const char **format, source *from, const inspect_options *o);

/* Both halves of inspect_array, for callers that scan the values themselves. */
void inspect_begin(array_facts *facts, const array *a);
void inspect_conclude(array_facts *facts, scan_purpose purpose);
/* Joins the scans of all ranks of a team; every rank gets the result. */
stow_status inspect_join(scan *s, const budget *b);
/* Scans all values of one array; `done` and `total` are for the progress of a file with several. */
stow_status inspect_array(array_facts *facts, array *a, const budget *b, uint64_t *done,
                          uint64_t total);

#endif
