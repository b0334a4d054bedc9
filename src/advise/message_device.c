/* Errors of a device that name a status and little else, by a table. */
#include <string.h>

#include "advise/message_parts.h"

#define CALL     1 /* the words name a call: the text must say that it failed */
#define HEADER   2 /* a notebook's line before a traceback whose end was cut off */
#define GRAPHICS 3 /* only in a text of Direct3D */
#define WEBGPU   4 /* only in a text of WebGPU */

static const struct {
  const char *words;
  uint32_t details;
  uint64_t marks;
  int only;
} table[] = {
    {"CUDA_ERROR_OUT_OF_MEMORY", 0, CONTEXT_BIT(NVIDIA), 0},
    {"cudaErrorMemoryAllocation", 0, CONTEXT_BIT(NVIDIA), 0},
    {"CUDA out of memory", 0, CONTEXT_BIT(NVIDIA), 0},
    {"CUDA error: out of memory", 0, CONTEXT_BIT(NVIDIA), 0},
    {"CUDA error: Out of memory", 0, CONTEXT_BIT(NVIDIA), 0},
    {"cuda error: out of memory", 0, CONTEXT_BIT(NVIDIA), 0},
    {"CUDA Error: out of memory", 0, CONTEXT_BIT(NVIDIA), 0},
    {"Cuda error: out of memory", 0, CONTEXT_BIT(NVIDIA), 0},
    {"CUDA driver error: out of memory", 0, CONTEXT_BIT(NVIDIA), 0},
    {"cuda runtime error (2)", 0, CONTEXT_BIT(NVIDIA), 0},
    {"error=2 : out of memory", 0, CONTEXT_BIT(NVIDIA), 0},
    {"CUresult error result=2 ", 0, CONTEXT_BIT(NVIDIA), 0},
    {"Message=Device allocation error", 0, CONTEXT_BIT(NVIDIA), 0}, /* NPP */
    {"cudaSuccess (2 vs. 0)", 0, CONTEXT_BIT(NVIDIA), 0},
    {"Cuda failure 'out of memory'", 0, CONTEXT_BIT(NVIDIA), 0},
    {"Cuda failure 2 'out of memory'", 0, CONTEXT_BIT(NVIDIA), 0},
    {"Error out of memory at line ", 0, CONTEXT_BIT(NVIDIA) | CONTEXT_BIT(TORCH),
     0}, /* bitsandbytes */
    {"Cuda Runtime (out of memory)", 0, CONTEXT_BIT(NVIDIA), 0},
    {"cudaMalloc failed: out of memory", 0, CONTEXT_BIT(NVIDIA), 0},
    {"cudaMalloc retry failed: out of memory", 0, CONTEXT_BIT(NVIDIA), 0},
    {"cudaMalloc error out of memory", 0, CONTEXT_BIT(NVIDIA), 0},
    {"failed: out of memory", 0, CONTEXT_BIT(NVIDIA), 0},
    {"(-217:Gpu API call) out of memory", 0, CONTEXT_BIT(NVIDIA), 0},
    {"CNMEM_STATUS_OUT_OF_MEMORY", 0, CONTEXT_BIT(NVIDIA), 0},
    {"bytes of device memory (out of memory)", 0, CONTEXT_BIT(NVIDIA), 0},
    {"GpuArrayException: out of memory", 0, CONTEXT_BIT(NVIDIA), 0},
    {"System is out of GPU memory", 0, 0, 0},
    {"System is out of GPU and shared host memory", 0, 0, 0}, /* Blender's Cycles */
    {"GPU is out of memory", 0, 0, 0},
    {"GPU out of memory", 0, 0, 0},
    {"ut of GPU memory", 0, 0, 0},
    {"nsufficient GPU memory", 0, 0, 0},
    {"nsufficient VRAM in split for model and cache", MESSAGE_WEIGHTS | MESSAGE_KV_CACHE, 0,
     0}, /* ExLlama */
    {"nsufficient VRAM for model and cache", MESSAGE_WEIGHTS | MESSAGE_KV_CACHE, 0, 0},
    {"nsufficient VRAM", 0, 0, 0},
    {"ut of video memory", 0, CONTEXT_BIT(ANY_VENDOR), 0}, /* games and their engines */
    {"ut of Video Memory", 0, CONTEXT_BIT(ANY_VENDOR), 0},
    {"ot enough video memory", 0, CONTEXT_BIT(ANY_VENDOR), 0},
    {"ut of VRAM", 0, 0, 0},
    {"OpenEncodeSessionEx failed: out of memory", 0, CONTEXT_BIT(NVIDIA), 0},
    {"NV_ENC_ERR_OUT_OF_MEMORY", 0, CONTEXT_BIT(NVIDIA), 0},
    {"not enough GPU memory", 0, 0, 0},
    {"Not enough GPU memory", 0, 0, 0},
    {"Out of memory on device", 0, 0, 0},
    {"Maximum variable size allowed on the device is exceeded", 0, 0, 0},
    {"Allocation on device", 0, 0, 0},
    {"OutOfMemoryError: Allocation on device", 0, 0, 0},
    {"torch.OutOfMemoryError", 0, 0, 0},
    {"torch.cuda.OutOfMemoryError", 0, 0, 0},
    {"HIP out of memory", 0, CONTEXT_BIT(AMD), 0},
    {"HIP error: out of memory", 0, CONTEXT_BIT(AMD), 0},
    {"hipErrorOutOfMemory", 0, CONTEXT_BIT(AMD), 0},
    {"amdgpu: Failed to allocate a buffer", 0, CONTEXT_BIT(AMD), 0}, /* Mesa */
    {"hipErrorMemoryAllocation", 0, CONTEXT_BIT(AMD), 0},
    {"XPU out of memory", 0, CONTEXT_BIT(INTEL), 0},
    {"UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", 0, CONTEXT_BIT(INTEL), 0},
    {"ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", 0, CONTEXT_BIT(INTEL), 0},
    {"ERROR_OUT_OF_DEVICE_MEMORY", 0, 0, 0},
    {"ErrorOutOfDeviceMemory", 0, 0, 0},
    {"UR_RESULT_ERROR_OUT_OF_RESOURCES", MESSAGE_STATUS, CONTEXT_BIT(INTEL), 0},
    {"PI_ERROR_OUT_OF_RESOURCES", MESSAGE_STATUS, CONTEXT_BIT(INTEL), 0},
    {"MEM_OBJECT_ALLOCATION_FAILURE", 0, CONTEXT_BIT(ANY_VENDOR), 0}, /* OpenCL */
    {"CL_OUT_OF_RESOURCES", MESSAGE_STATUS, CONTEXT_BIT(ANY_VENDOR), 0},
    {"failed: OUT_OF_RESOURCES", MESSAGE_STATUS, CONTEXT_BIT(ANY_VENDOR), 0}, /* pyopencl */
    {"Memory not available to allocate buffer: ", MESSAGE_STATUS, CONTEXT_BIT(AMD), 0}, /* MIOpen */
    {"gpusolverDnCreate(&handle) failed", MESSAGE_STATUS, CONTEXT_BIT(NVIDIA), 0},      /* JAX */
    {"gpublasCreate(&handle) failed", MESSAGE_STATUS, CONTEXT_BIT(NVIDIA), 0},
    {"gpusparseCreate(&handle) failed", MESSAGE_STATUS, CONTEXT_BIT(NVIDIA), 0},
    {"cuSolver internal error", MESSAGE_STATUS, CONTEXT_BIT(NVIDIA), 0},
    {"GPU memory is full", 0, 0, 0}, /* programs for video */
    {"GPU Memory is full", 0, 0, 0},
    {"GPU Memory Full", 0, 0, 0},
    {"MPS backend out of memory", 0, CONTEXT_BIT(APPLE) | CONTEXT_BIT(MAC), 0},
    {"Memory_Allocation_Failure(EL0004)", 0, CONTEXT_BIT(NPU), 0}, /* Ascend */
    {"EL0004: ", 0, CONTEXT_BIT(NPU), 0},
    {"is more than total mem size", 0, CONTEXT_BIT(NPU), 0}, /* MindSpore */
    {"Out of Memory!!! Request memory size", 0, CONTEXT_BIT(NPU), 0},
    {"memory isn't enough and alloc failed", 0, 0, 0},
    {"CUBLAS_STATUS_ALLOC_FAILED", MESSAGE_STATUS, CONTEXT_BIT(NVIDIA), 0},
    {"CUBLAS_STATUS_NOT_INITIALIZED", MESSAGE_STATUS, CONTEXT_BIT(NVIDIA), 0},
    {"CUDNN_STATUS_ALLOC_FAILED", MESSAGE_STATUS, CONTEXT_BIT(NVIDIA), 0},
    {"CUDNN_STATUS_NOT_INITIALIZED", MESSAGE_STATUS, CONTEXT_BIT(NVIDIA), 0},
    {"CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED", MESSAGE_STATUS, CONTEXT_BIT(NVIDIA), 0},
    {"CUDNN_STATUS_INTERNAL_ERROR", MESSAGE_STATUS, CONTEXT_BIT(NVIDIA), 0},
    {"CUSOLVER_STATUS_ALLOC_FAILED", MESSAGE_STATUS, CONTEXT_BIT(NVIDIA), 0},
    {"CUSOLVER_STATUS_INTERNAL_ERROR", MESSAGE_STATUS, CONTEXT_BIT(NVIDIA), 0},
    {"CUSPARSE_STATUS_ALLOC_FAILED", MESSAGE_STATUS, CONTEXT_BIT(NVIDIA), 0},
    {"CUSPARSE_STATUS_INSUFFICIENT_RESOURCES", MESSAGE_STATUS, CONTEXT_BIT(NVIDIA), 0},
    {"CUFFT_ALLOC_FAILED", MESSAGE_STATUS, CONTEXT_BIT(NVIDIA), 0},
    {"CUFFTError(code 2", MESSAGE_STATUS, CONTEXT_BIT(NVIDIA), 0},
    {"cuFFT failed to allocate", MESSAGE_STATUS, CONTEXT_BIT(NVIDIA), 0},
    {"CURAND_STATUS_ALLOCATION_FAILED", MESSAGE_STATUS, CONTEXT_BIT(NVIDIA), 0},
    {"HIPBLAS_STATUS_ALLOC_FAILED", MESSAGE_STATUS, CONTEXT_BIT(AMD), 0},
    {"rocblas_status_memory_error", MESSAGE_STATUS, CONTEXT_BIT(AMD), 0},
    {"FIND was unable to find an engine to execute this computation", MESSAGE_STATUS, 0, 0},
    {"unable to find an engine to execute this computation", MESSAGE_STATUS, 0, 0},
    {"Unable to find a valid cuDNN algorithm", MESSAGE_STATUS, CONTEXT_BIT(NVIDIA), 0},
    {"Failed to CUDA calloc", 0, CONTEXT_BIT(NVIDIA), 0}, /* NCCL */
    {"NVML_SUCCESS == r INTERNAL ASSERT FAILED", MESSAGE_MIG, CONTEXT_BIT(NVIDIA), 0},
    {"NVML_SUCCESS == DriverAPI::get()->nvml", MESSAGE_MIG, CONTEXT_BIT(NVIDIA), 0},
    {"!handles_.at(i) INTERNAL ASSERT FAILED", MESSAGE_MIG, CONTEXT_BIT(NVIDIA), 0},
    {"NvMapMemAllocInternalTagged: ", 0, CONTEXT_BIT(NVIDIA), 0}, /* Jetson */
    {"NvMapMemAlloc error 12", 0, CONTEXT_BIT(NVIDIA), 0},
    {"NvMapMemAlloc: error 12", 0, CONTEXT_BIT(NVIDIA), 0},
    {"cuMemAlloc", 0, CONTEXT_BIT(NVIDIA), CALL},
    {"cuMemCreate", 0, CONTEXT_BIT(NVIDIA), CALL},
    {"cudaMalloc", 0, CONTEXT_BIT(NVIDIA), CALL},
    {"hipMalloc", 0, CONTEXT_BIT(AMD), CALL},
    {"vkAllocateMemory", 0, 0, CALL},
    {"Not enough memory left", 0, CONTEXT_BIT(ANY_VENDOR), WEBGPU}, /* wgpu */
    {"wgpu error: Out of Memory", 0, CONTEXT_BIT(ANY_VENDOR), 0},
    {"GPUOutOfMemoryError", 0, CONTEXT_BIT(ANY_VENDOR), 0},
    {"显存不足", 0, 0, 0}, /* "not enough video memory" */
    {"顯存不足", 0, 0, 0},
    {"E_OUTOFMEMORY", 0, CONTEXT_BIT(ANY_VENDOR) | CONTEXT_BIT(WINDOWS), GRAPHICS},
    {"OutOfMemoryError Traceback (most recent call last)", 0, CONTEXT_BIT(TORCH), HEADER},
};

/* Returns whether the text is of Direct3D: other programs use its status for host memory. */
static bool is_graphics(scan_text t) {
  static const char *const signs[] = {"D3D12", "D3D11", "DXGI", "Direct3D", "ID3D"};
  return scan_has_any(t, signs, sizeof signs / sizeof *signs);
}

/* Parses the requested size, in one of the usual sentences, or as "N bytes" on the line of the
 * error. */
static void read_requested(message *m, scan_text t, const char *at) {
  static const char *const sizes[] = {
      "cuMemAlloc of ",        "Tried to allocate ",
      "failed to allocate ",   "Failed to allocate ",
      "tried to allocate ",    "Error allocating ",
      "allocating ",           "allocate ",
      "alloc fail size ",      "alloc size : ",
      "alloc size: ",          "available to allocate buffer: ",
      "Request memory size: ", "rtMalloc fail, purpose: page caching, type = 2, size:"};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes && m->asked_bytes == MESSAGE_UNKNOWN; i++)
    m->asked_bytes = scan_size_after(t, sizes[i]);
  if (m->asked_bytes == MESSAGE_UNKNOWN)
    m->asked_bytes = scan_size_before(scan_line(t, at), " bytes");
  if (m->asked_bytes == MESSAGE_UNKNOWN && scan_has(t, "amdgpu: ")) /* "size      : 4096 bytes" */
    m->asked_bytes = scan_size_before(t, " bytes");
}

/* An assertion in a kernel: every call after it fails, cuBLAS's first one too. */
static bool asserted(scan_text t) {
  static const char *const signs[] = {"< n_classes` failed", "srcIndex < srcSelectDimSize",
                                      "index out of bounds\"` failed",
                                      "device-side assert triggered"};
  return scan_has_any(t, signs, sizeof signs / sizeof *signs);
}

bool message_device(message *m, scan_text t, const char **where) {
  const char *best = NULL;
  size_t chosen = 0;
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    const char *start = NULL;
    if (scan_find_at(t, table[i].words, &start) == NULL) continue;
    if (table[i].only == CALL &&
        (best != NULL || (!scan_has(t, "failed") && !scan_has(t, "error"))))
      continue;
    /* Ray and CuPy have an error of that name too. */
    if (table[i].only == HEADER &&
        (best != NULL || scan_has(t, "ray.") || scan_has(t, "cupy") || scan_has(t, "java")))
      continue;
    if (table[i].only == GRAPHICS && !is_graphics(t)) continue;
    if (table[i].only == WEBGPU && !scan_has(t, "wgpu") && !scan_has(t, "In Device::create_"))
      continue;
    if (best != NULL && start >= best) continue;
    best = start;
    chosen = i;
  }
  if (best == NULL || ((table[chosen].details & MESSAGE_STATUS) != 0 && asserted(t))) return false;
  if (where != NULL) *where = best;
  m->kind = MESSAGE_CUDA;
  m->details |= table[chosen].details;
  m->context.seen |= table[chosen].marks;
  m->failures = 1;
  bool word =
      (table[chosen].details & MESSAGE_STATUS) != 0 && strchr(table[chosen].words, ' ') == NULL;
  const char *end = best;
  while (word && end < t.end && (scan_is_word(*end) || *end == '(')) end++; /* "CUFFTError(code" */
  scan_copy(m->what, sizeof m->what, word ? (scan_text){best, end} : t, best,
            (table[chosen].details & MESSAGE_STATUS) != 0 ? "\n:;" : "\n");
  if (scan_has(t, "cuInit") || scan_has(t, "cuCtxCreate") ||
      scan_has(t, "cuDevicePrimaryCtxRetain"))
    m->details |= MESSAGE_INIT;
  if (context_any(&m->context, CONTEXT_BIT(AMD))) m->context.seen &= ~CONTEXT_BIT(NVIDIA);
  if (scan_has(t, "hipMalloc")) {
    m->context.seen &= ~CONTEXT_BIT(NVIDIA);
    m->context.seen |= CONTEXT_BIT(AMD);
  }
  read_requested(m, t, best);
  if (scan_has(t, "TotalUsedMemStatistics")) { /* MindSpore's pool */
    m->live_bytes = scan_size_after(t, "TotalUsedMemStatistics : ");
    m->limit_bytes = scan_size_after(t, "total mem size : ");
  }
  if (scan_has(t, "failed to create cublas handle") ||
      scan_has(t, "ould not create cudnn handle") || scan_has(t, "tensorflow/stream_executor"))
    m->kind = MESSAGE_TENSORFLOW;
  if (scan_has(t, "jaxlib") && (m->details & MESSAGE_STATUS) != 0) m->kind = MESSAGE_XLA;
  if (scan_has(t, "ggml") || context_any(&m->context, CONTEXT_BIT(OLLAMA))) m->kind = MESSAGE_LLAMA;
  return true;
}
