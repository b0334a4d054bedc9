/* Trace: the ordered record of a program's memory requests, written while it runs.
 *
 * An open trace always has a ring: the last N MiB of events, in memory that another process can
 * read, complete up to the last event even if this process is killed at any instruction. With a
 * record_path it also writes every event to a .stow file; events older than 100 ms are in the file,
 * and the ring holds the rest.
 *
 * Recording an event takes no lock and makes no system call, except for the first event of a
 * thread. A trace never stops the program: if the disk is full, it stops writing the file, logs
 * that once, and the ring continues.
 *
 * Threads: any number may record. Fork: a child records nothing into its parent's trace; one that
 * wants a trace opens its own. */
#ifndef STOWAGE_TRACE_H
#define STOWAGE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stowage/heap.h>
#include <stowage/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stow_trace stow_trace;

typedef enum stow_trace_kind {
  STOW_TRACE_ALLOC = 0,      /* addr; bytes as requested */
  STOW_TRACE_FREE_REQUESTED, /* the program freed it; other streams may still use it */
  STOW_TRACE_FREE,           /* the memory can be reused */
  STOW_TRACE_FAIL,           /* out of memory. bytes: the request; addr: the free bytes of the
                              * device */
  STOW_TRACE_SEGMENT_ALLOC,  /* memory taken from the driver */
  STOW_TRACE_SEGMENT_FREE,
  STOW_TRACE_SEGMENT_MAP, /* memory from the driver, mapped as pages into a range */
  STOW_TRACE_SEGMENT_UNMAP,
  STOW_TRACE_SNAPSHOT,
  STOW_TRACE_MARK_BEGIN, /* start of the range named by `tag` */
  STOW_TRACE_MARK_END,
  STOW_TRACE_MIGRATE, /* the pages behind addr moved to `tier` */
  STOW_TRACE_SPILL,   /* new pages came from `tier` because vram was full */
  STOW_TRACE_LAUNCH,  /* see stow_trace_launch, which records these two */
  STOW_TRACE_TOUCH,
  STOW_TRACE_KIND_COUNT
} stow_trace_kind;

/* One event; time and thread are added by the call that records it. This struct never grows. */
typedef struct stow_trace_record {
  uint64_t addr;
  uint64_t bytes;
  uint64_t stream;
  uint32_t stack; /* from stow_trace_stack; 0: none */
  uint32_t tag;   /* from stow_trace_tag; 0: none */
  uint16_t device;
  uint8_t kind; /* stow_trace_kind */
  uint8_t tier; /* stow_tier */
  uint32_t reserved;
} stow_trace_record;

/* One frame of a stack: a source line by name, or (name NULL) a native address, which is resolved
 * to symbol and library when it is first seen. This struct never grows. */
typedef struct stow_trace_frame {
  const char *name;
  const char *file;
  uint32_t line;
  uint32_t reserved;
  const void *address;
} stow_trace_frame;

typedef struct stow_trace_options {
  uint32_t struct_bytes;   /* sizeof(stow_trace_options) */
  uint32_t reserved;       /* 0 */
  const char *record_path; /* a new .stow file for every event; NULL: the ring only */
  const char *ring_path;   /* a new file for the ring, preferably on a tmpfs (for a memfd of another
                            * process: /proc/self/fd/N); NULL: memory that ends with the process */
  uint64_t ring_bytes;     /* size of the ring; 0: 32 MiB (700,000 events); 64 KiB to 64 GiB */
  uint64_t text_bytes;     /* limit for names, frames and stacks; 0: 32 MiB; 64 KiB to 1 GiB */
} stow_trace_options;
#define STOW_TRACE_OPTIONS_INIT                                                                    \
  { sizeof(stow_trace_options), 0, NULL, NULL, 0, 0 }

/* Opens a trace; NULL options are the defaults. At most 16 are open in one process. STOW_ERR_STATE:
 * a path already exists (it may be the only copy of another run), or 16 traces are open;
 * STOW_ERR_IO: the folder cannot be written or the disk has no room for the ring. */
STOW_API stow_status stow_trace_open(stow_trace **trace, const stow_trace_options *options);

/* Writes the remaining events and closes the trace. Events that other threads record during the
 * call are dropped. Returns the error that stopped the file, if any; the trace is closed in any
 * case. STOW_ERR_STATE: it was not open. NULL is allowed. */
STOW_API stow_status stow_trace_close(stow_trace *trace);

/* Records one event, from any thread. Never fails and never waits in the ring; with a record_path
 * it waits for the file, up to 2 s, when the whole ring is not yet written. The trace counts events
 * that it could not keep. Does nothing after close, and in a child after fork: a child opens its
 * own trace. In a signal handler that interrupted this function, only counts the event as
 * skipped. */
STOW_API void stow_trace_event(stow_trace *trace, const stow_trace_record *record);

/* One memory range that a launch may touch. */
typedef struct stow_trace_touch {
  uint64_t addr;
  uint64_t bytes; /* length from addr; 0: unknown, as for a kernel parameter */
} stow_trace_touch;

/* A launch. Later versions add members at the end; struct_bytes says which members the caller
 * has. */
typedef struct stow_trace_launch_info {
  uint32_t struct_bytes; /* sizeof(stow_trace_launch_info) */
  uint32_t function;     /* from stow_trace_tag: the kernel's name, "memcpy" or "memset" */
  uint64_t device_ns; /* duration on the device, or that of an earlier launch of the same function;
                       * 0: unknown */
  uint64_t stream;
  uint32_t device;
  uint32_t reserved;               /* 0 */
  const stow_trace_touch *touches; /* the memory that its parameters point to */
  uint64_t touch_count;
} stow_trace_launch_info;
#define STOW_TRACE_LAUNCH_INFO_INIT                                                                \
  { sizeof(stow_trace_launch_info), 0, 0, 0, 0, 0, NULL, 0 }

/* Records the start of a kernel, copy or fill and what it may touch. Call it from the launching
 * thread, just before the launch. Same guarantees as stow_trace_event; a launch without touches is
 * one event, every touch after the first adds one. STOW_ERR_INVALID: a struct_bytes below 4,
 * members of a newer library that are not 0, or touches NULL. */
STOW_API stow_status stow_trace_launch(stow_trace *trace, const stow_trace_launch_info *launch);

/* Marks the start or the end of a named range: an iteration, a phase. */
STOW_API stow_status stow_trace_mark_begin(stow_trace *trace, const char *name);
STOW_API stow_status stow_trace_mark_end(stow_trace *trace, const char *name);

/* Returns the number of a tag name; equal names have equal numbers. STOW_ERR_BUDGET: text_bytes is
 * used up; `*tag` is 0, which can be recorded. */
STOW_API stow_status stow_trace_tag(stow_trace *trace, const char *name, uint32_t *tag);

/* Returns the number of a stack, innermost frame first. `key` (not 0) identifies its content: the
 * caller hashes code pointers and line numbers. A known key costs one lookup without a lock, and
 * the frames are not read. With key 0 the stack is looked up by content. Keeps the innermost 512
 * frames. Errors: as for a tag. */
STOW_API stow_status stow_trace_stack(stow_trace *trace, uint64_t key,
                                      const stow_trace_frame *frames, size_t count,
                                      uint32_t *stack);
/* Returns the number for a known key, 0 for an unknown one. Call this before you walk a stack. */
STOW_API uint32_t stow_trace_stack_find(stow_trace *trace, uint64_t key);

/* Records a fact about the process, a device or the allocator ("device.0.name", "NVIDIA H200"). */
STOW_API stow_status stow_trace_fact(stow_trace *trace, const char *key, const char *value);

/* Records the events of a heap: allocations, frees, mapped and unmapped pages, moves, failures,
 * with their tags, and the heap's device as a fact. A free is recorded as completed at once, as it
 * is on its own stream. Remove the heap before you close the trace; removing waits until no thread
 * is recording. STOW_ERR_NOT_FOUND: the heap was not added. */
STOW_API stow_status stow_trace_add_heap(stow_trace *trace, stow_heap *heap);
STOW_API stow_status stow_trace_remove_heap(stow_trace *trace, stow_heap *heap);

/* Waits until everything recorded before the call is in the file; returns at once if there is no
 * file. Returns the error that stopped the file, if any. */
STOW_API stow_status stow_trace_flush(stow_trace *trace);

typedef struct stow_trace_stats {
  uint32_t struct_bytes;   /* sizeof(stow_trace_stats), set by the caller */
  uint32_t threads;        /* threads that recorded an event */
  uint64_t skipped_events; /* events lost because the ring was full while the file was behind */
  uint64_t written_events; /* events in the file */
  uint64_t ring_bytes;     /* bytes kept for events */
  uint64_t text_bytes;     /* used by names, frames and stacks */
  uint32_t recording;      /* 1: the file is being written */
  uint32_t reserved;
} stow_trace_stats;
#define STOW_TRACE_STATS_INIT                                                                      \
  { sizeof(stow_trace_stats), 0, 0, 0, 0, 0, 0, 0 }
STOW_API stow_status stow_trace_get_stats(stow_trace *trace, stow_trace_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
