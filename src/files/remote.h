/* Remote: a file behind http or https, read at any offset with range requests.
 *
 * source_open calls it for paths that begin with http:// or https://; after that it is a source
 * like any other. Guarantees: exactly the requested bytes of one version of the file (every
 * answer's length and ETag or date are checked), or an error with the server's answer. Dropped
 * connections resume where they broke; busy servers are retried with growing waits. Uses at most
 * REMOTE_CACHE_BYTES of memory, and the disk that remote_set_cache allows. Messages show the URL
 * without query and password. */
#ifndef FILES_REMOTE_H
#define FILES_REMOTE_H

#include "files/source.h"

#define REMOTE_CACHE_BYTES (UINT64_C(2) << 20)

/* Default minimum rate of a server: a tenth of a modem's. */
#define REMOTE_RATE_BYTES UINT64_C(1024)

bool remote_is(const char *path);
/* Requests the first bytes, which also yields the length. STOW_ERR_NOT_FOUND (404, 410, no such
 * host); STOW_ERR_UNSUPPORTED: the server has no ranges; STOW_ERR_IO: it refuses or does not
 * answer. */
stow_status remote_open(source *s, const char *url);

/* Sets header lines such as "Authorization: Bearer …" for sources that this thread opens from now
 * on; NULL for none. They are sent to the origin (scheme, host, port) of the opened URL, never to
 * another one it redirects to. The list is copied when a source is opened. Returns the previous
 * setting. */
const char *const *remote_set_headers(const char *const *headers);
/* Sets the headers for all threads that set none. Call before starting threads. */
void remote_set_default_headers(const char *const *headers);
/* Sets the minimum rate of a server for all sources opened from now on; 0: no minimum. Call before
 * starting threads. The default is $STOWAGE_HTTP_MIN_RATE, or REMOTE_RATE_BYTES. */
void remote_set_rate(uint64_t bytes);
/* Sets how much disk all cached blocks together may use (remote_cache.h), for sources that this
 * thread opens from now on; 0: the value of $STOWAGE_CACHE. Returns the previous setting. */
uint64_t remote_set_cache(uint64_t bytes);

#endif
