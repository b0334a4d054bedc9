/* Pickle: a machine for the plain subset of Python's pickle, protocols 2 to 5, over a stream.
 *
 * It builds no objects. Scalars and strings are values of 16 bytes; whenever a dict, list or tuple
 * gets its contents, the sink is handed them and answers with what the container is worth to it (a
 * frame number, a stack number, nothing): so a snapshot with millions of entries is consumed as it
 * streams by. What the memo has to keep of a value is four bytes, or one (pickle_memo.h).
 *
 * Guarantees: linear time; no recursion; memory for stack, memo and strings within
 * `max_work_bytes`; no opcode that imports, calls or builds anything is ever obeyed: those are
 * refused by name, with their offset. */
#ifndef FILES_PICKLE_H
#define FILES_PICKLE_H

#include "base/hash.h"
#include "files/input.h"
#include "files/pickle_memo.h"

#define PICKLE_DEPTH_MAX 512                 /* marks open at once */
#define PICKLE_TEXT_MAX  (UINT64_C(1) << 20) /* a longer string is passed over, as opaque */

/* Tags below PICKLE_SINK_FIRST are the machine's, the rest belong to the sink (at most 31). */
enum pickle_tag {
  PICKLE_NONE = 1,
  PICKLE_BOOL,
  PICKLE_INT,        /* i */
  PICKLE_UINT,       /* v, above INT64_MAX */
  PICKLE_FLOAT,      /* f */
  PICKLE_STRING,     /* v: string number; aux: the sink's code for it */
  PICKLE_OPAQUE,     /* something that is there and of no use: big integers, bytes, sets, … */
  PICKLE_EMPTY_LIST, /* also a list that nothing was added to yet */
  PICKLE_EMPTY_DICT,
  PICKLE_CONSUMED, /* memo only: a value the sink has taken and forgotten */
  PICKLE_WIDE,     /* memo only: index into the table of values that four bytes do not hold */
  PICKLE_SINK_FIRST = 12,
};

#define PICKLE_SHARED 1 /* came out of the memo: may be used, must not be added to */

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

/* What the reader of one kind of file supplies. A failing call stops the machine, which adds the
 * offset to the message. `pairs` are key, value, key, value, … */
typedef struct pickle_sink {
  void *context;
  /* Called once for every distinct string: a small number the sink will know it by (0: none). */
  uint8_t (*code)(void *context, const char *text, size_t count);
  /* The container's new worth goes into *value (tag and v); what it was worth before stands there.
   */
  stow_status (*dict)(void *context, pickle_value *value, const pickle_value *pairs, size_t count);
  stow_status (*list)(void *context, pickle_value *value, const pickle_value *items, size_t count);
  stow_status (*tuple)(void *context, pickle_value *value, const pickle_value *items, size_t count);
  uint32_t forget; /* bit per tag: the memo need not keep it; referred to again it is opaque */
} pickle_sink;

struct pickle_machine {
  input *in;
  const pickle_sink *sink;
  pickle_value *stack;
  size_t count, capacity;
  size_t marks[PICKLE_DEPTH_MAX];
  size_t mark_count;
  pickle_memo memo;
  pickle_value first[256]; /* the first entries of the memo, ready to be pushed; tag 0: none */
  pickle_value *wide;
  size_t wide_count, wide_capacity;
  map wide_index;
  intern strings;
  uint8_t *codes; /* per string */
  size_t codes_capacity;
  uint64_t work_bytes, max_work_bytes;
  uint64_t op_offset; /* of the opcode being obeyed */
};

/* Runs one pickle from `in` up to its STOP; its value goes to *result. */
stow_status pickle_run(pickle_machine *m, input *in, const pickle_sink *sink,
                       uint64_t max_work_bytes, pickle_value *result);
void pickle_free(pickle_machine *m);
const char *pickle_text(const pickle_machine *m, uint64_t string, size_t *count);
/* "an int", "a str", … for messages; sink tags are "a list or dict". */
const char *pickle_tag_name(uint8_t tag);

#endif
