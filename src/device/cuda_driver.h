/* Cuda driver: the parts of libcuda that this project uses.
 *
 * Used by the cuda backend and by the shim. Types and constants are our own declarations of the
 * driver's ABI (CUDA Driver API reference, "Data types used by CUDA driver"; the numbers are those
 * of cuda.h, which never change), so no toolkit is needed to build. driver.def lists the functions.
 *
 * Guarantees: once loaded, a driver table never changes and is never unloaded. A function pointer
 * is NULL only if driver.def does not say NEEDED. */
#ifndef DEVICE_CUDA_DRIVER_H
#define DEVICE_CUDA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* ---- types ---- */

typedef int cu_result;
typedef int cu_device;
typedef struct CUctx_st *cu_context;
typedef struct CUstream_st *cu_stream;
typedef struct CUevent_st *cu_event;
typedef unsigned long long cu_addr;   /* CUdeviceptr, 64 bits since its _v2 */
typedef unsigned long long cu_handle; /* CUmemGenericAllocationHandle */

typedef struct cu_uuid {
  unsigned char bytes[16];
} cu_uuid;

typedef struct cu_location { /* CUmemLocation */
  int type;                  /* CU_LOCATION_… */
  int id;                    /* device or NUMA node; ignored for CU_LOCATION_HOST */
} cu_location;

typedef struct cu_prop { /* CUmemAllocationProp; fields after the first four are zero here */
  int type;              /* CU_ALLOCATION_PINNED */
  int handle_types;      /* requestedHandleTypes: 0, none; must be 0 for host locations */
  cu_location location;
  void *win32_meta;
  struct {
    unsigned char compression, gpu_direct_rdma;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
} cu_prop;
_Static_assert(sizeof(cu_prop) == 32, "CUmemAllocationProp is 32 bytes on 64-bit Linux");

typedef struct cu_access { /* CUmemAccessDesc */
  cu_location location;
  int flags; /* CU_ACCESS_READ_WRITE */
} cu_access;
_Static_assert(sizeof(cu_access) == 12, "CUmemAccessDesc is 12 bytes");

typedef struct CUmemPoolHandle_st *cu_pool;
typedef struct CUarray_st *cu_array; /* plain and mipmapped arrays */

typedef struct cu_pool_props { /* the first fields of CUmemPoolProps */
  int type;
  int handle_types; /* nonzero: the pool can be exported to another process */
  cu_location location;
} cu_pool_props;

typedef struct cu_ipc_handle { /* CUipcMemHandle, passed by value */
  char bytes[64];
} cu_ipc_handle;

typedef struct cu_array_size { /* CUDA_ARRAY_DESCRIPTOR */
  size_t width, height;
  int format;
  unsigned channels;
} cu_array_size;

typedef struct cu_array3d_size { /* CUDA_ARRAY3D_DESCRIPTOR */
  size_t width, height, depth;
  int format;
  unsigned channels, flags;
} cu_array3d_size;

typedef struct cu_array_map { /* CUarrayMapInfo, the fields we use */
  char where[60];
  int handle_type; /* 0: `handle` is a page */
  cu_handle handle;
  char rest[24];
} cu_array_map;
_Static_assert(sizeof(cu_array_map) == 96, "CUarrayMapInfo is 96 bytes");

/* ---- constants (cuda.h names in the comments) ---- */

enum {
  CU_LOCATION_DEVICE = 1,    /* CU_MEM_LOCATION_TYPE_DEVICE */
  CU_LOCATION_HOST = 2,      /* CU_MEM_LOCATION_TYPE_HOST, since 12.2 */
  CU_LOCATION_HOST_NUMA = 3, /* CU_MEM_LOCATION_TYPE_HOST_NUMA, since 12.2 */

  CU_ALLOCATION_PINNED = 1,   /* CU_MEM_ALLOCATION_TYPE_PINNED */
  CU_ACCESS_READ_WRITE = 3,   /* CU_MEM_ACCESS_FLAGS_PROT_READWRITE */
  CU_GRANULARITY_MINIMUM = 0, /* CU_MEM_ALLOC_GRANULARITY_MINIMUM */

  CU_HOST_PORTABLE = 1,   /* CU_MEMHOSTALLOC_PORTABLE */
  CU_HOST_DEVICE_MAP = 2, /* CU_MEMHOSTALLOC_DEVICEMAP */

  CU_STREAM_NON_BLOCKING_FLAG = 1, /* CU_STREAM_NON_BLOCKING: not ordered with the default stream */
  CU_EVENT_NO_TIMING = 2,          /* CU_EVENT_DISABLE_TIMING */
  CU_CAPTURE_RELAXED = 2,          /* CU_STREAM_CAPTURE_MODE_RELAXED */

  CU_MODE_EXCLUSIVE_PROCESS = 3, /* CU_COMPUTEMODE_EXCLUSIVE_PROCESS */

  /* CU_DEVICE_ATTRIBUTE_… */
  CU_ATTRIBUTE_COMPUTE_MODE = 20,  /* COMPUTE_MODE */
  CU_ATTRIBUTE_COMPUTE_MAJOR = 75, /* COMPUTE_CAPABILITY_MAJOR */
  CU_ATTRIBUTE_COMPUTE_MINOR = 76, /* COMPUTE_CAPABILITY_MINOR */
  CU_ATTRIBUTE_VMM = 102,          /* VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED */
  CU_ATTRIBUTE_HOST_NUMA_ID = 134, /* HOST_NUMA_ID: node nearest to the device, -1 for none */
  CU_ATTRIBUTE_HOST_NUMA_VMM = 141 /* HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED */
};

/* CUDA_ERROR_…: those with special handling; cuda_status_of has the rest. */
enum {
  CU_OK = 0,
  CU_ERROR_INVALID_VALUE = 1,
  CU_ERROR_OUT_OF_MEMORY = 2,
  CU_ERROR_NOT_INITIALIZED = 3,
  CU_ERROR_DEINITIALIZED = 4,
  CU_ERROR_STUB_LIBRARY = 34,
  CU_ERROR_DEVICE_UNAVAILABLE = 46,
  CU_ERROR_NO_DEVICE = 100,
  CU_ERROR_INVALID_DEVICE = 101,
  CU_ERROR_INVALID_CONTEXT = 201,
  CU_ERROR_ECC_UNCORRECTABLE = 214,
  CU_ERROR_NVLINK_UNCORRECTABLE = 220,
  CU_ERROR_CONTAINED = 226,
  CU_ERROR_INVALID_HANDLE = 400,
  CU_ERROR_NOT_READY = 600,
  CU_ERROR_ILLEGAL_ADDRESS = 700,
  CU_ERROR_LAUNCH_TIMEOUT = 702,
  CU_ERROR_CONTEXT_IS_DESTROYED = 709,
  CU_ERROR_ASSERT = 710,
  CU_ERROR_HARDWARE_STACK_ERROR = 714,
  CU_ERROR_LAUNCH_FAILED = 719,
  CU_ERROR_TENSOR_MEMORY_LEAK = 721,
  CU_ERROR_NOT_PERMITTED = 800,
  CU_ERROR_NOT_SUPPORTED = 801,
  CU_ERROR_SYSTEM_NOT_READY = 802,
  CU_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
  CU_ERROR_COMPAT_NOT_SUPPORTED = 804,
  CU_ERROR_CAPTURE_UNSUPPORTED = 900,
  CU_ERROR_CAPTURE_LAST = 908, /* 900 to 908 are all about graph capture */
  CU_ERROR_UNKNOWN = 999
};

/* ---- functions ---- */

/* One member per function of driver.def, with the driver's name. */
typedef struct cuda_driver {
#define DRIVER(name, since, need, role, parameters) cu_result(*name) parameters;
#include "device/driver.def"
  int version;  /* CUDA's encoding: 12040 is 12.4; 0 before cuda_driver_start */
  bool has_vmm; /* all functions marked PAGES exist */
} cuda_driver;

/* Returns a driver function by ELF name; NULL if there is none. */
typedef void *(*cuda_resolve)(void *user, const char *name);

/* Returns the process's own driver: libcuda.so.1 (or the file that $STOWAGE_LIBCUDA names, for
 * tests and unusual installations), opened and initialized at the first call, from any thread.
 * STOW_ERR_NOT_FOUND: no driver, or no device; every call reports why. */
stow_status cuda_driver_get(const cuda_driver **driver);

/* Resolves every function through `resolve`, then initializes the driver. The pointers must stay
 * valid as long as the table is used. */
stow_status cuda_driver_fill(cuda_driver *driver, cuda_resolve resolve, void *user);

/* Does the second half of cuda_driver_fill, for a table with its pointers set: checks that every
 * NEEDED function exists, calls cuInit and reads the version. STOW_ERR_UNSUPPORTED names a missing
 * function. */
stow_status cuda_driver_start(cuda_driver *driver);

/* Sets has_vmm from the pointers. */
void cuda_driver_note_pages(cuda_driver *driver);

/* Returns whether Stowage may use functions of this CUDA version. Only the test aid
 * STOWAGE_DRIVER_LEVEL ("12.4") makes it false; programs under the shim keep every function. */
bool cuda_driver_may_use(int since);

/* Maps a driver error code to a status. */
stow_status cuda_status_of(cu_result code);

/* Sets the thread's message to "WHAT: NAME (code): the driver's text; what to do", and returns the
 * status for `code`. */
stow_status cuda_driver_fail(const cuda_driver *driver, cu_result code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns the driver's text for a code; "" if it has none. */
const char *cuda_driver_text(const cuda_driver *driver, cu_result code);

#endif
