/* Walk: every chunk of some items, by all threads. */
#ifndef DATA_WEIGHTS_WALK_H
#define DATA_WEIGHTS_WALK_H

#include "data/weights/parts.h"

typedef struct walk_task {
  size_t start, end; /* items */
  bool (*wanted)(const weights_job *j, size_t item);
  /* Called with the walk's lock held, before the first chunk of an item and after its last. */
  stow_status (*begin)(weights_job *j, size_t item);
  stow_status (*end_item)(weights_job *j, size_t item);
  stow_status (*run)(weights_job *j, unsigned member, size_t item, uint64_t first, size_t count,
                     const uint8_t *bytes);
} walk_task;

stow_status weights_walk(weights_job *j, const walk_task *task);
/* Returns whether the chunks of the item must be whole rows. */
bool weights_by_rows(const weights_job *j, const weights_item *item);

#endif
