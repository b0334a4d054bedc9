/* Pickle parts: shared by the main loop (pickle_run.c) and the rare opcodes (pickle_cold.c). */
#ifndef FILES_PICKLE_PARTS_H
#define FILES_PICKLE_PARTS_H

#include "files/pickle.h"

/* Errors at the current opcode. `placed` adds file and byte to the message of a lower layer. */
stow_status pickle_broken(const pickle_machine *m, const char *what);
stow_status pickle_cut_short(const pickle_machine *m);
stow_status pickle_placed(const pickle_machine *m, stow_status status);

/* Doubles a table of the machine, within its working memory. */
stow_status pickle_grow(pickle_machine *m, void **table, size_t *capacity, size_t size);

/* ---- memo: a value as one word ---- */

enum { WORD_SHIFT = 27, WORD_MAX = (1 << WORD_SHIFT) - 1 };

/* Returns a word for a value that does not fit in four bytes. */
stow_status pickle_widen(pickle_machine *m, uint32_t *word, const pickle_value *v);

/* Converts a word back to its value; false if there is none. */
static inline bool memo_value(const pickle_machine *m, pickle_value *to, uint32_t word) {
  unsigned tag = word >> WORD_SHIFT;
  *to = (pickle_value){.tag = (uint8_t)tag, .flags = PICKLE_SHARED, .v = word & WORD_MAX};
  if (tag == PICKLE_WIDE) {
    *to = m->wide[to->v];
    to->flags = PICKLE_SHARED;
  }
  if (to->tag == PICKLE_STRING) to->aux = m->codes[to->v];
  if (tag == PICKLE_CONSUMED)
    to->tag = PICKLE_OPAQUE; /* a row used in a second place: ignored there */
  return tag != 0;
}

static inline stow_status memo_set(pickle_machine *m, uint64_t index, const pickle_value *v) {
  uint32_t word = 0;
  if (m->sink->forget >> v->tag & 1)
    word = PICKLE_CONSUMED << WORD_SHIFT;
  else if (v->v <= WORD_MAX)
    word = (uint32_t)v->tag << WORD_SHIFT | (uint32_t)v->v;
  else
    STOW_TRY(pickle_widen(m, &word, v));
  STOW_TRY(memo_put(&m->memo, index, word, m->max_work_bytes));
  if (index < 256) memo_value(m, &m->first[index], word);
  return STOW_OK;
}

/* ---- stack, strings, containers (pickle_parts.c) ---- */

stow_status pickle_push(pickle_machine *m, pickle_value value);
stow_status pickle_string(pickle_machine *m, pickle_value *to, const char *text, size_t count);
/* Passes the items above `first` to the sink as contents of the container below them. */
stow_status pickle_fill(pickle_machine *m, size_t first, bool dict);
/* Pops the last mark and returns its position. */
stow_status pickle_pop_mark(pickle_machine *m, size_t *first);

/* Executes any opcode the loop does not handle; the opcode itself is consumed. */
stow_status pickle_cold(pickle_machine *m, uint8_t op);

#endif
