/* Remote link: the connection to one file behind http or https, and one range request over it.
 *
 * Called by remote alone, one thread at a time. Guarantees: all bytes of the range, of the file
 * that was opened (its length and its ETag or date are held against every answer), or an error that
 * says what the server said; dropped connections go on where they broke off, servers that are busy
 * are asked again, each with longer waits. Redirects are followed here, not by libcurl: that is how
 * headers stay with their origin and how a failure behind a redirect is seen as what it is. */
#ifndef FILES_REMOTE_LINK_H
#define FILES_REMOTE_LINK_H

#include "files/curl.h"
#include "files/remote_cache.h"

typedef struct remote_link {
  const curl *curl;
  void *handle;
  struct curl_list *headers;
  char *url, *name;    /* name: the URL as messages show it */
  uint64_t rate_bytes; /* the least a server must send in a second; 0: anything */
  uint64_t bytes;      /* of the file, told by the first answer */
  char mark[160];      /* ETag, or the date of the last change; "" where the server tells neither */
  char error[CURL_ERROR_MAX];
} remote_link;

/* Where the bytes of a range go. */
typedef struct remote_range {
  uint64_t offset, count; /* the first answer makes `count` no more than the file has */
  char *to;               /* one after another, or … */
  uint8_t *const *blocks; /* … REMOTE_BLOCK_BYTES into each of these */
} remote_range;

/* Prepares a connection without sending anything. `headers` (lines, NULL at their end, or NULL) go
 * with every request to the origin of `url`, and never to another one that it redirects to. Gives
 * up on a server that sends less than `rate_bytes` a second (0: on one that sends nothing). Close
 * it even if this fails. */
stow_status remote_link_open(remote_link *l, const char *url, const char *const *headers,
                             uint64_t rate_bytes);
void remote_link_close(remote_link *l);

/* Fetches the range; `opening`: it is the first, and tells length and mark. */
stow_status remote_link_fetch(remote_link *l, remote_range *range, bool opening);

#endif
