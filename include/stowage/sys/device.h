/* The seam to the machine: what a backend does for one device.
 *
 * For authors of backends (cuda, sim, fault, and the shim, which passes real driver pointers
 * through it). All code above uses a device only through this table and does not know the backend.
 *
 * Rules that hold for every entry:
 *  - Any thread may call any entry at any time unless the entry says otherwise. No entry calls
 *    upward.
 *  - A child of fork calls no entry of its parent's device.
 *  - It returns STOW_OK, or an error with the thread's message set. On error nothing has changed
 * unless the entry says so.
 *  - Addresses, sizes and alignments of pages and ranges are multiples of props.page_bytes. A
 * violation is STOW_ERR_INVALID.
 *  - STOW_ERR_OUT_OF_MEMORY means only that there are not enough bytes; STOW_ERR_DEVICE carries the
 * driver's message; STOW_ERR_DEVICE_LOST is final for the device.
 *  - A page is mapped whole, at as many addresses as wanted (aliases see the same bytes), and never
 * split. */
#ifndef STOWAGE_SYS_DEVICE_H
#define STOWAGE_SYS_DEVICE_H

#include <stowage/device.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t stow_addr; /* an address that the device can use; 0: none. `copy` also accepts any
                             * host pointer. */
typedef uint64_t stow_page; /* a physical handle; 0: none */
typedef void *stow_event;   /* a point in a stream's order; NULL: none */

typedef struct stow_device_ops {
  uint32_t struct_bytes; /* sizeof(stow_device_ops). The library calls no entry beyond it */
  uint32_t reserved;     /* 0 */

  /* Closes the device and frees it. The caller ensures that no other call runs or follows. Always
   * closes it; releases what the caller did not release, and then returns STOW_ERR_STATE with the
   * counts. */
  stow_status (*close)(stow_device *device);

  /* Fills `*props`, at most props->struct_bytes of it. Cheap: no driver call. Never fails on an
   * open device. */
  stow_status (*props)(const stow_device *device, stow_device_props *props);

  /* Returns the free and total bytes of a tier. Either pointer may be NULL. STOW_ERR_UNSUPPORTED:
   * the device does not have this tier. */
  stow_status (*memory)(stow_device *device, stow_tier tier, uint64_t *free_bytes,
                        uint64_t *total_bytes);

  /* ---- address ranges ---- */

  /* Reserves `bytes` > 0 of addresses aligned to `align` (0, or a power of two >= page_bytes), with
   * nothing mapped. Accessing them faults. STOW_ERR_OUT_OF_MEMORY: no such range is left. */
  stow_status (*reserve)(stow_device *device, stow_addr *addr, uint64_t bytes, uint64_t align);

  /* Releases a whole range exactly as it was reserved. Precondition: nothing is mapped in it
   * (else STOW_ERR_STATE). */
  stow_status (*unreserve)(stow_device *device, stow_addr addr, uint64_t bytes);

  /* ---- pages ---- */

  /* Creates one page of `bytes` on `tier` (vram or host). Its contents are undefined.
   * STOW_ERR_OUT_OF_MEMORY: the tier is full; STOW_ERR_UNSUPPORTED: the device has no pages of that
   * tier (see props.has_vmm, props.host_backing). */
  stow_status (*page_create)(stow_device *device, stow_page *page, uint64_t bytes, stow_tier tier);

  /* Releases a page. Precondition: it is not mapped. A page that is mapped or not live is
   * STOW_ERR_STATE. */
  stow_status (*page_release)(stow_device *device, stow_page page);

  /* Maps `page` at `addr`, inside one reserved range, at addresses where nothing is mapped. `bytes`
   * must be the page's size. The device cannot access it until access is granted. */
  stow_status (*map)(stow_device *device, stow_addr addr, uint64_t bytes, stow_page page);

  /* Unmaps [addr, addr+bytes): one or more whole mapped pages with no gap. Precondition: no
   * submitted work still uses those addresses (wait for an event first); the simulator reports a
   * violation, a GPU corrupts memory. */
  stow_status (*unmap)(stow_device *device, stow_addr addr, uint64_t bytes);

  /* Grants the device read and write access to [addr, addr+bytes): whole mapped pages with no gap.
   * Granting twice is allowed. After a failure it is unknown which part has access: unmap it, or
   * grant again. */
  stow_status (*access)(stow_device *device, stow_addr addr, uint64_t bytes);

  /* ---- plain allocations: for drivers without pages, and for host memory that cannot be paged
   * ---- */

  /* Allocates one block of at least `bytes` on `tier`, ready to use. On the host tier, the host
   * reads and writes it at the same address. STOW_ERR_OUT_OF_MEMORY as above. */
  stow_status (*plain_alloc)(stow_device *device, stow_addr *addr, uint64_t bytes, stow_tier tier);

  /* Frees a block of plain_alloc. May wait for the device. Any other address is STOW_ERR_STATE. */
  stow_status (*plain_free)(stow_device *device, stow_addr addr);

  /* ---- work ---- */

  /* Submits a copy of `bytes` on `stream`; source and destination are device addresses with access,
   * or host memory. Host memory must not change until the copy is done. Overlapping ranges are
   * STOW_ERR_INVALID. */
  stow_status (*copy)(stow_device *device, stow_addr to, stow_addr from, uint64_t bytes,
                      stow_stream stream);

  /* Fills `bytes` bytes at `to` with `value`, on `stream`. */
  stow_status (*fill)(stow_device *device, stow_addr to, uint8_t value, uint64_t bytes,
                      stow_stream stream);

  /* ---- streams and events ---- */

  /* Creates a stream that is not ordered with the default one. */
  stow_status (*stream_create)(stow_device *device, stow_stream *stream);
  /* Destroys a stream once its work is done; never waits. NULL is STOW_ERR_INVALID. */
  stow_status (*stream_destroy)(stow_device *device, stow_stream stream);
  /* Waits until all work submitted to a stream is done. NULL: the default stream. */
  stow_status (*stream_sync)(stow_device *device, stow_stream stream);
  /* Makes all later work on `stream` run after the point where `event` was recorded. Never
   * waits. */
  stow_status (*stream_wait)(stow_device *device, stow_stream stream, stow_event event);

  stow_status (*event_create)(stow_device *device, stow_event *event);
  stow_status (*event_destroy)(stow_device *device, stow_event event);
  /* Sets `event` to the point after all work now submitted to `stream`. Recording again moves it.
   */
  stow_status (*event_record)(stow_device *device, stow_event event, stow_stream stream);
  /* Returns STOW_OK if the event has passed or was never recorded, STOW_ERR_NOT_READY (without a
   * message) if it has not. */
  stow_status (*event_query)(stow_device *device, stow_event event);
  /* Waits for an event. */
  stow_status (*event_wait)(stow_device *device, stow_event event);

  /* ---- threads and error texts ---- */

  /* Called once by each of the library's own threads before its first other call. Makes the device
   * current and allows calls while another thread captures a graph (relaxed capture mode). */
  stow_status (*thread_enter)(stow_device *device);

  /* Returns the text for the backend's error number `code`; "" if there is none. Never NULL;
   * constant text.
   */
  const char *(*error_text)(const stow_device *device, int code);
} stow_device_ops;

/* The first member of every backend's device structure. */
struct stow_device {
  const stow_device_ops *ops;
};

/* ---- the simulated device: controls for tests and replay ----
 *
 * Time advances only with stow_sim_advance, with a wait for an event or stream (by its duration),
 * and, with costs on, by each call's cost. Work submitted to a stream completes only as time
 * passes. The functions below also accept a fault device and use the simulated device inside it.
 * */

typedef struct stow_sim_options {
  uint32_t struct_bytes; /* sizeof(stow_sim_options) */
  uint32_t paper;        /* 1: pages are only counted, never mapped: addresses cannot be touched */
  uint64_t vram_bytes;   /* capacity of the device, a multiple of 2 MiB */
  uint64_t host_bytes;   /* capacity of the host tier; 0: no host tier */
  uint64_t page_bytes;   /* granularity of pages; 0: 2 MiB */
  uint32_t costs;        /* 1: calls take the time measured on an H200 (docs/MEASUREMENTS.md) */
  uint32_t no_vmm;       /* 1: a driver without pages: page calls return STOW_ERR_UNSUPPORTED */
} stow_sim_options;
#define STOW_SIM_OPTIONS_INIT                                                                      \
  { sizeof(stow_sim_options), 0, UINT64_C(16) << 30, UINT64_C(32) << 30, 0, 0, 0 }

STOW_API stow_status stow_sim_open(stow_device **device, const stow_sim_options *options);

/* How work uses memory. */
typedef enum stow_sim_use { STOW_SIM_READ = 0, STOW_SIM_WRITE = 1 } stow_sim_use;

/* Submits to `stream` work that uses [addr, addr+bytes) and takes `us` of the stream's time.
 * STOW_ERR_VIOLATION (and nothing is submitted) if part of it is not mapped with access, or if
 * unordered work uses the same bytes of a page (at any address) and one of the two writes. */
STOW_API stow_status stow_sim_submit(stow_device *device, stow_stream stream, stow_addr addr,
                                     uint64_t bytes, stow_sim_use use, uint64_t us);

/* Advances the simulated clock by `us`. */
STOW_API stow_status stow_sim_advance(stow_device *device, uint64_t us);

/* Counts since opening: successful calls, also with costs off. `copy` includes fills. */
typedef struct stow_sim_counts {
  uint32_t struct_bytes; /* sizeof(stow_sim_counts), set by the caller */
  uint32_t reserved;
  uint64_t reserve, unreserve, page_create, page_release, map, unmap, access, plain_alloc,
      plain_free, copy;
  uint64_t event_waits; /* waits of the host for events or streams that were not done */
  uint64_t violations;  /* violations found, even if the caller ignored the status */
  uint64_t call_ns;     /* modelled time of all calls above (0 with costs off) */
  uint64_t wait_ns;     /* modelled time the host waited for streams */
  uint64_t now_ns;      /* the simulated clock */
  uint64_t vram_used_bytes, host_used_bytes;
  uint64_t vram_peak_bytes, host_peak_bytes;
} stow_sim_counts;
#define STOW_SIM_COUNTS_INIT                                                                       \
  { sizeof(stow_sim_counts), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
STOW_API stow_status stow_sim_get_counts(stow_device *device, stow_sim_counts *counts);

/* ---- fault: wraps any device and fails calls on purpose ---- */

typedef enum stow_fault_kind {
  STOW_FAULT_ANY = 0,
  STOW_FAULT_RESERVE,
  STOW_FAULT_PAGE_CREATE,
  STOW_FAULT_MAP,
  STOW_FAULT_UNMAP,
  STOW_FAULT_ACCESS,
  STOW_FAULT_PAGE_RELEASE,
  STOW_FAULT_UNRESERVE,
  STOW_FAULT_PLAIN,
  STOW_FAULT_COPY,
  STOW_FAULT_STREAM,
  STOW_FAULT_EVENT,
  STOW_FAULT_MEMORY,
  STOW_FAULT_KIND_COUNT
} stow_fault_kind;

/* Wraps `inner`, which the wrapper then owns and closes. No fault is armed at first. */
STOW_API stow_status stow_fault_open(stow_device **device, stow_device *inner);

/* Makes the `nth` call of `kind` from now (1: the next one) fail with `status`, before it reaches
 * the inner device; with `every`, all later calls too. nth 0 disarms the fault. */
STOW_API stow_status stow_fault_arm(stow_device *device, stow_fault_kind kind, uint64_t nth,
                                    bool every, stow_status status);

/* Returns how many calls of `kind` were made since opening, and how many of them failed on
 * purpose. */
STOW_API stow_status stow_fault_count(stow_device *device, stow_fault_kind kind, uint64_t *calls,
                                      uint64_t *failed);

#ifdef __cplusplus
}
#endif
#endif
