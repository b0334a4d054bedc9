/* Unpack: zstd and xz streams, decompressed front to back. gzip is handled by input itself.
 *
 * Called by input when a stream begins with the magic of one of them. Several frames (zstd) or
 * streams (xz) in a row are one stream, as their own tools read them. Memory: what the format's
 * window needs, at most 128 MiB for zstd and UNPACK_XZ_MEMORY for xz; a stream that needs more is
 * refused. liblzma is loaded at run time. */
#ifndef FILES_UNPACK_H
#define FILES_UNPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* xz -9 needs 65 MiB; only xz --extreme with a larger dictionary needs more. */
#define UNPACK_XZ_MEMORY (UINT64_C(256) << 20)
#define UNPACK_MAGIC     6 /* bytes that unpack_knows needs */

typedef struct unpack unpack;

/* Reads up to `room` compressed bytes; *got is 0 at the end. */
typedef stow_status (*unpack_read)(void *user, uint8_t *to, size_t room, size_t *got);

/* Returns "zstd" or "xz" if the bytes begin such a stream; NULL otherwise. */
const char *unpack_knows(const uint8_t *start, size_t count);
/* `start` are the bytes already read; the others come from `read`. `name` must outlive it.
 * STOW_ERR_UNSUPPORTED: liblzma is not installed. */
stow_status unpack_open(unpack **made, const char *name, const uint8_t *start, size_t count,
                        unpack_read read);
/* Decompresses into [to, to + room): at least one byte, unless the stream ends. `user` goes to
 * `read`. */
stow_status unpack_some(unpack *u, void *user, uint8_t *to, size_t room, size_t *got);
/* NULL is fine. */
void unpack_close(unpack *u);

#endif
