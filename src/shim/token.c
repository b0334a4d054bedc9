/* Token: what a program holds, and when memory that it releases is kept for it. See
 * page_table.h. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "shim/page.h"
#include "shim/page_table.h"
#include "shim/retry.h"

/* No driver handle looks like this: they are small numbers, or addresses. */
#define TOKEN_MARK (UINT64_C(0x5357) << 48)

static uint64_t last_name; /* guarded by pages_lock */
static bool shared;        /* as it is: one was pinned */
_Atomic size_t token_held_on_host;
_Thread_local bool token_trimming;

void page_enter(void) {
  lock_acquire(&pages_lock);
}

/* Publishes the free bytes in the ledger: they count as held, but are released on request. */
static void publish_idle(void) {
  ASSERT(lock_held(&pages_lock));
  if (class_count == 0) return;
  uint64_t idle[LEDGER_DEVICES_MAX][TIER_COUNT] = {{0}};
  uint64_t unused[LEDGER_DEVICES_MAX] = {0};
  bool known[LEDGER_DEVICES_MAX] = {false};
  for (size_t i = 0; i < class_count; i++) {
    const page_class *c = &classes[i];
    if (c->device >= LEDGER_DEVICES_MAX) continue;
    known[c->device] = true;
    unused[c->device] = *page_host_unused(c);
    for (int tier = 0; tier < TIER_COUNT; tier++)
      idle[c->device][tier] += page_free_spare(c, tier) * c->bytes;
  }
  for (unsigned d = 0; d < LEDGER_DEVICES_MAX; d++)
    if (known[d]) {
      ledger_set_idle(account_ledger(), d, idle[d][TIER_VRAM], idle[d][TIER_HOST]);
      ledger_set_unused(account_ledger(), d, unused[d]);
    }
}

/* Counts a page that a token gets (`on` 1) or loses (-1). */
static void count_host(const page *p, int on) {
  ASSERT(lock_held(&pages_lock));
  ASSERT(on == 1 || on == -1);
  if (p->tier != TIER_HOST) return;
  uint64_t *unused = page_host_unused(p->class);
  ASSERT(on < 0 || *unused >= p->class->bytes);
  token_held_on_host += (size_t)on;
  *unused = on > 0 ? *unused - p->class->bytes : *unused + p->class->bytes;
}

void page_leave(void) {
  publish_idle();
  lock_release(&pages_lock);
}

static void after_fork(void) {
  lock_init(&pages_lock, LOCK_PAGES);
  memset(&pages_at, 0, sizeof pages_at);
  memset(&tokens, 0, sizeof tokens);
  memset(classes, 0, sizeof classes);
  class_count = 0;
  token_held_on_host = 0;
  shared = false;
  token_trimming = false;
}
SHIM_AFTER_FORK(after_fork);

bool page_is_token(cu_handle handle) {
  return (handle & (UINT64_C(0xffff) << 48)) == TOKEN_MARK;
}

static bool same_prop(const cu_prop *a, const cu_prop *b) {
  return a->type == b->type && a->handle_types == b->handle_types &&
         a->location.type == b->location.type && a->location.id == b->location.id &&
         a->win32_meta == b->win32_meta && memcmp(&a->flags, &b->flags, sizeof a->flags) == 0;
}

page_class *page_class_for(uint64_t bytes, const cu_prop *prop) {
  ASSERT(lock_held(&pages_lock));
  ASSERT(bytes % SHIM_GRANULE == 0);
  for (size_t i = 0; i < class_count; i++)
    if (classes[i].bytes == bytes && same_prop(&classes[i].prop, prop)) return &classes[i];
  page_class *class = NULL;
  for (size_t i = 0; i < class_count && class_count == CLASSES_MAX && class == NULL; i++)
    if (classes[i].tokens == 0) class = &classes[i];
  if (class != NULL)
    page_free_end(class);
  else if (class_count < CLASSES_MAX)
    class = &classes[class_count++];
  else
    return NULL;
  *class = (page_class){.bytes = bytes, .prop = *prop, .device = account_device(prop->location.id)};
  return class;
}

token *token_find(cu_handle name) {
  ASSERT(lock_held(&pages_lock));
  const uint64_t *found = map_get(&tokens, name);
  return found == NULL ? NULL : (token *)(uintptr_t)*found;
}

token *token_new(page_class *class) {
  ASSERT(lock_held(&pages_lock));
  token *t = calloc(1, sizeof *t);
  if (t == NULL) return NULL;
  *t = (token){.name = TOKEN_MARK | ++last_name, .class = class, .handles = 1};
  if (map_put(&tokens, t->name, (uintptr_t)t) != STOW_OK) {
    free(t);
    return NULL;
  }
  class->tokens++;
  return t;
}

void token_forget(token *t) {
  ASSERT(t->page == NULL);
  ASSERT(t->class->tokens > 0);
  map_remove(&tokens, t->name, NULL);
  t->class->tokens--;
  free(t);
}

/* Returns true if no other process of the run holds memory on the device, so that caching takes
 * none away from others. */
bool token_alone(const ledger *l, unsigned device) {
  ledger_totals totals;
  ledger_sum(l, device, &totals);
  if (totals.processes <= 1) return true;
  for (int kind = 0; kind < LEDGER_VRAM_KINDS; kind++)
    if (totals.bytes[kind] > ledger_own(l, device, (ledger_kind)kind)) return false;
  return true;
}

/* Returns true if memory that the program frees is kept for it. Under a limit it may hold that much
 * anyway; without one, keeps only what it freed on our request, because it will ask for it again.
 */
bool token_keeping(const token *t) {
  ASSERT(t->class != NULL);
  const ledger *l = account_ledger();
  if (t->pinned || !token_alone(l, t->class->device)) return false;
  return ledger_limit(l, t->class->device) != LEDGER_UNLIMITED || token_trimming || spill_refused();
}

static void token_release(token *t) {
  ASSERT(lock_held(&pages_lock));
  page *p = t->page;
  t->page = NULL;
  if (p == NULL) return;
  count_host(p, -1);
  if (token_keeping(t) && !p->borrowed)
    page_free_put(p);
  else
    page_drop(p);
}

/* Ends a token once the program has neither a handle nor a mapping of it. */
void token_end(token *t) {
  ASSERT(lock_held(&pages_lock));
  if (t->handles > 0 || t->addr != 0 || t->aliases > 0) return;

  page_class *class = t->class;
  if (t->page != NULL)
    token_release(t);
  else {
    class->promised[t->tier]--;
    if (!token_keeping(t) && page_free_spare(class, t->tier) > 0)
      page_drop(page_free_take(class, t->tier, 0));
  }
  token_forget(t);
}

/* Gives it the page it was promised. */
void token_have(token *t, page *p) {
  ASSERT(t->page == NULL && p->owner == NULL);
  ASSERT(t->class == p->class);
  ASSERT(t->class->promised[t->tier] > 0);
  t->class->promised[t->tier]--;
  t->page = p;
  p->owner = t;
  count_host(p, 1);
}

void token_exchange(token *t, page *p) {
  ASSERT(t->page != NULL && t->class == p->class);
  ASSERT(!t->pinned);
  count_host(t->page, -1);
  count_host(p, 1);
  t->page = p;
  p->owner = t;
}

bool token_shared(void) {
  return shared;
}

void token_pin(token *t) {
  ASSERT(lock_held(&pages_lock));
  t->pinned = true;
  shared = true;
}
