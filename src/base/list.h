/* Lists that grow: arrays that their owner keeps as a pointer, a count and a capacity. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stddef.h>

#include "base/status.h"

/* Grows the array that the pointer at `list` points to: to twice *capacity items, or to `first` if
 * it is empty. If there is no host memory for that many of `what`, list and capacity stay
 * unchanged. */
stow_status list_grow(void *list, size_t *capacity, size_t item_bytes, size_t first,
                      const char *what);

/* Makes space for one more item after `count` items; `list` and `capacity` belong to the owner. */
#define LIST_ROOM(list, count, capacity, first, what)                                              \
  ((count) < (capacity) ? STOW_OK                                                                  \
                        : list_grow(&(list), &(capacity), sizeof *(list), (first), (what)))

#endif
