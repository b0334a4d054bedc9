/* Lists that grow: list.h says what it promises. */
#include "base/list.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

stow_status list_grow(void *list, size_t *capacity, size_t item_bytes, size_t first,
                      const char *what) {
  void *items;
  memcpy(&items, list, sizeof items); /* of whatever type its owner's pointer is */
  uint64_t wanted, bytes;
  if (!checked_mul(&wanted, *capacity, 2) || !checked_mul(&bytes, wanted, item_bytes))
    return stow_fail(STOW_ERR_OVERFLOW, "a list of more than %zu %s cannot be held", *capacity,
                     what);
  if (*capacity == 0) wanted = first, bytes = (uint64_t)first * item_bytes;
  items = bytes <= SIZE_MAX ? realloc(items, (size_t)bytes) : NULL;
  if (items == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %llu %s", (unsigned long long)wanted,
                     what);
  memcpy(list, &items, sizeof items);
  *capacity = (size_t)wanted;
  return STOW_OK;
}
