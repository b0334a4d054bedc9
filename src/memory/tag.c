/* Tag: names, numbered for the whole process, and each thread's stack of tags (stowage/tag.h). */
#include <stowage/tag.h>

#include <stdlib.h>
#include <string.h>

#include "memory/heap.h"

typedef struct frame {
  uint32_t tag;
  bool pinned;
  stow_tier tier;
} frame;

static _Thread_local frame stack[STOW_TAG_DEPTH_MAX];
static _Thread_local uint32_t depth;
_Thread_local tag_top tag_now; /* a copy of the top frame */

static void top_renew(void) {
  const frame *f = depth > 0 ? &stack[depth - 1] : &(frame){0};
  tag_now = (tag_top){f->tag << MARK_TAG_SHIFT, f->pinned, (uint8_t)f->tier};
}

/* Names never move and are never removed. They are stored in chunks of pointers and read without
 * the lock. */
#define CHUNK 256
static lock names_lock = LOCK_INIT(LOCK_REGISTRY);
static _Atomic(char **) chunks[(STOW_TAG_COUNT_MAX + CHUNK) / CHUNK];
static _Atomic uint32_t name_count = 1; /* 0 means no tag */
static intern numbers;                  /* guarded by names_lock; number n is tag n + 1 */

static stow_status tag_number(uint32_t *tag, const char *name) {
  lock_acquire(&names_lock);
  stow_status status = STOW_OK;
  uint32_t n, count = atomic_load_explicit(&name_count, memory_order_relaxed);
  if (!intern_find(&numbers, &n, name, strlen(name)) && count > STOW_TAG_COUNT_MAX)
    status = stow_fail(STOW_ERR_OVERFLOW, "tag \"%s\": %u names are already in use; reuse names",
                       name, STOW_TAG_COUNT_MAX);
  if (status == STOW_OK) status = intern_add(&numbers, &n, name, strlen(name));
  if (status == STOW_OK && n + 1 >= count) {
    char **chunk = atomic_load(&chunks[count / CHUNK]);
    char *copy = strdup(name);
    if (!chunk) atomic_store(&chunks[count / CHUNK], chunk = calloc(CHUNK, sizeof *chunk));
    if (!chunk || !copy) {
      free(copy);
      status = stow_fail(STOW_ERR_HOST_MEMORY, "tag: no memory for its name");
    } else {
      chunk[count % CHUNK] = copy;
      atomic_store_explicit(&name_count, count + 1, memory_order_release);
    }
  }
  lock_release(&names_lock);
  *tag = n + 1;
  return status;
}

static stow_status push(const char *name, bool pinned, stow_tier tier) {
  if (!name || !*name) return stow_fail(STOW_ERR_INVALID, "tag: the name is NULL or empty");
  if (depth == STOW_TAG_DEPTH_MAX)
    return stow_fail(STOW_ERR_OVERFLOW,
                     "tag \"%s\": %d tags are already pushed on this thread; pop some", name,
                     STOW_TAG_DEPTH_MAX);
  frame f = {0, pinned, tier};
  STOW_TRY(tag_number(&f.tag, name));
  if (!pinned && depth > 0 && stack[depth - 1].pinned) { /* a pin also applies to nested tags */
    f.pinned = true;
    f.tier = stack[depth - 1].tier;
  }
  stack[depth++] = f;
  top_renew();
  return STOW_OK;
}

stow_status stow_tag_push(const char *name) {
  return push(name, false, STOW_TIER_VRAM);
}

stow_status stow_tag_push_tier(const char *name, stow_tier tier) {
  if (tier != STOW_TIER_VRAM && tier != STOW_TIER_HOST)
    return stow_fail(STOW_ERR_INVALID, "tag \"%s\": the tier must be vram or host",
                     name ? name : "");
  return push(name, true, tier);
}

stow_status stow_tag_pop(void) {
  if (depth == 0) return stow_fail(STOW_ERR_STATE, "tag: pop without a push on this thread");
  depth--;
  top_renew();
  return STOW_OK;
}

const char *stow_tag_name(uint32_t tag) {
  if (tag == 0 || tag >= atomic_load_explicit(&name_count, memory_order_acquire)) return "";
  return atomic_load(&chunks[tag / CHUNK])[tag % CHUNK];
}
