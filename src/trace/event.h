/* Event: the events of a trace and the tables they refer to. The recorder writes them; readers,
 * replay and reports use them.
 *
 * Times are in nanoseconds, sizes in bytes. Numbers called "..._id" are 1-based indexes into a
 * table; 0 means none or unknown. */
#ifndef TRACE_EVENT_H
#define TRACE_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum event_kind {
  EVENT_ALLOC = 0,      /* addr; bytes as requested by the program */
  EVENT_FREE_REQUESTED, /* the program freed it; other streams may still use it */
  EVENT_FREE,           /* the memory can be reused (PyTorch: free_completed) */
  EVENT_FAIL, /* out of memory. bytes: the request; addr: free bytes of the device as reported */
  EVENT_SEGMENT_ALLOC, /* the allocator got memory from the driver */
  EVENT_SEGMENT_FREE,
  EVENT_SEGMENT_MAP, /* memory from the driver, mapped into a range */
  EVENT_SEGMENT_UNMAP,
  EVENT_SNAPSHOT,   /* a snapshot was taken here */
  EVENT_MARK_BEGIN, /* start of the range named by tag_id */
  EVENT_MARK_END,
  EVENT_MIGRATE, /* the pages behind addr moved to `tier` */
  EVENT_SPILL,   /* new pages came from `tier` because vram was full */
  EVENT_LAUNCH, /* a kernel, copy or fill was started. tag_id: the function; addr: the first address
                 * in its parameters, 0: none; bytes: sampled device time in nanoseconds, 0:
                 * unknown */
  EVENT_TOUCH,  /* another address of the thread's last launch; bytes: length from there, 0:
                 * unknown */
  EVENT_KIND_COUNT
} event_kind;

/* 32 bytes, so ten million events take 320 MB. Data that many events share is stored once, in their
 * origin. */
typedef struct event {
  uint64_t time_ns;
  uint64_t addr;
  uint64_t bytes;
  uint32_t stack_id;
  uint32_t origin_id : 28;
  uint32_t kind : 4; /* event_kind */
} event;

/* Returns whether an event describes what a kernel uses rather than what the program allocates. */
static inline bool event_is_touch(uint8_t kind) {
  return kind == EVENT_LAUNCH || kind == EVENT_TOUCH;
}

typedef struct origin {
  uint64_t stream;
  uint32_t thread;
  uint32_t tag_id; /* index of a name */
  uint16_t device;
  uint8_t tier; /* a stow_tier */
} origin;

#define ORIGINS_MAX ((UINT32_C(1) << 28) - 1) /* the largest value that origin_id can hold */

typedef struct frame {
  uint32_t name_id, file_id; /* indexes of names */
  uint32_t line;
} frame;

typedef struct stack {
  uint64_t first; /* index into stack_frames */
  uint32_t count;
} stack;

typedef enum block_state { BLOCK_FREE = 0, BLOCK_LIVE = 1, BLOCK_PENDING = 2 } block_state;

typedef struct block {
  uint64_t addr, bytes, requested_bytes;
  uint32_t stack_id;
  uint8_t state; /* a block_state; PENDING: freed, but another stream may still use it */
} block;

typedef struct segment {
  uint64_t addr, bytes, stream;
  uint64_t first_block; /* index into blocks */
  uint32_t block_count;
  uint32_t stack_id;
  int64_t pool[2]; /* private pool ID; 0,0: the default pool */
  uint16_t device;
  bool small, expandable;
} segment;

#endif
