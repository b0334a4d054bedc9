/* Curl: the functions of libcurl that we use, loaded at run time, and their constants.
 *
 * Called by remote. The numbers are libcurl's ABI (curl/curl.h), unchanged since version 7.10.
 * Building needs no libcurl headers. */
#ifndef FILES_CURL_H
#define FILES_CURL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Options by kind: numbers from 0, pointers from 10000, functions from 20000. */
enum {
  CURL_LOW_SPEED_LIMIT = 19,
  CURL_LOW_SPEED_TIME = 20,
  CURL_CONNECT_TIMEOUT = 78,
  CURL_NO_SIGNAL = 99,
  CURL_PROTOCOLS = 181,
  CURL_WRITE_DATA = 10001,
  CURL_URL = 10002,
  CURL_RANGE = 10007,
  CURL_ERROR_BUFFER = 10010,
  CURL_USER_AGENT = 10018,
  CURL_HTTP_HEADER = 10023,
  CURL_HEADER_DATA = 10029,
  CURL_CA_FILE = 10065,
  CURL_CA_FOLDER = 10097,
  CURL_WRITE_FUNCTION = 20011,
  CURL_HEADER_FUNCTION = 20079,
};
enum { CURL_INFO_REDIRECT_URL = 0x10001f };
enum { CURL_HTTP_AND_HTTPS = 3, CURL_ERROR_MAX = 256 };
/* Results that a retry may fix, and some that it does not. */
enum {
  CURL_DONE = 0,
  CURL_NO_PROTOCOL = 1,
  CURL_BAD_URL = 3,
  CURL_NO_HOST = 6,
  CURL_NO_CONNECTION = 7,
  CURL_STRANGE_ANSWER = 8,
  CURL_PARTIAL = 18,
  CURL_WRITE_REFUSED = 23,
  CURL_TIMED_OUT = 28,
  CURL_TOO_MANY_REDIRECTS = 47,
  CURL_NOTHING_CAME = 52,
  CURL_SEND_FAILED = 55,
  CURL_RECEIVE_FAILED = 56,
  CURL_NOT_TRUSTED = 60,
  CURL_HTTP2_STREAM = 92,
};

struct curl_list;
typedef struct curl {
  void *(*easy_init)(void);
  int (*easy_setopt)(void *handle, int option, ...);
  int (*easy_perform)(void *handle);
  int (*easy_getinfo)(void *handle, int info, ...);
  void (*easy_cleanup)(void *handle);
  const char *(*easy_strerror)(int code);
  struct curl_list *(*list_append)(struct curl_list *list, const char *text);
  void (*list_free)(struct curl_list *list);
} curl;

/* Loads the library at the first call. Fails with STOW_ERR_UNSUPPORTED, saying what to install. */
stow_status curl_load(const curl **functions);

#endif
