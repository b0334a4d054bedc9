/* Inspect: what a data file holds, in one pass and bounded memory.
 *
 *   file_facts f; inspect_file(&f, "x.npz", NULL, &budget); … inspect_free(&f);
 *
 * Called by `stowage inspect`, and by shrink for what it needs to decide. Every figure is over all
 * values, never a sample; what was not looked at says so (`scanned`). */
#ifndef DATA_INSPECT_H
#define DATA_INSPECT_H

#include "data/array.h"
#include "data/budget.h"
#include "data/text_layout.h"
#include "numbers/scan.h"

typedef struct array_facts {
  char name[ZIP_NAME_MAX]; /* of the member, without .npy; "" where the file is one array */
  char type_name[ARRAY_DTYPE_MAX];
  dtype type;
  bool fortran_order;
  uint32_t dims;
  uint64_t shape[ARRAY_DIMS_MAX];
  uint64_t count, bytes;
  bool scanned;           /* the values are numbers and were all looked at */
  bool opaque;            /* a member of an npz that is not an array of numbers or text */
  scan values;            /* of a sparse matrix: of those stored */
  dtype smallest;         /* for the purpose of the job; DTYPE_NONE where not scanned */
  uint64_t bytes_after;   /* dense, in that type; `bytes` where not scanned */
  bool sparse;            /* it is a SciPy sparse matrix already */
  char layout[8];         /* "csr", "csc", … then */
  uint64_t places_bytes;  /* and where its values stand, in the narrowest types */
  bool repeats;           /* a place may stand in it twice: its values keep their type */
  uint64_t zeros;         /* of all places, those that hold +0 */
  bool sparse_is_smaller; /* than bytes_after */
  uint64_t sparse_bytes;  /* 0 where it can be no CSR (not two-dimensional) */
} array_facts;

typedef struct column_facts {
  char *name;
  const char *type_name; /* "int64", "float64", "bool", "text" */
  bool text, mixed;      /* mixed: numbers first, then text; its distinct values were not counted */
  scan values;           /* of those that are numbers */
  uint64_t missing;
  uint64_t distinct;            /* of text, the empty one left out */
  bool distinct_known;          /* false: more than the budget holds, or mixed */
  bool mixed_unknown;           /* false unless it must be read again as text to count them */
  uint64_t text_bytes, longest; /* letters of all values; of the longest */
  uint64_t first_text_line;     /* of a mixed column */
  text_layout layout;           /* of text: how shrink writes it */
  dtype smallest;               /* of the numbers, or of the codes of a dictionary */
  uint64_t bytes, bytes_after;  /* in memory */
} column_facts;

typedef struct file_facts {
  const char *format; /* "npy", "npz", "csv", … */
  scan_purpose purpose;
  uint64_t file_bytes;
  uint64_t stream_bytes; /* of a table: its text, inflated where the file is gz */
  array_facts *arrays;
  size_t array_count;
  column_facts *columns; /* of a table */
  size_t column_count;
  uint64_t rows;
  bool table, has_header;
  bool unnamed_first; /* the header has no name for the first column: it is called "index" */
  bool pandas_index;  /* and it holds the numbers 0 to rows - 1: pandas wrote its index */
  uint64_t bytes, bytes_after; /* in memory, of everything */
} file_facts;

typedef enum table_header { HEADER_AUTO, HEADER_YES, HEADER_NO } table_header;

typedef struct inspect_options {
  array_spec raw;      /* a type: the file is raw values */
  table_header header; /* of a table; HEADER_AUTO: decided by the first rows */
  const char *member;  /* the only array to look at; NULL: all */
} inspect_options;

/* Tells by the contents what the file is. `path` may be "file:member" for one array of it.
 * `options` may be NULL. */
stow_status inspect_file(file_facts *f, const char *path, const inspect_options *options,
                         const budget *b);
void inspect_free(file_facts *f);

/* What the file is, by its first bytes and what was said about it: "npy", "npz", "csv", "raw", …;
 * STOW_ERR_FORMAT if nothing this reads. */
stow_status inspect_format(const char **format, source *from, const inspect_options *o);

/* The two halves of inspect_array, for who scans the values himself: before, and after. */
void inspect_begin(array_facts *facts, const array *a);
void inspect_conclude(array_facts *facts, scan_purpose purpose);
/* The scans of all ranks of a team, in every one of them. */
stow_status inspect_join(scan *s, const budget *b);
/* All values of one array; `done` and `total` for the progress of a file with several. */
stow_status inspect_array(array_facts *facts, array *a, const budget *b, uint64_t *done,
                          uint64_t total);

#endif
