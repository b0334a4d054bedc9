/* Remote link: parses answers, sends one request, retries with waits. */
#include "files/remote_link.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include <stowage/size.h>
#include <stowage/version.h>

#include "base/clock.h"
#include "base/text.h"
#include "base/variables.h"

enum {
  BLOCK_BYTES = (int)REMOTE_BLOCK_BYTES,
  TRIES = 6,                /* without progress */
  PROGRESS_BYTES = 4 << 10, /* this much counts as progress */
  WAIT_FIRST_MS = 100,
  WAIT_MOST_MS = 5000, /* also the limit for a server's Retry-After, in steps of seconds */
  STALL_SECONDS = 30,
  REDIRECTS = 10,
};

/* One range and its state. */
typedef struct exchange {
  remote_range *range;
  uint64_t got;
  uint64_t requested; /* first byte this attempt requests */
  uint64_t began_ns;
  long status;    /* HTTP status of the last answer; 0: no answer */
  uint64_t total; /* size of the file, from the answer; UINT64_MAX: not given */
  uint64_t first; /* first byte of the answer */
  char mark[160];
  bool encoded, too_much;
  bool headers_ended; /* libcurl does not report a connection that closes within the headers */
  unsigned retry_after_ms;
} exchange;

/* ---- parsing the answer ---- */

/* Returns the value of a header line if it has that name. */
static const char *value_of(const char *line, const char *name) {
  size_t length = strlen(name);
  if (strncasecmp(line, name, length) != 0 || line[length] != ':') return NULL;
  line += length + 1;
  while (*line == ' ' || *line == '\t') line++;
  return line;
}

/* Parses "bytes 0-99/1000" or "bytes * /0" (without the space): first byte and total. */
static void take_range(exchange *x, const char *value) {
  x->first = UINT64_MAX;
  if (strncasecmp(value, "bytes ", 6) != 0) return;
  value += 6;
  if (isdigit((unsigned char)*value)) x->first = strtoull(value, NULL, 10);
  const char *slash = strchr(value, '/');
  if (slash != NULL && isdigit((unsigned char)slash[1])) x->total = strtoull(slash + 1, NULL, 10);
}

static size_t take_header(char *bytes, size_t size, size_t count, void *user) {
  exchange *x = user;
  char line[512];
  size_t length = size * count < sizeof line - 1 ? size * count : sizeof line - 1;
  memcpy(line, bytes, length);
  while (length > 0 && isspace((unsigned char)line[length - 1])) length--;
  line[length] = '\0';
  const char *value;
  if (length == 0) {
    x->headers_ended = true;
  } else if (strncmp(line, "HTTP/", 5) == 0) { /* a 100 Continue may precede the answer */
    const char *code = strchr(line, ' ');
    x->status = code != NULL ? strtol(code, NULL, 10) : 0;
    x->total = x->first = UINT64_MAX;
    x->mark[0] = '\0';
    x->encoded = x->headers_ended = false;
    x->retry_after_ms = 0;
  } else if ((value = value_of(line, "Content-Range")) != NULL) {
    take_range(x, value);
  } else if ((value = value_of(line, "ETag")) != NULL) {
    snprintf(x->mark, sizeof x->mark, "%s", value);
  } else if ((value = value_of(line, "Last-Modified")) != NULL) {
    if (x->mark[0] == '\0') snprintf(x->mark, sizeof x->mark, "%s", value);
  } else if ((value = value_of(line, "Content-Encoding")) != NULL) {
    x->encoded = strcasecmp(value, "identity") != 0;
  } else if ((value = value_of(line, "Retry-After")) != NULL) {
    unsigned long seconds = strtoul(value, NULL, 10);
    x->retry_after_ms = seconds < 3600 ? (unsigned)seconds * 1000 : 0;
  }
  return size * count;
}

/* Receives bytes of the answer. Accepts only a requested range: returning less than `size * count`
 * ends the transfer. */
static size_t take_body(char *bytes, size_t size, size_t count, void *user) {
  exchange *x = user;
  size_t length = size * count;
  if (x->status != 206) return x->status >= 300 ? length : 0;
  if (x->encoded || x->first != x->requested) return 0;
  if (length > x->range->count - x->got) {
    x->too_much = true;
    length = (size_t)(x->range->count - x->got);
  }
  for (size_t done = 0; done < length;) {
    size_t part = length - done;
    if (x->range->blocks != NULL) {
      size_t within = (size_t)(x->got % BLOCK_BYTES);
      if (part > BLOCK_BYTES - within) part = BLOCK_BYTES - within;
      memcpy(x->range->blocks[x->got / BLOCK_BYTES] + within, bytes + done, part);
    } else {
      memcpy(x->range->to + x->got, bytes + done, part);
    }
    done += part;
    x->got += part;
  }
  return x->too_much ? 0 : size * count;
}

/* ---- one attempt ---- */

static bool transient_status(long status) {
  return status == 408 || status == 425 || status == 429 || status == 500 || status == 502 ||
         status == 503 || status == 504;
}

/* Returns whether a retry can help. Bytes left over from an answer that was too long precede the
 * next answer. libcurl then reports that it is not HTTP, or HTTP 0.9; a new connection fixes it. */
static bool transient_code(const remote_link *l, int code) {
  if (code == CURL_NO_PROTOCOL) return strstr(l->error, "0.9") != NULL;
  return code == CURL_STRANGE_ANSWER || code == CURL_NO_CONNECTION || code == CURL_PARTIAL ||
         code == CURL_TIMED_OUT || code == CURL_NOTHING_CAME || code == CURL_SEND_FAILED ||
         code == CURL_RECEIVE_FAILED || code == CURL_HTTP2_STREAM;
}

/* Fails for a status that a retry does not change. */
static stow_status refuse_status(const remote_link *l, long status) {
  switch (status) {
  case 401:
  case 403:
    return stow_fail(STOW_ERR_IO,
                     "%s: the server refused access (%ld %s); give credentials with --header "
                     "\"Authorization: …\"",
                     l->name, status, status == 401 ? "unauthorized" : "forbidden");
  case 404:
  case 410: return stow_fail(STOW_ERR_NOT_FOUND, "%s: not found (%ld)", l->name, status);
  case 416:
    return stow_fail(STOW_ERR_IO,
                     "%s: the server says that the file ends before the requested bytes (416): it "
                     "was truncated while being read",
                     l->name);
  case 200:
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "%s: the server sends whole files only (200 for a range request); copy the "
                     "file first, or serve it with range support",
                     l->name);
  default:
    return stow_fail(STOW_ERR_IO, "%s: the server answered %ld to a range request", l->name,
                     status);
  }
}

/* Checks that the answer is for the opened file and the requested bytes. */
static stow_status check_answer(const remote_link *l, const exchange *x) {
  if (x->encoded)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "%s: the server compresses its answer, so bytes cannot be addressed", l->name);
  if (x->first != x->requested)
    return stow_fail(STOW_ERR_IO,
                     "%s: requested bytes from %" PRIu64
                     " on, but the server sent others (Content-Range)",
                     l->name, x->requested);
  if (x->total != l->bytes)
    return stow_fail(STOW_ERR_IO,
                     "%s: had %" PRIu64 " bytes when it was opened and has %" PRIu64
                     " now: it was changed while being read",
                     l->name, l->bytes, x->total);
  if (strcmp(x->mark, l->mark) != 0)
    return stow_fail(STOW_ERR_IO, "%s: was changed while being read (%s, before it was %s)",
                     l->name, x->mark[0] != '\0' ? x->mark : "no ETag", l->mark);
  if (x->too_much)
    return stow_fail(STOW_ERR_IO, "%s: the server sent more than the requested %" PRIu64 " bytes",
                     l->name, x->range->count);
  return STOW_OK;
}

static bool redirects(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

/* Sends one request to `url`. Headers and the user's password go only to the origin they were given
 * for: a redirect must not carry them to another host, or from https to http. */
static int request(remote_link *l, exchange *x, const char *url) {
  const curl *c = l->curl;
  bool trusted = text_same_origin(url, l->url);
  x->status = 0;
  x->total = x->first = UINT64_MAX;
  l->error[0] = '\0';
  c->easy_setopt(l->handle, CURL_URL, url);
  c->easy_setopt(l->handle, CURL_HTTP_HEADER, trusted ? l->headers : NULL);
  return c->easy_perform(l->handle);
}

/* Returns the URL that an answer redirects to, for the caller to free; NULL without memory or
 * without a Location. Within the origin it keeps the user name and password of the opened URL. */
static char *next_url(const remote_link *l) {
  char *found = NULL;
  if (l->curl->easy_getinfo(l->handle, CURL_INFO_REDIRECT_URL, &found) != 0 || found == NULL)
    return NULL;
  const char *from = strstr(l->url, "://") + 3;
  const char *at = memchr(from, '@', strcspn(from, "/?#"));
  if (at == NULL || !text_same_origin(found, l->url)) return strdup(found);
  const char *host = strstr(found, "://") + 3;
  if (memchr(host, '@', strcspn(host, "/?#")) != NULL) return strdup(found);
  size_t scheme = (size_t)(host - found), user = (size_t)(at + 1 - from);
  char *whole = malloc(strlen(found) + user + 1);
  if (whole == NULL) return NULL;
  memcpy(whole, found, scheme);
  memcpy(whole + scheme, from, user);
  strcpy(whole + scheme + user, host);
  return whole;
}

/* Makes one attempt, following redirects. Sets *code to libcurl's result for the last request. */
static stow_status perform(remote_link *l, exchange *x, int *code) {
  char range[64], *url = NULL;
  snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, x->range->offset + x->got,
           x->range->offset + x->range->count - 1);
  const curl *c = l->curl;
  x->requested = x->range->offset + x->got;
  c->easy_setopt(l->handle, CURL_RANGE, range);
  c->easy_setopt(l->handle, CURL_HEADER_DATA, x);
  c->easy_setopt(l->handle, CURL_WRITE_DATA, x);
  stow_status status = STOW_OK;
  *code = request(l, x, l->url);
  for (int hops = 0; redirects(x->status) && *code == CURL_DONE; hops++) {
    char *next = next_url(l);
    free(url);
    url = next;
    if (url == NULL) break; /* no Location: the status is the answer */
    if (hops == REDIRECTS)
      status = stow_fail(STOW_ERR_IO, "%s: redirects more than %d times (%ld); check the URL",
                         l->name, REDIRECTS, x->status);
    else if (!text_is_url(url))
      status =
          stow_fail(STOW_ERR_UNSUPPORTED, "%s: redirects (%ld) to %.*s, which is not http or https",
                    l->name, x->status, (int)strcspn(url, ":/?#"), url);
    if (status != STOW_OK) break;
    *code = request(l, x, url);
  }
  free(url);
  return status;
}

/* ---- retries ---- */

static void wait_ms(unsigned ms) {
  struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

static unsigned wait_for(int fruitless, const exchange *x) {
  unsigned ms = WAIT_FIRST_MS << (fruitless - 1);
  if (x->retry_after_ms > ms) ms = x->retry_after_ms;
  return ms < WAIT_MOST_MS ? ms : WAIT_MOST_MS;
}

static long stall_seconds(void) {
  const char *text = getenv(ENV_HTTP_TIMEOUT);
  long seconds = text != NULL ? strtol(text, NULL, 10) : 0;
  return seconds > 0 && seconds < 100000 ? seconds : STALL_SECONDS;
}

/* Bytes arrive, but too few per second. A server that sends nothing at all is not slow: it is
 * retried. */
static bool too_slow(const remote_link *l, const exchange *x, double seconds) {
  return x->got > 0 && seconds >= (double)stall_seconds() &&
         (double)x->got < seconds * (double)l->rate_bytes;
}

static stow_status refuse_slow(const remote_link *l, const exchange *x, double seconds) {
  char least[STOW_SIZE_TEXT_MAX];
  return stow_fail(STOW_ERR_IO,
                   "%s: the server is too slow: %" PRIu64
                   " bytes in %.0f seconds, the minimum is %s per second; try later, or lower it "
                   "with --min-rate or " ENV_HTTP_MIN_RATE,
                   l->name, x->got, seconds, stow_size_format(least, l->rate_bytes));
}

static stow_status give_up(const remote_link *l, const exchange *x, int code, int tries) {
  if (code == CURL_DONE || code == CURL_WRITE_REFUSED) {
    if (x->status == 206 && !x->headers_ended)
      return stow_fail(STOW_ERR_IO,
                       "%s: the server closes within the headers of its answer, %d times in a row",
                       l->name, tries);
    if (x->status != 206)
      return stow_fail(STOW_ERR_IO, "%s: the server answered %ld %d times in a row; try later",
                       l->name, x->status, tries);
    return stow_fail(STOW_ERR_IO,
                     "%s: requested %" PRIu64 " bytes at byte %" PRIu64
                     ", but the server closes after %" PRIu64 ", %d times in a row",
                     l->name, x->range->count, x->range->offset, x->got, tries);
  }
  const char *more = tries > 1 ? "; retries did not help" : "";
  if (code == CURL_NOT_TRUSTED)
    more = "; if you use your own certificate authority, name its file in CURL_CA_BUNDLE";
  return stow_fail(code == CURL_NO_HOST ? STOW_ERR_NOT_FOUND : STOW_ERR_IO,
                   "%s: cannot read at byte %" PRIu64 ": %s%s", l->name, x->range->offset + x->got,
                   l->error[0] != '\0' ? l->error : l->curl->easy_strerror(code), more);
}

/* Takes the length and version of the file from the first answer. */
static stow_status take_facts(remote_link *l, exchange *x) {
  if (x->total == UINT64_MAX)
    return stow_fail(STOW_ERR_UNSUPPORTED, "%s: the server does not report the length of the file",
                     l->name);
  l->bytes = x->total;
  snprintf(l->mark, sizeof l->mark, "%s", x->mark);
  if (x->range->count > l->bytes) x->range->count = l->bytes;
  return STOW_OK;
}

/* Retries until all bytes have arrived, resuming where the connection broke. */
static stow_status try_until_there(remote_link *l, exchange *x, bool opening) {
  for (int fruitless = 0;;) {
    uint64_t before = x->got;
    int code;
    STOW_TRY(perform(l, x, &code));
    /* The answer to a range of an empty file. */
    if (opening && x->status == 416 && x->total == 0) return take_facts(l, x);
    if (x->status == 206 && !x->headers_ended) {
      /* Only a connection that broke is worth another try. */
      if (code != CURL_DONE && (code == CURL_TIMED_OUT || !transient_code(l, code)))
        return give_up(l, x, code, 1);
    } else if (x->status == 206) {
      if (opening) STOW_TRY(take_facts(l, x));
      opening = false;
      STOW_TRY(check_answer(l, x));
      if (x->got == x->range->count) return STOW_OK;
    } else if (x->status != 0 && !transient_status(x->status)) {
      return refuse_status(l, x->status);
    } else if (x->status == 0 && !transient_code(l, code)) {
      return give_up(l, x, code, 1);
    }
    double seconds = (double)(clock_ns() - x->began_ns) / 1e9;
    if (too_slow(l, x, seconds)) return refuse_slow(l, x, seconds);
    fruitless = x->got - before >= PROGRESS_BYTES ? 1 : fruitless + 1;
    if (fruitless == TRIES) return give_up(l, x, code, fruitless);
    wait_ms(wait_for(fruitless, x));
  }
}

stow_status remote_link_fetch(remote_link *l, remote_range *range, bool opening) {
  exchange x = {.range = range, .began_ns = clock_ns()};
  return try_until_there(l, &x, opening);
}

/* ---- opening ---- */

/* Returns the URL as messages show it. */
static char *shown(const char *url) {
  size_t size = strlen(url) + 1;
  char *name = malloc(size);
  return name != NULL ? text_show(name, size, url) : NULL;
}

static stow_status take_lines(remote_link *l, const char *const *lines) {
  for (size_t i = 0; lines != NULL && lines[i] != NULL; i++) {
    const char *line = lines[i];
    if (strchr(line, ':') == NULL || strpbrk(line, "\r\n") != NULL)
      return stow_fail(STOW_ERR_INVALID,
                       "an HTTP header must be one line such as \"Authorization: Bearer …\"");
    struct curl_list *longer = l->curl->list_append(l->headers, line);
    if (longer == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for headers");
    l->headers = longer;
  }
  return STOW_OK;
}

/* Sets certificate files in addition to the system's, as the curl command does. */
static void set_trust(remote_link *l) {
  const char *file = getenv("CURL_CA_BUNDLE"), *folder = getenv("SSL_CERT_DIR");
  if (file == NULL || file[0] == '\0') file = getenv("SSL_CERT_FILE");
  if (file != NULL && file[0] != '\0') l->curl->easy_setopt(l->handle, CURL_CA_FILE, file);
  if (folder != NULL && folder[0] != '\0') l->curl->easy_setopt(l->handle, CURL_CA_FOLDER, folder);
}

static void set_options(remote_link *l) {
  const curl *c = l->curl;
  c->easy_setopt(l->handle, CURL_NO_SIGNAL, 1L);
  c->easy_setopt(l->handle, CURL_PROTOCOLS, (long)CURL_HTTP_AND_HTTPS);
  c->easy_setopt(l->handle, CURL_CONNECT_TIMEOUT, stall_seconds());
  c->easy_setopt(l->handle, CURL_LOW_SPEED_LIMIT,
                 l->rate_bytes > 0 && l->rate_bytes < LONG_MAX ? (long)l->rate_bytes : 1L);
  c->easy_setopt(l->handle, CURL_LOW_SPEED_TIME, stall_seconds());
  c->easy_setopt(l->handle, CURL_USER_AGENT, "stowage/" STOW_VERSION_TEXT);
  c->easy_setopt(l->handle, CURL_ERROR_BUFFER, l->error);
  c->easy_setopt(l->handle, CURL_WRITE_FUNCTION, take_body);
  c->easy_setopt(l->handle, CURL_HEADER_FUNCTION, take_header);
  set_trust(l);
}

stow_status remote_link_open(remote_link *l, const char *url, const char *const *headers,
                             uint64_t rate_bytes) {
  *l = (remote_link){.rate_bytes = rate_bytes};
  STOW_TRY(curl_load(&l->curl));
  l->url = strdup(url);
  l->name = shown(url);
  l->handle = l->curl->easy_init();
  if (l->url == NULL || l->name == NULL || l->handle == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a connection");
  STOW_TRY(take_lines(l, headers));
  set_options(l);
  return STOW_OK;
}

void remote_link_close(remote_link *l) {
  if (l->handle != NULL) l->curl->easy_cleanup(l->handle);
  if (l->headers != NULL) l->curl->list_free(l->headers);
  free(l->url);
  free(l->name);
  *l = (remote_link){0};
}
