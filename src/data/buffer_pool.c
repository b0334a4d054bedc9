/* Buffer pool: see buffer_pool.h. A buffer's head is in the 64 bytes before its data:
 *
 *   without room    | head | rows |
 *   with room       | … up to 4096 … head | rows | … up to 8192 … |      rows anywhere in a page */
#include "data/buffer_pool.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/checked.h"
#include "base/huge_alloc.h"
#include "base/status.h"
#include "files/source.h"

#define HEAD_MAGIC UINT64_C(0x676177f7370a7ba7)

enum {
  KEEP_LEAST = 2
}; /* for a caller who holds many buffers: otherwise each batch would be allocated again */

typedef struct head {
  uint64_t magic;
  buffer_pool *owner;
  struct head *next; /* next in the pool */
  char *start;       /* start of its memory */
  uint32_t kind;
  bool out;      /* the caller has it; guarded by the pool's lock */
  bool in_block; /* freed with the block that contains it */
} head;
_Static_assert(sizeof(head) <= BUFFER_POOL_ALIGN, "a head fits before the data");
_Static_assert(sizeof(buffer_pool_kept) == BUFFER_POOL_ALIGN, "all of a head is kept");

struct buffer_pool {
  pthread_mutex_t guard;
  buffer_pool_options options;
  char *block[STOW_BATCHES_FILES_MAX];    /* the planned buffers; used only by the taker */
  uint64_t cut[STOW_BATCHES_FILES_MAX];   /* buffers taken from the block so far */
  bool requested[STOW_BATCHES_FILES_MAX]; /* a block was requested: only once */
  head *kept[STOW_BATCHES_FILES_MAX];     /* guarded */
  uint32_t kept_count[STOW_BATCHES_FILES_MAX];
  uint64_t live[STOW_BATCHES_FILES_MAX]; /* buffers in the pool and with the caller; guarded by the
                                          * lock */
  uint64_t users;                        /* buffers out, plus one for the open pool; guarded */
  bool closed;
};

static head *head_of(void *data) {
  return (head *)(void *)((char *)data - BUFFER_POOL_ALIGN);
}

uint64_t buffer_pool_buffer_bytes(uint64_t bytes, bool room) {
  if (!room) return round_up(bytes, BUFFER_POOL_ALIGN) + BUFFER_POOL_ALIGN;
  return round_up(bytes, SOURCE_DIRECT_UNIT) + 2 * SOURCE_DIRECT_UNIT;
}

static size_t size_of(const buffer_pool *s, uint32_t kind) {
  return (size_t)buffer_pool_buffer_bytes(s->options.bytes[kind], s->options.room[kind]);
}

/* ---- memory ---- */

static void *get_memory(const buffer_pool *s, size_t bytes) {
  const stow_batches_memory *m = &s->options.memory;
  return m->allocate != NULL ? m->allocate(m->user, bytes) : huge_alloc(bytes);
}

static void give_memory(const buffer_pool *s, void *memory, size_t bytes) {
  const stow_batches_memory *m = &s->options.memory;
  if (m->allocate != NULL)
    m->release(m->user, memory, bytes);
  else
    free(memory);
}

/* Returns the block's other pages after close, while the block waits for its last buffer. */
static void give_pages(const buffer_pool *s, const head *h) {
  if (s->options.memory.allocate != NULL) return;
  uintptr_t from = round_up((uintptr_t)(h->start + sizeof *h), 4096),
            to = round_down((uintptr_t)(h->start + size_of(s, h->kind)), 4096);
  if (to > from) madvise((void *)from, to - from, MADV_DONTNEED);
}

/* Frees a buffer. Called with the lock held. */
static void free_buffer(buffer_pool *s, head *h) {
  s->live[h->kind]--;
  h->magic = 0;
  if (h->in_block)
    give_pages(s, h);
  else
    give_memory(s, h->start, size_of(s, h->kind));
}

stow_status buffer_pool_open(buffer_pool **out, const buffer_pool_options *options) {
  buffer_pool *s = calloc(1, sizeof *s);
  if (s == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for batches");
  pthread_mutex_init(&s->guard, NULL);
  s->options = *options;
  s->users = 1;
  *out = s;
  return STOW_OK;
}

/* Releases the lock. Frees the pool if this was its last buffer. */
static void leave(buffer_pool *s) {
  bool last = --s->users == 0;
  pthread_mutex_unlock(&s->guard);
  if (!last) return;
  for (uint32_t i = 0; i < s->options.kinds; i++)
    if (s->block[i] != NULL)
      give_memory(s, s->block[i], (size_t)(s->options.planned * size_of(s, i)));
  pthread_mutex_destroy(&s->guard);
  free(s);
}

void buffer_pool_close(buffer_pool *s) {
  if (s == NULL) return;
  pthread_mutex_lock(&s->guard);
  s->closed = true;
  for (uint32_t i = 0; i < s->options.kinds; i++)
    while (s->kept[i] != NULL) {
      head *h = s->kept[i];
      s->kept[i] = h->next;
      free_buffer(s, h);
    }
  leave(s);
}

/* ---- taking and putting ---- */

/* Returns memory for a new buffer: the next part of the block, or its own if the block is used
 * up. */
static char *new_memory(buffer_pool *s, uint32_t kind, bool *in_block) {
  size_t bytes = size_of(s, kind);
  uint64_t all;
  if (!s->requested[kind] && !s->options.singly && checked_mul(&all, s->options.planned, bytes))
    s->block[kind] = get_memory(s, (size_t)all);
  s->requested[kind] = true;
  *in_block = s->block[kind] != NULL && s->cut[kind] < s->options.planned;
  return *in_block ? s->block[kind] + s->cut[kind]++ * bytes : get_memory(s, bytes);
}

static stow_status make_buffer(buffer_pool *s, uint32_t kind, void **data) {
  bool in_block;
  char *start = new_memory(s, kind, &in_block);
  if (start == NULL) {
    bool has_message = s->options.memory.allocate != NULL && !s->options.singly; /* the device set
                                                                                  * the reason */
    return stow_fail(STOW_ERR_HOST_MEMORY, "no memory for a batch of %zu bytes%s%s",
                     size_of(s, kind), has_message ? ": " : "",
                     has_message ? stow_status_message() : "");
  }
  *data = start + (s->options.room[kind] ? SOURCE_DIRECT_UNIT : BUFFER_POOL_ALIGN);
  *head_of(*data) = (head){.magic = HEAD_MAGIC,
                           .owner = s,
                           .start = start,
                           .kind = kind,
                           .out = true,
                           .in_block = in_block};
  pthread_mutex_lock(&s->guard);
  s->users++;
  s->live[kind]++;
  pthread_mutex_unlock(&s->guard);
  return STOW_OK;
}

stow_status buffer_pool_take(buffer_pool *s, uint32_t kind, void **data) {
  pthread_mutex_lock(&s->guard);
  head *h = s->kept[kind];
  if (h != NULL) {
    s->kept[kind] = h->next;
    s->kept_count[kind]--;
    h->out = true;
    s->users++;
  }
  pthread_mutex_unlock(&s->guard);
  if (h == NULL) return make_buffer(s, kind, data);
  *data = (char *)h + BUFFER_POOL_ALIGN;
  return STOW_OK;
}

stow_status buffer_pool_put(void *data) {
  head *h = head_of(data);
  if (h->magic != HEAD_MAGIC)
    return stow_fail(STOW_ERR_STATE, "stow_batches_release: not a buffer of a batch");
  buffer_pool *s = h->owner;
  pthread_mutex_lock(&s->guard);
  if (!h->out) {
    pthread_mutex_unlock(&s->guard);
    return stow_fail(STOW_ERR_STATE, "stow_batches_release: the buffer was already released");
  }
  h->out = false;
  bool kept =
      h->in_block || s->live[h->kind] <= s->options.planned || s->kept_count[h->kind] < KEEP_LEAST;
  if (kept && !s->closed) {
    h->next = s->kept[h->kind];
    s->kept[h->kind] = h;
    s->kept_count[h->kind]++;
  } else {
    free_buffer(s, h);
  }
  leave(s);
  return STOW_OK;
}

/* ---- direct reads ---- */

void *buffer_pool_shift(void *data, size_t within, buffer_pool_kept *kept) {
  char *start = head_of(data)->start;
  memcpy(kept, head_of(data), sizeof *kept);
  return start + SOURCE_DIRECT_UNIT + within;
}

void buffer_pool_settle(void *data, const buffer_pool_kept *kept) {
  memcpy(head_of(data), kept, sizeof *kept);
}
