/* Stackset: stores texts in the ring, resolves native frames once, and adds keys to the table. */
#include "record/stackset.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"

enum { KEYS_START = 1024, NAME_BYTES_MAX = 4096 };

void stackset_start(stackset *s, ring *r) {
  ASSERT(r != NULL);
  s->ring = r;
  s->key_count = 0;
  /* Callers choose the keys. If they are not stable, the table must not grow without bound. */
  s->key_max = r->text_max / 64;
  memset(s->counts, 0, sizeof s->counts);
  key_table *t = atomic_load(&s->keys);
  for (uint64_t i = 0; t != NULL && i < t->capacity; i++)
    atomic_store_explicit(&t->slots[i].key, 0, memory_order_relaxed);
}

void stackset_stop(stackset *s) {
  map_free(&s->index);
  map_free(&s->addresses);
}

static bool text_equals(const ring *r, uint64_t offset, text_kind kind, const void *payload,
                        uint32_t length) {
  ASSERT(offset % 8 == 0);
  text_entry entry;
  memcpy(&entry, r->texts + offset, sizeof entry);
  return entry.kind == (uint32_t)kind && entry.length == length &&
         (length == 0 || memcmp(r->texts + offset + sizeof entry, payload, length) == 0);
}

/* Returns the number of a text; appends it to the ring if it is new. */
static stow_status text_number(stackset *s, text_kind kind, const void *payload, uint32_t length,
                               uint32_t *number) {
  ASSERT(number != NULL);
  ASSERT(s->ring != NULL);
  *number = 0;
  uint64_t hash = hash_bytes(payload, length, (uint64_t)kind);
  /* Different texts with equal hashes use the next key; the chain ends at an empty one. */
  for (uint64_t *have; (have = map_get(&s->index, hash)) != NULL; hash++) {
    if (!text_equals(s->ring, *have >> 32 << 3, kind, payload, length)) continue;
    *number = (uint32_t)*have;
    return STOW_OK;
  }
  uint64_t at = atomic_load_explicit(&s->ring->header->text_length, memory_order_relaxed);
  uint32_t next = s->counts[kind] + 1;
  STOW_TRY(map_put(&s->index, hash, at >> 3 << 32 | next));
  stow_status status = ring_text(s->ring, kind, payload, length);
  if (status != STOW_OK) {
    map_remove(&s->index, hash, NULL);
    return status;
  }
  s->counts[kind] = next;
  *number = next;
  return STOW_OK;
}

/* Truncates a name that is longer than readers accept, at a whole UTF-8 character. */
stow_status stackset_name(stackset *s, const char *name, uint32_t *number) {
  ASSERT(name != NULL);
  size_t length = strnlen(name, NAME_BYTES_MAX + 1);
  if (length > NAME_BYTES_MAX) {
    length = NAME_BYTES_MAX;
    while (length > 0 && ((unsigned char)name[length] & 0xc0) == 0x80) length--;
  }
  return text_number(s, TEXT_NAME, name, (uint32_t)length, number);
}

static stow_status stackset_frame(stackset *s, const char *name, const char *file, uint32_t line,
                                  uint32_t *number) {
  uint32_t words[3] = {0, 0, line};
  STOW_TRY(stackset_name(s, name, &words[0]));
  if (file != NULL) STOW_TRY(stackset_name(s, file, &words[1]));
  return text_number(s, TEXT_FRAME, words, sizeof words, number);
}

/* Resolves an address to symbol and library, or, if no symbol is exported, to the library and an
 * offset; the line is 0. Resolves each address once: only the caller's key distinguishes modules
 * that are loaded at the same address in turn. */
static stow_status stackset_native(stackset *s, const void *address, uint32_t *number) {
  ASSERT(number != NULL);
  const uint64_t *known = map_get(&s->addresses, (uint64_t)(uintptr_t)address);
  if (known != NULL) {
    *number = (uint32_t)*known;
    return STOW_OK;
  }
  char text[512];
  const char *file = NULL;
  Dl_info info;
  if (dladdr(address, &info) != 0 && info.dli_fname != NULL) {
    file = info.dli_fname;
    const char *base = strrchr(file, '/');
    if (info.dli_sname != NULL)
      snprintf(text, sizeof text, "%s", info.dli_sname);
    else
      snprintf(text, sizeof text, "%s+0x%" PRIxPTR, base != NULL ? base + 1 : file,
               (uintptr_t)address - (uintptr_t)info.dli_fbase);
  } else {
    snprintf(text, sizeof text, "0x%" PRIxPTR, (uintptr_t)address);
  }
  STOW_TRY(stackset_frame(s, text, file, 0, number));
  return map_put(&s->addresses, (uint64_t)(uintptr_t)address, *number);
}

static void key_put(key_table *t, uint64_t key, uint32_t number) {
  ASSERT(key != 0);
  ASSERT(t->capacity != 0 && (t->capacity & (t->capacity - 1)) == 0);
  uint64_t mask = t->capacity - 1, i = hash_u64(key, t->seed) & mask;
  while (atomic_load_explicit(&t->slots[i].key, memory_order_relaxed) != 0) i = (i + 1) & mask;
  atomic_store_explicit(&t->slots[i].number, number, memory_order_relaxed);
  atomic_store_explicit(&t->slots[i].key, key, memory_order_release);
}

static key_table *key_grow(stackset *s, key_table *t) {
  uint64_t capacity = t == NULL ? KEYS_START : t->capacity * 2;
  key_table *bigger = calloc(1, sizeof *bigger + capacity * sizeof(key_slot));
  if (bigger == NULL) return NULL;
  bigger->older = t;
  bigger->capacity = capacity;
  bigger->seed = hash_u64(clock_ns(), (uint64_t)(uintptr_t)bigger);
  for (uint64_t i = 0; t != NULL && i < t->capacity; i++) {
    uint64_t key = atomic_load_explicit(&t->slots[i].key, memory_order_relaxed);
    if (key != 0)
      key_put(bigger, key, atomic_load_explicit(&t->slots[i].number, memory_order_relaxed));
  }
  atomic_store_explicit(&s->keys, bigger, memory_order_release);
  return bigger;
}

/* Adds a key. A key that cannot be added (no memory, too many keys) only costs time, because its
 * stack is then looked up by content. */
static void key_add(stackset *s, uint64_t key, uint32_t number) {
  if (key == 0 || s->key_count >= s->key_max) return;
  key_table *t = atomic_load_explicit(&s->keys, memory_order_relaxed);
  if (t == NULL || s->key_count >= t->capacity / 2) t = key_grow(s, t);
  if (t == NULL) return;
  key_put(t, key, number);
  s->key_count++;
}

stow_status stackset_stack(stackset *s, uint64_t key, const stow_trace_frame *frames, size_t count,
                           uint32_t *number) {
  ASSERT(number != NULL);
  ASSERT(frames != NULL || count == 0);
  *number = 0;
  if (key != 0 && (*number = stackset_find(s, key)) != 0) return STOW_OK;
  uint32_t words[STACK_FRAMES_MAX];
  if (count > STACK_FRAMES_MAX) count = STACK_FRAMES_MAX;
  for (size_t i = 0; i < count; i++) {
    const stow_trace_frame *f = &frames[i];
    if (f->name != NULL)
      STOW_TRY(stackset_frame(s, f->name, f->file, f->line, &words[i]));
    else
      STOW_TRY(stackset_native(s, f->address, &words[i]));
  }
  STOW_TRY(text_number(s, TEXT_STACK, words, (uint32_t)(count * sizeof *words), number));
  key_add(s, key, *number);
  return STOW_OK;
}
