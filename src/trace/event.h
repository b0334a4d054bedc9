/* Events of a trace and the tables they refer to, as the recorder writes them and every reader,
 * replay and report takes them.
 *
 * Times are nanoseconds, sizes bytes. Numbers called "..._id" are 1-based indexes into a table; 0
 * means none or unknown. */
#ifndef TRACE_EVENT_H
#define TRACE_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum event_kind {
  EVENT_ALLOC = 0,      /* addr, bytes as requested by the program */
  EVENT_FREE_REQUESTED, /* the program gave it up; other streams may still use it */
  EVENT_FREE,           /* it is reusable (PyTorch: free_completed) */
  EVENT_FAIL, /* out of memory: bytes asked; addr holds the bytes free on the device, as told */
  EVENT_SEGMENT_ALLOC, /* the allocator took memory from the driver */
  EVENT_SEGMENT_FREE,
  EVENT_SEGMENT_MAP, /* …by mapping into a range */
  EVENT_SEGMENT_UNMAP,
  EVENT_SNAPSHOT,   /* a snapshot was taken here */
  EVENT_MARK_BEGIN, /* annotation named by tag_id */
  EVENT_MARK_END,
  EVENT_MIGRATE, /* the pages behind addr moved to `tier` */
  EVENT_SPILL,   /* new pages came from `tier` because vram was full */
  EVENT_LAUNCH, /* a kernel, copy or fill was started. tag_id: the function; addr: the first address
                   its parameters name, 0 for none; bytes: its sampled device time in nanoseconds,
                   0 if unknown */
  EVENT_TOUCH,  /* a further address of the thread's last launch; bytes from there, 0 if unknown */
  EVENT_KIND_COUNT
} event_kind;

/* 32 bytes; a recording of ten million events is 320 MB. What most events share with others stands
 * once, in their origin. */
typedef struct event {
  uint64_t time_ns;
  uint64_t addr;
  uint64_t bytes;
  uint32_t stack_id;
  uint32_t origin_id : 28;
  uint32_t kind : 4; /* event_kind */
} event;

/* Launches and touches describe what kernels use, not what the program allocates. */
static inline bool event_is_touch(uint8_t kind) {
  return kind == EVENT_LAUNCH || kind == EVENT_TOUCH;
}

typedef struct origin {
  uint64_t stream;
  uint32_t thread;
  uint32_t tag_id; /* a name */
  uint16_t device;
  uint8_t tier; /* stow_tier's numbers */
} origin;

#define ORIGINS_MAX ((UINT32_C(1) << 28) - 1) /* what origin_id can tell apart */

typedef struct frame {
  uint32_t name_id, file_id; /* names */
  uint32_t line;
} frame;

typedef struct stack {
  uint64_t first; /* into stack_frames */
  uint32_t count;
} stack;

typedef enum block_state { BLOCK_FREE = 0, BLOCK_LIVE = 1, BLOCK_PENDING = 2 } block_state;

typedef struct block {
  uint64_t addr, bytes, requested_bytes;
  uint32_t stack_id;
  uint8_t state; /* block_state; PENDING: freed, waiting for another stream */
} block;

typedef struct segment {
  uint64_t addr, bytes, stream;
  uint64_t first_block; /* into blocks */
  uint32_t block_count;
  uint32_t stack_id;
  int64_t pool[2]; /* private pool id; 0,0 the ordinary one */
  uint16_t device;
  bool small, expandable;
} segment;

#endif
