/* Pickle: an interpreter for the plain subset of Python's pickle, protocols 2 to 5, over a stream.
 *
 * It builds no objects. Scalars and strings are values of 16 bytes. When a dict, list or tuple is
 * filled, the sink receives the contents and returns a value to stand for the container (a frame
 * id, a stack id, nothing). So a snapshot with millions of entries is consumed as it streams by.
 * The memo keeps four bytes per value, or one (pickle_memo.h).
 *
 * Guarantees: linear time; no recursion; memory for stack, memo and strings within
 * `max_work_bytes`; opcodes that import, call or build anything are never executed: they fail with
 * their name and offset. */
#ifndef FILES_PICKLE_H
#define FILES_PICKLE_H

#include "base/hash.h"
#include "files/input.h"
#include "files/pickle_memo.h"

#define PICKLE_DEPTH_MAX 512                 /* marks open at once */
#define PICKLE_TEXT_MAX  (UINT64_C(1) << 20) /* a longer string is skipped and becomes opaque */

/* Tags below PICKLE_SINK_FIRST belong to the machine, the rest to the sink (at most 31). */
enum pickle_tag {
  PICKLE_NONE = 1,
  PICKLE_BOOL,
  PICKLE_INT,        /* i */
  PICKLE_UINT,       /* v, above INT64_MAX */
  PICKLE_FLOAT,      /* f */
  PICKLE_STRING,     /* v: string number; aux: the sink's code for it */
  PICKLE_OPAQUE,     /* present but unused: big integers, bytes, sets, … */
  PICKLE_EMPTY_LIST, /* also a list with nothing added yet */
  PICKLE_EMPTY_DICT,
  PICKLE_CONSUMED, /* memo only: a value the sink has consumed */
  PICKLE_WIDE,     /* memo only: index into the table of values that do not fit in four bytes */
  PICKLE_SINK_FIRST = 12,
};

#define PICKLE_SHARED 1 /* came from the memo: may be used, must not be added to */

typedef struct pickle_value {
  uint8_t tag, flags;
  uint32_t aux; /* containers: memo index + 1 while they may still be filled; strings: code */
  union {
    uint64_t v;
    int64_t i;
    double f;
  };
} pickle_value;

typedef struct pickle_machine pickle_machine;

/* What the reader of one kind of file provides. A failing call stops the machine, which adds the
 * offset to the message. `pairs` are key, value, key, value, … */
typedef struct pickle_sink {
  void *context;
  /* Called once for each distinct string; returns the sink's code for it (0: none). */
  uint8_t (*code)(void *context, const char *text, size_t count);
  /* Fills a container. *value (tag and v) holds the container's old value on entry and its new
   * value on return. */
  stow_status (*dict)(void *context, pickle_value *value, const pickle_value *pairs, size_t count);
  stow_status (*list)(void *context, pickle_value *value, const pickle_value *items, size_t count);
  stow_status (*tuple)(void *context, pickle_value *value, const pickle_value *items, size_t count);
  uint32_t forget; /* one bit per tag: the memo need not keep it; a later reference yields an opaque
                    * value */
} pickle_sink;

struct pickle_machine {
  input *in;
  const pickle_sink *sink;
  pickle_value *stack;
  size_t count, capacity;
  size_t marks[PICKLE_DEPTH_MAX];
  size_t mark_count;
  pickle_memo memo;
  pickle_value first[256]; /* the first entries of the memo, ready to push; tag 0: none */
  pickle_value *wide;
  size_t wide_count, wide_capacity;
  map wide_index;
  intern strings;
  uint8_t *codes; /* per string */
  size_t codes_capacity;
  uint64_t work_bytes, max_work_bytes;
  uint64_t op_offset; /* offset of the current opcode */
};

/* Runs one pickle from `in` up to its STOP and stores its value in *result. */
stow_status pickle_run(pickle_machine *m, input *in, const pickle_sink *sink,
                       uint64_t max_work_bytes, pickle_value *result);
void pickle_free(pickle_machine *m);
const char *pickle_text(const pickle_machine *m, uint64_t string, size_t *count);
/* Returns "an int", "a str", … for messages; for sink tags, "a list or dict". */
const char *pickle_tag_name(uint8_t tag);

#endif
