/* Public structs that can grow: the first member is struct_bytes, the size the caller compiled
 * with.
 *
 * A newer caller passes a larger struct: accepted if every byte we do not know is zero. An older
 * one passes a smaller struct: what it does not have keeps its default. Nothing past struct_bytes
 * is read or written. */
#ifndef BASE_GROWING_H
#define BASE_GROWING_H

#include "base/status.h"

#include <stddef.h>

/* Copies the caller's `given` (NULL: keep the defaults) over `known`, which holds the defaults.
 * STOW_ERR_INVALID: struct_bytes is below the smallest ever (4), or bytes past ours are not 0. */
stow_status growing_read(void *known, size_t known_bytes, const void *given, const char *name);
/* Copies as much of `full` as the caller's `to` has room for; bytes past `full` are set to 0, and
 * struct_bytes stays the caller's. */
stow_status growing_write(void *to, const void *full, size_t full_bytes, const char *name);

#endif
