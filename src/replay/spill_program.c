/* Spill: extracts one step of a recorded program from the recording. */
#include <stdlib.h>
#include <string.h>

#include "base/compare.h"
#include "base/hash.h"
#include "base/list.h"
#include "replay/spill.h"

/* Live blocks by address. */
typedef struct live_list {
  spill_block *list;
  size_t count, capacity;
} live_list;

static size_t live_at(const live_list *l, uint64_t addr) {
  size_t low = 0, high = l->count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (l->list[middle].addr <= addr)
      low = middle + 1;
    else
      high = middle;
  }
  return low; /* the first block after the address */
}

static bool live_remove(live_list *l, uint64_t addr, spill_block *gone) {
  size_t at = live_at(l, addr);
  if (at == 0 || l->list[at - 1].addr != addr) return false;
  if (gone != NULL) *gone = l->list[at - 1];
  memmove(l->list + at - 1, l->list + at, (l->count - at) * sizeof *l->list);
  l->count--;
  return true;
}

static stow_status live_add(live_list *l, spill_block b) {
  live_remove(l, b.addr, NULL);
  STOW_TRY(LIST_ROOM(l->list, l->count, l->capacity, 1024, "live blocks"));
  size_t at = live_at(l, b.addr);
  memmove(l->list + at + 1, l->list + at, (l->count - at) * sizeof *l->list);
  l->list[at] = b;
  l->count++;
  return STOW_OK;
}

static const spill_block *live_find(const live_list *l, uint64_t addr) {
  size_t at = live_at(l, addr);
  if (at == 0 || addr - l->list[at - 1].addr >= l->list[at - 1].bytes) return NULL;
  return &l->list[at - 1];
}

/* ---- finding the step ---- */

static bool is_of(const recording *r, const event *e, uint16_t device) {
  return event_origin(r, e)->device == device;
}

/* PyTorch's marks are around the optimizer alone: a step goes from the end of one to the end of the
 * next of the same name. */
static bool is_optimizer(const recording *r, uint32_t tag) {
  return strncmp(recording_text(r, tag), "Optimizer.step#", 15) == 0;
}

/* Finds the last marked stretch that has launches. */
static bool find_marks(const recording *r, uint16_t device, size_t *first, size_t *end) {
  uint32_t tag = 0;
  size_t close = 0, launches = 0;
  for (size_t i = r->event_count; i-- > 0;) {
    const event *e = &r->events[i];
    if (e->kind == EVENT_LAUNCH && close != 0) launches += is_of(r, e, device);
    bool same = close != 0 && launches > 0 && event_origin(r, e)->tag_id == tag;
    if (same && e->kind == (is_optimizer(r, tag) ? EVENT_MARK_END : EVENT_MARK_BEGIN)) {
      *first = i;
      *end = close;
      return true;
    }
    if (e->kind == EVENT_MARK_END && (close == 0 || launches == 0)) {
      close = i;
      tag = event_origin(r, e)->tag_id;
      launches = 0;
    }
  }
  return false;
}

/* Finds the shortest tail of the launches that occurs twice in a row, by function and addresses. */
static stow_status find_period(const recording *r, uint16_t device, size_t *first, bool *found) {
  size_t count = 0, n = 0;
  *found = false;
  for (size_t i = 0; i < r->event_count; i++) count += r->events[i].kind == EVENT_LAUNCH;
  uint64_t *keys = calloc(count + 1, sizeof *keys);
  size_t *where = calloc(count + 1, sizeof *where), *z = calloc(count + 1, sizeof *z);
  if (keys == NULL || where == NULL || z == NULL) {
    free(keys);
    free(where);
    free(z);
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %zu launches", count);
  }
  uint64_t key = 0;
  for (size_t i = r->event_count; i-- > 0;) { /* last first */
    const event *e = &r->events[i];
    if (!event_is_touch(e->kind) || !is_of(r, e, device)) continue;
    key = hash_u64(e->addr, key);
    if (e->kind != EVENT_LAUNCH) continue;
    keys[n] = hash_u64(event_origin(r, e)->tag_id, key);
    where[n++] = i;
    key = 0;
  }
  /* z[p]: how far the sequence matches itself shifted by p. */
  for (size_t p = 1, left = 0, right = 0; p < n && !*found; p++) {
    if (p < right) z[p] = z[p - left] < right - p ? z[p - left] : right - p;
    while (p + z[p] < n && keys[z[p]] == keys[p + z[p]]) z[p]++;
    if (p + z[p] > right) left = p, right = p + z[p];
    if (z[p] >= p && p >= 8) {
      *first = where[p - 1];
      *found = true;
    }
  }
  free(keys);
  free(where);
  free(z);
  return STOW_OK;
}

/* ---- segments without blocks ---- */

/* Lists the addresses of all blocks of the device, ascending. */
static stow_status list_blocks(const recording *r, uint16_t device, uint64_t **list,
                               size_t *count) {
  size_t n = 0;
  for (size_t i = 0; i < r->event_count; i++) n += r->events[i].kind == EVENT_ALLOC;
  *list = malloc((n + 1) * sizeof **list);
  *count = 0;
  if (*list == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %zu blocks", n);
  for (size_t i = 0; i < r->event_count; i++)
    if (r->events[i].kind == EVENT_ALLOC && is_of(r, &r->events[i], device))
      (*list)[(*count)++] = r->events[i].addr;
  qsort(*list, *count, sizeof **list, compare_u64);
  return STOW_OK;
}

/* Returns the index of the first number in an ascending list that is not below `addr`. */
static size_t first_from(const uint64_t *list, size_t count, uint64_t addr) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (list[middle] < addr)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Returns whether a block begins in this range. */
static bool any_block(const uint64_t *list, size_t count, uint64_t addr, uint64_t bytes) {
  size_t at = first_from(list, count, addr);
  return at < count && list[at] - addr < bytes;
}

/* ---- the framework ---- */

/* Returns whether PyTorch made the recording's blocks: the recording says so, was estimated (only
 * PyTorch programs are), has marks of PyTorch's optimizers, or stacks through PyTorch. */
static bool is_torch(const recording *r) {
  static const char *const parts[] = {"-packages/torch/", "libtorch", "libc10"};
  const char *text = recording_fact(r, "framework");
  if (text != NULL) return strcmp(text, "pytorch") == 0;
  if (recording_fact(r, "estimated") != NULL) return true;
  for (size_t i = 0; i < r->event_count; i++)
    if (r->events[i].kind == EVENT_MARK_END &&
        is_optimizer(r, event_origin(r, &r->events[i])->tag_id))
      return true;
  for (size_t i = 0; i < r->frame_count; i++)
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
      if (strstr(recording_text(r, r->frames[i].file_id), parts[k]) != NULL) return true;
  return false;
}

/* ---- building ---- */

typedef struct builder {
  spill_program *p;
  const recording *r;
  uint16_t device;
  live_list live;
  uint64_t live_bytes;
  uint64_t *blocks; /* addresses of all blocks, ascending */
  size_t block_count;
  uint64_t last_ns; /* time of the previous launch, or of the beginning of the step */
  bool in_step;
  uint64_t host_ns; /* between two launches, where the trace was not recorded live; 0: its times */
} builder;

static stow_status add_op(spill_program *p, spill_op op) {
  STOW_TRY(LIST_ROOM(p->ops, p->op_count, p->op_capacity, 4096, "operations of a step"));
  p->ops[p->op_count++] = op;
  p->launch_count += op.kind == SPILL_LAUNCH;
  return STOW_OK;
}

static stow_status add_word(builder *b, uint64_t addr) {
  spill_program *p = b->p;
  if (addr == 0) return STOW_OK;
  if (p->word_count == p->word_capacity) {
    size_t capacity = p->word_capacity > 0 ? 2 * p->word_capacity : 4096;
    uint64_t *words = realloc(p->words, capacity * sizeof *words);
    if (words != NULL) p->words = words;
    spill_block *blocks = realloc(p->word_blocks, capacity * sizeof *blocks);
    if (blocks != NULL) p->word_blocks = blocks;
    if (words == NULL || blocks == NULL)
      return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %zu touches", capacity);
    p->word_capacity = capacity;
  }
  const spill_block *in = live_find(&b->live, addr);
  p->words[p->word_count] = addr;
  p->word_blocks[p->word_count++] = in != NULL ? *in : (spill_block){addr, 0};
  p->ops[p->op_count - 1].word_count++;
  return STOW_OK;
}

/* Returns whether the event begins a block: memory in which the recording has no smaller ones, such
 * as the pool of JAX, is one. */
static bool begins(const builder *b, const event *e) {
  if (e->kind == EVENT_ALLOC) return true;
  return (e->kind == EVENT_SEGMENT_ALLOC || e->kind == EVENT_SEGMENT_MAP) &&
         !any_block(b->blocks, b->block_count, e->addr, e->bytes);
}

static bool ends(event_kind kind) {
  return kind == EVENT_FREE || kind == EVENT_SEGMENT_FREE || kind == EVENT_SEGMENT_UNMAP;
}

static stow_status add_block(builder *b, const event *e, bool begin) {
  spill_block gone = {e->addr, e->bytes};
  if (begin) {
    STOW_TRY(live_add(&b->live, gone));
    b->live_bytes += e->bytes;
  } else if (live_remove(&b->live, e->addr, &gone)) {
    b->live_bytes -= gone.bytes;
  } else {
    return STOW_OK;
  }
  if (!b->in_step) return STOW_OK;
  if (b->live_bytes > b->p->peak_live_bytes) b->p->peak_live_bytes = b->live_bytes;
  return add_op(
      b->p,
      (spill_op){.kind = begin ? SPILL_ALLOC : SPILL_FREE, .addr = gone.addr, .bytes = gone.bytes});
}

static stow_status add_launch(builder *b, const event *e) {
  uint64_t gap = e->time_ns > b->last_ns ? e->time_ns - b->last_ns : 0;
  if (b->host_ns > 0) gap = b->host_ns;
  b->last_ns = e->time_ns;
  STOW_TRY(add_op(b->p, (spill_op){.kind = SPILL_LAUNCH,
                                   .function = event_origin(b->r, e)->tag_id,
                                   .device_ns = e->bytes,
                                   .gap_ns = gap,
                                   .first_word = b->p->word_count}));
  return add_word(b, e->addr);
}

/* Records the blocks that are live at the beginning of the step. */
static stow_status begin_step(builder *b, uint64_t time_ns) {
  spill_program *p = b->p;
  b->in_step = true;
  b->last_ns = time_ns;
  p->peak_live_bytes = b->live_bytes;
  p->initial = malloc((b->live.count + 1) * sizeof *p->initial);
  if (p->initial == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for blocks");
  if (b->live.count > 0) memcpy(p->initial, b->live.list, b->live.count * sizeof *p->initial);
  p->initial_count = b->live.count;
  return STOW_OK;
}

/* Makes the step end with the blocks it began with. */
static stow_status close_step(builder *b) {
  spill_program *p = b->p;
  live_list before = {p->initial, p->initial_count, p->initial_count};
  for (size_t i = 0; i < b->live.count; i++) {
    const spill_block *was = live_find(&before, b->live.list[i].addr);
    if (was == NULL || was->addr != b->live.list[i].addr || was->bytes != b->live.list[i].bytes)
      STOW_TRY(add_op(p, (spill_op){.kind = SPILL_FREE,
                                    .addr = b->live.list[i].addr,
                                    .bytes = b->live.list[i].bytes}));
  }
  for (size_t i = 0; i < p->initial_count; i++) {
    const spill_block *is = live_find(&b->live, p->initial[i].addr);
    if (is == NULL || is->addr != p->initial[i].addr || is->bytes != p->initial[i].bytes)
      STOW_TRY(add_op(p, (spill_op){.kind = SPILL_ALLOC,
                                    .addr = p->initial[i].addr,
                                    .bytes = p->initial[i].bytes}));
  }
  return STOW_OK;
}

static stow_status build(builder *b, size_t first, size_t end) {
  const recording *r = b->r;
  for (size_t i = 0; i < end; i++) {
    const event *e = &r->events[i];
    if (i == first)
      STOW_TRY(begin_step(b, e->kind == EVENT_MARK_BEGIN || i == 0 ? e->time_ns
                                                                   : r->events[i - 1].time_ns));
    if (!is_of(r, e, b->device)) continue;
    bool begin = begins(b, e);
    if (begin || ends(e->kind)) STOW_TRY(add_block(b, e, begin));
    if (!b->in_step) continue;
    if (e->kind == EVENT_LAUNCH) STOW_TRY(add_launch(b, e));
    if (e->kind == EVENT_TOUCH && b->p->op_count > 0 &&
        b->p->ops[b->p->op_count - 1].kind == SPILL_LAUNCH)
      STOW_TRY(add_word(b, e->addr));
  }
  return close_step(b);
}

/* ---- pools ---- */

/* A block of which launches name more words than this, and whose rest is at least a quarter, is a
 * pool such as JAX's: its rest is not used. */
enum { POOL_WORDS = 8 };
#define POOL_BYTES ((uint64_t)64 << 20)

/* Returns how much of a block is used: to the last of its words, and from there as much as is
 * between two others at most. 0: it is no pool. */
static uint64_t used_of(const spill_block *b, const uint64_t *words, size_t count) {
  uint64_t last = 0, widest = 0;
  size_t distinct = 0;
  for (size_t at = first_from(words, count, b->addr); at < count && words[at] - b->addr < b->bytes;
       at++) {
    if (words[at] == last) continue;
    if (distinct > 0 && words[at] - last > widest) widest = words[at] - last;
    last = words[at];
    distinct++;
  }
  if (distinct <= POOL_WORDS) return 0;
  uint64_t used = last - b->addr + widest;
  return used < b->bytes - b->bytes / 4 ? used : 0;
}

/* Replaces the bytes of a block wherever it is named. */
static void resize(spill_program *p, spill_block from, uint64_t bytes) {
  for (size_t i = 0; i < p->initial_count; i++)
    if (p->initial[i].addr == from.addr && p->initial[i].bytes == from.bytes)
      p->initial[i].bytes = bytes;
  for (size_t i = 0; i < p->op_count; i++)
    if (p->ops[i].kind != SPILL_LAUNCH && p->ops[i].addr == from.addr &&
        p->ops[i].bytes == from.bytes)
      p->ops[i].bytes = bytes;
  for (size_t i = 0; i < p->word_count; i++)
    if (p->word_blocks[i].addr == from.addr && p->word_blocks[i].bytes == from.bytes)
      p->word_blocks[i].bytes = bytes;
}

static uint64_t peak_of(const spill_program *p) {
  uint64_t live = 0, peak;
  for (size_t i = 0; i < p->initial_count; i++) live += p->initial[i].bytes;
  peak = live;
  for (size_t i = 0; i < p->op_count; i++) {
    if (p->ops[i].kind == SPILL_ALLOC) live += p->ops[i].bytes;
    if (p->ops[i].kind == SPILL_FREE) live -= p->ops[i].bytes;
    if (live > peak) peak = live;
  }
  return peak;
}

/* Leaves out what is not used of pools. PyTorch's blocks are known one by one. */
static stow_status cut_pools(spill_program *p) {
  if (p->torch || p->word_count == 0) return STOW_OK;
  uint64_t *words = malloc(p->word_count * sizeof *words), used, whole = peak_of(p);
  if (words == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for touches");
  memcpy(words, p->words, p->word_count * sizeof *words);
  qsort(words, p->word_count, sizeof *words, compare_u64);
  for (size_t i = 0; i < p->initial_count + p->op_count; i++) {
    const spill_op *op = i < p->initial_count ? NULL : &p->ops[i - p->initial_count];
    if (op != NULL && op->kind != SPILL_ALLOC) continue;
    spill_block b = op == NULL ? p->initial[i] : (spill_block){op->addr, op->bytes};
    if (b.bytes <= POOL_BYTES || (used = used_of(&b, words, p->word_count)) == 0) continue;
    resize(p, b, used);
  }
  free(words);
  p->unused_bytes = whole - peak_of(p);
  p->peak_live_bytes -= p->unused_bytes;
  return STOW_OK;
}

stow_status spill_program_build(spill_program *p, const recording *r, uint16_t device) {
  *p = (spill_program){.crossings = 2};
  const char *text = recording_fact(r, "bare_ns");
  if (text != NULL) p->bare_ns = strtoull(text, NULL, 10);
  text = recording_fact(r, "crossings");
  if (text != NULL && strcmp(text, "1") == 0) p->crossings = 1;
  p->torch = is_torch(r);
  size_t first = 0, end = r->event_count;
  bool found = find_marks(r, device, &first, &end);
  p->how = SPILL_STEP_MARKS;
  if (!found) {
    STOW_TRY(find_period(r, device, &first, &found));
    p->how = found ? SPILL_STEP_PERIOD : SPILL_STEP_WHOLE;
  }
  builder b = {.p = p, .r = r, .device = device};
  text = recording_fact(r, "host_ns");
  if (text != NULL) b.host_ns = strtoull(text, NULL, 10);
  stow_status status = list_blocks(r, device, &b.blocks, &b.block_count);
  if (status == STOW_OK) status = build(&b, first, end);
  if (status == STOW_OK) status = cut_pools(p);
  free(b.live.list);
  free(b.blocks);
  if (status == STOW_OK && (p->launch_count == 0 || p->word_count == 0))
    status = stow_fail(STOW_ERR_NOT_FOUND,
                       "the recording has no launches with touches; record it with `stowage run "
                       "--record FILE --touches -- PROGRAM`");
  return status;
}

void spill_program_free(spill_program *p) {
  free(p->ops);
  free(p->words);
  free(p->word_blocks);
  free(p->initial);
  *p = (spill_program){0};
}
