/* Heap: the allocator of one device.
 *
 * It hands out addresses the device can use, ordered by stream: memory freed on a stream is
 * reusable on it at once, on another only after its event. A request fails only if the pages it
 * needs are not there: the limit, less the pages held by live allocations, after everything pending
 * has been waited for.
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
 * Threads: any thread may call anything at any time; stow_heap_close must be the last. The handle
 * of a closed heap stays safe to pass: every call returns STOW_ERR_STATE. Fork: a child must not
 * use or close its parent's heap. */
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

/* Called around a move of live memory: after `close` returns, nothing that uses the heap's memory
 * may be submitted until `open` is called. Work submitted before is waited for on the streams the
 * memory was allocated for and those told by stow_heap_record_stream; other streams run on. Part of
 * the options: it never grows. */
typedef struct stow_heap_gate {
  void (*close)(void *user);
  void (*open)(void *user);
  void *user;
} stow_heap_gate;

typedef struct stow_heap_options {
  uint32_t struct_bytes;       /* sizeof(stow_heap_options) */
  uint32_t background;         /* 1: own threads create, release and move pages */
  stow_device *device;         /* borrowed; NULL: opened by name and closed with the heap */
  const char *device_name;     /* used when `device` is NULL (see stowage/device.h) */
  uint64_t vram_limit_bytes;   /* most bytes of vram pages held; 0: the device's size */
  uint64_t host_limit_bytes;   /* most bytes of host pages held: the spill budget; 0: no spill */
  uint64_t page_bytes_max;     /* largest page made; 0: 64 MiB. A power of two */
  uint64_t reserve_bytes;      /* vram pages made ahead of need by the background thread */
  uint64_t host_reserve_bytes; /* host pages made ahead of need by the background thread */
  const char *disk_folder;     /* where the disk tier keeps its file; NULL: no disk tier */
  stow_heap_gate gate; /* both NULL: only stow_heap_migrate moves memory, never the background */
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

/* Ends it: waits for the events of what was freed, gives every page back. Allocations still live
 * are freed, and told with their count as STOW_ERR_STATE. NULL is fine. */
STOW_API stow_status stow_heap_close(stow_heap *heap);

/* `bytes` > 0 at an address that is a multiple of 512, for use on `stream`. The contents are
 * undefined. STOW_ERR_OUT_OF_MEMORY: stow_heap_last_failure has the numbers. */
STOW_API stow_status stow_heap_alloc(uint64_t *ptr, stow_heap *heap, uint64_t bytes,
                                     stow_stream stream);

/* The same at a multiple of `align`, a power of two up to the device's page (2 MiB). */
STOW_API stow_status stow_heap_alloc_aligned(uint64_t *ptr, stow_heap *heap, uint64_t bytes,
                                             uint64_t align, stow_stream stream);

/* Frees it. The work submitted to `stream` so far may still use it, as may that of streams told by
 * stow_heap_record_stream; nothing else. Zero is fine and does nothing. */
STOW_API stow_status stow_heap_free(stow_heap *heap, uint64_t ptr, stow_stream stream);

/* Tells that `stream` uses an allocation made for another one: its memory is not used again before
 * the work `stream` has at the time of the free is done. */
STOW_API stow_status stow_heap_record_stream(stow_heap *heap, uint64_t ptr, stow_stream stream);

/* Gives back cached pages of both tiers until at most `keep_bytes` are cached. `*released` (may be
 * NULL) is what went back. Waits for events where a page's old address is still in use. */
STOW_API stow_status stow_heap_trim(stow_heap *heap, uint64_t keep_bytes, uint64_t *released);

/* Changes how many bytes of pages of a tier the heap may hold. STOW_ERR_STATE if live allocations
 * hold more than that: then the limit stays as it was. */
STOW_API stow_status stow_heap_set_limit(stow_heap *heap, stow_tier tier, uint64_t bytes);

/* Moves the pages behind an allocation to another tier; address and contents stay. A page shared
 * with other live allocations moves only if the heap has a gate; else it stays and only the rest
 * moves. From the call until it returns, no new work may be submitted that uses the allocation;
 * work already submitted is waited for. Either all of it moved, or nothing did.
 *
 * To STOW_TIER_DISK: the address is unusable until it is migrated back. */
STOW_API stow_status stow_heap_migrate(stow_heap *heap, uint64_t ptr, stow_tier tier);

/* What the mover should know about an allocation. */
typedef enum stow_heap_heat {
  STOW_HEAT_NORMAL = 0,
  STOW_HEAT_HOT = 1, /* brought back to vram first */
  STOW_HEAT_COLD = 2 /* never brought back on its own */
} stow_heap_heat;
STOW_API stow_status stow_heap_set_heat(stow_heap *heap, uint64_t ptr, stow_heap_heat heat);

/* Brings spilled allocations back to vram while there is room, hot ones first; what the background
 * thread does on its own. Room is what the limit leaves and what trimming put aside; for hot ones
 * also pages that lie free in the heap. Needs a gate or a caller that submits nothing meanwhile. */
STOW_API stow_status stow_heap_bring_back(stow_heap *heap, uint64_t *moved_bytes);

/* ---- numbers ---- */

typedef struct stow_heap_tier_stats {
  uint64_t limit_bytes;
  uint64_t held_bytes;   /* pages there are */
  uint64_t live_bytes;   /* asked for and not freed, rounded to 512 */
  uint64_t pinned_bytes; /* pages that live allocations touch */
  uint64_t cached_bytes; /* pages behind no address */
  uint64_t peak_held_bytes, peak_live_bytes;
  uint64_t reserved[3];
} stow_heap_tier_stats;

typedef struct stow_heap_stats {
  uint32_t struct_bytes; /* sizeof(stow_heap_stats), set by the caller */
  uint32_t streams;
  stow_heap_tier_stats tier[STOW_TIER_COUNT];
  uint64_t live_count, pending_count; /* allocations; frees that wait for an event */
  uint64_t pending_bytes;
  uint64_t alloc_total, free_total, fail_total;
  uint64_t page_creates, page_releases, maps, unmaps, accesses;
  uint64_t stitches;    /* requests served by moving free pages under a new range */
  uint64_t event_waits; /* times the host waited for an event */
  uint64_t migrated_bytes, spilled_bytes;
  uint64_t book_bytes; /* memory of our own behind all this */
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
  uint64_t needed_page_bytes; /* pages that the best place still lacked */
  uint64_t limit_bytes;       /* of vram */
  uint64_t held_bytes, live_bytes, pinned_bytes, cached_bytes;
  uint64_t device_free_bytes; /* what the driver said was left; less than limit - held means that
                                 others hold the device */
  uint64_t host_limit_bytes, host_held_bytes;
  uint64_t largest_free_bytes; /* longest run of free bytes with pages behind it */
  uint64_t live_count;
} stow_heap_failure;
#define STOW_HEAP_FAILURE_INIT                                                                     \
  { sizeof(stow_heap_failure), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
STOW_API stow_status stow_heap_last_failure(stow_heap *heap, stow_heap_failure *failure);

/* One live allocation. Made by the library. */
typedef struct stow_heap_entry {
  uint32_t struct_bytes; /* of the library that made it */
  uint32_t tag;          /* stow_tag_name */
  uint64_t ptr, bytes;   /* bytes rounded to 512 */
  stow_stream stream;
  stow_tier tier; /* where its first page is */
  stow_heap_heat heat;
} stow_heap_entry;
/* Return false to stop. The heap must not be called from it. */
typedef bool (*stow_heap_visit)(void *user, const stow_heap_entry *entry);
STOW_API stow_status stow_heap_each(stow_heap *heap, stow_heap_visit visit, void *user);

/* Looks at every structure; STOW_ERR_STATE with the first thing that is wrong. Dear: for tests. */
STOW_API stow_status stow_heap_check(stow_heap *heap);

/* The device it stands on. */
STOW_API stow_device *stow_heap_device(stow_heap *heap);

#ifdef __cplusplus
}
#endif
#endif
