/* Remote: range requests, their answers held against the first one, tries and waits; and a small
 * cache of blocks, so that many small reads are few requests. */
#include "formats/remote.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include <stowage/version.h>

#include "formats/curl.h"
#include "formats/remote_cache.h"

enum {
  BLOCK_BYTES = (int)REMOTE_BLOCK_BYTES,
  BLOCKS = REMOTE_CACHE_BYTES / BLOCK_BYTES,
  RUN_BLOCKS = BLOCKS / 2,  /* asked for at once where reading is sequential */
  SMALL_BYTES = 16 << 10,   /* a single read up to this size brings its whole block */
  TRIES = 6,                /* without getting anywhere */
  PROGRESS_BYTES = 4 << 10, /* and this much is getting somewhere */
  WAIT_FIRST_MS = 100,
  WAIT_MOST_MS = 5000, /* also what a server may ask for with Retry-After, in steps of seconds */
  STALL_SECONDS = 30,
};

typedef struct block {
  uint64_t number; /* UINT64_MAX: empty */
  uint64_t used;
  uint8_t *data;
} block;

typedef struct remote {
  pthread_mutex_t guard; /* one read at a time; everything below */
  const curl *curl;
  void *handle;
  struct curl_list *headers;
  char *url, *name;
  uint64_t bytes;
  char mark[160]; /* ETag, or the date of the last change; "" where the server tells neither */
  char error[CURL_ERROR_MAX];
  block blocks[BLOCKS];
  uint64_t clock, next; /* end of the last read */
  uint32_t run;         /* blocks to ask for at once */
  remote_cache *kept;   /* on disk; NULL: none */
} remote;

/* One request and what came of it. */
typedef struct exchange {
  remote *from;
  uint64_t offset, count, got;
  uint64_t asked; /* the byte this try begins with */
  char *to;       /* the bytes go here, or into … */
  block **blocks; /* … one block after another */
  long status;    /* of the answer being read: headers of redirects come first */
  uint64_t total; /* of the file, as the answer says; UINT64_MAX: it does not */
  uint64_t first; /* byte the answer begins with */
  char mark[160];
  bool encoded, too_much;
  unsigned retry_after_ms;
} exchange;

static _Thread_local const char *const *thread_headers;
static const char *const *default_headers;
static _Thread_local uint64_t thread_cache_bytes;

const char *const *remote_set_headers(const char *const *headers) {
  const char *const *before = thread_headers;
  thread_headers = headers;
  return before;
}

void remote_set_default_headers(const char *const *headers) {
  default_headers = headers;
}

uint64_t remote_set_cache(uint64_t bytes) {
  uint64_t before = thread_cache_bytes;
  thread_cache_bytes = bytes;
  return before;
}

bool remote_is(const char *path) {
  return strncasecmp(path, "http://", 7) == 0 || strncasecmp(path, "https://", 8) == 0;
}

/* ---- what the answer says ---- */

/* The value of a header line if it has that name. */
static const char *value_of(const char *line, const char *name) {
  size_t length = strlen(name);
  if (strncasecmp(line, name, length) != 0 || line[length] != ':') return NULL;
  line += length + 1;
  while (*line == ' ' || *line == '\t') line++;
  return line;
}

/* "bytes 0-99/1000", "bytes * /0" without the space: first byte and total. */
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
  if (strncmp(line, "HTTP/", 5) == 0) { /* of the next answer in a row of redirects */
    const char *code = strchr(line, ' ');
    x->status = code != NULL ? strtol(code, NULL, 10) : 0;
    x->total = x->first = UINT64_MAX;
    x->mark[0] = '\0';
    x->encoded = false;
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

/* Bytes of the answer. Anything but a range that was asked for is not taken: returning less than
 * came ends the transfer. */
static size_t take_body(char *bytes, size_t size, size_t count, void *user) {
  exchange *x = user;
  size_t length = size * count;
  if (x->status != 206) return x->status >= 300 ? length : 0;
  if (x->encoded || x->first != x->asked) return 0;
  if (length > x->count - x->got) {
    x->too_much = true;
    length = (size_t)(x->count - x->got);
  }
  for (size_t done = 0; done < length;) {
    size_t part = length - done;
    if (x->blocks != NULL) {
      size_t within = (size_t)(x->got % BLOCK_BYTES);
      if (part > BLOCK_BYTES - within) part = BLOCK_BYTES - within;
      memcpy(x->blocks[x->got / BLOCK_BYTES]->data + within, bytes + done, part);
    } else {
      memcpy(x->to + x->got, bytes + done, part);
    }
    done += part;
    x->got += part;
  }
  return x->too_much ? 0 : size * count;
}

/* ---- one try ---- */

static bool transient_status(long status) {
  return status == 408 || status == 425 || status == 429 || status == 500 || status == 502 ||
         status == 503 || status == 504;
}

/* Bytes left over from an answer that was too long stand before the next one: that is no HTTP, or
 * HTTP 0.9, and a new connection mends it. */
static bool transient_code(const remote *r, int code) {
  if (code == CURL_NO_PROTOCOL) return strstr(r->error, "0.9") != NULL;
  return code == CURL_STRANGE_ANSWER || code == CURL_NO_CONNECTION || code == CURL_PARTIAL ||
         code == CURL_TIMED_OUT || code == CURL_NOTHING_CAME || code == CURL_SEND_FAILED ||
         code == CURL_RECEIVE_FAILED || code == CURL_HTTP2_STREAM;
}

/* A refusal that asking again does not change. */
static stow_status refuse_status(const remote *r, long status) {
  switch (status) {
  case 401:
  case 403:
    return stow_fail(STOW_ERR_IO,
                     "%s: the server refuses (%ld %s); give credentials with --header "
                     "\"Authorization: …\"",
                     r->name, status, status == 401 ? "unauthorized" : "forbidden");
  case 404:
  case 410: return stow_fail(STOW_ERR_NOT_FOUND, "%s: not there (%ld)", r->name, status);
  case 416:
    return stow_fail(STOW_ERR_IO,
                     "%s: the server says that the file ends before the bytes asked for (416): it "
                     "was cut while it was read",
                     r->name);
  case 200:
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "%s: the server sends whole files only (200 to a range request); copy the "
                     "file here first, or serve it with ranges",
                     r->name);
  default:
    return stow_fail(STOW_ERR_IO, "%s: the server answered %ld to a range request", r->name,
                     status);
  }
}

/* Held against what was opened: the same file, and the bytes that were asked for. */
static stow_status check_answer(const remote *r, const exchange *x) {
  if (x->encoded)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "%s: the server compresses what it sends, so that its bytes cannot be counted",
                     r->name);
  if (x->first != x->asked)
    return stow_fail(STOW_ERR_IO,
                     "%s: bytes from %" PRIu64 " on were asked for, the server sent others "
                     "(Content-Range)",
                     r->name, x->asked);
  if (x->total != r->bytes)
    return stow_fail(STOW_ERR_IO,
                     "%s: had %" PRIu64 " bytes when it was opened, and now has %" PRIu64
                     ": it was changed while it was read",
                     r->name, r->bytes, x->total);
  if (strcmp(x->mark, r->mark) != 0)
    return stow_fail(STOW_ERR_IO, "%s: was changed while it was read (%s, before it was %s)",
                     r->name, x->mark[0] != '\0' ? x->mark : "no ETag", r->mark);
  if (x->too_much)
    return stow_fail(STOW_ERR_IO,
                     "%s: the server sent more bytes than the %" PRIu64 " that were asked for",
                     r->name, x->count);
  return STOW_OK;
}

static int perform(remote *r, exchange *x) {
  char range[64];
  snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, x->offset + x->got,
           x->offset + x->count - 1);
  const curl *c = r->curl;
  x->asked = x->offset + x->got;
  x->status = 0;
  x->total = x->first = UINT64_MAX;
  r->error[0] = '\0';
  c->easy_setopt(r->handle, CURL_RANGE, range);
  c->easy_setopt(r->handle, CURL_HEADER_DATA, x);
  c->easy_setopt(r->handle, CURL_WRITE_DATA, x);
  return c->easy_perform(r->handle);
}

/* ---- tries until it is there ---- */

static void wait_ms(unsigned ms) {
  struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

static unsigned wait_for(int fruitless, const exchange *x) {
  unsigned ms = WAIT_FIRST_MS << (fruitless - 1);
  if (x->retry_after_ms > ms) ms = x->retry_after_ms;
  return ms < WAIT_MOST_MS ? ms : WAIT_MOST_MS;
}

static stow_status give_up(const remote *r, const exchange *x, int code, int tries) {
  if (code == CURL_DONE || code == CURL_WRITE_REFUSED) {
    if (x->status != 206)
      return stow_fail(STOW_ERR_IO, "%s: the server answered %ld, %d times in a row; try later",
                       r->name, x->status, tries);
    return stow_fail(STOW_ERR_IO,
                     "%s: %" PRIu64 " bytes were asked for at byte %" PRIu64
                     ", the server sends %" PRIu64 " and ends, %d times in a row",
                     r->name, x->count, x->offset, x->got, tries);
  }
  return stow_fail(code == CURL_NO_HOST ? STOW_ERR_NOT_FOUND : STOW_ERR_IO,
                   "%s: cannot be read at byte %" PRIu64 ": %s%s", r->name, x->offset + x->got,
                   r->error[0] != '\0' ? r->error : r->curl->easy_strerror(code),
                   tries > 1 ? "; tried again and again" : "");
}

/* The first answer tells what there is. */
static stow_status take_facts(remote *r, exchange *x) {
  if (x->total == UINT64_MAX)
    return stow_fail(STOW_ERR_UNSUPPORTED, "%s: the server does not say how long the file is",
                     r->name);
  r->bytes = x->total;
  snprintf(r->mark, sizeof r->mark, "%s", x->mark);
  if (x->count > r->bytes) x->count = r->bytes;
  return STOW_OK;
}

/* All bytes of the exchange; what breaks off goes on where it broke off. */
static stow_status fetch(remote *r, exchange *x, bool opening) {
  for (int fruitless = 0;;) {
    uint64_t before = x->got;
    int code = perform(r, x);
    /* The answer to a range of an empty file. */
    if (opening && x->status == 416 && x->total == 0) return take_facts(r, x);
    if (x->status == 206) {
      if (opening) STOW_TRY(take_facts(r, x));
      opening = false;
      STOW_TRY(check_answer(r, x));
      if (x->got == x->count) return STOW_OK;
    } else if (x->status != 0 && !transient_status(x->status)) {
      return refuse_status(r, x->status);
    } else if (x->status == 0 && !transient_code(r, code)) {
      return give_up(r, x, code, 1);
    }
    fruitless = x->got - before >= PROGRESS_BYTES ? 1 : fruitless + 1;
    if (fruitless == TRIES) return give_up(r, x, code, fruitless);
    wait_ms(wait_for(fruitless, x));
  }
}

/* ---- blocks ---- */

static block *find_block(remote *r, uint64_t number) {
  for (size_t i = 0; i < BLOCKS; i++)
    if (r->blocks[i].number == number) {
      r->blocks[i].used = ++r->clock;
      return &r->blocks[i];
    }
  return NULL;
}

/* The one used least lately, emptied. */
static stow_status free_block(remote *r, block **found) {
  block *oldest = &r->blocks[0];
  for (size_t i = 1; i < BLOCKS; i++)
    if (r->blocks[i].used < oldest->used) oldest = &r->blocks[i];
  if (oldest->data == NULL) oldest->data = malloc(BLOCK_BYTES);
  if (oldest->data == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", r->name);
  oldest->number = UINT64_MAX;
  oldest->used = ++r->clock;
  *found = oldest;
  return STOW_OK;
}

static size_t block_length(const remote *r, uint64_t number) {
  uint64_t left = r->bytes - number * BLOCK_BYTES;
  return left < BLOCK_BYTES ? (size_t)left : BLOCK_BYTES;
}

/* Brings in `count` blocks from `number` on, as far as the file goes. */
static stow_status bring(remote *r, uint64_t number, uint32_t count, bool opening) {
  block *into[RUN_BLOCKS];
  exchange x = {.from = r, .offset = number * BLOCK_BYTES, .blocks = into};
  x.count = (uint64_t)count * BLOCK_BYTES;
  if (!opening && x.count > r->bytes - x.offset) x.count = r->bytes - x.offset;
  for (uint32_t i = 0; i < count; i++) STOW_TRY(free_block(r, &into[i]));
  STOW_TRY(fetch(r, &x, opening));
  for (uint32_t i = 0; i < count && x.count > (uint64_t)i * BLOCK_BYTES; i++) {
    into[i]->number = number + i;
    if (r->kept != NULL)
      remote_cache_write(r->kept, number + i, into[i]->data, block_length(r, number + i));
  }
  return STOW_OK;
}

/* Block `number` from disk, or from the server, with those behind it that are wanted up to `end`
 * and are not on disk either. */
static stow_status bring_kept(remote *r, uint64_t number, uint64_t end) {
  block *into;
  STOW_TRY(free_block(r, &into));
  if (remote_cache_read(r->kept, number, into->data, block_length(r, number))) {
    into->number = number;
    return STOW_OK;
  }
  uint64_t ahead = (number + r->run) * BLOCK_BYTES;
  if (end < ahead) end = ahead;
  if (end > r->bytes) end = r->bytes;
  uint32_t count = 1;
  while (count < RUN_BLOCKS && (number + count) * BLOCK_BYTES < end &&
         find_block(r, number + count) == NULL && !remote_cache_has(r->kept, number + count))
    count++;
  return bring(r, number, count, false);
}

/* Large reads, and reads here and there of some size, are one request each and leave the cache
 * alone; small ones bring a block, sequential ones several. What is kept on disk is kept by blocks,
 * so that all reads bring blocks. */
static stow_status read_bytes(remote *r, uint64_t offset, char *at, size_t count) {
  bool sequential = offset == r->next;
  r->run = !sequential ? 1 : r->run * 2 < RUN_BLOCKS ? r->run * 2 : RUN_BLOCKS;
  r->next = offset + count;
  while (count > 0) {
    uint64_t number = offset / BLOCK_BYTES;
    size_t within = (size_t)(offset % BLOCK_BYTES), part = BLOCK_BYTES - within;
    if (part > count) part = count;
    const block *found = find_block(r, number);
    if (found == NULL && r->kept != NULL) {
      STOW_TRY(bring_kept(r, number, offset + count));
      continue;
    }
    if (found == NULL) {
      if (count >= RUN_BLOCKS * (size_t)BLOCK_BYTES || (!sequential && count > SMALL_BYTES))
        return fetch(r, &(exchange){.from = r, .offset = offset, .count = count, .to = at}, false);
      STOW_TRY(bring(r, number, r->run, false));
      continue;
    }
    memcpy(at, found->data + within, part);
    at += part;
    offset += part;
    count -= part;
  }
  return STOW_OK;
}

static stow_status remote_read(void *user, uint64_t offset, void *to, size_t count) {
  remote *r = user;
  pthread_mutex_lock(&r->guard);
  stow_status status = read_bytes(r, offset, to, count);
  pthread_mutex_unlock(&r->guard);
  return status;
}

/* ---- opening ---- */

static void remote_close(void *user) {
  remote *r = user;
  pthread_mutex_destroy(&r->guard);
  if (r->handle != NULL) r->curl->easy_cleanup(r->handle);
  if (r->headers != NULL) r->curl->list_free(r->headers);
  remote_cache_close(r->kept);
  for (size_t i = 0; i < BLOCKS; i++) free(r->blocks[i].data);
  free(r->url);
  free(r->name);
  free(r);
}

/* The URL as messages show it: no password, and no query, which may hold a signature. */
static char *shown(const char *url) {
  const char *host = strstr(url, "://") + 3, *end = host + strcspn(host, "/?#");
  const char *at = memchr(host, '@', (size_t)(end - host));
  if (at != NULL) host = at + 1;
  char *name = malloc(strlen(url) + 1);
  if (name != NULL)
    sprintf(name, "%.*s%.*s", (int)(strstr(url, "://") + 3 - url), url, (int)strcspn(host, "?#"),
            host);
  return name;
}

static long stall_seconds(void) {
  const char *text = getenv("STOWAGE_HTTP_TIMEOUT");
  long seconds = text != NULL ? strtol(text, NULL, 10) : 0;
  return seconds > 0 && seconds < 100000 ? seconds : STALL_SECONDS;
}

static stow_status set_up(remote *r, const char *url) {
  const curl *c = r->curl;
  r->url = strdup(url);
  r->name = shown(url);
  r->handle = c->easy_init();
  if (r->url == NULL || r->name == NULL || r->handle == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a connection");
  const char *const *lines = thread_headers != NULL ? thread_headers : default_headers;
  for (size_t i = 0; lines != NULL && lines[i] != NULL; i++) {
    const char *line = lines[i];
    if (strchr(line, ':') == NULL || strpbrk(line, "\r\n") != NULL)
      return stow_fail(STOW_ERR_INVALID,
                       "a header for HTTP must be one line as \"Authorization: Bearer …\"");
    struct curl_list *longer = c->list_append(r->headers, line);
    if (longer == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for headers");
    r->headers = longer;
  }
  c->easy_setopt(r->handle, CURL_URL, r->url);
  c->easy_setopt(r->handle, CURL_NO_SIGNAL, 1L);
  c->easy_setopt(r->handle, CURL_FOLLOW_LOCATION, 1L);
  c->easy_setopt(r->handle, CURL_MAX_REDIRECTS, 10L);
  c->easy_setopt(r->handle, CURL_PROTOCOLS, (long)CURL_HTTP_AND_HTTPS);
  c->easy_setopt(r->handle, CURL_REDIRECT_PROTOCOLS, (long)CURL_HTTP_AND_HTTPS);
  c->easy_setopt(r->handle, CURL_CONNECT_TIMEOUT, stall_seconds());
  c->easy_setopt(r->handle, CURL_LOW_SPEED_LIMIT, 1L);
  c->easy_setopt(r->handle, CURL_LOW_SPEED_TIME, stall_seconds());
  c->easy_setopt(r->handle, CURL_USER_AGENT, "stowage/" STOW_VERSION_TEXT);
  c->easy_setopt(r->handle, CURL_ERROR_BUFFER, r->error);
  c->easy_setopt(r->handle, CURL_WRITE_FUNCTION, take_body);
  c->easy_setopt(r->handle, CURL_HEADER_FUNCTION, take_header);
  if (r->headers != NULL) c->easy_setopt(r->handle, CURL_HTTP_HEADER, r->headers);
  return STOW_OK;
}

/* What the server said of the file is known by now, and its first block is there. */
static stow_status open_kept(remote *r) {
  uint64_t bound = thread_cache_bytes;
  if (bound == 0) STOW_TRY(remote_cache_bound(&bound));
  r->kept = remote_cache_open(r->url, r->bytes, r->mark, bound);
  const block *first = find_block(r, 0);
  if (r->kept != NULL && first != NULL && !remote_cache_has(r->kept, 0))
    remote_cache_write(r->kept, 0, first->data, block_length(r, 0));
  return STOW_OK;
}

stow_status remote_open(source *s, const char *url) {
  *s = (source){.fd = -1, .name = url};
  const curl *functions;
  STOW_TRY(curl_load(&functions));
  remote *r = calloc(1, sizeof *r);
  if (r == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a connection");
  pthread_mutex_init(&r->guard, NULL);
  r->curl = functions;
  r->run = 1;
  for (size_t i = 0; i < BLOCKS; i++) r->blocks[i].number = UINT64_MAX;
  stow_status status = set_up(r, url);
  if (status == STOW_OK) status = bring(r, 0, 1, true);
  if (status == STOW_OK) status = open_kept(r);
  if (status != STOW_OK) {
    remote_close(r);
    return status;
  }
  source_reader reader = {.read = remote_read, .close = remote_close, .user = r};
  source_open_reader(s, &reader, r->bytes, r->name);
  /* So that two sources can be told to be of the same file. */
  for (const char *at = r->mark; *at != '\0'; at++)
    s->changed_ns = s->changed_ns * 31 + (unsigned char)*at;
  return STOW_OK;
}
