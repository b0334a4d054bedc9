/* Device: one GPU, or the simulated one.
 *
 * Device names are the same everywhere:
 *   "0", "1", …          a GPU, counted as CUDA_VISIBLE_DEVICES shows them
 *   "GPU-5d3c…"          a GPU by UUID (a unique beginning is enough)
 *   "sim:16G"            a simulated device of 16 GiB, with a host tier of twice that;
 *                        "sim:16G,host=8G" sets its size (host=0: none). Options: paper
 *                        (nothing can be touched), costs (calls take time), no-vmm (no pages)
 *   NULL or ""           $STOWAGE_DEVICE, else the first GPU, else "sim:16G"
 *
 * Threads: any number may use an open device; closing it must be the last call. Fork: a child must
 * not use or close its parent's device; CUDA does not work across fork. */
#ifndef STOWAGE_DEVICE_H
#define STOWAGE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stowage/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stow_device stow_device;

/* An ordering token: a CUstream on a GPU. NULL is the device's default stream. */
typedef void *stow_stream;

typedef enum stow_tier { STOW_TIER_VRAM = 0, STOW_TIER_HOST = 1, STOW_TIER_DISK = 2 } stow_tier;
#define STOW_TIER_COUNT 3

/* Returns "vram", "host" or "disk". */
STOW_API const char *stow_tier_name(stow_tier tier);

/* How host memory can be mapped at a device address, determined by a test on the device. */
typedef enum stow_host_backing {
  STOW_HOST_NONE = 0,      /* not at all */
  STOW_HOST_PINNED = 1,    /* whole allocations only, not pages under a mapped range */
  STOW_HOST_LOCATION = 2,  /* pages at CU_MEM_LOCATION_TYPE_HOST */
  STOW_HOST_NUMA = 3,      /* pages at CU_MEM_LOCATION_TYPE_HOST_NUMA */
  STOW_HOST_SIMULATED = 4, /* pages of the simulated device's host tier */
} stow_host_backing;

/* The properties of a device. Texts that are too long are cut; all are terminated. */
typedef struct stow_device_props {
  uint32_t struct_bytes; /* sizeof(stow_device_props), set by the caller */
  uint32_t has_vmm;      /* 1: pages can be created and mapped; 0: only plain allocations work */
  char kind[8];          /* "cuda" or "sim" */
  char name[64];         /* "NVIDIA H200", "simulated device" */
  char uuid[48];         /* "GPU-…"; "sim" for the simulated one */
  int index;             /* as CUDA_VISIBLE_DEVICES counts; 0 for the simulated one */
  int driver_version;    /* CUDA's number, 13000 for 13.0; 0: none */
  int compute_major;     /* compute capability; 0: none */
  int compute_minor;
  stow_host_backing host_backing; /* how the device reaches the host tier */
  int host_numa_node;             /* the NUMA node of host pages; -1: any */
  uint64_t vram_bytes;            /* capacity of the vram tier */
  uint64_t host_bytes; /* capacity of the host tier when the device was opened; 0: no host tier */
  uint64_t page_bytes; /* granularity of pages and their addresses, as the driver reports it */
} stow_device_props;
#define STOW_DEVICE_PROPS_INIT                                                                     \
  { sizeof(stow_device_props), 0, "", "", "", 0, 0, 0, 0, STOW_HOST_NONE, 0, 0, 0, 0 }

/* Opens the device named by `name` (above). On success `*device` must be closed. */
STOW_API stow_status stow_device_open(stow_device **device, const char *name);

/* Closes a device. Releases pages, ranges, streams and events that the caller did not release, and
 * then returns STOW_ERR_STATE with their count; the device is closed in any case. NULL is allowed.
 */
STOW_API stow_status stow_device_close(stow_device *device);

/* Returns the number of GPUs of the driver; 0 with STOW_OK if there is no driver. */
STOW_API stow_status stow_device_count(int *count);

/* Returns the properties of an open device. */
STOW_API stow_status stow_device_get_props(const stow_device *device, stow_device_props *props);

/* Returns the free and total bytes of a tier. For vram on a GPU these are the driver's figures,
 * which include other processes. STOW_ERR_UNSUPPORTED: the device does not have this tier. */
STOW_API stow_status stow_device_memory(stow_device *device, stow_tier tier, uint64_t *free_bytes,
                                        uint64_t *total_bytes);

#ifdef __cplusplus
}
#endif
#endif
