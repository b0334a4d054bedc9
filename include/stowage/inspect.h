/* Inspect: what a data file holds, how much memory it needs, and how little it could need.
 *
 *   stow_inspection *inspection;
 *   stow_inspect_file(&inspection, "train.npz", NULL);
 *   stow_inspection_info info = STOW_INSPECTION_INFO_INIT;
 *   stow_inspection_get_info(inspection, &info);
 *   puts(stow_inspection_text(inspection));
 *   stow_inspection_close(inspection);
 *
 * Reads npy, npz, csv, safetensors, gguf, HDF5 and raw values, from a path or a URL. Every figure
 * is over all values, never a sample. A pattern ("part-*.csv"), or several paths with line feeds
 * between them, is one table or one array: the rows of the files follow one another. Texts stay
 * valid until the inspection is closed.
 *
 * Threads: an inspection does not change; any number may read it. Fork: a child may use its copy.
 * Link with -lstowage-data. */
#ifndef STOWAGE_INSPECT_H
#define STOWAGE_INSPECT_H

#include <stdint.h>

#include <stowage/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stow_inspection stow_inspection;

/* Called from time to time with the number of bytes done. Any thread of the job may call it, one at
 * a time. Return 0 to continue, or a negative stow_status (STOW_ERR_INTERRUPTED) to stop the job
 * with that status. */
typedef int (*stow_data_progress)(void *user, uint64_t done, uint64_t total);

/* Does the first row of a table name its columns? */
#define STOW_NAMES_AUTO UINT32_C(0) /* yes, unless the row looks like data (docs/data.md) */
#define STOW_NAMES_YES  UINT32_C(1)
#define STOW_NAMES_NO   UINT32_C(2)

/* What the values are for. Decides which types may be chosen. */
/* No float16 (sums overflow) and no unsigned types (differences wrap). */
#define STOW_FOR_ARITHMETIC UINT32_C(0)
#define STOW_FOR_TRAINING   UINT32_C(1) /* float16, uint8 and signed types */
#define STOW_FOR_STORAGE    UINT32_C(2) /* any type */

/* How a text table is written; NULL and 0: detected, or the usual. */
typedef struct stow_table_options {
  uint32_t struct_bytes; /* sizeof(stow_table_options) */
  uint32_t reserved;     /* 0 */
  const char *delimiter; /* one character, "tab", "space" or "spaces" (a run of blanks) */
  const char *decimal;   /* "." or "," */
  const char *comment;   /* lines that begin with this character are no rows */
  const char *encoding;  /* "utf-8", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "cp1252" */
  uint64_t skip;         /* lines before the table */
  /* Words for missing values, ended by NULL, in columns of text too; a word may be a list: "a,b".
   * NULL: NA, N/A, null, None and the other words of pandas, which are ordinary text in a column of
   * text. An empty field is always missing. */
  const char *const *na;
  /* Of single columns, each list ended by NULL: "NAME=TYPE", where TYPE is a number type such as
   * "float32" (then 007 is the number 7), "text", or "datetime"; and "NAME=1e-3" or
   * "NAME=abs:0.5", how far the floats of the column may round. */
  const char *const *types;
  const char *const *tolerances;
} stow_table_options;
#define STOW_TABLE_OPTIONS_INIT                                                                    \
  { sizeof(stow_table_options), 0, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL }

typedef struct stow_inspect_options {
  uint32_t struct_bytes;       /* sizeof(stow_inspect_options) */
  uint32_t threads;            /* 0: one for each processor */
  uint64_t memory_bytes;       /* memory limit; 0: a quarter of free memory; at least 4 MiB */
  const char *raw_dtype;       /* the file holds raw values of this type; NULL: detect the format */
  const uint64_t *raw_shape;   /* raw_dims sizes; NULL: one dimension, as long as the file */
  uint32_t raw_dims;           /* number of dimensions in raw_shape */
  uint32_t names;              /* STOW_NAMES_AUTO, _YES, _NO */
  stow_data_progress progress; /* NULL: none */
  void *progress_user;
  uint32_t purpose;                /* STOW_FOR_… */
  uint32_t reserved;               /* 0 */
  const stow_table_options *table; /* NULL: all of it is detected */
} stow_inspect_options;
#define STOW_INSPECT_OPTIONS_INIT                                                                  \
  { sizeof(stow_inspect_options), 0, 0, NULL, NULL, 0, 0, NULL, NULL, 0, 0, NULL }

/* Reads a whole file; NULL options are the defaults. STOW_ERR_NOT_FOUND: no such file;
 * STOW_ERR_FORMAT: not a data file. `*inspection` is NULL on failure. */
STOW_API stow_status stow_inspect_file(stow_inspection **inspection, const char *path,
                                       const stow_inspect_options *options);
/* Closes an inspection; NULL is allowed. */
STOW_API void stow_inspection_close(stow_inspection *inspection);

typedef struct stow_inspection_info {
  uint32_t struct_bytes; /* sizeof(stow_inspection_info), set by the caller */
  uint32_t is_table;     /* 1: the items are columns; 0: arrays */
  const char *format;    /* "npy", "npz", "csv", … */
  uint64_t file_bytes;
  uint64_t bytes;       /* memory needed as stored */
  uint64_t bytes_after; /* memory needed in the smallest types */
  uint64_t item_count;  /* arrays or columns */
  uint64_t rows;        /* rows of a table */
  uint32_t has_names;   /* 1: the first row of the table names the columns */
  uint32_t reserved;
} stow_inspection_info;
#define STOW_INSPECTION_INFO_INIT                                                                  \
  { sizeof(stow_inspection_info), 0, NULL, 0, 0, 0, 0, 0, 0, 0 }
STOW_API stow_status stow_inspection_get_info(const stow_inspection *inspection,
                                              stow_inspection_info *info);

typedef struct stow_inspection_item {
  uint32_t struct_bytes;      /* sizeof(stow_inspection_item), set by the caller */
  uint32_t scanned;           /* 1: the values are numbers, and all were read */
  const char *name;           /* "" if the file is one array */
  const char *dtype;          /* in NumPy's spelling; "text" for a column of text */
  const char *smallest_dtype; /* the smallest type that holds every value exactly; dtype if not
                               * scanned */
  const uint64_t *shape;
  uint32_t dims;
  uint32_t sparse_is_smaller; /* 1: sparse_bytes < bytes_after */
  uint64_t bytes, bytes_after;
  uint64_t sparse_bytes; /* size as a CSR matrix of that type; 0: not possible */
  uint64_t zeros, nans, infs;
  uint64_t missing;   /* missing values in a column */
  double least, most; /* the range without NaN; least > most if there are only NaN */
} stow_inspection_item;
#define STOW_INSPECTION_ITEM_INIT                                                                  \
  { sizeof(stow_inspection_item), 0, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* Returns one item. STOW_ERR_NOT_FOUND: there is no such item. */
STOW_API stow_status stow_inspection_get_item(const stow_inspection *inspection, uint64_t index,
                                              stow_inspection_item *item);

/* Return the inspection as `stowage inspect` prints it, and as JSON. */
STOW_API const char *stow_inspection_text(const stow_inspection *inspection);
STOW_API const char *stow_inspection_json(const stow_inspection *inspection);

#ifdef __cplusplus
}
#endif
#endif
