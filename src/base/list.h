/* Lists that grow: arrays that their owners keep as a pointer, a count and a capacity. Called where
 * items are collected and nobody knows how many there will be. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stddef.h>

#include "base/status.h"

/* Moves the list that the pointer at `list` points to where it has room for twice *capacity items,
 * for `first` if it has none. Where there is no host memory for so many of `what`, list and
 * capacity stay as they are. */
stow_status list_grow(void *list, size_t *capacity, size_t item_bytes, size_t first,
                      const char *what);

/* Room for one more item behind `count` of them; `list` and `capacity` are the owner's own. */
#define LIST_ROOM(list, count, capacity, first, what)                                              \
  ((count) < (capacity) ? STOW_OK                                                                  \
                        : list_grow(&(list), &(capacity), sizeof *(list), (first), (what)))

#endif
