/* Remote: a file behind http or https, read at any offset with range requests.
 *
 * Called by source_open for what begins with http:// or https://; from there on it is a source like
 * any other. Guarantees: exactly the bytes asked for, of one and the same file (its length and its
 * ETag or date are held against every answer), or an error that says what the server said; dropped
 * connections go on where they broke off, servers that are busy are asked again, each with longer
 * waits; at most REMOTE_CACHE_BYTES of memory, and of disk what remote_set_cache allows. Messages
 * name the URL without its query and without a password. */
#ifndef FILES_REMOTE_H
#define FILES_REMOTE_H

#include "files/source.h"

#define REMOTE_CACHE_BYTES (UINT64_C(2) << 20)

/* The least a server must send in a second by default: a tenth of what a modem does. */
#define REMOTE_RATE_BYTES UINT64_C(1024)

bool remote_is(const char *path);
/* Asks for the first bytes, which tell the length. STOW_ERR_NOT_FOUND (404, 410, no such host);
 * STOW_ERR_UNSUPPORTED: the server has no ranges; STOW_ERR_IO: it refuses, or does not answer. */
stow_status remote_open(source *s, const char *url);

/* Lines as "Authorization: Bearer …" that go with every request of sources this thread opens from
 * now on; NULL for none. They go to the origin (scheme, host, port) of the URL that is opened, not
 * to others it redirects to. The list is copied when a source is opened. Returns what was set
 * before. */
const char *const *remote_set_headers(const char *const *headers);
/* The same for all threads that have set none; before any is started. */
void remote_set_default_headers(const char *const *headers);
/* Sets the least a server must send in a second, for sources that any thread opens from now on,
 * before any thread is started; 0: anything. Without a call $STOWAGE_HTTP_MIN_RATE decides, or
 * REMOTE_RATE_BYTES. */
void remote_set_rate(uint64_t bytes);
/* How much disk sources this thread opens from now on may keep blocks on, all together with what
 * was kept before (remote_cache.h); 0: what $STOWAGE_CACHE says. Returns what was set before. */
uint64_t remote_set_cache(uint64_t bytes);

#endif
