/* Remote cache: blocks of remote files, kept on disk for the next epoch and the next run.
 *
 * Called by remote, one thread at a time per cache; several caches, also in several processes, may
 * share a file. Guarantees: a block read back is the block that was stored (checked against its
 * hash), of the same version of the same URL. A killed process leaves its stored blocks usable. All
 * files together stay within the bound, plus up to 4 MiB per process. If the disk is full or the
 * folder is not writable, nothing is cached and nothing fails. */
#ifndef FILES_REMOTE_CACHE_H
#define FILES_REMOTE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define REMOTE_BLOCK_BYTES (UINT64_C(256) << 10)

typedef struct remote_cache remote_cache;

/* Reads $STOWAGE_CACHE; 0 if unset. STOW_ERR_INVALID if it is not a size. */
stow_status remote_cache_bound(uint64_t *bytes);
/* Opens the cache of one version of a file, identified by `mark`. Returns NULL if that is
 * impossible. */
remote_cache *remote_cache_open(const char *url, uint64_t bytes, const char *mark, uint64_t bound);
void remote_cache_close(remote_cache *c);
/* Returns whether the block is probably there; only reading verifies it. */
bool remote_cache_has(remote_cache *c, uint64_t number);
/* Reads a block; the last one may be shorter. Returns false if it is not cached. */
bool remote_cache_read(remote_cache *c, uint64_t number, void *to, size_t count);
void remote_cache_write(remote_cache *c, uint64_t number, const void *from, size_t count);

#endif
