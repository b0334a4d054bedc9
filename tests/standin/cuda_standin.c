/* Stand-in libcuda: a driver in host memory that follows the rules of the real one as far as
 * callers depend on them.
 *
 * Pages are memfds, mapped with mmap; streams are in queue.c; contexts form a stack per thread, and
 * a call that needs one returns INVALID_CONTEXT without it. It allows what a real driver allows
 * (releasing a mapped page), so that tests exercise our own checks. */
#include "standin/cuda_standin.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/cuda_driver.h"
#include "standin/queue.h"

#define GRANULE      ((size_t)2 << 20)
#define DEVICES_MAX  8
#define LIST_MAX     8192
#define STACK_MAX    32
#define CONTEXTS_MAX 8
#define NAMES_MAX    256

typedef enum kind { FREE, PAGE, RANGE, MAPPING, PLAIN, PINNED, STREAM, EVENT } kind;

/* Defined in more.c. */
typedef struct CUmemPoolHandle_st *cu_pool;
cu_result cuMemFreeAsync(cu_addr addr, cu_stream stream);
int standin_pooled(cu_addr addr, cu_pool *pool, size_t *bytes);

/* Every object that the driver returned is one of these. */
typedef struct thing {
  uint64_t addr;
  size_t bytes;
  struct thing *page; /* for a mapping: its page */
  kind what;
  int location, fd, device;
  cu_context context; /* for a plain block, a stream, an event: its context, with which it is
                       * destroyed */
  int maps, handles;  /* for a page, which exists while it has either */
  int recorded;       /* for an event */
  int reachable;      /* for a mapping: access was granted */
  standin_event *event;
  standin_queue *queue; /* for a stream */
} thing;

struct CUctx_st {
  int device, users;
};

static pthread_cond_t let_go = PTHREAD_COND_INITIALIZER;
static thing things[LIST_MAX];
static int top; /* all entries in use are below it */
static struct CUctx_st primary[DEVICES_MAX], made[CONTEXTS_MAX];
static size_t used_bytes[DEVICES_MAX];
static size_t vram_bytes = (size_t)1 << 30, context_bytes;
static int version = STANDIN_CUDA, devices = 1, started, held, sticky, mode;
static int no_vmm, loose;
static const char *host_words = "";
static char fail_name[64];
static int fail_code, fail_after;
static int fail_left; /* how many more calls fail; 0: all */
static struct {
  const char *name;
  int count;
} calls[NAMES_MAX];
static _Thread_local cu_context stack[STACK_MAX];
static _Thread_local int depth, capture_mode;

/* ---- controls ---- */

int standin_depth(void) {
  return depth;
}
int standin_capture_mode(void) {
  return capture_mode;
}
void standin_hold(int on) {
  pthread_mutex_lock(&standin_mutex);
  held = on;
  pthread_cond_broadcast(&let_go);
  queue_wake();
  pthread_mutex_unlock(&standin_mutex);
}
void standin_fail(const char *name, int code, int nth) {
  snprintf(fail_name, sizeof fail_name, "%s", name != NULL ? name : "");
  fail_code = code;
  fail_after = nth;
  fail_left = 0;
}
void standin_fail_some(const char *name, int code, int nth, int times) {
  pthread_mutex_lock(&standin_mutex);
  standin_fail(name, code, nth);
  fail_left = times;
  pthread_mutex_unlock(&standin_mutex);
}
int standin_live(void) {
  int live = 0;
  for (int i = 0; i < LIST_MAX; i++) live += things[i].what != FREE;
  for (int i = 0; i < DEVICES_MAX; i++) live += primary[i].users > 0;
  for (int i = 0; i < CONTEXTS_MAX; i++) live += made[i].users > 0;
  return live;
}
int standin_calls(const char *name) {
  for (int i = 0; i < NAMES_MAX && calls[i].name != NULL; i++)
    if (strcmp(calls[i].name, name) == 0) return calls[i].count;
  return 0;
}

/* ---- each call ---- */

static int host_is(const char *word) {
  return strstr(host_words, word) != NULL;
}

/* Counts the call. Returns the error it must return, or 0. */
static int begin(const char *name, int needs_context) {
  int i = 0;
  while (i < NAMES_MAX - 1 && calls[i].name != NULL && strcmp(calls[i].name, name) != 0) i++;
  calls[i].name = name;
  calls[i].count++;
  if (!started) return CU_ERROR_NOT_INITIALIZED;
  if (sticky) return sticky;
  if (strcmp(name, fail_name) == 0 && --fail_after <= 0) {
    if (fail_code == -SIGKILL) raise(SIGKILL);
    if (fail_left > 0 && --fail_left == 0) fail_name[0] = '\0';
    if (fail_code >= 700 && fail_code < 800) sticky = fail_code;
    return fail_code;
  }
  if (needs_context && depth == 0) return CU_ERROR_INVALID_CONTEXT;
  if (needs_context && stack[depth - 1]->users == 0) return CU_ERROR_CONTEXT_IS_DESTROYED;
  return CU_OK;
}

#define BEGIN(needs_context)                                                                       \
  pthread_mutex_lock(&standin_mutex);                                                              \
  int begun = begin(__func__, needs_context);                                                      \
  if (begun != CU_OK) {                                                                            \
    pthread_mutex_unlock(&standin_mutex);                                                          \
    return begun;                                                                                  \
  }
#define END(code)                                                                                  \
  do {                                                                                             \
    int ended = (code);                                                                            \
    pthread_mutex_unlock(&standin_mutex);                                                          \
    return ended;                                                                                  \
  } while (0)

static thing *add(kind what) {
  for (int i = 0; i < LIST_MAX; i++)
    if (things[i].what == FREE) {
      things[i] = (thing){.what = what, .fd = -1};
      if (i >= top) top = i + 1;
      return &things[i];
    }
  return NULL;
}

static thing *find(kind what, uint64_t addr) {
  for (int i = 0; i < top; i++)
    if (things[i].what == what && things[i].addr == addr) return &things[i];
  return NULL;
}

/* Returns the object of a handle, which is its address. */
static thing *from_handle(kind what, const void *handle) {
  const thing *t = handle;
  if (t < things || t >= things + LIST_MAX || t->what != what) return NULL;
  return (thing *)(uintptr_t)handle;
}

#define CALL cu_result __attribute__((visibility("default")))

/* The driver's own functions, which no header here declares. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

/* ---- initialization, texts ---- */

static long number(const char *name, long otherwise) {
  const char *text = getenv(name);
  return text != NULL ? strtol(text, NULL, 10) : otherwise;
}

CALL cuInit(unsigned flags) {
  pthread_mutex_lock(&standin_mutex);
  version = (int)number("STANDIN_VERSION", STANDIN_CUDA);
  devices = (int)number("STANDIN_DEVICES", 1);
  vram_bytes = (size_t)number("STANDIN_VRAM", 1l << 30);
  context_bytes = (size_t)number("STANDIN_CONTEXT", 0);
  no_vmm = (int)number("STANDIN_NO_VMM", 0);
  mode = (int)number("STANDIN_MODE", 0);
  loose = getenv("STANDIN_ALIGN") != NULL;
  if (getenv("STANDIN_HOST") != NULL) host_words = getenv("STANDIN_HOST");
  const char *fail = getenv("STANDIN_FAIL");
  fail_after = 1;
  if (fail != NULL) {
    size_t size = strcspn(fail, ":");
    snprintf(fail_name, sizeof fail_name, "%.*s", (int)size, fail);
    char *end = (char *)(uintptr_t)(fail + size);
    if (*end == ':') fail_code = (int)strtol(end + 1, &end, 10);
    if (*end == ':') fail_after = (int)strtol(end + 1, &end, 10);
    fail_left = strcmp(end, ":once") == 0;
  }
  queue_start();
  started = 1;
  int code = begin(__func__, 0);
  if (code == CU_OK && devices == 0) code = CU_ERROR_NO_DEVICE;
  END(flags != 0 ? CU_ERROR_INVALID_VALUE : code);
}

CALL cuDriverGetVersion(int *out) {
  *out = version;
  return CU_OK;
}

static const struct {
  int code;
  const char *name, *words;
} WORDS[] = {{0, "CUDA_SUCCESS", "no error"},
             {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
             {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
             {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
             {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
             {600, "CUDA_ERROR_NOT_READY", "device not ready"},
             {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
             {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
             {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
             {999, "CUDA_ERROR_UNKNOWN", "unknown error"}};

static cu_result words_of(int code, const char **text, int words) {
  *text = NULL;
  for (size_t i = 0; i < sizeof WORDS / sizeof WORDS[0]; i++)
    if (WORDS[i].code == code) *text = words ? WORDS[i].words : WORDS[i].name;
  return *text != NULL ? CU_OK : CU_ERROR_INVALID_VALUE;
}
CALL cuGetErrorName(cu_result code, const char **text) {
  return words_of(code, text, 0);
}
CALL cuGetErrorString(cu_result code, const char **text) {
  return words_of(code, text, 1);
}

/* ---- devices and contexts ---- */

static void end_context(const struct CUctx_st *context);

CALL cuDeviceGetCount(int *count) {
  BEGIN(0);
  *count = devices;
  END(CU_OK);
}
CALL cuDeviceGet(cu_device *device, int index) {
  BEGIN(0);
  *device = index;
  END(index >= 0 && index < devices ? CU_OK : CU_ERROR_INVALID_DEVICE);
}
CALL cuDeviceGetName(char *name, int size, cu_device device) {
  BEGIN(0);
  snprintf(name, (size_t)size, "Stand-in %d", device);
  END(CU_OK);
}
/* Two devices differ only in the last byte, so that a prefix can be ambiguous. */
CALL cuDeviceGetUuid(cu_uuid *uuid, cu_device device) {
  BEGIN(0);
  memset(uuid->bytes, 0xab, sizeof uuid->bytes);
  uuid->bytes[15] = (unsigned char)device;
  END(CU_OK);
}
CALL cuDeviceGetUuid_v2(cu_uuid *uuid, cu_device device) {
  return cuDeviceGetUuid(uuid, device);
}
CALL cuDeviceTotalMem_v2(size_t *bytes, cu_device device) {
  BEGIN(0);
  (void)device;
  *bytes = vram_bytes;
  END(CU_OK);
}
CALL cuDeviceGetAttribute(int *value, int which, cu_device device) {
  BEGIN(0);
  (void)device;
  switch (which) {
  case CU_ATTRIBUTE_COMPUTE_MODE: *value = mode; break;
  case CU_ATTRIBUTE_COMPUTE_MAJOR: *value = 9; break;
  case CU_ATTRIBUTE_COMPUTE_MINOR: *value = 0; break;
  case CU_ATTRIBUTE_VMM: *value = !no_vmm; break;
  case CU_ATTRIBUTE_HOST_NUMA_ID:
    if (version < 12030) END(CU_ERROR_INVALID_VALUE);
    *value = 0;
    break;
  case CU_ATTRIBUTE_HOST_NUMA_VMM:
    if (version < 12090) END(CU_ERROR_INVALID_VALUE);
    *value = !host_is("no-numa");
    break;
  default: END(CU_ERROR_INVALID_VALUE);
  }
  END(CU_OK);
}
CALL cuDevicePrimaryCtxRetain(cu_context *context, cu_device device) {
  BEGIN(0);
  if (primary[device].users++ == 0) {
    primary[device].device = device; /* threads that use the context read this without the lock */
    used_bytes[device] += context_bytes;
  }
  *context = &primary[device];
  END(CU_OK);
}
CALL cuDevicePrimaryCtxRelease_v2(cu_device device) {
  BEGIN(0);
  if (primary[device].users == 0) END(CU_ERROR_INVALID_CONTEXT);
  if (--primary[device].users == 0) {
    end_context(&primary[device]);
    used_bytes[device] -= context_bytes;
  }
  END(CU_OK);
}
CALL cuCtxGetCurrent(cu_context *context) {
  BEGIN(0);
  *context = depth > 0 ? stack[depth - 1] : NULL;
  END(CU_OK);
}
CALL cuCtxSetCurrent(cu_context context) {
  BEGIN(0);
  if (context == NULL)
    depth -= depth > 0;
  else if (depth > 0)
    stack[depth - 1] = context;
  else
    stack[depth++] = context;
  END(CU_OK);
}
CALL cuCtxPushCurrent_v2(cu_context context) {
  BEGIN(0);
  if (context == NULL || depth == STACK_MAX) END(CU_ERROR_INVALID_CONTEXT);
  if (context->users == 0) END(CU_ERROR_CONTEXT_IS_DESTROYED);
  stack[depth++] = context;
  END(CU_OK);
}
CALL cuCtxPopCurrent_v2(cu_context *context) {
  pthread_mutex_lock(&standin_mutex);
  if (depth == 0) END(CU_ERROR_INVALID_CONTEXT);
  *context = stack[--depth];
  END(CU_OK);
}
CALL cuThreadExchangeStreamCaptureMode(int *exchange) {
  int old = capture_mode;
  capture_mode = *exchange;
  *exchange = old;
  return CU_OK;
}

/* Used by queue.c, kernels.c and more.c. */
bool standin_held(void) {
  return held != 0;
}
cu_context standin_context(void) {
  return depth > 0 ? stack[depth - 1] : NULL;
}
int standin_begin(const char *name, int needs_context) {
  return begin(name, needs_context);
}
standin_queue *standin_stream_queue(cu_stream stream) {
  const thing *t = from_handle(STREAM, stream);
  return t != NULL ? t->queue : NULL;
}
int standin_place(uint64_t addr, uint64_t *end) {
  int inside = 0;
  for (int i = 0; i < top; i++) {
    const thing *t = &things[i];
    if (t->what < RANGE || t->what > PINNED || addr < t->addr || addr - t->addr >= t->bytes)
      continue;
    inside = -1;
    if (t->what == RANGE || (t->what == MAPPING && !t->reachable)) continue;
    *end = t->addr + t->bytes;
    return 1;
  }
  return inside;
}
int standin_file(uint64_t addr, uint64_t *offset, uint64_t *left) {
  for (int i = 0; i < top; i++) {
    const thing *t = &things[i];
    if (t->what != MAPPING || addr < t->addr || addr - t->addr >= t->bytes) continue;
    *offset = addr - t->addr;
    *left = t->bytes - *offset;
    return t->page->fd;
  }
  return -1;
}

/* Used by more.c: the device of the thread's context (-1 without one), and whether there is one. */
int standin_device(void) {
  return depth > 0 ? stack[depth - 1]->device : -1;
}
int standin_active(int device) {
  pthread_mutex_lock(&standin_mutex);
  END(primary[device].users > 0);
}

/* ---- memory ---- */

/* Takes `bytes` of vram on a device. Returns false if it is full. */
static int take_vram(int device, size_t bytes) {
  if (bytes > vram_bytes - used_bytes[device]) return 0;
  used_bytes[device] += bytes;
  return 1;
}

CALL cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
  BEGIN(1);
  if (free_bytes != NULL) *free_bytes = vram_bytes - used_bytes[stack[depth - 1]->device];
  if (total_bytes != NULL) *total_bytes = vram_bytes;
  END(CU_OK);
}
static cu_result alloc_plain(cu_addr *addr, size_t bytes, int device, cu_context context) {
  if (!take_vram(device, bytes)) return CU_ERROR_OUT_OF_MEMORY;
  thing *t = add(PLAIN);
  t->bytes = bytes;
  t->device = device;
  t->context = context;
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *addr = t->addr = (uintptr_t)at;
  return CU_OK;
}
CALL cuMemAlloc_v2(cu_addr *addr, size_t bytes) {
  BEGIN(1);
  if (bytes == 0) END(CU_ERROR_INVALID_VALUE);
  END(alloc_plain(addr, bytes, stack[depth - 1]->device, stack[depth - 1]));
}
/* Used by more.c: allocates a block that belongs to no context. */
cu_result standin_step(int device, cu_addr *addr, size_t bytes) {
  pthread_mutex_lock(&standin_mutex);
  END(alloc_plain(addr, bytes, device, NULL));
}
CALL cuMemFree_v2(cu_addr addr) {
  BEGIN(1);
  thing *t = find(PLAIN, addr);
  if (t == NULL) {
    /* A block of a pool may be freed this way too. */
    pthread_mutex_unlock(&standin_mutex);
    return cuMemFreeAsync(addr, NULL);
  }
  queue_sync(NULL); /* as the driver does */
  munmap((void *)(uintptr_t)addr, t->bytes);
  used_bytes[t->device] -= t->bytes;
  t->what = FREE;
  END(CU_OK);
}
static void end_thing(thing *t) {
  if (t->queue != NULL) queue_destroy(t->queue);
  if (t->event != NULL) event_drop(t->event);
  t->what = FREE;
}
/* Destroys everything of a context; pages belong to no context. */
static void end_context(const struct CUctx_st *context) {
  queue_sync(NULL);
  for (int i = 0; i < LIST_MAX; i++)
    if ((things[i].what == STREAM || things[i].what == EVENT) && things[i].context == context)
      end_thing(&things[i]);
    else if (things[i].what == PLAIN && things[i].context == context) {
      munmap((void *)(uintptr_t)things[i].addr, things[i].bytes);
      used_bytes[context->device] -= things[i].bytes;
      things[i].what = FREE;
    }
}
CALL cuDevicePrimaryCtxReset_v2(cu_device device) {
  BEGIN(0);
  end_context(&primary[device]);
  END(CU_OK);
}
CALL cuCtxCreate_v2(cu_context *context, unsigned flags, cu_device device) {
  BEGIN(0);
  int i = 0;
  while (i < CONTEXTS_MAX && made[i].users > 0) i++;
  if (flags != 0 || i == CONTEXTS_MAX || depth == STACK_MAX) END(CU_ERROR_INVALID_VALUE);
  if (!take_vram(device, context_bytes)) END(CU_ERROR_OUT_OF_MEMORY);
  made[i] = (struct CUctx_st){device, 1};
  *context = stack[depth++] = &made[i];
  END(CU_OK);
}
CALL cuCtxDestroy_v2(cu_context context) {
  BEGIN(0);
  if (context < made || context >= made + CONTEXTS_MAX || context->users == 0)
    END(CU_ERROR_INVALID_CONTEXT);
  end_context(context);
  context->users = 0;
  used_bytes[context->device] -= context_bytes;
  if (depth > 0 && stack[depth - 1] == context) depth--;
  END(CU_OK);
}
CALL cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags) {
  BEGIN(1);
  if (host_is("no-pinned")) END(CU_ERROR_NOT_SUPPORTED);
  if (flags & ~7u) END(CU_ERROR_INVALID_VALUE);
  thing *t = add(PINNED);
  t->bytes = bytes;
  *pointer = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  t->addr = (uintptr_t)*pointer;
  END(CU_OK);
}
CALL cuMemFreeHost(void *pointer) {
  BEGIN(1);
  thing *t = find(PINNED, (uintptr_t)pointer);
  if (t == NULL) END(CU_ERROR_INVALID_VALUE);
  queue_sync(NULL);
  munmap(pointer, t->bytes);
  t->what = FREE;
  END(CU_OK);
}
CALL cuMemHostGetDevicePointer_v2(cu_addr *addr, void *pointer, unsigned flags) {
  BEGIN(1);
  if (flags != 0 || find(PINNED, (uintptr_t)pointer) == NULL) END(CU_ERROR_INVALID_VALUE);
  *addr = (uintptr_t)pointer;
  END(CU_OK);
}
static cu_result copy(const char *name, cu_addr to, cu_addr from, size_t bytes, cu_stream stream,
                      int per_thread, int wait) {
  pthread_mutex_lock(&standin_mutex);
  int begun = begin(name, 1);
  if (begun != CU_OK) END(begun);
  standin_queue *q = queue_of(stream, per_thread != 0);
  if (q == NULL) END(CU_ERROR_INVALID_HANDLE);
  queue_copy(q, to, from, bytes);
  if (wait) queue_sync(q);
  END(CU_OK);
}
CALL cuMemcpyAsync(cu_addr to, cu_addr from, size_t bytes, cu_stream stream) {
  return copy(__func__, to, from, bytes, stream, 0, 0);
}
CALL cuMemcpyAsync_ptsz(cu_addr to, cu_addr from, size_t bytes, cu_stream stream) {
  return copy(__func__, to, from, bytes, stream, 1, 0);
}
CALL cuMemcpyHtoDAsync_v2(cu_addr to, const void *from, size_t bytes, cu_stream stream) {
  return copy(__func__, to, (uintptr_t)from, bytes, stream, 0, 0);
}
CALL cuMemcpyDtoHAsync_v2(void *to, cu_addr from, size_t bytes, cu_stream stream) {
  return copy(__func__, (uintptr_t)to, from, bytes, stream, 0, 0);
}
CALL cuMemcpyDtoDAsync_v2(cu_addr to, cu_addr from, size_t bytes, cu_stream stream) {
  return copy(__func__, to, from, bytes, stream, 0, 0);
}
CALL cuMemcpyHtoD_v2(cu_addr to, const void *from, size_t bytes) {
  int code = standin_unsafe();
  return code != CU_OK ? code : copy(__func__, to, (uintptr_t)from, bytes, NULL, 0, 1);
}
CALL cuMemcpyDtoH_v2(void *to, cu_addr from, size_t bytes) {
  int code = standin_unsafe();
  return code != CU_OK ? code : copy(__func__, (uintptr_t)to, from, bytes, NULL, 0, 1);
}
CALL cuMemsetD8Async(cu_addr to, unsigned char value, size_t bytes, cu_stream stream) {
  BEGIN(1);
  standin_queue *q = queue_of(stream, false);
  if (q == NULL) END(CU_ERROR_INVALID_HANDLE);
  queue_set(q, to, value, bytes);
  END(CU_OK);
}

/* ---- ranges and pages ---- */

CALL cuMemAddressReserve(cu_addr *addr, size_t bytes, size_t align, cu_addr hint,
                         unsigned long long flags) {
  BEGIN(0);
  if (no_vmm) END(CU_ERROR_NOT_SUPPORTED);
  if (bytes == 0 || bytes % GRANULE != 0 || flags != 0) END(CU_ERROR_INVALID_VALUE);
  if (align < GRANULE || loose) align = GRANULE;
  if (bytes > (size_t)1 << 46) END(CU_ERROR_OUT_OF_MEMORY);
  char *wide = mmap((void *)(uintptr_t)hint, bytes + align + GRANULE, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (wide == MAP_FAILED) END(CU_ERROR_OUT_OF_MEMORY);
  uintptr_t start = ((uintptr_t)wide + align - 1) & ~(uintptr_t)(align - 1);
  if (loose && start % (4 * GRANULE) == 0)
    start += GRANULE; /* an address that is aligned by chance
                       * would test nothing */
  if (start > (uintptr_t)wide) munmap(wide, start - (uintptr_t)wide);
  char *end = wide + bytes + align + GRANULE;
  munmap((char *)start + bytes, (size_t)(end - ((char *)start + bytes)));
  thing *t = add(RANGE);
  t->bytes = bytes;
  *addr = t->addr = start;
  END(CU_OK);
}
CALL cuMemAddressFree(cu_addr addr, size_t bytes) {
  BEGIN(0);
  thing *t = find(RANGE, addr);
  if (t == NULL || t->bytes != bytes) END(CU_ERROR_INVALID_VALUE);
  munmap((void *)(uintptr_t)addr, bytes);
  t->what = FREE;
  END(CU_OK);
}

/* Returns the result of creating a page at a host location, according to STANDIN_HOST. */
static cu_result host_answer(const cu_location *location) {
  if (version < 12020 || host_is("crash")) {
    /* Crashes, as the driver does. */
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
  }
  if (host_is("hang")) pause();
  if (host_is("refuse")) return CU_ERROR_NOT_SUPPORTED;
  if (location->type == CU_LOCATION_HOST_NUMA && host_is("no-numa")) return CU_ERROR_NOT_SUPPORTED;
  if (location->type == CU_LOCATION_HOST_NUMA && host_is("node1") && location->id != 1)
    return CU_ERROR_INVALID_VALUE;
  return CU_OK;
}

CALL cuMemGetAllocationGranularity(size_t *bytes, const cu_prop *prop, int option) {
  BEGIN(0);
  if (no_vmm) END(CU_ERROR_NOT_SUPPORTED);
  if (prop->type != CU_ALLOCATION_PINNED || option != 0) END(CU_ERROR_INVALID_VALUE);
  *bytes = GRANULE;
  END(CU_OK);
}
/* Lets two processes create and release pages in turn: the n-th call waits, at most a second, until
 * both have made n. STANDIN_TURNS names the file of four bytes in which they count. */
static void take_turns(void) {
  static _Atomic unsigned *all;
  static unsigned own;
  static int alone;
  const char *path = getenv("STANDIN_TURNS");
  if (path == NULL || alone) return;
  if (all == NULL) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *shared = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || shared == MAP_FAILED) abort();
    close(fd);
    all = shared;
  }
  (*all)++;
  own++;
  for (int ms = 0; *all < 2 * own && !alone; ms++) {
    usleep(1000);
    alone = ms > 1000;
  }
}

CALL cuMemCreate(cu_handle *handle, size_t bytes, const cu_prop *prop, unsigned long long flags) {
  take_turns();
  BEGIN(0);
  if (no_vmm) END(CU_ERROR_NOT_SUPPORTED);
  if (bytes == 0 || bytes % GRANULE != 0 || prop->type != CU_ALLOCATION_PINNED ||
      prop->handle_types > (prop->location.type == CU_LOCATION_DEVICE) || flags != 0)
    END(CU_ERROR_INVALID_VALUE);
  int type = prop->location.type;
  if (type == CU_LOCATION_HOST || type == CU_LOCATION_HOST_NUMA) {
    cu_result code = host_answer(&prop->location);
    if (code != CU_OK) END(code);
  } else if (type != CU_LOCATION_DEVICE)
    END(CU_ERROR_INVALID_VALUE);
  if (type == CU_LOCATION_DEVICE && !take_vram(prop->location.id, bytes))
    END(CU_ERROR_OUT_OF_MEMORY);
  thing *t = add(PAGE);
  t->bytes = bytes;
  t->location = type;
  t->device = type == CU_LOCATION_DEVICE ? prop->location.id : -1;
  t->handles = 1;
  t->fd = memfd_create("standin", MFD_CLOEXEC);
  if (t->fd < 0 || ftruncate(t->fd, (off_t)bytes) != 0) END(CU_ERROR_UNKNOWN);
  *handle = (uintptr_t)t;
  END(CU_OK);
}

static void drop_page(thing *page) {
  if (page->handles > 0 || page->maps > 0) return;
  close(page->fd);
  if (page->device >= 0) used_bytes[page->device] -= page->bytes;
  page->what = FREE;
}

CALL cuMemRelease(cu_handle handle) {
  take_turns();
  BEGIN(0);
  thing *page = from_handle(PAGE, (void *)(uintptr_t)handle);
  if (page == NULL || page->handles == 0) END(CU_ERROR_INVALID_VALUE);
  page->handles--;
  drop_page(page);
  END(CU_OK);
}
CALL cuMemMap(cu_addr addr, size_t bytes, size_t offset, cu_handle handle,
              unsigned long long flags) {
  BEGIN(0);
  thing *page = from_handle(PAGE, (void *)(uintptr_t)handle);
  if (page == NULL || page->handles == 0 || offset != 0 || flags != 0 || bytes != page->bytes ||
      addr % GRANULE != 0 || find(MAPPING, addr) != NULL)
    END(CU_ERROR_INVALID_VALUE);
  thing *t = add(MAPPING);
  t->addr = addr;
  t->bytes = bytes;
  t->page = page;
  page->maps++;
  void *at = mmap((void *)(uintptr_t)addr, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, page->fd, 0);
  END(at != MAP_FAILED ? CU_OK : CU_ERROR_UNKNOWN);
}
CALL cuMemUnmap(cu_addr addr, size_t bytes) {
  BEGIN(0);
  queue_check_unused(__func__, addr, bytes);
  for (size_t done = 0; done < bytes;) {
    thing *t = find(MAPPING, addr + done);
    if (t == NULL || done + t->bytes > bytes) END(CU_ERROR_INVALID_VALUE);
    if (mmap((void *)(uintptr_t)t->addr, t->bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
      END(CU_ERROR_UNKNOWN);
    t->page->maps--;
    drop_page(t->page);
    done += t->bytes;
    t->what = FREE;
  }
  END(CU_OK);
}
CALL cuMemSetAccess(cu_addr addr, size_t bytes, const cu_access *access, size_t count) {
  BEGIN(0);
  int rights = access->flags == CU_ACCESS_READ_WRITE ? PROT_READ | PROT_WRITE
               : access->flags == 1                  ? PROT_READ
                                                     : PROT_NONE;
  if (count != 1 || (access->flags & ~CU_ACCESS_READ_WRITE) != 0 || access->flags == 2 ||
      access->location.type != CU_LOCATION_DEVICE || access->location.id >= devices)
    END(CU_ERROR_INVALID_VALUE);
  for (size_t done = 0; done < bytes;) {
    thing *t = find(MAPPING, addr + done);
    if (t == NULL || done + t->bytes > bytes) END(CU_ERROR_INVALID_VALUE);
    mprotect((void *)(uintptr_t)t->addr, t->bytes, rights);
    t->reachable = rights != PROT_NONE;
    done += t->bytes;
  }
  END(CU_OK);
}

CALL cuMemExportToShareableHandle(void *shareable, cu_handle handle, int type,
                                  unsigned long long flags) {
  BEGIN(0);
  const thing *page = from_handle(PAGE, (void *)(uintptr_t)handle);
  if (page == NULL || page->handles == 0 || type != 1 || flags != 0) END(CU_ERROR_INVALID_VALUE);
  int fd = dup(page->fd);
  memcpy(shareable, &fd, sizeof fd);
  END(CU_OK);
}
CALL cuMemRetainAllocationHandle(cu_handle *handle, void *addr) {
  BEGIN(0);
  for (int i = 0; i < LIST_MAX; i++)
    if (things[i].what == MAPPING && (uintptr_t)addr >= things[i].addr &&
        (uintptr_t)addr - things[i].addr < things[i].bytes) {
      things[i].page->handles++;
      *handle = (uintptr_t)things[i].page;
      END(CU_OK);
    }
  END(CU_ERROR_INVALID_VALUE);
}
int standin_location(unsigned long long addr) {
  const thing *t = find(MAPPING, addr);
  return t == NULL ? 0 : t->page->location;
}

/* ---- streams and events ---- */

CALL cuStreamCreate(cu_stream *stream, unsigned flags) {
  BEGIN(1);
  if ((flags & ~(unsigned)CU_STREAM_NON_BLOCKING_FLAG) != 0) END(CU_ERROR_INVALID_VALUE);
  thing *t = add(STREAM);
  t->context = stack[depth - 1];
  t->queue = queue_new(t->context, flags == 0);
  *stream = (cu_stream)(void *)t;
  END(CU_OK);
}
CALL cuStreamDestroy_v2(cu_stream stream) {
  BEGIN(1);
  thing *t = from_handle(STREAM, stream);
  if (t == NULL) END(CU_ERROR_INVALID_HANDLE);
  end_thing(t);
  END(CU_OK);
}
static void wait_let_go(void) {
  while (held && !queue_async()) pthread_cond_wait(&let_go, &standin_mutex);
}
CALL cuCtxSynchronize(void) {
  int unsafe = standin_unsafe();
  if (unsafe != CU_OK) return unsafe;
  BEGIN(1);
  wait_let_go();
  queue_sync_context(stack[depth - 1]);
  END(CU_OK);
}
CALL cuStreamSynchronize(cu_stream stream) {
  int unsafe = standin_unsafe();
  if (unsafe != CU_OK) return unsafe;
  BEGIN(1);
  standin_queue *q = queue_of(stream, false);
  if (q == NULL) END(CU_ERROR_INVALID_HANDLE);
  wait_let_go();
  queue_sync(q);
  END(CU_OK);
}
CALL cuStreamWaitEvent(cu_stream stream, cu_event event, unsigned flags) {
  BEGIN(1);
  thing *t = from_handle(EVENT, event);
  standin_queue *q = queue_of(stream, false);
  if (flags != 0 || t == NULL || q == NULL) END(CU_ERROR_INVALID_HANDLE);
  queue_wait_event(q, t->event);
  END(CU_OK);
}
CALL cuEventCreate(cu_event *event, unsigned flags) {
  BEGIN(1);
  if ((flags & ~(unsigned)CU_EVENT_NO_TIMING) != 0) END(CU_ERROR_INVALID_VALUE);
  thing *t = add(EVENT);
  t->context = stack[depth - 1];
  t->event = event_new();
  *event = (cu_event)(void *)t;
  END(CU_OK);
}
CALL cuEventDestroy_v2(cu_event event) {
  BEGIN(1);
  thing *t = from_handle(EVENT, event);
  if (t == NULL) END(CU_ERROR_INVALID_HANDLE);
  end_thing(t);
  END(CU_OK);
}
CALL cuEventRecord(cu_event event, cu_stream stream) {
  BEGIN(1);
  thing *t = from_handle(EVENT, event);
  standin_queue *q = queue_of(stream, false);
  if (t == NULL || q == NULL) END(CU_ERROR_INVALID_HANDLE);
  t->recorded = 1;
  queue_record(q, t->event);
  END(CU_OK);
}
#if STANDIN_CUDA >= 12050
CALL cuCtxRecordEvent(cu_context context, cu_event event) {
  BEGIN(0);
  thing *t = from_handle(EVENT, event);
  if (version < 12050) END(CU_ERROR_NOT_SUPPORTED);
  if (t == NULL || context == NULL) END(CU_ERROR_INVALID_HANDLE);
  t->recorded = 1;
  queue_record_all(context, t->event);
  END(CU_OK);
}
#endif
CALL cuEventQuery(cu_event event) {
  int unsafe = standin_unsafe();
  if (unsafe != CU_OK) return unsafe;
  BEGIN(1);
  thing *t = from_handle(EVENT, event);
  if (t == NULL) END(CU_ERROR_INVALID_HANDLE);
  int waits = queue_async() ? t->event->reached < t->event->recorded : t->recorded && held;
  END(waits ? CU_ERROR_NOT_READY : CU_OK);
}
CALL cuEventElapsedTime(float *milliseconds, cu_event start, cu_event end) {
  BEGIN(1);
  const thing *a = from_handle(EVENT, start), *b = from_handle(EVENT, end);
  if (a == NULL || b == NULL) END(CU_ERROR_INVALID_HANDLE);
  if (queue_async() && (a->event->recorded == 0 || b->event->recorded == 0))
    END(CU_ERROR_INVALID_HANDLE);
  if (a->event->reached < a->event->recorded || b->event->reached < b->event->recorded)
    END(CU_ERROR_NOT_READY);
  *milliseconds =
      queue_async() ? (float)((double)(int64_t)(b->event->ns - a->event->ns) / 1e6) : 0.05f;
  END(CU_OK);
}
CALL cuEventSynchronize(cu_event event) {
  int unsafe = standin_unsafe();
  if (unsafe != CU_OK) return unsafe;
  BEGIN(1);
  thing *t = from_handle(EVENT, event);
  if (t == NULL) END(CU_ERROR_INVALID_HANDLE);
  if (t->recorded) wait_let_go();
  queue_sync_event(t->event);
  END(CU_OK);
}

/* ---- attributes of addresses ---- */

/* Returns the plain block or the mapping that contains the address. */
static const thing *around(cu_addr addr) {
  for (int i = 0; i < LIST_MAX; i++)
    if ((things[i].what == PLAIN || things[i].what == MAPPING) && addr >= things[i].addr &&
        addr - things[i].addr < things[i].bytes)
      return &things[i];
  return NULL;
}
CALL cuMemGetAddressRange_v2(cu_addr *base, size_t *bytes, cu_addr addr) {
  BEGIN(1);
  const thing *t = around(addr);
  if (t == NULL) END(CU_ERROR_INVALID_VALUE);
  if (base != NULL) *base = t->addr;
  if (bytes != NULL) *bytes = t->bytes;
  END(CU_OK);
}
/* For a mapping it reports neither context nor device, because its pages may belong to any. */
CALL cuPointerGetAttribute(void *value, int which, cu_addr addr) {
  cu_pool pool = NULL;
  size_t bytes = 0;
  int pooled = (which == 12 || which == 17) && standin_pooled(addr, &pool, &bytes);
  BEGIN(1);
  if (pooled) {
    memcpy(value, which == 12 ? (void *)&bytes : (void *)&pool, 8);
    END(CU_OK);
  }
  const thing *t = around(addr);
  if (t == NULL || which == 17) END(CU_ERROR_INVALID_VALUE);
  cu_context context = t->what == PLAIN ? &primary[t->device] : NULL;
  int device = t->what == PLAIN ? t->device : -2;
  unsigned type = t->what == MAPPING && t->page->location != CU_LOCATION_DEVICE ? 1 : 2;
  switch (which) {
  case 1: memcpy(value, &context, sizeof context); break;
  case 2: memcpy(value, &type, sizeof type); break;
  case 9: memcpy(value, &device, sizeof device); break;
  case 11: memcpy(value, &t->addr, sizeof t->addr); break;
  case 12: memcpy(value, &t->bytes, sizeof t->bytes); break;
  default: END(CU_ERROR_INVALID_VALUE);
  }
  END(CU_OK);
}
CALL cuPointerGetAttributes(unsigned count, int *which, void **values, cu_addr addr) {
  for (unsigned i = 0; i < count; i++) {
    cu_result code = cuPointerGetAttribute(values[i], which[i], addr);
    if (code != CU_OK) return code;
  }
  return CU_OK;
}
/* Accepts only blocks of cuMemAlloc, like the driver. */
CALL cuIpcGetMemHandle(void *handle, cu_addr addr) {
  BEGIN(1);
  const thing *t = around(addr);
  if (t == NULL || t->what != PLAIN) END(CU_ERROR_INVALID_VALUE);
  memset(handle, 1, 64);
  END(CU_OK);
}
CALL cuCtxEnablePeerAccess(cu_context peer, unsigned flags) {
  BEGIN(1);
  END(peer != NULL && flags == 0 ? CU_OK : CU_ERROR_INVALID_VALUE);
}
