/* Table state: the columns of a table, as far as they are known, and the memory they may use. */
#include <stdlib.h>

#include "data/table.h"

size_t table_row_max(const budget *b) {
  uint64_t share = b->bytes / 8;
  return share < 1u << 30 ? (size_t)share : 1u << 30;
}

uint64_t table_words_max(const budget *b) {
  return b->bytes / 4;
}

uint64_t table_words_bytes(const table_state *s) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < s->count; i++) bytes += 2 * s->words[i].length + 28 * s->words[i].count;
  return bytes;
}

dtype table_column_type(const column_facts *c) {
  return c->text ? DTYPE_NONE : c->values.type;
}

void table_state_free(table_state *s) {
  for (size_t i = 0; i < s->count && s->words != NULL; i++) intern_free(&s->words[i]);
  free(s->words);
  free(s->stats);
  free(s->too_many);
  *s = (table_state){0};
}
