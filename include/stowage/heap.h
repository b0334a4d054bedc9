/* Heap: the allocator of one device.
 *
 * Allocates device memory ordered by stream: memory freed on a stream is reusable there at once,
 * and on another stream only after an event. A request fails only if there are not enough pages:
 * the limit minus the pages of live allocations, after waiting for all pending frees.
 *
 *   stow_heap *heap;
 *   stow_heap_options options = STOW_HEAP_OPTIONS_INIT;
 *   options.device_name = "sim:4G";
 *   stow_heap_open(&heap, &options);
 *   uint64_t ptr;
 *   stow_heap_alloc(&ptr, heap, 64 << 20, stream);
 *   stow_heap_free(heap, ptr, stream);
 *   stow_heap_close(heap);
 *
 * Threads: all functions are thread-safe; stow_heap_close must be the last call. The handle of a
 * closed heap stays safe to pass: every call returns STOW_ERR_STATE. Fork: a child must not use or
 * close its parent's heap. */
#ifndef STOWAGE_HEAP_H
#define STOWAGE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stowage/device.h>
#include <stowage/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stow_heap stow_heap;

/* Called around a move of live memory: after `close` returns, submit no work that uses the heap's
 * memory until `open` is called. The heap waits for earlier work on the streams of the allocation
 * and those of stow_heap_record_stream; other streams continue. Part of the options: it never
 * grows. */
typedef struct stow_heap_gate {
  void (*close)(void *user);
  void (*open)(void *user);
  void *user;
} stow_heap_gate;

typedef struct stow_heap_options {
  uint32_t struct_bytes;       /* sizeof(stow_heap_options) */
  uint32_t background;         /* 1: background threads create, release and move pages */
  stow_device *device;         /* borrowed; NULL: opened by name and closed with the heap */
  const char *device_name;     /* used when `device` is NULL (see stowage/device.h) */
  uint64_t vram_limit_bytes;   /* most bytes of vram pages held; 0: the device's size */
  uint64_t host_limit_bytes;   /* most bytes of host pages held: the spill budget; 0: no spill */
  uint64_t page_bytes_max;     /* largest page to create, a power of two; 0: 64 MiB */
  uint64_t reserve_bytes;      /* vram pages that the background thread creates ahead of need */
  uint64_t host_reserve_bytes; /* host pages that the background thread creates ahead of need */
  const char *disk_folder;     /* where the disk tier keeps its file; NULL: no disk tier */
  stow_heap_gate gate;         /* without callbacks, only stow_heap_migrate moves memory, never the
                                * background thread */
} stow_heap_options;
#define STOW_HEAP_OPTIONS_INIT                                                                     \
  {                                                                                                \
    sizeof(stow_heap_options), 1, NULL, NULL, 0, 0, 0, 0, 0, NULL, {                               \
      NULL, NULL, NULL                                                                             \
    }                                                                                              \
  }

/* Every size is rounded up to a multiple of this. */
#define STOW_HEAP_UNIT UINT64_C(512)

STOW_API stow_status stow_heap_open(stow_heap **heap, const stow_heap_options *options);

/* Closes the heap: waits for the events of freed memory and releases every page. Frees live
 * allocations and then returns STOW_ERR_STATE with their count. NULL is allowed. */
STOW_API stow_status stow_heap_close(stow_heap *heap);

/* Allocates `bytes` > 0, aligned to 512, for use on `stream`. The contents are undefined.
 * STOW_ERR_OUT_OF_MEMORY: stow_heap_last_failure has the numbers. */
STOW_API stow_status stow_heap_alloc(uint64_t *ptr, stow_heap *heap, uint64_t bytes,
                                     stow_stream stream);

/* Allocates memory aligned to `align`, a power of two up to the device's page size (2 MiB). */
STOW_API stow_status stow_heap_alloc_aligned(uint64_t *ptr, stow_heap *heap, uint64_t bytes,
                                             uint64_t align, stow_stream stream);

/* Frees an allocation. Only work already submitted to `stream` and to the streams of
 * stow_heap_record_stream may still use it. 0 is allowed and does nothing. */
STOW_API stow_status stow_heap_free(stow_heap *heap, uint64_t ptr, stow_stream stream);

/* Declares that `stream` uses an allocation of another stream: after the free its memory is not
 * reused until the work submitted to `stream` by then is done. */
STOW_API stow_status stow_heap_record_stream(stow_heap *heap, uint64_t ptr, stow_stream stream);

/* Releases cached pages of both tiers until at most `keep_bytes` are cached. Stores the released
 * bytes in `*released` (may be NULL). Waits for events if a page's old address is still in use. */
STOW_API stow_status stow_heap_trim(stow_heap *heap, uint64_t keep_bytes, uint64_t *released);

/* Sets how many bytes of pages of a tier the heap may hold. STOW_ERR_STATE: live allocations hold
 * more than that; the limit is unchanged. */
STOW_API stow_status stow_heap_set_limit(stow_heap *heap, stow_tier tier, uint64_t bytes);

/* Moves the pages behind an allocation to another tier; address and contents stay. A page shared
 * with other live allocations moves only if the heap has a gate; otherwise that page stays and the
 * rest moves. Do not submit new work that uses the allocation until the call returns; the call
 * waits for earlier work. On error nothing has moved, unless the device is lost.
 *
 * To STOW_TIER_DISK: the address is unusable until it is migrated back. */
STOW_API stow_status stow_heap_migrate(stow_heap *heap, uint64_t ptr, stow_tier tier);

/* A hint for the background mover about an allocation. */
typedef enum stow_heap_heat {
  STOW_HEAT_NORMAL = 0,
  STOW_HEAT_HOT = 1, /* brought back to vram first */
  STOW_HEAT_COLD = 2 /* brought back only by stow_heap_migrate */
} stow_heap_heat;
STOW_API stow_status stow_heap_set_heat(stow_heap *heap, uint64_t ptr, stow_heap_heat heat);

/* Moves spilled allocations back to vram while there is capacity, hot ones first; the background
 * thread does the same. Capacity is what the limit leaves plus pages that trimming set aside; hot
 * allocations may also use the heap's free pages. Needs a gate, or a caller that submits no work
 * during the call. */
STOW_API stow_status stow_heap_bring_back(stow_heap *heap, uint64_t *moved_bytes);

/* ---- numbers ---- */

typedef struct stow_heap_tier_stats {
  uint64_t limit_bytes;
  uint64_t held_bytes;   /* all pages the heap holds */
  uint64_t live_bytes;   /* allocated and not freed, rounded to 512 */
  uint64_t pinned_bytes; /* pages with live allocations */
  uint64_t cached_bytes; /* pages not mapped at any address */
  uint64_t peak_held_bytes, peak_live_bytes;
  uint64_t reserved[3];
} stow_heap_tier_stats;

typedef struct stow_heap_stats {
  uint32_t struct_bytes; /* sizeof(stow_heap_stats), set by the caller */
  uint32_t streams;
  stow_heap_tier_stats tier[STOW_TIER_COUNT];
  uint64_t live_count, pending_count; /* live allocations; frees that wait for an event */
  uint64_t pending_bytes;
  uint64_t alloc_total, free_total, fail_total;
  uint64_t page_creates, page_releases, maps, unmaps, accesses;
  uint64_t stitches;    /* requests served by moving free pages under a new range */
  uint64_t event_waits; /* times the host waited for an event */
  uint64_t migrated_bytes, spilled_bytes;
  uint64_t metadata_bytes; /* host memory of the heap's own tables */
} stow_heap_stats;
#define STOW_HEAP_TIER_STATS_INIT                                                                  \
  {                                                                                                \
    0, 0, 0, 0, 0, 0, 0, {                                                                         \
      0, 0, 0                                                                                      \
    }                                                                                              \
  }
#define STOW_HEAP_STATS_INIT                                                                       \
  {                                                                                                \
    sizeof(stow_heap_stats), 0,                                                                    \
        {STOW_HEAP_TIER_STATS_INIT, STOW_HEAP_TIER_STATS_INIT, STOW_HEAP_TIER_STATS_INIT}, 0, 0,   \
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                                                   \
  }
STOW_API stow_status stow_heap_get_stats(stow_heap *heap, stow_heap_stats *stats);

/* Why the heap's latest request failed. */
typedef struct stow_heap_failure {
  uint32_t struct_bytes; /* sizeof(stow_heap_failure), set by the caller */
  uint32_t reserved;
  uint64_t asked_bytes;
  uint64_t needed_page_bytes; /* pages missing at the best address range */
  uint64_t limit_bytes;       /* the vram limit */
  uint64_t held_bytes, live_bytes, pinned_bytes, cached_bytes;
  uint64_t device_free_bytes; /* free bytes as the driver reports them; less than limit - held:
                               * other processes hold memory */
  uint64_t host_limit_bytes, host_held_bytes;
  uint64_t largest_free_bytes; /* longest run of free bytes with pages behind it */
  uint64_t live_count;
} stow_heap_failure;
#define STOW_HEAP_FAILURE_INIT                                                                     \
  { sizeof(stow_heap_failure), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
STOW_API stow_status stow_heap_last_failure(stow_heap *heap, stow_heap_failure *failure);

/* One live allocation, filled by the library. */
typedef struct stow_heap_entry {
  uint32_t struct_bytes; /* the size in the library that filled it */
  uint32_t tag;          /* name: stow_tag_name */
  uint64_t ptr, bytes;   /* bytes rounded to 512 */
  stow_stream stream;
  stow_tier tier; /* tier of its first page */
  stow_heap_heat heat;
} stow_heap_entry;
/* Called for each live allocation. Returns false to stop. Must not call the heap. */
typedef bool (*stow_heap_visit)(void *user, const stow_heap_entry *entry);
STOW_API stow_status stow_heap_each(stow_heap *heap, stow_heap_visit visit, void *user);

/* Checks every data structure. Returns STOW_ERR_STATE and describes the first error. Slow: for
 * tests. */
STOW_API stow_status stow_heap_check(stow_heap *heap);

/* Returns the heap's device. */
STOW_API stow_device *stow_heap_device(stow_heap *heap);

#ifdef __cplusplus
}
#endif
#endif
