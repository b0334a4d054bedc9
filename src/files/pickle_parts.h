/* Pickle: what its two files share: the loop with the hot opcodes (pickle.c) and the cold ones
 * (pickle_cold.c). */
#ifndef FILES_PICKLE_PARTS_H
#define FILES_PICKLE_PARTS_H

#include "files/pickle.h"

/* Errors at the opcode being obeyed. `placed` adds file and byte to the words of a lower layer. */
stow_status pickle_broken(const pickle_machine *m, const char *what);
stow_status pickle_cut_short(const pickle_machine *m);
stow_status pickle_placed(const pickle_machine *m, stow_status status);

stow_status pickle_push(pickle_machine *m, pickle_value value);
stow_status pickle_string(pickle_machine *m, pickle_value *to, const char *text, size_t count);
/* Hands the items above `first` to the sink as contents of the container below them. */
stow_status pickle_fill(pickle_machine *m, size_t first, bool dict);
/* Where on the stack the last mark stands. */
stow_status pickle_pop_mark(pickle_machine *m, size_t *first);

/* Obeys any opcode the loop does not; the opcode itself is taken. */
stow_status pickle_cold(pickle_machine *m, uint8_t op);

#endif
