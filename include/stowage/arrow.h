/* Arrow: tables as streams of the Arrow C data interface, which pandas, polars, pyarrow, DuckDB and
 * R read and write without a copy.
 *
 *   struct ArrowArrayStream stream;
 *   stow_arrow_open(&stream, "table.npz", 0);               a file, batch by batch
 *
 *   stow_arrow_plan *plan;                                  a stream in smaller types
 *   stow_arrow_plan_make(&plan, &first_reading, NULL);
 *   stow_arrow_plan_apply(plan, &smaller, &second_reading);
 *   stow_arrow_plan_close(plan);
 *
 * The three structs are those of the Arrow specification ("The Arrow C data interface", "The Arrow
 * C stream interface"), whose layout never changes. Whoever receives a struct calls its `release`
 * once, or copies it and sets `release` of the original to NULL.
 *
 * Threads: a stream and a plan are for one thread at a time; arrays may be released by any thread.
 * Fork: a child may use arrays; it must not use its parent's streams. Link with -lstowage-data. */
#ifndef STOWAGE_ARROW_H
#define STOWAGE_ARROW_H

#include <stdint.h>

#include <stowage/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE           2
#define ARROW_FLAG_MAP_KEYS_SORTED    4

struct ArrowSchema {
  const char *format;
  const char *name;
  const char *metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema **children;
  struct ArrowSchema *dictionary;
  void (*release)(struct ArrowSchema *);
  void *private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void **buffers;
  struct ArrowArray **children;
  struct ArrowArray *dictionary;
  void (*release)(struct ArrowArray *);
  void *private_data;
};
#endif

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
  int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
  const char *(*get_last_error)(struct ArrowArrayStream *);
  void (*release)(struct ArrowArrayStream *);
  void *private_data;
};
#endif

/* Opens a file as a stream of record batches of about `batch_bytes` each (0: 4 MiB): a table that
 * shrink wrote (.npz: one column per array, text as utf8 or a dictionary), or one array (.npy,
 * "file.npz:member", "file.safetensors:tensor": one column; an array of more dimensions is a column
 * of fixed-size lists). Reads only the headers; a batch is read when the consumer requests it. On
 * failure the stream is left without `release`. STOW_ERR_UNSUPPORTED: a type Arrow does not have;
 * STOW_ERR_INVALID: arrays of different numbers of rows. */
STOW_API stow_status stow_arrow_open(struct ArrowArrayStream *stream, const char *path,
                                     uint64_t batch_bytes);

/* The smallest types for the columns of a stream. */
typedef struct stow_arrow_plan stow_arrow_plan;

typedef struct stow_arrow_plan_options {
  uint32_t struct_bytes; /* sizeof(stow_arrow_plan_options) */
  uint32_t purpose;      /* STOW_FOR_… (stowage/inspect.h) */
  double tolerance;      /* the largest rounding error allowed for floats; 0: none */
  uint32_t absolute;     /* 1: the tolerance is absolute; 0: relative to each value */
  uint32_t reserved;     /* 0 */
} stow_arrow_plan_options;
#define STOW_ARROW_PLAN_OPTIONS_INIT                                                               \
  { sizeof(stow_arrow_plan_options), 0, 0, 0, 0 }

/* Reads the stream to its end, checks every value, and releases the stream, also on failure. Nulls
 * are ignored. Integers stay integers and floats stay floats; other types stay as they are.
 * STOW_ERR_INVALID: the stream does not hold record batches; STOW_ERR_IO: the stream reported an
 * error. `*plan` is NULL on failure. */
STOW_API stow_status stow_arrow_plan_make(stow_arrow_plan **plan, struct ArrowArrayStream *stream,
                                          const stow_arrow_plan_options *options);
/* Closes a plan; NULL is allowed. Streams that the plan made stay usable. */
STOW_API void stow_arrow_plan_close(stow_arrow_plan *plan);

typedef struct stow_arrow_column {
  uint32_t struct_bytes; /* sizeof(stow_arrow_column), set by the caller */
  uint32_t scanned;      /* 1: the column holds numbers */
  const char *name;
  const char *from_type; /* in NumPy's spelling; Arrow's format string if the column is not
                          * numeric */
  const char *to_type;
  uint64_t rows, nulls;
  uint64_t bytes, bytes_after; /* sizes of the values; for text and nested types, as far as they are
                                * known */
  uint64_t nans, infs, zeros;
  double least, most; /* the range without NaN; least > most if there are only NaN */
  double error;       /* the largest rounding error, measured as the tolerance is */
} stow_arrow_column;
#define STOW_ARROW_COLUMN_INIT                                                                     \
  { sizeof(stow_arrow_column), 0, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* Returns the plan for one column. STOW_ERR_NOT_FOUND: there is no such column. Texts stay valid
 * until the plan is closed. */
STOW_API stow_status stow_arrow_plan_get_column(const stow_arrow_plan *plan, uint64_t index,
                                                stow_arrow_column *column);

/* Makes `to` a stream of the batches of `from`, converted to the plan's types. A batch is converted
 * when the consumer requests it; columns that keep their type are passed on without a copy. The
 * call takes ownership of `from`, also on failure. `from` must have the same columns; a value
 * outside the plan's range is an error of the stream. */
STOW_API stow_status stow_arrow_plan_apply(stow_arrow_plan *plan, struct ArrowArrayStream *to,
                                           struct ArrowArrayStream *from);

/* The destructor of a Python capsule "arrow_array_stream" whose struct ArrowArrayStream was
 * allocated with malloc: releases the stream, unless a consumer has moved it, and frees the struct.
 * `capsule` is a PyObject. Does nothing if the process does not run Python. */
STOW_API void stow_arrow_capsule_free(void *capsule);

#ifdef __cplusplus
}
#endif
#endif
