/* Remote link: the connection to one file behind http or https, and one range request over it.
 *
 * Called only by remote, one thread at a time. Guarantees: all bytes of the range, of the file that
 * was opened (every answer's length and ETag or date are checked), or an error with the server's
 * answer. Dropped connections resume where they broke; busy servers are retried with growing waits.
 * Follows redirects itself instead of leaving them to libcurl, so that headers stay with their
 * origin and a failure after a redirect is reported as such. */
#ifndef FILES_REMOTE_LINK_H
#define FILES_REMOTE_LINK_H

#include "files/curl.h"
#include "files/remote_cache.h"

typedef struct remote_link {
  const curl *curl;
  void *handle;
  struct curl_list *headers;
  char *url, *name;    /* name: the URL as messages show it */
  uint64_t rate_bytes; /* minimum per second; 0: none */
  uint64_t bytes;      /* size of the file, from the first answer */
  char mark[160];      /* ETag or last-modified date; "" if the server sends neither */
  char error[CURL_ERROR_MAX];
} remote_link;

/* The destination of a range. */
typedef struct remote_range {
  uint64_t offset, count; /* the first answer reduces `count` to the file's length */
  char *to;               /* contiguous, or … */
  uint8_t *const *blocks; /* … REMOTE_BLOCK_BYTES into each of these */
} remote_range;

/* Prepares a connection without sending anything. `headers` (lines, terminated by NULL, or NULL) go
 * with every request to the origin of `url`, and never to another one that it redirects to. Fails
 * on a server that sends less than `rate_bytes` per second (0: on one that sends nothing). Close it
 * even if this fails. */
stow_status remote_link_open(remote_link *l, const char *url, const char *const *headers,
                             uint64_t rate_bytes);
void remote_link_close(remote_link *l);

/* Fetches the range. `opening`: it is the first request and determines length and mark. */
stow_status remote_link_fetch(remote_link *l, remote_range *range, bool opening);

#endif
