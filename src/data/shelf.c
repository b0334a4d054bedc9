/* Shelf: see shelf.h. A buffer's head stands in the 64 bytes before what the caller sees. */
#include "data/shelf.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/status.h"

#define HEAD_MAGIC UINT64_C(0x676177f7370a7ba7)

enum { KEEP_LEAST = 2 }; /* for a caller who holds many: or each batch were allocated anew */

typedef struct head {
  uint64_t magic;
  shelf *owner;
  struct head *next; /* on the shelf */
  uint32_t kind;
  bool out; /* with a taker; guarded by the shelf's lock */
} head;
_Static_assert(sizeof(head) <= SHELF_ALIGN, "a head fits before the data");

struct shelf {
  pthread_mutex_t guard;
  stow_batches_memory memory;
  uint64_t bytes[STOW_BATCHES_FILES_MAX];
  head *kept[STOW_BATCHES_FILES_MAX]; /* guarded */
  uint32_t kept_count[STOW_BATCHES_FILES_MAX];
  uint64_t live[STOW_BATCHES_FILES_MAX]; /* kept and out; guarded */
  uint64_t planned;
  uint64_t users; /* buffers out, and one for the open shelf; guarded */
  bool closed;
};

uint64_t shelf_buffer_bytes(uint64_t bytes) {
  return round_up(bytes, SHELF_ALIGN) + SHELF_ALIGN;
}

/* With the lock held. */
static void free_buffer(shelf *s, head *h) {
  size_t bytes = (size_t)shelf_buffer_bytes(s->bytes[h->kind]);
  h->magic = 0;
  s->live[h->kind]--;
  if (s->memory.allocate != NULL)
    s->memory.release(s->memory.user, h, bytes);
  else
    free(h);
}

stow_status shelf_open(shelf **out, const uint64_t *bytes, uint32_t kinds, uint64_t planned,
                       const stow_batches_memory *memory) {
  shelf *s = calloc(1, sizeof *s);
  if (s == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for batches");
  pthread_mutex_init(&s->guard, NULL);
  s->memory = *memory;
  for (uint32_t i = 0; i < kinds; i++) s->bytes[i] = bytes[i];
  s->planned = planned;
  s->users = 1;
  *out = s;
  return STOW_OK;
}

/* With the lock held, which it gives back. */
static void leave(shelf *s) {
  bool last = --s->users == 0;
  pthread_mutex_unlock(&s->guard);
  if (!last) return;
  pthread_mutex_destroy(&s->guard);
  free(s);
}

void shelf_close(shelf *s) {
  if (s == NULL) return;
  pthread_mutex_lock(&s->guard);
  s->closed = true;
  for (uint32_t i = 0; i < STOW_BATCHES_FILES_MAX; i++)
    while (s->kept[i] != NULL) {
      head *h = s->kept[i];
      s->kept[i] = h->next;
      free_buffer(s, h);
    }
  leave(s);
}

stow_status shelf_take(shelf *s, uint32_t kind, void **data) {
  pthread_mutex_lock(&s->guard);
  head *h = s->kept[kind];
  if (h != NULL) {
    s->kept[kind] = h->next;
    s->kept_count[kind]--;
    h->out = true;
    s->users++;
  }
  pthread_mutex_unlock(&s->guard);
  if (h == NULL) {
    size_t bytes = (size_t)shelf_buffer_bytes(s->bytes[kind]);
    h = s->memory.allocate != NULL ? s->memory.allocate(s->memory.user, bytes)
                                   : aligned_alloc(SHELF_ALIGN, bytes);
    if (h == NULL)
      return stow_fail(STOW_ERR_HOST_MEMORY, "no memory for a batch of %zu bytes", bytes);
    *h = (head){.magic = HEAD_MAGIC, .owner = s, .kind = kind, .out = true};
    pthread_mutex_lock(&s->guard);
    s->users++;
    s->live[kind]++;
    pthread_mutex_unlock(&s->guard);
  }
  *data = (char *)h + SHELF_ALIGN;
  return STOW_OK;
}

stow_status shelf_put(void *data) {
  head *h = (head *)((char *)data - SHELF_ALIGN);
  if (h->magic != HEAD_MAGIC) return stow_fail(STOW_ERR_STATE, "not a buffer of a batch");
  shelf *s = h->owner;
  pthread_mutex_lock(&s->guard);
  if (!h->out) {
    pthread_mutex_unlock(&s->guard);
    return stow_fail(STOW_ERR_STATE, "a buffer of a batch is given back twice");
  }
  h->out = false;
  bool kept = !s->closed && (s->live[h->kind] <= s->planned || s->kept_count[h->kind] < KEEP_LEAST);
  if (kept) {
    h->next = s->kept[h->kind];
    s->kept[h->kind] = h;
    s->kept_count[h->kind]++;
  } else {
    free_buffer(s, h);
  }
  leave(s);
  return STOW_OK;
}
