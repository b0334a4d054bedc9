/* Lists that grow (list.h). */
#include "base/list.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

stow_status list_grow(void *list, size_t *capacity, size_t item_bytes, size_t first,
                      const char *what) {
  void *items;
  memcpy(&items, list, sizeof items); /* the owner's pointer has any object type */
  uint64_t wanted, bytes;
  if (!checked_mul(&wanted, *capacity, 2) || !checked_mul(&bytes, wanted, item_bytes))
    return stow_fail(STOW_ERR_OVERFLOW, "list: more than %zu %s do not fit in memory", *capacity,
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
