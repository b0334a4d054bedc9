/* Stand-in libcuda: other ways to allocate memory, based on the plain ones of cuda_standin.c:
 * pitched, managed, arrays, pools that keep freed memory, captures, and the reserve of graphs. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/cuda_driver.h"
#include "shim/hooks.h"
#include "standin/queue.h"

#define CALL      cu_result __attribute__((visibility("default")))
#define POOL_STEP ((size_t)32 << 20)
#define LIST_MAX  4096
#define POOLS_MAX 256

/* Defined in cuda_standin.c. */
CALL cuCtxGetCurrent(cu_context *context);
CALL cuCtxGetDevice(cu_device *device);
CALL cuDeviceGetMemPool(cu_pool *pool, cu_device device);
CALL cuMemPoolGetAttribute(cu_pool pool, int which, void *value);
CALL cuDevicePrimaryCtxGetState(cu_device device, unsigned *flags, int *active);
CALL cuDeviceGetGraphMemAttribute(cu_device device, int which, void *value);
CALL cuStreamIsCapturing(cu_stream stream, int *status);
CALL cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags);
CALL cuGraphLaunch(void *executable, cu_stream stream);
CALL cuGraphGetNodes(void *graph, void **nodes, size_t *count);
CALL cuGraphNodeGetType(void *node, int *type);
CALL cuGraphKernelNodeGetParams_v2(void *node, void *params);
CALL cuGraphMemcpyNodeGetParams(void *node, void *params);
CALL cuGraphMemsetNodeGetParams(void *node, void *params);
CALL cuGraphExecDestroy(void *executable);
int standin_device(void);
int standin_active(int device);
int standin_pooled(cu_addr addr, cu_pool *pool, size_t *bytes);
cu_result standin_step(int device, cu_addr *addr, size_t bytes);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

CALL cuCtxGetDevice(cu_device *device) {
  *device = standin_device();
  return *device >= 0 ? CU_OK : CU_ERROR_INVALID_CONTEXT;
}

CALL cuDevicePrimaryCtxGetState(cu_device device, unsigned *flags, int *active) {
  *flags = 0;
  *active = standin_active(device);
  return CU_OK;
}

/* ---- based on plain allocations ---- */

CALL cuMemAllocPitch_v2(cu_addr *addr, size_t *pitch, size_t width, size_t height,
                        unsigned element) {
  (void)element;
  *pitch = (width + 511) / 512 * 512;
  return cuMemAlloc_v2(addr, *pitch * height);
}

CALL cuMemAllocManaged(cu_addr *addr, size_t bytes, unsigned flags) {
  (void)flags;
  return cuMemAlloc_v2(addr, bytes);
}

CALL cuArrayCreate_v2(cu_array *array, const cu_array_size *size) {
  cu_addr addr;
  cu_result code =
      cuMemAlloc_v2(&addr, size->width * (size->height ? size->height : 1) * 4 * size->channels);
  if (code == CU_OK) *array = (cu_array)(uintptr_t)addr;
  return code;
}

CALL cuArrayDestroy(cu_array array) {
  return cuMemFree_v2((uintptr_t)array);
}

CALL cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags) {
  (void)bytes;
  (void)flags;
  return pointer != NULL ? CU_OK : CU_ERROR_INVALID_VALUE;
}

CALL cuMemHostUnregister(void *pointer) {
  return pointer != NULL ? CU_OK : CU_ERROR_INVALID_VALUE;
}

/* ---- pools: one per device, growing in steps, each step a plain allocation ---- */

typedef struct step {
  cu_addr addr;
} step;

struct CUmemPoolHandle_st {
  int device, made;
  int host;  /* on the host: uses no device memory */
  int ended; /* destroyed: releases what it can */
  size_t used, reserved;
  step steps[LIST_MAX];
  int count;
};
static struct CUmemPoolHandle_st pools[8], made_pools[POOLS_MAX];
static struct {
  cu_addr addr;
  size_t bytes;
  cu_pool pool;
} taken[LIST_MAX];
static cu_addr next_addr = UINT64_C(0x700000000000);

CALL cuDeviceGetMemPool(cu_pool *pool, cu_device device) {
  *pool = &pools[device];
  return CU_OK;
}

CALL cuMemPoolCreate(cu_pool *pool, const cu_pool_props *props) {
  int i = 0;
  while (i < POOLS_MAX && made_pools[i].made) i++;
  if (i == POOLS_MAX || props->type != CU_ALLOCATION_PINNED || props->location.id > 7)
    return CU_ERROR_INVALID_VALUE;
  made_pools[i] = (struct CUmemPoolHandle_st){
      .device = props->location.id, .made = 1, .host = props->location.type != CU_LOCATION_DEVICE};
  *pool = &made_pools[i];
  return CU_OK;
}

/* Grows a pool by one step, which belongs to no context. */
static cu_result grow(cu_pool pool) {
  int device = pool->made ? pool->device : (int)(pool - pools);
  return pool->host ? CU_OK : standin_step(device, &pool->steps[pool->count].addr, POOL_STEP);
}

static cu_stream captured[8]; /* stored as the pointer + 1, so that the default stream is not 0 */
static standin_graph *graphs[8];
static int modes[8];
static _Atomic int global_captures;
static _Atomic int spoiled; /* invalidated by a call that captures do not allow */

int standin_capture_mode(void);
int standin_unsafe(void) {
  enum { RELAXED = 2 };
  if (global_captures == 0 || standin_capture_mode() == RELAXED) return CU_OK;
  spoiled = 1;
  return CU_ERROR_CAPTURE_UNSUPPORTED;
}

static int capturing(void) {
  int count = 0;
  for (int i = 0; i < 8; i++) count += captured[i] != NULL;
  return count;
}

CALL cuMemPoolGetAttribute(cu_pool pool, int which, void *value) {
  if (capturing()) {
    spoiled = 1;
    return CU_ERROR_CAPTURE_UNSUPPORTED;
  }
  uint64_t answer = which == 5 ? pool->reserved : which == 7 ? pool->used : 0;
  memcpy(value, &answer, sizeof answer);
  return which == 5 || which == 7 ? CU_OK : CU_ERROR_INVALID_VALUE;
}

/* Waits until STANDIN_MEET requests are here at the same time, but not for long. */
static void meet(void) {
  static pthread_cond_t came = PTHREAD_COND_INITIALIZER;
  static int here;
  const char *text = getenv("STANDIN_MEET");
  struct timespec until;
  if (text == NULL) return;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec++;
  pthread_mutex_lock(&lock);
  here++;
  pthread_cond_broadcast(&came);
  while (here < strtol(text, NULL, 10) && pthread_cond_timedwait(&came, &lock, &until) == 0) {
  }
  pthread_mutex_unlock(&lock);
}

CALL cuMemAllocFromPoolAsync(cu_addr *addr, size_t bytes, cu_pool pool, cu_stream stream) {
  (void)stream;
  meet();
  bytes = (bytes + 511) / 512 * 512;
  pthread_mutex_lock(&lock);
  cu_result code = CU_OK;
  /* A fragmented pool grows although its figures show enough space. */
  size_t need = getenv("STANDIN_HOLES") != NULL ? pool->reserved + bytes : pool->used + bytes;
  while (code == CU_OK && need > pool->reserved) {
    code = grow(pool);
    if (code == CU_OK) pool->count++, pool->reserved += POOL_STEP;
  }
  for (int i = 0; code == CU_OK && i < LIST_MAX; i++)
    if (taken[i].bytes == 0) {
      taken[i].addr = *addr = next_addr;
      taken[i].bytes = bytes;
      taken[i].pool = pool;
      next_addr += bytes;
      pool->used += bytes;
      break;
    }
  pthread_mutex_unlock(&lock);
  return code;
}

CALL cuMemAllocFromPoolAsync_ptsz(cu_addr *addr, size_t bytes, cu_pool pool, cu_stream stream) {
  return cuMemAllocFromPoolAsync(addr, bytes, pool, stream);
}

CALL cuMemAllocAsync(cu_addr *addr, size_t bytes, cu_stream stream) {
  int device = standin_device();
  return device < 0 ? CU_ERROR_INVALID_CONTEXT
                    : cuMemAllocFromPoolAsync(addr, bytes, &pools[device], stream);
}

CALL cuMemAllocAsync_ptsz(cu_addr *addr, size_t bytes, cu_stream stream) {
  return cuMemAllocAsync(addr, bytes, stream);
}

/* Returns the pool and the size of the block at an address. */
int standin_pooled(cu_addr addr, cu_pool *pool, size_t *bytes) {
  int found = 0;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < LIST_MAX && !found; i++)
    if (taken[i].bytes != 0 && taken[i].addr == addr) {
      *pool = taken[i].pool;
      *bytes = taken[i].bytes;
      found = 1;
    }
  pthread_mutex_unlock(&lock);
  return found;
}

static void shrink(cu_pool pool, size_t keep) {
  size_t least = pool->used > keep ? pool->used : keep;
  while (pool->count > 0 && pool->reserved - POOL_STEP >= least) {
    pool->count--;
    if (!pool->host) cuMemFree_v2(pool->steps[pool->count].addr);
    pool->reserved -= POOL_STEP;
  }
  if (pool->ended && pool->used == 0) pool->made = 0;
}

CALL cuMemFreeAsync(cu_addr addr, cu_stream stream) {
  (void)stream;
  cu_result code = CU_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < LIST_MAX; i++)
    if (taken[i].bytes != 0 && taken[i].addr == addr) {
      taken[i].pool->used -= taken[i].bytes;
      taken[i].bytes = 0;
      if (taken[i].pool->ended) shrink(taken[i].pool, 0);
      code = CU_OK;
      break;
    }
  pthread_mutex_unlock(&lock);
  return code;
}

CALL cuMemFreeAsync_ptsz(cu_addr addr, cu_stream stream) {
  return cuMemFreeAsync(addr, stream);
}

CALL cuMemPoolTrimTo(cu_pool pool, size_t keep) {
  pthread_mutex_lock(&lock);
  shrink(pool, keep);
  pthread_mutex_unlock(&lock);
  return CU_OK;
}

CALL cuMemPoolDestroy(cu_pool pool) {
  if (!pool->made || pool->ended) return CU_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  pool->ended = 1;
  shrink(pool, 0);
  pthread_mutex_unlock(&lock);
  return CU_OK;
}

/* ---- captures and graphs ---- */

static int capture_of(cu_stream stream) {
  int i = 0;
  while (i < 8 && captured[i] != (cu_stream)((uintptr_t)stream + 1)) i++;
  return i;
}

CALL cuStreamBeginCapture_v2(cu_stream stream, int mode) {
  enum { GLOBAL = 0 };
  int i = 0;
  while (i < 8 && captured[i] != NULL) i++;
  if (i == 8 || capture_of(stream) < 8) return 401; /* CUDA_ERROR_ILLEGAL_STATE */
  pthread_mutex_lock(&standin_mutex);
  standin_queue *q = queue_of(stream, false);
  graphs[i] = graph_new();
  if (q != NULL) queue_capture(q, graphs[i]);
  pthread_mutex_unlock(&standin_mutex);
  modes[i] = mode;
  global_captures += mode == GLOBAL;
  captured[i] = (cu_stream)((uintptr_t)stream + 1);
  return CU_OK;
}

CALL cuStreamEndCapture(cu_stream stream, void **graph) {
  int i = capture_of(stream);
  if (i == 8) return 401;
  captured[i] = NULL;
  global_captures -= modes[i] == 0;
  pthread_mutex_lock(&standin_mutex);
  standin_queue *q = queue_of(stream, false);
  if (q != NULL) queue_capture(q, NULL);
  pthread_mutex_unlock(&standin_mutex);
  int code = spoiled ? 901 : CU_OK; /* CUDA_ERROR_STREAM_CAPTURE_INVALIDATED */
  *graph = spoiled ? NULL : graphs[i];
  spoiled = 0;
  return code;
}

/* A graph is its own executable form and is never freed. */
CALL cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags) {
  *executable = graph;
  return graph != NULL && flags == 0 ? CU_OK : CU_ERROR_INVALID_VALUE;
}

CALL cuGraphLaunch(void *executable, cu_stream stream) {
  pthread_mutex_lock(&standin_mutex);
  int code = standin_begin(__func__, 1);
  standin_queue *q = code == CU_OK ? queue_of(stream, false) : NULL;
  if (q != NULL) graph_launch(q, executable);
  pthread_mutex_unlock(&standin_mutex);
  return code != CU_OK ? code : q != NULL ? CU_OK : CU_ERROR_INVALID_HANDLE;
}

CALL cuGraphGetNodes(void *graph, void **nodes, size_t *count) {
  *count = (size_t)graph_nodes(graph, nodes);
  return CU_OK;
}

CALL cuGraphNodeGetType(void *node, int *type) {
  uint64_t *arguments, to, from;
  *type = graph_node(node, &arguments, &to, &from) != NULL ? 0 : from != 0 ? 1 : 2;
  return CU_OK;
}

/* The arguments stay where they are: the last node asked for is read before the next. */
CALL cuGraphKernelNodeGetParams_v2(void *node, void *params) {
  static _Thread_local void *list[3];
  uint64_t *arguments, to, from;
  const standin_kernel *kernel = graph_node(node, &arguments, &to, &from);
  if (kernel == NULL) return CU_ERROR_INVALID_VALUE;
  for (int i = 0; i < 3; i++) list[i] = &arguments[i];
  struct {
    const void *function;
    unsigned sizes[7];
    void **parameters, **extra;
    void *kernel, *context;
  } answer = {.function = kernel, .parameters = list};
  memcpy(params, &answer, sizeof answer);
  return CU_OK;
}

static cu_result addresses(void *node, uint64_t *words, int to_at, int from_at) {
  uint64_t *arguments, to, from;
  if (graph_node(node, &arguments, &to, &from) != NULL) return CU_ERROR_INVALID_VALUE;
  words[from_at] = from;
  words[to_at] = to;
  return CU_OK;
}

CALL cuGraphMemcpyNodeGetParams(void *node, void *params) {
  memset(params, 0, 200);
  return addresses(node, params, 17, 6);
}

CALL cuGraphMemsetNodeGetParams(void *node, void *params) {
  memset(params, 0, 40);
  return addresses(node, params, 0, 4);
}

CALL cuGraphExecDestroy(void *executable) {
  return executable != NULL ? CU_OK : CU_ERROR_INVALID_VALUE;
}

CALL cuStreamIsCapturing(cu_stream stream, int *status) {
  *status = capture_of(stream) < 8;
  return CU_OK;
}

CALL cuDeviceGetGraphMemAttribute(cu_device device, int which, void *value) {
  (void)device;
  uint64_t answer = 0;
  memcpy(value, &answer, sizeof answer);
  return which == 2 ? CU_OK : CU_ERROR_INVALID_VALUE;
}
