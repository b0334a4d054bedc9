/* Pickle parts: what the loop with the hot opcodes (pickle_run.c) and the cold ones (pickle_cold.c)
 * share. */
#ifndef FILES_PICKLE_PARTS_H
#define FILES_PICKLE_PARTS_H

#include "files/pickle.h"

/* Errors at the opcode being obeyed. `placed` adds file and byte to the words of a lower layer. */
stow_status pickle_broken(const pickle_machine *m, const char *what);
stow_status pickle_cut_short(const pickle_machine *m);
stow_status pickle_placed(const pickle_machine *m, stow_status status);

/* Doubles a table of the machine; charged to its working memory. */
stow_status pickle_grow(pickle_machine *m, void **table, size_t *capacity, size_t size);

/* ---- memo: a value as one word ---- */

enum { WORD_SHIFT = 27, WORD_MAX = (1 << WORD_SHIFT) - 1 };

/* A word for a value that four bytes do not hold. */
stow_status pickle_widen(pickle_machine *m, uint32_t *word, const pickle_value *v);

/* A word as the value it stands for; false if it stands for none. */
static inline bool memo_value(const pickle_machine *m, pickle_value *to, uint32_t word) {
  unsigned tag = word >> WORD_SHIFT;
  *to = (pickle_value){.tag = (uint8_t)tag, .flags = PICKLE_SHARED, .v = word & WORD_MAX};
  if (tag == PICKLE_WIDE) {
    *to = m->wide[to->v];
    to->flags = PICKLE_SHARED;
  }
  if (to->tag == PICKLE_STRING) to->aux = m->codes[to->v];
  if (tag == PICKLE_CONSUMED)
    to->tag = PICKLE_OPAQUE; /* a row in a second place: of no use there */
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
/* Hands the items above `first` to the sink as contents of the container below them. */
stow_status pickle_fill(pickle_machine *m, size_t first, bool dict);
/* Where on the stack the last mark stands. */
stow_status pickle_pop_mark(pickle_machine *m, size_t *first);

/* Obeys any opcode the loop does not; the opcode itself is taken. */
stow_status pickle_cold(pickle_machine *m, uint8_t op);

#endif
