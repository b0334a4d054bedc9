/* Heap, internal: lanes (one per stream), lookup of addresses, and the slow paths.
 *
 * Lock order: the heap's lock (moving pages, opening lanes), then the lock of one lane (spans and
 * slabs of one stream). The hot path takes only the lock of its lane. A thread never holds two lane
 * locks. Listeners run without locks. */
#ifndef MEMORY_HEAP_H
#define MEMORY_HEAP_H

#include <pthread.h>

#include <stowage/events.h>
#include <stowage/heap.h>
#include <stowage/tag.h>

#include "base/hash.h"
#include "memory/latch.h"
#include "memory/slab.h"

#define LANES_MAX   256
#define STREAM_HASH 512 /* power of two, > LANES_MAX */

typedef struct heap heap;

/* A stream's memory on one tier. Requests below 256 KiB have an arena of their own, so that
 * long-lived small blocks do not split large holes. */
typedef struct room {
  arena fine, main;
  slabs slabs;
} room;
#define FINE_UNITS 512u /* 256 KiB: requests of this size and more use `main` */

/* A free that waits for events. */
typedef struct pending {
  uint64_t ptr, bytes;
  uint32_t count;
  stow_event *events; /* `count` events, allocated with malloc */
} pending;

/* Streams recorded by stow_heap_record_stream for one allocation. */
typedef struct recorded {
  uint32_t count, capacity;
  stow_stream streams[];
} recorded;

typedef struct lane {
  latch lock;
  uint16_t id;
  stow_stream stream;
  heap *heap;
  /* The span freed last, kept for a request of the same length; 0: none. It counts as free
   * everywhere: code that reads the arena calls lane_flush first. */
  uint32_t quick, quick_units;
  arena *quick_arena;
  /* The span that the last search found, and the state of its arena at that time (see
   * lane_keep). */
  uint32_t found, found_changes;
  arena *found_arena;
  uint64_t allocs, frees;
  uint64_t live[POOL_TIERS], peak[POOL_TIERS]; /* bytes */
  room rooms[POOL_TIERS];                      /* the host room is opened when first needed */
  pending *queue;                              /* ring buffer, oldest at head */
  uint32_t queue_head, queue_count, queue_capacity;
  uint32_t polled; /* calls since the oldest pending free was last checked */
  uint64_t pending_bytes;
  map recorded; /* ptr to recorded* */
} __attribute__((aligned(64))) lane;

/* Page events, sent to sinks when no lock is held. Guarded by the heap's lock. */
typedef struct note {
  stow_heap_event_kind kind;
  stow_addr ptr;
  uint64_t bytes;
  stow_tier tier;
} note;

typedef struct sink {
  _Atomic(stow_heap_sink) call;
  void *user;
  uint32_t mask;
  _Atomic uint32_t inside;
} sink;

typedef struct range {
  stow_addr base, end;
  lane *lane;
} range;

/* A free range of the disk tier's file. */
typedef struct hole {
  uint64_t offset, bytes;
} hole;

typedef struct disk {
  int fd; /* -1: not opened yet. The file has no name and disappears with the process */
  uint64_t end, live_bytes;
  map extents; /* ptr to offset in the file */
  hole *holes; /* ordered by offset; no two are adjacent, and none is at the end of the file */
  uint32_t hole_count, hole_capacity;
} disk;

struct heap {
  _Atomic int dead;           /* a stow_status once the device is lost */
  _Atomic uint32_t sink_mask; /* kinds of events that some sink wants */
  stow_heap *shell;
  stow_device *device;
  bool device_ours;
  stow_device_props props;
  pool pool;
  ordering order;
  lock lock;
  _Atomic(lane *) by_stream[STREAM_HASH];
  _Atomic(lane *) lanes[LANES_MAX];
  _Atomic uint32_t lane_count;
  range ranges[LANES_MAX * 2 * POOL_TIERS];
  _Atomic uint32_t range_count;
  uint16_t arena_count;
  sink sinks[STOW_SINKS_MAX];
  uint64_t host_limit;
  stow_heap_gate gate;
  char *disk_folder;
  disk disk;
  stow_stream mover_stream; /* NULL until something moves */
  stow_addr scratch;        /* addresses for filling a page; 0 until needed */
  uint64_t scratch_bytes;
  stow_heap_failure failure; /* guarded by lock */
  _Atomic uint64_t fails, stitches, migrated, spilled;
  note *notes; /* guarded by lock */
  uint32_t note_count, note_capacity;
  /* background */
  pthread_t thread;
  bool thread_runs;
  pthread_mutex_t wake_lock;
  pthread_cond_t wake;
  bool wake_now, stop; /* guarded by wake_lock */
  uint64_t reserve[POOL_TIERS];
  uint64_t idle_takes; /* used by the thread: pool.takes at its last round */
  uint32_t idle_looks; /* used by the thread: rounds since then without a change */
#ifdef STOWAGE_CHECKS
  map sites; /* caller of each allocation, by address; guarded by lock */
#endif
};

/* The public handle: never freed, so that a closed heap can be recognised. */
struct stow_heap {
  _Atomic(heap *) inner; /* NULL: closed */
  stow_heap *next;       /* list of all handles ever created */
};

/* Where an allocation is. */
typedef struct place {
  lane *lane;
  room *room;
  arena *arena;
  uint32_t span, block;
  slab *slab; /* NULL: the allocation is the span itself */
  uint64_t bytes;
  uint32_t *mark;
  stow_tier tier;
} place;

/* Sets flags of an allocation's mark. Lane locked. */
static inline void place_mark(const place *at, uint32_t flags) {
  *at->mark |= flags;
  if (at->slab) at->slab->odd = true;
}

/* ---- handle.c ---- */
stow_status heap_lose(heap *h, stow_status status); /* records that the device is lost; returns
                                                     * `status` */

/* Returns the heap of a handle; NULL if it is closed or its device is lost. */
static inline heap *heap_alive(const stow_heap *shell) {
  heap *h = shell ? atomic_load_explicit(&shell->inner, memory_order_acquire) : NULL;
  return h && atomic_load_explicit(&h->dead, memory_order_relaxed) == 0 ? h : NULL;
}
/* Returns the heap of a handle, or the reason as an error. */
stow_status heap_enter(heap **h, stow_heap *shell);
/* Wakes the background thread, if it runs. */
void background_kick(heap *h);

/* ---- lane.c ---- */
stow_status lane_of(lane **out, heap *h, stow_stream stream); /* opens the lane if it is new */

static inline uint64_t hash_stream(stow_stream stream) {
  return hash_u64((uint64_t)(uintptr_t)stream, 0) & (STREAM_HASH - 1);
}
/* Returns the lane of a stream if it is open. */
static inline lane *lane_look(heap *h, stow_stream stream) {
  for (uint64_t k = hash_stream(stream);; k = (k + 1) & (STREAM_HASH - 1)) {
    lane *l = atomic_load_explicit(&h->by_stream[k], memory_order_acquire);
    if (!l || l->stream == stream) return l;
  }
}
/* Returns the lane that an address belongs to, or NULL. */
static inline lane *lane_at(const heap *h, uint64_t ptr) {
  uint32_t n = atomic_load_explicit(&h->range_count, memory_order_acquire);
  for (uint32_t i = 0; i < n; i++)
    if (ptr - h->ranges[i].base < h->ranges[i].end - h->ranges[i].base) return h->ranges[i].lane;
  return NULL;
}
stow_status lane_room(lane *l, stow_tier tier); /* opens a room; the heap is locked */
stow_status lane_close(lane *l);
/* Finds the allocation at `ptr`; STOW_ERR_NOT_FOUND or STOW_ERR_STATE with the reason. Lane locked.
 */
stow_status lane_find(place *at, lane *l, uint64_t ptr);
/* Frees the allocation now. Lane locked; the heap too if its pages moved. */
void lane_release(lane *l, const place *at);
void lane_flush(lane *l); /* makes the kept span free; the lane is locked */

/* Returns whether a freed span may be kept for reuse without harming packing. A large span with a
 * free neighbour should be merged with it, so that the next request finds a hole that fits closely.
 * The exception: nothing has changed since the last search, so a new search would find the same
 * place. Keeping all spans tripled the page moves of a recorded training loop at its smallest
 * limit.
 * */
#define KEEP_UNITS 2048u /* 1 MiB: smaller holes do not matter for pages */
static inline bool lane_keeps(const lane *l, const arena *a, uint32_t i) {
  const span *s = &a->spans[i];
  return a->spans[s->next].at - s->at < KEEP_UNITS ||
         (l->found == i && l->found_arena == a && l->found_changes == a->changes) ||
         (span_state_of(&a->spans[s->next]) != SPAN_FREE &&
          (s->prev == 0 || span_state_of(&a->spans[s->prev]) != SPAN_FREE));
}
/* Frees live span i (no flags, in vram), or keeps it for the next request of its length. Lane
 * locked. */
static inline void lane_keep(lane *l, arena *a, uint32_t i) {
  span *s = &a->spans[i];
  if (l->quick) lane_flush(l);
  if (!lane_keeps(l, a, i)) {
    arena_free(a, i);
    return;
  }
  s->mark = SPAN_LIVE | MARK_QUICK;
  l->quick = i;
  l->quick_units = span_units(a, i);
  l->quick_arena = a;
}
/* Frees the allocation after the streams that use it pass this point. Steps that can fail come
 * first. Lane locked. */
stow_status lane_defer(pending *p, lane *l, const place *at, uint64_t ptr, stow_stream stream);
void lane_defer_done(lane *l, const place *at, pending *p);
/* Frees pending blocks whose events have passed; with `wait`, waits for all. Returns true if
 * something was freed. Lane locked. */
bool lane_poll(lane *l, bool wait, stow_status *status);
stow_status lane_check(lane *l);

/* ---- lane_alloc.c ---- */
typedef struct request {
  uint64_t bytes;
  uint32_t units, align, class; /* class 0: a span; otherwise the size class of a block */
  uint32_t mark;
  stow_tier tier;
  bool pinned; /* must stay on the tier */
} request;
/* The units and alignment to request from the arena: a slab is aligned, so that any address in it
 * identifies it. */
static inline uint32_t request_units(const request *r) {
  return r->class ? SLAB_UNITS : r->units;
}
static inline uint32_t request_align(const request *r) {
  return r->class ? SLAB_UNITS : r->align;
}
/* Takes a free block for the request; returns 0 if there is none. Lane locked. */
uint64_t lane_alloc(lane *l, const request *r, stow_tier tier);
/* Records live span i for the request, which got it by other means (for a small request: a whole
 * slab). Returns 0 and frees the span if there is no host memory for the slab. */
uint64_t lane_adopt(lane *l, const request *r, stow_tier tier, uint32_t i);
/* ---- grow.c ---- */
/* Handles a request for which nothing is free. No lock held. */
stow_status heap_grow(uint64_t *ptr, heap *h, lane *l, const request *r);

/* ---- settle.c ---- */
/* Moves free pages of a tier from one lane to the pool until `bytes` are there. Heap locked, lane
 * not. */
uint64_t lane_strip(lane *l, stow_tier tier, uint64_t bytes, bool wait_frees);
/* Moves free pages of a tier from every lane to the pool until `bytes` are there. Heap locked. */
uint64_t heap_strip(heap *h, stow_tier tier, uint64_t bytes, const lane *but);
/* Frees pending blocks whose events have passed. Heap locked. */
void heap_poll(heap *h, stow_status *status);
/* Does heap_poll and unmaps stale spans; with `wait`, waits for events. Heap locked. */
bool heap_settle(heap *h, bool wait, stow_status *status);

/* ---- events.c ---- */
uint64_t heap_emit(heap *h, const stow_heap_event *event);
void heap_note(heap *h, stow_heap_event_kind kind, stow_addr ptr, uint64_t bytes, stow_tier tier);
/* Releases the heap's lock and sends the page events to the sinks. */
void heap_unlock(heap *h);
static inline bool heap_has_listener(const heap *h, stow_heap_event_kind kind) {
  return atomic_load_explicit(&h->sink_mask, memory_order_relaxed) & STOW_EVENT_BIT(kind);
}

/* ---- tag.c ---- */
/* The top tag of this thread. */
typedef struct tag_top {
  uint32_t mark; /* as in span.mark; 0: none */
  bool pinned;   /* allocations must stay on the tier */
  uint8_t tier;
} tag_top;
extern _Thread_local tag_top tag_now;

/* ---- stats.c, trim.c ---- */
/* Does stow_heap_trim for one tier; `released` must not be NULL. */
stow_status heap_trim_tier(stow_heap *shell, stow_tier tier, uint64_t keep_bytes,
                           uint64_t *released);
void heap_count_tier(heap *h, stow_tier tier, stow_heap_tier_stats *out); /* the heap is locked */

/* ---- migrate.c, mover.c, disk.c ---- */
stow_status migrate_wait(heap *h, lane *l, uint64_t ptr, uint32_t mark);
/* Returns a moved span's pages on another tier to their pool, before the span is freed. Heap and
 * lane locked. */
stow_status migrate_undo_pages(heap *h, const place *at);
/* Opens the stream and the scratch addresses for copies, once. Heap locked. */
stow_status migrate_stream(heap *h);
stow_status disk_put(heap *h, const place *at);
stow_status disk_get(heap *h, const place *at, stow_tier tier);
void disk_forget(heap *h, const place *at); /* releases the file space of pages that are given up */
void disk_close(heap *h);

/* ---- background.c ---- */
stow_status background_start(heap *h);
void background_stop(heap *h);

#endif
