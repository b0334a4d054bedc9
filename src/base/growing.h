/* Public structs that can grow: the first member is struct_bytes, the size in the caller's build.
 *
 * A newer caller passes a larger struct, which is accepted if every unknown byte is zero. An older
 * caller passes a smaller struct; members it lacks keep their defaults. Bytes past struct_bytes are
 * never read or written. */
#ifndef BASE_GROWING_H
#define BASE_GROWING_H

#include "base/status.h"

#include <stddef.h>

/* Copies the caller's `given` (NULL: keep the defaults) over `known`, which holds the defaults.
 * STOW_ERR_INVALID: struct_bytes is below the smallest ever (4), or bytes past ours are not 0. */
stow_status growing_read(void *known, size_t known_bytes, const void *given, const char *name);
/* Copies as much of `full` as fits in the caller's `to`. Sets bytes past `full` to 0 and keeps the
 * caller's struct_bytes. */
stow_status growing_write(void *to, const void *full, size_t full_bytes, const char *name);

#endif
