/* Disk: the tier for memory that is not needed for a while (stowage/heap.h, stow_heap_migrate).
 *
 * One unnamed file in the heap's disk folder: it disappears with the process, even if that crashes.
 * Only pages that belong to the allocation alone go there; its first and last bytes, on pages
 * shared with neighbours, stay where they are. Unused ranges of the file are returned to the file
 * system at once, if it supports that, and are reused first. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "memory/heap.h"

#include "base/newfile.h"

#define STAGE_BYTES (UINT64_C(4) << 20)

static stow_status disk_open(heap *h) {
  ASSERT(lock_held(&h->lock));
  if (h->disk.fd >= 0) return STOW_OK;
  if (!h->disk_folder)
    return stow_fail(STOW_ERR_UNSUPPORTED, "disk tier: the heap was opened without disk_folder");
  int fd = newfile_unnamed(h->disk_folder);
  if (fd < 0)
    return stow_fail(STOW_ERR_IO, "disk tier: a file in %s: %s", h->disk_folder, strerror(errno));
  h->disk.fd = fd;
  return STOW_OK;
}

void disk_close(heap *h) {
  if (h->disk.fd >= 0) close(h->disk.fd);
  map_free(&h->disk.extents);
  free(h->disk.holes);
}

/* Finds the slots of whole pages that belong to the span alone; with `gone`, those without a page
 * now. */
static bool own_slots(const arena *a, uint32_t i, bool gone, uint32_t *from, uint32_t *to) {
  uint32_t slot_units = 1u << a->slot_shift, begin = a->spans[i].at, end = begin + span_units(a, i);
  uint32_t low = (begin + slot_units - 1) >> a->slot_shift, high = end >> a->slot_shift;
  if (gone) {
    while (low < high && a->slots[low]) low++;
    while (low < high && a->slots[high - 1]) high--;
  } else {
    if (low < high) {
      const page *g = pool_page(a->pool, a->slots[low] - 1);
      if (g->slot < low) low = g->slot + (1u << g->order);
    }
    if (low < high) {
      const page *g = pool_page(a->pool, a->slots[high - 1] - 1);
      if (g->slot + (1u << g->order) > high) high = g->slot;
    }
  }
  *from = low;
  *to = high;
  return low < high;
}

static stow_status file_io(int fd, bool write_it, char *buffer, uint64_t bytes, uint64_t offset) {
  while (bytes > 0) {
    ssize_t n = write_it ? pwrite(fd, buffer, bytes, (off_t)offset)
                         : pread(fd, buffer, bytes, (off_t)offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return stow_fail(STOW_ERR_IO, "disk tier: %s of %llu bytes: %s", write_it ? "write" : "read",
                       (unsigned long long)bytes, n < 0 ? strerror(errno) : "the file is short");
    buffer += n;
    bytes -= (uint64_t)n;
    offset += (uint64_t)n;
  }
  return STOW_OK;
}

/* Waits for copies, twice if the first wait fails: a running copy must not outlive its buffer. */
static stow_status sync_twice(heap *h) {
  char why[256];
  stow_status status = device_stream_sync(h->device, h->mover_stream);
  if (status == STOW_OK) return STOW_OK;
  snprintf(why, sizeof why, "%s", stow_status_message());
  device_stream_sync(h->device, h->mover_stream);
  return stow_fail(status, "%s", why);
}

static stow_status transfer(heap *h, stow_addr addr, uint64_t bytes, uint64_t offset, bool out) {
  ASSERT(lock_held(&h->lock));
  ASSERT(bytes > 0);
  char *stage = malloc(STAGE_BYTES);
  if (!stage) return stow_fail(STOW_ERR_HOST_MEMORY, "disk tier: no host memory for a copy buffer");
  stow_status status = STOW_OK;
  for (uint64_t done = 0; done < bytes && status == STOW_OK; done += STAGE_BYTES) {
    uint64_t part = bytes - done < STAGE_BYTES ? bytes - done : STAGE_BYTES;
    stow_addr host = (stow_addr)(uintptr_t)stage;
    if (!out) status = file_io(h->disk.fd, false, stage, part, offset + done);
    if (status == STOW_OK)
      status = device_copy(h->device, out ? host : addr + done, out ? addr + done : host, part,
                           h->mover_stream);
    if (status == STOW_OK) status = sync_twice(h);
    if (status == STOW_OK && out) status = file_io(h->disk.fd, true, stage, part, offset + done);
  }
  free(stage);
  return status;
}

/* ---- the file's space ---- */

static uint64_t space_reserve(disk *d, uint64_t bytes) {
  ASSERT(bytes > 0);
  for (uint32_t i = 0; i < d->hole_count; i++) {
    hole *o = &d->holes[i];
    if (o->bytes < bytes) continue;
    uint64_t offset = o->offset;
    o->offset += bytes;
    o->bytes -= bytes;
    if (o->bytes == 0) memmove(o, o + 1, (--d->hole_count - i) * sizeof *o);
    return offset;
  }
  d->end += bytes;
  return d->end - bytes;
}

/* Without memory to record it, the space is unusable until the heap is closed; its blocks were
 * already returned to the file system. */
static void hole_add(disk *d, uint64_t offset, uint64_t bytes) {
  ASSERT(bytes > 0);
  uint32_t i = 0;
  while (i < d->hole_count && d->holes[i].offset < offset) i++;
  if (i > 0 && d->holes[i - 1].offset + d->holes[i - 1].bytes == offset) {
    d->holes[--i].bytes += bytes;
  } else {
    if (d->hole_count == d->hole_capacity) {
      uint32_t capacity = d->hole_capacity ? d->hole_capacity * 2 : 16;
      hole *grown = realloc(d->holes, capacity * sizeof *grown);
      if (!grown) return;
      d->holes = grown;
      d->hole_capacity = capacity;
    }
    memmove(&d->holes[i + 1], &d->holes[i], (d->hole_count++ - i) * sizeof d->holes[0]);
    d->holes[i] = (hole){offset, bytes};
  }
  hole *o = &d->holes[i];
  if (i + 1 < d->hole_count && o->offset + o->bytes == o[1].offset) {
    o->bytes += o[1].bytes;
    memmove(o + 1, o + 2, (--d->hole_count - i - 1) * sizeof *o);
  }
  if (o->offset + o->bytes == d->end) { /* then it is the last extent */
    d->end = o->offset;
    d->hole_count--;
  }
}

static void space_return(heap *h, uint64_t offset, uint64_t bytes) {
  (void)!fallocate(h->disk.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                   (off_t)bytes);
  hole_add(&h->disk, offset, bytes);
}

/* ---- moving to disk and back ---- */

stow_status disk_put(heap *h, const place *at) {
  ASSERT(lock_held(&h->lock));
  arena *a = at->arena;
  uint32_t from, to;
  STOW_TRY(disk_open(h));
  STOW_TRY(migrate_stream(h));
  if (!own_slots(a, at->span, false, &from, &to))
    return stow_fail(
        STOW_ERR_UNSUPPORTED,
        "disk tier: the allocation of %llu bytes shares all its pages with other allocations",
        (unsigned long long)at->bytes);
  uint64_t bytes = (to - from) * a->pool->page_bytes;
  stow_addr addr = a->base + from * a->pool->page_bytes;
  uint64_t offset = space_reserve(&h->disk, bytes);
  stow_status status = transfer(h, addr, bytes, offset, true);
  if (status == STOW_OK) status = map_put(&h->disk.extents, span_addr(a, at->span), offset);
  if (status == STOW_OK) status = device_unmap(h->device, addr, bytes);
  if (status != STOW_OK) {
    map_remove(&h->disk.extents, span_addr(a, at->span), NULL);
    space_return(h, offset, bytes);
    return status;
  }
  h->disk.live_bytes += bytes;
  for (uint32_t slot = from; slot < to;) {
    uint32_t index = a->slots[slot] - 1;
    page *g = pool_page(a->pool, index);
    uint32_t n = 1u << g->order;
    atomic_fetch_sub(&g->maps, 1);
    a->coarse -= g->order > 0;
    for (uint32_t k = 0; k < n; k++) a->slots[slot + k] = 0;
    pool_put(a->pool, index);
    slot += n;
  }
  *at->mark |= MARK_DISK;
  heap_note(h, STOW_EVENT_MIGRATE, span_addr(a, at->span), bytes, STOW_TIER_DISK);
  return STOW_OK;
}

/* Maps new pages of `tier` at slots [from, to). *mapped receives how far it got. */
static stow_status map_fresh(heap *h, arena *a, stow_tier tier, uint32_t from, uint32_t to,
                             uint32_t *mapped) {
  for (*mapped = from; *mapped < to;) {
    uint8_t o = h->pool.order_max;
    while (o > 0 && ((*mapped & ((1u << o) - 1)) != 0 || (1u << o) > to - *mapped)) o--;
    uint32_t index;
    STOW_TRY(pool_get(&h->pool, &index, tier, o));
    page *g = pool_page(&h->pool, index);
    stow_status status = order_wait(&h->order, g->ticket);
    if (status == STOW_OK)
      status = device_map(h->device, a->base + *mapped * a->pool->page_bytes, g->bytes, g->handle);
    if (status != STOW_OK) {
      pool_put(&h->pool, index);
      return status;
    }
    atomic_fetch_add(&g->maps, 1);
    a->coarse += g->order > 0;
    g->slot = *mapped;
    g->arena = a->id;
    for (uint32_t n = 1u << g->order; n > 0; n--) a->slots[(*mapped)++] = index + 1;
  }
  return device_access(h->device, a->base + from * a->pool->page_bytes,
                       (to - from) * a->pool->page_bytes);
}

static void unmap_fresh(heap *h, arena *a, uint32_t from, uint32_t to) {
  for (uint32_t slot = from; slot < to;) {
    uint32_t index = a->slots[slot] - 1;
    page *g = pool_page(&h->pool, index);
    uint32_t n = 1u << g->order;
    if (device_unmap(h->device, a->base + slot * a->pool->page_bytes, g->bytes) == STOW_OK) {
      atomic_fetch_sub(&g->maps, 1);
      a->coarse -= g->order > 0;
      for (uint32_t k = 0; k < n; k++) a->slots[slot + k] = 0;
      pool_put(&h->pool, index);
    }
    slot += n;
  }
}

stow_status disk_get(heap *h, const place *at, stow_tier tier) {
  ASSERT(lock_held(&h->lock));
  ASSERT((unsigned)tier < POOL_TIERS);
  arena *a = at->arena;
  uint64_t ptr = span_addr(a, at->span), *offset = map_get(&h->disk.extents, ptr);
  uint32_t from, to, mapped;
  STOW_TRY(migrate_stream(h));
  if (!offset || !own_slots(a, at->span, true, &from, &to))
    return stow_fail(STOW_ERR_STATE, "disk tier: 0x%llx is not on disk", (unsigned long long)ptr);
  uint64_t bytes = (to - from) * a->pool->page_bytes;
  stow_status status = map_fresh(h, a, tier, from, to, &mapped);
  if (status == STOW_OK)
    status = transfer(h, a->base + from * a->pool->page_bytes, bytes, *offset, false);
  if (status != STOW_OK) {
    unmap_fresh(h, a, from, mapped);
    return status;
  }
  space_return(h, *offset, bytes);
  h->disk.live_bytes -= bytes;
  map_remove(&h->disk.extents, ptr, NULL);
  *at->mark &= ~MARK_DISK;
  if (tier != (stow_tier)a->tier) *at->mark |= MARK_MOVED;
  heap_note(h, STOW_EVENT_MIGRATE, ptr, bytes, tier);
  return STOW_OK;
}

void disk_forget(heap *h, const place *at) {
  ASSERT(lock_held(&h->lock));
  const arena *a = at->arena;
  uint64_t offset;
  uint32_t from, to;
  if (!map_remove(&h->disk.extents, span_addr(a, at->span), &offset) ||
      !own_slots(a, at->span, true, &from, &to))
    return;
  uint64_t bytes = (to - from) * a->pool->page_bytes;
  space_return(h, offset, bytes);
  h->disk.live_bytes -= bytes;
}
