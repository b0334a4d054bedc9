/* The parts of NVML's ABI that we use, declared by ourselves (NVML API reference; names and numbers
 * of nvml.h). Used by watch/nvml, which calls the library, and shim/nvml, which sits in front of
 * it. */
#ifndef DEVICE_NVML_TYPES_H
#define DEVICE_NVML_TYPES_H

#define NVML_LIBRARY "libnvidia-ml.so.1"

enum {
  NVML_OK = 0,                  /* NVML_SUCCESS */
  NVML_INSUFFICIENT_SIZE = 7,   /* NVML_ERROR_INSUFFICIENT_SIZE: the count needed was written */
  NVML_LIBRARY_NOT_FOUND = 12,  /* NVML_ERROR_LIBRARY_NOT_FOUND */
  NVML_FUNCTION_NOT_FOUND = 13, /* NVML_ERROR_FUNCTION_NOT_FOUND */
};

typedef struct nvml_memory_v1 { /* nvmlMemory_t */
  unsigned long long total, free, used;
} nvml_memory_v1;

typedef struct nvml_memory_v2 { /* nvmlMemory_v2_t */
  unsigned version;
  unsigned long long total, reserved, free, used;
} nvml_memory_v2;
#define NVML_MEMORY_V2 ((unsigned)(sizeof(nvml_memory_v2) | (2u << 24))) /* nvmlMemory_v2 */

typedef struct nvml_process_v1 { /* nvmlProcessInfo_v1_t, of the functions without a version */
  unsigned pid;
  unsigned long long bytes;
} nvml_process_v1;

typedef struct nvml_process_v2 { /* nvmlProcessInfo_v2_t, of the functions _v2 and _v3 */
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
} nvml_process_v2;

#endif
