/* Work on the simulated device: which bytes it uses, and the race check.
 *
 * Every granule of a page records the uses that later work must be ordered after. New work on the
 * same bytes that is not ordered after such a use (sim_stream.c), where one of the two writes, is a
 * violation: on a GPU it would corrupt memory. It is counted, rejected and described. A use is
 * forgotten once the host knows that it is done, or once a later, ordered use covers it, so a long
 * run keeps no long history.
 *
 * The bytes of a copy or fill move at the call, in call order. For ordered work the result is the
 * same as on a GPU, and unordered work is rejected; only a host that reads a result without waiting
 * sees it too early. Host memory that is not the device's is not tracked. */
#include "base/assert.h"
#include "device/sim_state.h"

#include <stdlib.h>
#include <string.h>

#include <stowage/size.h>

#include "base/checked.h"

/* ---- iterating over the pages of an address range ---- */

/* The part of one granule that an iteration has reached. */
typedef struct piece {
  sim_page *page;
  uint64_t granule;
  uint32_t lo, hi;
  stow_addr addr;
} piece;

typedef struct walk {
  sim *s;
  sim_range *range;
  stow_addr at, end;
  uint64_t head; /* slot where the current page begins */
} walk;

static stow_status violation(sim *s) {
  s->counts.violations++;
  return STOW_ERR_VIOLATION;
}

static uint64_t walk_slot(const walk *w) {
  return (w->at - w->range->addr) / w->s->options.page_bytes;
}

/* Starts an iteration over [addr, addr+bytes), which must be inside one range. */
static stow_status walk_begin(walk *w, sim *s, stow_addr addr, uint64_t bytes) {
  *w = (walk){.s = s, .range = sim_range_at(s, addr), .at = addr, .end = addr + bytes};
  if (w->range == NULL || bytes > w->range->bytes - (addr - w->range->addr)) {
    stow_fail(STOW_ERR_VIOLATION,
              "work on %llu bytes at 0x%llx: they are not inside one range of the device; map "
              "pages there first",
              (unsigned long long)bytes, (unsigned long long)addr);
    return violation(s);
  }
  if (w->range->plain != 0) return STOW_OK;
  w->head = walk_slot(w);
  while (w->head > 0 && w->range->slots[w->head] != 0 &&
         (w->range->slots[w->head] & SIM_SLOT_HEAD) == 0)
    w->head--;
  return STOW_OK;
}

/* Returns the next piece; `*more` is false at the end. STOW_ERR_VIOLATION if the device has no
 * access. */
static stow_status walk_next(walk *w, piece *p, bool *more) {
  ASSERT(w->at <= w->end);
  *more = w->at < w->end;
  if (!*more) return STOW_OK;
  uint64_t unit = w->s->options.page_bytes, offset = w->at - w->range->addr;
  if (w->range->plain != 0) {
    p->page = &w->s->pages[w->range->plain - 1];
    p->granule = offset / unit;
  } else {
    uint64_t slot = walk_slot(w);
    uint32_t behind = w->range->slots[slot];
    if ((behind & SIM_SLOT_ACCESS) == 0) {
      stow_fail(STOW_ERR_VIOLATION,
                "work on address 0x%llx, which %s; map a page there and grant access before the "
                "work, and unmap it only after",
                (unsigned long long)w->at,
                behind == 0 ? "has no page mapped" : "the device has no access to");
      return violation(w->s);
    }
    if (behind & SIM_SLOT_HEAD) w->head = slot;
    p->page = &w->s->pages[(behind & SIM_SLOT_PAGE) - 1];
    p->granule = slot - w->head;
  }
  p->addr = w->at;
  p->lo = (uint32_t)(offset % unit);
  uint64_t left = w->end - w->at, room = unit - p->lo;
  p->hi = p->lo + (uint32_t)(left < room ? left : room);
  w->at += p->hi - p->lo;
  return STOW_OK;
}

/* ---- what a granule records ---- */

static bool host_knows(const sim *s, const sim_record *r) {
  return sim_clock_at(&s->host, r->slot) >= r->seq;
}

static stow_status race(sim *s, const piece *p, uint32_t slot, bool writes, const sim_record *r) {
  char size[STOW_SIZE_TEXT_MAX];
  stow_fail(STOW_ERR_VIOLATION,
            "work on stream %u would %s %s at 0x%llx (%s) while work %llu of stream %u, which %s "
            "them, is not ordered before it; record an event after that work and make this stream "
            "or the host wait for it",
            slot, writes ? "write" : "read", stow_size_format(size, p->hi - p->lo),
            (unsigned long long)p->addr, stow_tier_name((stow_tier)p->page->tier),
            (unsigned long long)r->seq, r->slot, r->writes ? "writes" : "reads");
  return violation(s);
}

/* First pass over a piece: checks for races and reserves memory to record the use (twice: a copy
 * may reach one granule from both ends). Nothing after this can fail. */
static stow_status piece_check(sim *s, const piece *p, uint32_t slot, bool writes) {
  ASSERT(p->lo < p->hi);
  ASSERT(slot < s->stream_count);
  if (p->page->granules == NULL) {
    uint64_t count = (p->page->bytes + s->options.page_bytes - 1) / s->options.page_bytes;
    p->page->granules = calloc(count, sizeof *p->page->granules);
    if (p->page->granules == NULL)
      return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to track work on a page");
  }
  sim_granule *g = &p->page->granules[p->granule];
  const sim_clock *clock = &s->streams[slot].clock;
  for (uint32_t i = 0; i < g->count;) {
    sim_record *r = &g->records[i];
    if (host_knows(s, r)) {
      *r = g->records[--g->count];
      continue;
    }
    bool meets = r->lo < p->hi && p->lo < r->hi && (writes || r->writes);
    if (meets && sim_clock_at(clock, r->slot) < r->seq) return race(s, p, slot, writes, r);
    i++;
  }
  if (g->count + 2 > g->capacity) {
    uint32_t capacity = g->capacity == 0 ? 4 : g->capacity * 2;
    sim_record *records = realloc(g->records, capacity * sizeof *records);
    if (records == NULL)
      return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to track work on a page");
    g->records = records;
    g->capacity = capacity;
  }
  return STOW_OK;
}

/* Work ordered after the new use is ordered after `r` too, so `r` can be dropped where they
 * overlap. But an unfinished use through another address keeps that address mapped. */
static bool stands_for(const sim *s, const sim_record *fresh, const sim_record *r) {
  if (r->lo >= fresh->hi || fresh->lo >= r->hi) return false;
  if (!fresh->writes && (r->writes || r->slot != fresh->slot)) return false;
  return r->end_ns <= s->counts.now_ns || r->addr - r->lo == fresh->addr - fresh->lo;
}

/* Second pass: records the use. */
static void piece_add(sim *s, const piece *p, uint32_t slot, bool writes, uint64_t end_ns) {
  ASSERT(p->page->granules != NULL);
  ASSERT(slot < s->stream_count);
  sim_granule *g = &p->page->granules[p->granule];
  sim_record fresh = {.seq = s->streams[slot].seq,
                      .end_ns = end_ns,
                      .addr = p->addr,
                      .lo = p->lo,
                      .hi = p->hi,
                      .slot = (uint16_t)slot,
                      .writes = writes};
  for (uint32_t i = 0; i < g->count;) {
    sim_record *r = &g->records[i];
    if (stands_for(s, &fresh, r)) {
      if (r->lo >= fresh.lo && r->hi <= fresh.hi) {
        *r = g->records[--g->count];
        continue;
      }
      if (r->lo < fresh.lo && r->hi <= fresh.hi) {
        r->hi = fresh.lo;
      } else if (r->lo >= fresh.lo) {
        r->addr += fresh.hi - r->lo;
        r->lo = fresh.hi;
      }
    }
    i++;
  }
  g->records[g->count++] = fresh;
}

void sim_work_forget(sim *s, sim_page *page) {
  if (page->granules == NULL) return;
  uint64_t count = (page->bytes + s->options.page_bytes - 1) / s->options.page_bytes;
  for (uint64_t i = 0; i < count; i++) free(page->granules[i].records);
  free(page->granules);
  page->granules = NULL;
}

stow_status sim_work_check_unmap(sim *s, const sim_page *page, stow_addr addr, uint64_t bytes) {
  ASSERT(lock_held(&s->lock));
  if (page->granules == NULL || s->busy_ns <= s->counts.now_ns) return STOW_OK;
  uint64_t count = page->bytes / s->options.page_bytes;
  for (uint64_t i = 0; i < count; i++) {
    for (uint32_t k = 0; k < page->granules[i].count; k++) {
      const sim_record *r = &page->granules[i].records[k];
      if (r->end_ns <= s->counts.now_ns || r->addr - addr >= bytes) continue;
      stow_fail(
          STOW_ERR_VIOLATION,
          "unmapping 0x%llx while work %llu of stream %u still %s it for %llu us; wait for an "
          "event recorded after that work first",
          (unsigned long long)r->addr, (unsigned long long)r->seq, r->slot,
          r->writes ? "writes" : "reads",
          (unsigned long long)((r->end_ns - s->counts.now_ns + 999) / 1000));
      return violation(s);
    }
  }
  return STOW_OK;
}

/* ---- one piece of work: up to two uses ---- */

typedef struct use {
  stow_addr addr;
  bool writes;
} use;

/* Checks all uses of `bytes` each; counts those on the host tier in `host_bytes[i]`. */
static stow_status work_check(sim *s, uint32_t slot, const use *uses, int count, uint64_t bytes,
                              uint64_t *host_bytes) {
  ASSERT(lock_held(&s->lock));
  for (int i = 0; i < count; i++) {
    walk w;
    piece p;
    bool more;
    host_bytes[i] = 0;
    STOW_TRY(walk_begin(&w, s, uses[i].addr, bytes));
    for (;;) {
      STOW_TRY(walk_next(&w, &p, &more));
      if (!more) break;
      STOW_TRY(piece_check(s, &p, slot, uses[i].writes));
      if (p.page->tier == STOW_TIER_HOST) host_bytes[i] += p.hi - p.lo;
    }
  }
  return STOW_OK;
}

/* Everything is checked: adds the work to its stream. */
static void work_submit(sim *s, uint32_t slot, const use *uses, int count, uint64_t bytes,
                        uint64_t ns) {
  ASSERT(lock_held(&s->lock));
  ASSERT(slot < s->stream_count);
  sim_stream *stream = &s->streams[slot];
  uint64_t start = stream->ready_ns > s->counts.now_ns ? stream->ready_ns : s->counts.now_ns, end;
  if (!checked_add(&end, start, ns)) end = UINT64_MAX;
  stream->ready_ns = end;
  if (end > s->busy_ns) s->busy_ns = end;
  stream->clock.at[slot] = ++stream->seq;
  for (int i = 0; i < count; i++) {
    walk w;
    piece p;
    bool more = true;
    if (walk_begin(&w, s, uses[i].addr, bytes) != STOW_OK) return;
    while (walk_next(&w, &p, &more) == STOW_OK && more) piece_add(s, &p, slot, uses[i].writes, end);
  }
}

stow_status sim_work_submit(sim *s, stow_stream stream, stow_addr addr, uint64_t bytes,
                            stow_sim_use how, uint64_t us) {
  ASSERT(lock_held(&s->lock));
  uint64_t ns, end, host_bytes;
  if (bytes == 0 || !checked_add(&end, addr, bytes) ||
      (how != STOW_SIM_READ && how != STOW_SIM_WRITE))
    return stow_fail(STOW_ERR_INVALID, "work on %llu bytes at 0x%llx, use %d: not a use of memory",
                     (unsigned long long)bytes, (unsigned long long)addr, (int)how);
  if (!checked_mul(&ns, us, 1000))
    return stow_fail(STOW_ERR_OVERFLOW,
                     "work of %llu us exceeds the simulated clock, which holds 584 years",
                     (unsigned long long)us);
  uint32_t slot;
  use uses[1] = {{addr, how == STOW_SIM_WRITE}};
  STOW_TRY(sim_stream_slot(s, &slot, stream));
  STOW_TRY(work_check(s, slot, uses, 1, bytes, &host_bytes));
  work_submit(s, slot, uses, 1, bytes, ns);
  return STOW_OK;
}

/* ---- copies and fills ---- */

/* Returns true if [addr, addr+bytes) touches addresses of the device; false if it is host
 * memory. */
static bool is_device_memory(const sim *s, stow_addr addr, uint64_t bytes) {
  if (sim_range_at(s, addr) != NULL) return true;
  const sim_range *next = sim_range_after(s, addr);
  return next != NULL && next->addr - addr < bytes;
}

static stow_status copy(sim *s, stow_addr to, stow_addr from, uint64_t bytes, stow_stream stream) {
  ASSERT(lock_held(&s->lock));
  uint32_t slot;
  STOW_TRY(sim_stream_slot(s, &slot, stream));
  if (bytes == 0) return STOW_OK;
  uint64_t end;
  if (to == 0 || from == 0 || !checked_add(&end, to, bytes) || !checked_add(&end, from, bytes))
    return stow_fail(STOW_ERR_INVALID,
                     "copying %llu bytes from 0x%llx to 0x%llx: invalid addresses",
                     (unsigned long long)bytes, (unsigned long long)from, (unsigned long long)to);
  if (to < from ? from - to < bytes : to - from < bytes)
    return stow_fail(STOW_ERR_INVALID,
                     "copying %llu bytes from 0x%llx to 0x%llx: the two overlap; copy in parts",
                     (unsigned long long)bytes, (unsigned long long)from, (unsigned long long)to);
  use uses[2];
  uint64_t host_bytes[2] = {0, 0}, bus_bytes = 0;
  int count = 0;
  if (is_device_memory(s, from, bytes)) uses[count++] = (use){from, false};
  if (is_device_memory(s, to, bytes)) uses[count++] = (use){to, true};
  STOW_TRY(work_check(s, slot, uses, count, bytes, host_bytes));
  for (int i = 0; i < count; i++)
    if (host_bytes[i] > bus_bytes) bus_bytes = host_bytes[i];
  if (count < 2) bus_bytes = bytes;
  work_submit(s, slot, uses, count, bytes, sim_cost_move_ns(bus_bytes, bytes - bus_bytes));
  if (!s->options.paper) memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
  s->counts.copy++;
  return STOW_OK;
}

stow_status sim_copy(stow_device *device, stow_addr to, stow_addr from, uint64_t bytes,
                     stow_stream stream) {
  sim *s = sim_lock(device);
  return sim_unlock(s, copy(s, to, from, bytes, stream));
}

static stow_status fill(sim *s, stow_addr to, uint8_t value, uint64_t bytes, stow_stream stream) {
  ASSERT(lock_held(&s->lock));
  uint32_t slot;
  STOW_TRY(sim_stream_slot(s, &slot, stream));
  if (bytes == 0) return STOW_OK;
  uint64_t end, host_bytes;
  if (to == 0 || !checked_add(&end, to, bytes))
    return stow_fail(STOW_ERR_INVALID, "filling %llu bytes at 0x%llx: invalid addresses",
                     (unsigned long long)bytes, (unsigned long long)to);
  use uses[1] = {{to, true}};
  STOW_TRY(work_check(s, slot, uses, 1, bytes, &host_bytes));
  work_submit(s, slot, uses, 1, bytes, sim_cost_move_ns(host_bytes, bytes - host_bytes));
  if (!s->options.paper) memset((void *)(uintptr_t)to, value, bytes);
  s->counts.copy++;
  return STOW_OK;
}

stow_status sim_fill(stow_device *device, stow_addr to, uint8_t value, uint64_t bytes,
                     stow_stream stream) {
  sim *s = sim_lock(device);
  return sim_unlock(s, fill(s, to, value, bytes, stream));
}
