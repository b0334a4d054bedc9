/* Remote: reads at any offset with few requests: a small cache of blocks in memory, and on disk as
 * far as the caller allows. */
#include "files/remote.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/size.h>

#include "base/text.h"
#include "base/variables.h"
#include "files/remote_cache.h"
#include "files/remote_link.h"

enum {
  BLOCK_BYTES = (int)REMOTE_BLOCK_BYTES,
  BLOCKS = REMOTE_CACHE_BYTES / BLOCK_BYTES,
  RUN_BLOCKS = BLOCKS / 2, /* requested at once during sequential reading */
  SMALL_BYTES = 16 << 10,  /* a single read up to this size fetches its whole block */
};

typedef struct block {
  uint64_t number; /* UINT64_MAX: empty */
  uint64_t used;
  uint8_t *data;
} block;

typedef struct remote {
  pthread_mutex_t guard; /* one read at a time; guards everything below */
  remote_link link;
  block blocks[BLOCKS];
  uint64_t clock, next; /* end of the last read */
  uint32_t run;         /* blocks to request at once */
  remote_cache *kept;   /* cache on disk; NULL: none */
} remote;

static _Thread_local const char *const *thread_headers;
static const char *const *default_headers;
static _Thread_local uint64_t thread_cache_bytes;
static uint64_t least_rate_bytes = UINT64_MAX; /* UINT64_MAX: not set */

const char *const *remote_set_headers(const char *const *headers) {
  const char *const *before = thread_headers;
  thread_headers = headers;
  return before;
}

void remote_set_default_headers(const char *const *headers) {
  default_headers = headers;
}

void remote_set_rate(uint64_t bytes) {
  least_rate_bytes = bytes;
}

static stow_status rate_to_hold(uint64_t *bytes) {
  const char *text = getenv(ENV_HTTP_MIN_RATE);
  *bytes = least_rate_bytes != UINT64_MAX ? least_rate_bytes : REMOTE_RATE_BYTES;
  if (least_rate_bytes != UINT64_MAX || text == NULL || text[0] == '\0') return STOW_OK;
  if (stow_size_parse(bytes, text) == STOW_OK) return STOW_OK;
  return stow_fail(
      STOW_ERR_INVALID,
      ENV_HTTP_MIN_RATE "=%.60s is not a size; give bytes per second, such as 1K, or 0", text);
}

uint64_t remote_set_cache(uint64_t bytes) {
  uint64_t before = thread_cache_bytes;
  thread_cache_bytes = bytes;
  return before;
}

bool remote_is(const char *path) {
  return text_is_url(path);
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

/* Returns the least recently used block, emptied. */
static stow_status free_block(remote *r, block **found) {
  block *oldest = &r->blocks[0];
  for (size_t i = 1; i < BLOCKS; i++)
    if (r->blocks[i].used < oldest->used) oldest = &r->blocks[i];
  if (oldest->data == NULL) oldest->data = malloc(BLOCK_BYTES);
  if (oldest->data == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", r->link.name);
  oldest->number = UINT64_MAX;
  oldest->used = ++r->clock;
  *found = oldest;
  return STOW_OK;
}

static size_t block_length(const remote *r, uint64_t number) {
  uint64_t left = r->link.bytes - number * BLOCK_BYTES;
  return left < BLOCK_BYTES ? (size_t)left : BLOCK_BYTES;
}

/* Fetches `count` blocks from `number` on, up to the end of the file. */
static stow_status bring(remote *r, uint64_t number, uint32_t count, bool opening) {
  block *into[RUN_BLOCKS];
  uint8_t *places[RUN_BLOCKS];
  remote_range x = {.offset = number * BLOCK_BYTES, .blocks = places};
  x.count = (uint64_t)count * BLOCK_BYTES;
  if (!opening && x.count > r->link.bytes - x.offset) x.count = r->link.bytes - x.offset;
  for (uint32_t i = 0; i < count; i++) {
    STOW_TRY(free_block(r, &into[i]));
    places[i] = into[i]->data;
  }
  STOW_TRY(remote_link_fetch(&r->link, &x, opening));
  for (uint32_t i = 0; i < count && x.count > (uint64_t)i * BLOCK_BYTES; i++) {
    into[i]->number = number + i;
    if (r->kept != NULL)
      remote_cache_write(r->kept, number + i, into[i]->data, block_length(r, number + i));
  }
  return STOW_OK;
}

/* Reads block `number` from disk, or fetches it together with the following blocks up to `end` that
 * are not on disk either. */
static stow_status bring_kept(remote *r, uint64_t number, uint64_t end) {
  block *into;
  STOW_TRY(free_block(r, &into));
  if (remote_cache_read(r->kept, number, into->data, block_length(r, number))) {
    into->number = number;
    return STOW_OK;
  }
  uint64_t ahead = (number + r->run) * BLOCK_BYTES;
  if (end < ahead) end = ahead;
  if (end > r->link.bytes) end = r->link.bytes;
  uint32_t count = 1;
  while (count < RUN_BLOCKS && (number + count) * BLOCK_BYTES < end &&
         find_block(r, number + count) == NULL && !remote_cache_has(r->kept, number + count))
    count++;
  return bring(r, number, count, false);
}

/* Reads bytes. Large reads and larger random reads are one request each and bypass the cache. Small
 * reads fetch a block, sequential ones several. The disk cache stores whole blocks, so with it all
 * reads fetch blocks. */
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
        return remote_link_fetch(
            &r->link, &(remote_range){.offset = offset, .count = count, .to = at}, false);
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
  remote_link_close(&r->link);
  remote_cache_close(r->kept);
  for (size_t i = 0; i < BLOCKS; i++) free(r->blocks[i].data);
  free(r);
}

/* Opens the disk cache. The server's information about the file is known by now, and the first
 * block is in memory. */
static stow_status open_kept(remote *r) {
  uint64_t bound = thread_cache_bytes;
  if (bound == 0) STOW_TRY(remote_cache_bound(&bound));
  r->kept = remote_cache_open(r->link.url, r->link.bytes, r->link.mark, bound);
  const block *first = find_block(r, 0);
  if (r->kept != NULL && first != NULL && !remote_cache_has(r->kept, 0))
    remote_cache_write(r->kept, 0, first->data, block_length(r, 0));
  return STOW_OK;
}

stow_status remote_open(source *s, const char *url) {
  *s = (source){.fd = -1, .name = "a URL"};
  uint64_t rate_bytes;
  STOW_TRY(rate_to_hold(&rate_bytes));
  remote *r = calloc(1, sizeof *r);
  if (r == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a connection");
  pthread_mutex_init(&r->guard, NULL);
  r->run = 1;
  for (size_t i = 0; i < BLOCKS; i++) r->blocks[i].number = UINT64_MAX;
  stow_status status = remote_link_open(
      &r->link, url, thread_headers != NULL ? thread_headers : default_headers, rate_bytes);
  if (status == STOW_OK) status = bring(r, 0, 1, true);
  if (status == STOW_OK) status = open_kept(r);
  if (status != STOW_OK) {
    remote_close(r);
    return status;
  }
  source_reader reader = {.read = remote_read, .close = remote_close, .user = r};
  source_open_reader(s, &reader, r->link.bytes, r->link.name);
  /* Identifies the file version, so that two sources can be compared. */
  for (const char *at = r->link.mark; *at != '\0'; at++)
    s->changed_ns = s->changed_ns * 31 + (unsigned char)*at;
  return STOW_OK;
}
