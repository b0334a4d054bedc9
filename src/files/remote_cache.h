/* Remote cache: blocks of files behind a server, kept on disk for the next epoch and the next run.
 *
 * Called by remote, one thread at a time for each cache; several caches, also of several processes,
 * may stand over the same file. Guarantees: a block that comes out is one that went in (each is
 * held against its hash), of the same version of the same URL; a process that is killed leaves what
 * it had stored; all files together stay within the bound, but for 4 MiB of each process at it;
 * where the disk is full or the folder cannot be written, nothing is kept and nothing fails. */
#ifndef FILES_REMOTE_CACHE_H
#define FILES_REMOTE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define REMOTE_BLOCK_BYTES (UINT64_C(256) << 10)

typedef struct remote_cache remote_cache;

/* What $STOWAGE_CACHE says, 0 where it says nothing. STOW_ERR_INVALID: it says no size. */
stow_status remote_cache_bound(uint64_t *bytes);
/* The cache of one version of a file: `mark` tells versions apart. NULL: there can be none. */
remote_cache *remote_cache_open(const char *url, uint64_t bytes, const char *mark, uint64_t bound);
void remote_cache_close(remote_cache *c);
/* Whether it seems to be there; whether it is good, reading tells. */
bool remote_cache_has(remote_cache *c, uint64_t number);
/* A block's bytes, the last one's may be fewer. False: it is not there. */
bool remote_cache_read(remote_cache *c, uint64_t number, void *to, size_t count);
void remote_cache_write(remote_cache *c, uint64_t number, const void *from, size_t count);

#endif
