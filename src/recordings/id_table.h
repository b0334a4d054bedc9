/* Id table: maps a ring's ids to a recording's. A ring numbers its texts 1, 2, 3, … in order; the
 * recording may already have some of them. Used by ring_read.c. */
#ifndef RECORDINGS_ID_TABLE_H
#define RECORDINGS_ID_TABLE_H

#include <stdlib.h>

#include "base/list.h"
#include "recordings/recording.h"

typedef struct id_table {
  uint32_t *ids;
  size_t count, capacity;
} id_table;

/* Maps the file's next id to `id` in the recording. */
static inline stow_status id_table_add(id_table *t, uint32_t id) {
  STOW_TRY(LIST_ROOM(t->ids, t->count, t->capacity, 256, "texts"));
  t->ids[t->count++] = id;
  return STOW_OK;
}

/* Maps an id. 0 stays 0; an unknown id is counted as bad and becomes 0. */
static inline uint32_t id_table_get(const id_table *t, recording *r, uint64_t number) {
  if (number == 0) return 0;
  if (number <= t->count) return t->ids[number - 1];
  r->bad_values++;
  return 0;
}

#endif
