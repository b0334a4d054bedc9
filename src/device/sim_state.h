/* The simulated device, internal: one structure, and what its files share.
 *
 *   sim.c           opening and closing, properties, the function table
 *   sim_controls.c  the clock, the counters and submitted work, for tests
 *   sim_spec.c      parses "16G,host=32G,paper" into options
 *   sim_capacity.c  the tiers and how much of each is used
 *   sim_memory.c    the bytes: a sparse memfd per device; reserving, mapping, dropping
 *   sim_tree.c      address ranges, in a tree by address
 *   sim_range.c     reserving addresses, and plain blocks
 *   sim_page.c      pages: create, map, grant, unmap, release
 *   sim_stream.c    streams and events: simulated time and order
 *   sim_work.c      work: what it touches, the race check, copies and fills
 *   sim_cost.c      what a call costs on a GPU
 *
 * `lock` guards everything below. Functions declared here expect it held unless they take a
 * stow_device. */
#ifndef DEVICE_SIM_STATE_H
#define DEVICE_SIM_STATE_H

#include "base/driver_cost.h"
#include "base/lock.h"
#include "device/device.h"

/* ---- work, as a page records it ---- */

/* One use of bytes [lo, hi) of a granule by the work `seq` of stream slot `slot`. */
typedef struct sim_record {
  uint64_t seq;
  uint64_t end_ns; /* when the work is done */
  stow_addr addr;  /* the address through which it reached `lo` */
  uint32_t lo, hi;
  uint16_t slot;
  bool writes;
} sim_record;

/* The uses of one granule (page_bytes of a page) that later work must be ordered after. */
typedef struct sim_granule {
  sim_record *records;
  uint32_t count, capacity;
} sim_granule;

/* ---- pages and ranges ---- */

typedef struct sim_page {
  uint64_t bytes, offset; /* offset in the memfd */
  sim_granule *granules;  /* one per page_bytes; NULL until work uses the page */
  uint32_t maps;          /* number of addresses it is mapped at */
  uint32_t generation;    /* counts the reuses of this entry, so that stale handles are detected */
  uint32_t next_free;     /* while not live: the next such entry + 1 */
  uint8_t tier;
  bool live;
  bool touched; /* access was granted once: the memfd may hold bytes for it */
} sim_page;

/* A slot of a reserved range: the backing of page_bytes of addresses. */
#define SIM_SLOT_HEAD   UINT32_C(0x80000000) /* a page begins here */
#define SIM_SLOT_ACCESS UINT32_C(0x40000000)
#define SIM_SLOT_PAGE   UINT32_C(0x3fffffff) /* index of the page + 1; 0: nothing */

typedef struct sim_range {
  struct sim_range *left, *right; /* a treap: by address, and by priority downwards */
  uint64_t priority;
  stow_addr addr;
  uint64_t bytes;
  uint32_t *slots; /* for a reserved range: one slot per page_bytes */
  uint32_t plain;  /* for a plain block: its page's index + 1; 0: a reserved range */
  uint64_t mapped; /* slots with a page */
} sim_range;

/* ---- order and time ---- */

/* The work of each stream known to come before: 1..at[slot]. Entries past `count` are 0. */
typedef struct sim_clock {
  uint64_t *at;
  uint32_t count;
} sim_clock;

#define SIM_STREAMS_MAX 4096

typedef struct sim_stream {
  uint64_t seq;          /* work submitted to this slot, by all streams that ever used it */
  uint64_t ready_ns;     /* when all of it is done */
  sim_clock clock;       /* what its next work is ordered after */
  uint64_t host_version; /* version of the host's clock that was last merged into this one */
  uint32_t generation;
  bool live;
} sim_stream;

typedef struct sim_event {
  sim_clock clock;
  uint64_t ready_ns;
  uint32_t generation;
  uint32_t next_free; /* while not live: the next such entry + 1 */
  bool live;
} sim_event;

typedef struct sim {
  stow_device base; /* first member: a stow_device is a sim */
  lock lock;
  stow_sim_options options; /* constant once open */
  int fd;                   /* the memfd; -1 with options.paper */
  uint64_t file_bytes;      /* its length, far beyond the capacity: offsets are never reused */
  uint64_t file_next;       /* the next page's offset */

  sim_page *pages;
  uint32_t page_count, page_capacity, page_free; /* page_free: first free entry + 1 */
  uint64_t pages_live, mappings_live;

  sim_range *ranges;
  uint64_t ranges_live, plain_live, reserved_bytes;
  stow_addr paper_next; /* with options.paper: the next address to assign */
  uint64_t random;

  sim_stream *streams; /* slot 0 is the default stream */
  uint32_t stream_count;
  sim_event *events;
  uint32_t event_count, event_capacity, event_free;
  uint64_t streams_live, events_live;
  sim_clock host;        /* what the host knows to be done */
  uint64_t host_version; /* counts its changes */
  uint64_t busy_ns;      /* when all work of all streams is done */

  driver_call last_call;  /* DRIVER_CALLS: none yet */
  stow_sim_counts counts; /* now_ns is the clock */
} sim;

static inline sim *sim_lock(stow_device *device) {
  sim *s = (sim *)(void *)device;
  lock_acquire(&s->lock);
  return s;
}
static inline stow_status sim_unlock(sim *s, stow_status status) {
  lock_release(&s->lock);
  return status;
}

/* Returns the simulated device that `device` is or wraps (fault); NULL otherwise. */
sim *sim_of(stow_device *device);
extern const stow_device_ops sim_ops;

/* ---- sim_capacity.c ---- */
stow_status sim_memory(stow_device *device, stow_tier tier, uint64_t *free_bytes,
                       uint64_t *total_bytes);
/* Checks that the tier exists. */
stow_status sim_check_tier(const sim *s, stow_tier tier);
/* Checks that pages are available (not with options.no_vmm); `what` was requested. */
stow_status sim_check_vmm(const sim *s, const char *what);
/* Use and release `bytes` of a tier's capacity. STOW_ERR_OUT_OF_MEMORY: the tier is full. */
stow_status sim_charge(sim *s, stow_tier tier, uint64_t bytes);
void sim_uncharge(sim *s, stow_tier tier, uint64_t bytes);

/* ---- sim_memory.c: no-ops with options.paper ---- */
stow_status sim_memory_open(sim *s);
void sim_memory_close(sim *s);
stow_status sim_memory_reserve(sim *s, stow_addr *addr, uint64_t bytes, uint64_t align);
void sim_memory_unreserve(sim *s, stow_addr addr, uint64_t bytes);
stow_status sim_memory_offset(sim *s, uint64_t *offset, uint64_t bytes);
stow_status sim_memory_map(sim *s, stow_addr addr, uint64_t bytes, uint64_t offset);
stow_status sim_memory_unmap(sim *s, stow_addr addr, uint64_t bytes);
stow_status sim_memory_access(sim *s, stow_addr addr, uint64_t bytes);
stow_status sim_memory_drop(sim *s, uint64_t offset, uint64_t bytes);

/* ---- sim_tree.c ---- */
/* Returns the range that contains `addr`, or NULL. */
sim_range *sim_range_at(const sim *s, stow_addr addr);
/* Returns the first range that begins at or after `addr`, or NULL. */
sim_range *sim_range_after(const sim *s, stow_addr addr);
/* Reserve addresses for a new range of `bytes` and add it to the tree; remove and free it. */
stow_status sim_range_add(sim *s, sim_range **out, uint64_t bytes, uint64_t align, uint64_t slots);
void sim_range_remove(sim *s, sim_range *range);
void sim_range_free_all(sim *s);

/* ---- sim_range.c ---- */
stow_status sim_reserve(stow_device *device, stow_addr *addr, uint64_t bytes, uint64_t align);
stow_status sim_unreserve(stow_device *device, stow_addr addr, uint64_t bytes);
stow_status sim_plain_alloc(stow_device *device, stow_addr *addr, uint64_t bytes, stow_tier tier);
stow_status sim_plain_free(stow_device *device, stow_addr addr);

/* ---- sim_page.c ---- */
/* Add a live page of `bytes` and charge its tier; remove it. */
stow_status sim_page_add(sim *s, uint32_t *index, uint64_t bytes, stow_tier tier);
stow_status sim_page_drop(sim *s, uint32_t index);
void sim_page_free_all(sim *s);
stow_status sim_page_create(stow_device *device, stow_page *page, uint64_t bytes, stow_tier tier);
stow_status sim_page_release(stow_device *device, stow_page page);
stow_status sim_map(stow_device *device, stow_addr addr, uint64_t bytes, stow_page page);
stow_status sim_unmap(stow_device *device, stow_addr addr, uint64_t bytes);
stow_status sim_access(stow_device *device, stow_addr addr, uint64_t bytes);

/* ---- sim_stream.c ---- */
stow_status sim_stream_open(sim *s);
void sim_stream_free_all(sim *s);
/* Returns the slot of a live stream, with the host's clock merged into the stream's. */
stow_status sim_stream_slot(sim *s, uint32_t *slot, stow_stream stream);
static inline uint64_t sim_clock_at(const sim_clock *clock, uint32_t slot) {
  return slot < clock->count ? clock->at[slot] : 0;
}
/* Waits on the host for all work of all streams. */
stow_status sim_wait_all(sim *s);
stow_status sim_stream_create(stow_device *device, stow_stream *stream);
stow_status sim_stream_destroy(stow_device *device, stow_stream stream);
stow_status sim_stream_sync(stow_device *device, stow_stream stream);
stow_status sim_stream_wait(stow_device *device, stow_stream stream, stow_event event);
stow_status sim_event_create(stow_device *device, stow_event *event);
stow_status sim_event_destroy(stow_device *device, stow_event event);
stow_status sim_event_record(stow_device *device, stow_event event, stow_stream stream);
stow_status sim_event_query(stow_device *device, stow_event event);
stow_status sim_event_wait(stow_device *device, stow_event event);

/* ---- sim_work.c ---- */
/* Returns STOW_ERR_VIOLATION if unfinished work uses `page` through addresses in [addr,
 * addr+bytes). */
stow_status sim_work_check_unmap(sim *s, const sim_page *page, stow_addr addr, uint64_t bytes);
void sim_work_forget(sim *s, sim_page *page);
/* Does stow_sim_submit with the lock held. */
stow_status sim_work_submit(sim *s, stow_stream stream, stow_addr addr, uint64_t bytes,
                            stow_sim_use how, uint64_t us);
stow_status sim_copy(stow_device *device, stow_addr to, stow_addr from, uint64_t bytes,
                     stow_stream stream);
stow_status sim_fill(stow_device *device, stow_addr to, uint8_t value, uint64_t bytes,
                     stow_stream stream);

/* ---- sim_cost.c ---- */
/* Returns the modelled time of `call` on one page or block of `bytes`; `nth` counts the pages of
 * one call from 0. */
uint64_t sim_cost_ns(const sim *s, driver_call call, uint64_t bytes, stow_tier tier, uint64_t nth);
/* Returns the surcharge for the whole call while a stream is busy. */
uint64_t sim_cost_busy_ns(const sim *s, driver_call call);
/* Charges the time of a call. Does nothing with costs off. */
void sim_cost_charge(sim *s, driver_call call, uint64_t ns);
/* Returns how long a copy or fill occupies its stream, for bytes that cross the bus and bytes that
 * stay on the device. */
uint64_t sim_cost_move_ns(uint64_t bus_bytes, uint64_t vram_bytes);

#endif
