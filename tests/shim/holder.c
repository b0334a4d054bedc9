/* Holder: a program that allocates and frees device memory as its arguments say, and prints each
 * result.
 *
 *   holder WORD…
 *     alloc:BYTES free  falloc:BYTES (requested by a library with PyTorch's name)  pitch:BYTES
 *     managed:BYTES array:BYTES  async:BYTES afree  xpool xasync:BYTES (one to export)  pin:BYTES
 * unpin page:BYTES (make, map, grant)  unpage  pages:COUNTxBYTES (one request of many; what was
 * made is given back where one fails)  touch (writes and reads the last page) info half (of it)
 * total nvml driver (its own used figure)  capture endcapture  reset  say:TEXT read (waits for a
 * line) again:BYTES (alloc; is it where the last freed was?)  double (frees that again) busy idle
 * (the device's streams)  calls:NAME (of the stand-in driver) range:AT (of the last block, asked
 * from within)  ipc  poke:BYTES (writes it)  both:BYTES (two threads ask the pool at once) context
 * uncontext (one made by the program)  alias unalias access:FLAGS (of the last page) pool:DEVICE
 * hostpool unpool (for xasync, in the place of xpool) texels:FORMATxCHANNELS (an array of 4096 by
 * 4096)
 *
 * Every answer is one line, "WORD CODE", with figures after it for info and total. The last thing
 * taken of a kind is given back first. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/cuda_driver.h"
#include "shim/hooks.h"

static void *library;
static cu_addr taken[1024], async[1024], ranges[4096];
static cu_handle pages[4096];
static size_t range_bytes[4096];
static void *pinned[64];
static int taken_count, async_count, page_count, pinned_count;

#define DRIVER(name, type) ((type)(uintptr_t)dlsym(library, name))
#define HOOKED(name)       ((__typeof__(&name))(uintptr_t)dlsym(library, #name))

static void start(void) {
  cu_context context;
  library = dlopen("libcuda.so.1", RTLD_NOW);
  bool started = library != NULL && DRIVER("cuInit", cu_result(*)(unsigned))(0) == CU_OK;
  if (started && getenv("HOLDER_NO_PRIMARY") == NULL)
    started = DRIVER("cuDevicePrimaryCtxRetain",
                     cu_result(*)(cu_context *, cu_device))(&context, 0) == CU_OK &&
              DRIVER("cuCtxSetCurrent", cu_result(*)(cu_context))(context) == CU_OK;
  if (!started) {
    puts("no driver");
    exit(3);
  }
}

/* Maps one page at a new address. */
static int page(size_t bytes) {
  cu_prop prop = {.type = CU_ALLOCATION_PINNED, .location = {CU_LOCATION_DEVICE, 0}};
  cu_access access = {{CU_LOCATION_DEVICE, 0}, CU_ACCESS_READ_WRITE};
  cu_result code = HOOKED(cuMemCreate)(&pages[page_count], bytes, &prop, 0);
  if (code != CU_OK) return code;
  code = DRIVER("cuMemAddressReserve",
                cu_result(*)(cu_addr *, size_t, size_t, cu_addr, unsigned long long))(
      &ranges[page_count], bytes, 0, 0, 0);
  if (code == CU_OK) code = HOOKED(cuMemMap)(ranges[page_count], bytes, 0, pages[page_count], 0);
  if (code == CU_OK) code = HOOKED(cuMemSetAccess)(ranges[page_count], bytes, &access, 1);
  range_bytes[page_count++] = bytes;
  return code;
}

static int unpage(void) {
  if (page_count == 0) return 1;
  int i = --page_count;
  cu_result code = HOOKED(cuMemUnmap)(ranges[i], range_bytes[i]);
  if (code == CU_OK) code = HOOKED(cuMemRelease)(pages[i]);
  DRIVER("cuMemAddressFree", cu_result(*)(cu_addr, size_t))(ranges[i], range_bytes[i]);
  return code;
}

/* Requests pages like PyTorch's expandable segments: creates all pages of a request, maps them, and
 * grants access once; releases them if one is refused. */
static int request(int count, size_t bytes) {
  cu_prop prop = {.type = CU_ALLOCATION_PINNED, .location = {CU_LOCATION_DEVICE, 0}};
  cu_access access = {{CU_LOCATION_DEVICE, 0}, CU_ACCESS_READ_WRITE};
  cu_addr at;
  for (int i = 0; i < count; i++) {
    cu_result code = HOOKED(cuMemCreate)(&pages[page_count + i], bytes, &prop, 0);
    if (code == CU_OK) continue;
    while (i-- > 0) HOOKED(cuMemRelease)(pages[page_count + i]);
    return code;
  }
  DRIVER("cuMemAddressReserve",
         cu_result(*)(cu_addr *, size_t, size_t, cu_addr, unsigned long long))
  (&at, bytes * (size_t)count, 0, 0, 0);
  for (int i = 0; i < count; i++) {
    ranges[page_count + i] = at + (size_t)i * bytes;
    range_bytes[page_count + i] = bytes;
    HOOKED(cuMemMap)(ranges[page_count + i], bytes, 0, pages[page_count + i], 0);
  }
  page_count += count;
  return HOOKED(cuMemSetAccess)(at, bytes * (size_t)count, &access, 1);
}

static int touch(void) {
  unsigned char *at = (unsigned char *)(uintptr_t)ranges[page_count - 1];
  at[0] = 42;
  at[range_bytes[page_count - 1] - 1] = 43;
  return at[0] == 42 && at[range_bytes[page_count - 1] - 1] == 43 ? 0 : 1;
}

static cu_addr freed;
static cu_pool shared_pool;

static int make_pool(int handle_types, int location, int id) {
  static struct {
    cu_pool_props head;
    char rest[72]; /* as long as the driver's struct */
  } props;
  props.head = (cu_pool_props){CU_ALLOCATION_PINNED, handle_types, {location, id}};
  return HOOKED(cuMemPoolCreate)(&shared_pool, &props.head);
}

static int give(void) {
  if (taken_count == 0) return 1;
  freed = taken[--taken_count];
  return HOOKED(cuMemFree_v2)(freed);
}

/* Returns a control function of the stand-in driver, bypassing the shim. */
static void *standin(const char *name) {
  void *(*real)(const char *) = DRIVER("stow_shim_real", void *(*)(const char *));
  void *found = real != NULL ? real(name) : dlsym(library, name);
  if (found == NULL) {
    printf("no %s\n", name);
    exit(3);
  }
  return found;
}

static int again(const char *word, size_t bytes) {
  cu_result code = HOOKED(cuMemAlloc_v2)(&taken[taken_count], bytes);
  printf("%s %d %s\n", word, code, taken[taken_count] == freed ? "same" : "other");
  taken_count += code == CU_OK;
  return -1;
}

static int range(size_t inside) {
  cu_addr at = taken[taken_count - 1], base = 0, start = 0;
  size_t bytes = 0, size = 0;
  unsigned type = 0;
  int device = -1, which[] = {2, 9, 11, 12};
  void *values[] = {&type, &device, &start, &size};
  int code = HOOKED(cuMemGetAddressRange_v2)(&base, &bytes, at + inside);
  int other = HOOKED(cuPointerGetAttributes)(4, which, values, at + inside);
  printf("range %d %d base %d bytes %zu type %u device %d start %d size %zu aligned %d\n", code,
         other, base == at, bytes, type, device, start == at, size, at % 256 == 0);
  return -1;
}

/* Creates the program's own context, on top of the primary one. */
static int context_word(const char *word) {
  static cu_context made[8];
  static int count;
  if (strcmp(word, "context") == 0) {
    cu_result code = HOOKED(cuCtxCreate_v2)(&made[count], 0, 0);
    count += code == CU_OK;
    return code;
  }
  return count > 0 ? HOOKED(cuCtxDestroy_v2)(made[--count]) : 1;
}

static int grant(int flags) {
  cu_access access = {{CU_LOCATION_DEVICE, 0}, flags};
  return HOOKED(cuMemSetAccess)(ranges[page_count - 1], range_bytes[page_count - 1], &access, 1);
}

/* Maps the last page at a second address, or unmaps it there. */
static int alias(const char *word) {
  static cu_addr second;
  static size_t bytes;
  if (strcmp(word, "unalias") == 0) return HOOKED(cuMemUnmap)(second, bytes);
  bytes = range_bytes[page_count - 1];
  DRIVER("cuMemAddressReserve",
         cu_result(*)(cu_addr *, size_t, size_t, cu_addr, unsigned long long))
  (&second, bytes, 0, 0, 0);
  return HOOKED(cuMemMap)(second, bytes, 0, pages[page_count - 1], 0);
}

static void *ask_pool(void *answer) {
  cu_context context;
  DRIVER("cuDevicePrimaryCtxRetain", cu_result(*)(cu_context *, cu_device))(&context, 0);
  DRIVER("cuCtxSetCurrent", cu_result(*)(cu_context))(context);
  *(size_t *)answer = (size_t)HOOKED(cuMemAllocAsync)(&(cu_addr){0}, *(size_t *)answer, NULL);
  return NULL;
}

/* Lets two threads request from the pool at the same time. Returns how many succeeded. */
static int both(size_t bytes) {
  size_t answers[2] = {bytes, bytes};
  pthread_t threads[2];
  for (int i = 0; i < 2; i++)
    if (pthread_create(&threads[i], NULL, ask_pool, &answers[i]) != 0) return 3;
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  printf("both served %d\n", (answers[0] == 0) + (answers[1] == 0));
  return -1;
}

static int poke(size_t bytes) {
  memset((void *)(uintptr_t)taken[taken_count - 1], 42, bytes);
  return 0;
}

static int figures(const char *word) {
  size_t left = 0, total = 0;
  int code = strcmp(word, "info") == 0   ? HOOKED(cuMemGetInfo_v2)(&left, &total)
             : strcmp(word, "half") == 0 ? HOOKED(cuMemGetInfo_v2)(NULL, &total)
                                         : HOOKED(cuDeviceTotalMem_v2)(&total, 0);
  printf("%s %d free %zu total %zu\n", word, code, left >> 20, total >> 20);
  return -1;
}

/* Makes the request through the library that HOLDER_FRAMEWORK names. */
static int ask_as_framework(cu_addr *addr, size_t bytes) {
  typedef int (*through)(int (*)(unsigned long long *, size_t), unsigned long long *, size_t);
  static through ask;
  const char *path = getenv("HOLDER_FRAMEWORK");
  void *framework = path != NULL ? dlopen(path, RTLD_NOW) : NULL;
  if (framework != NULL) ask = (through)(uintptr_t)dlsym(framework, "ask_through");
  return ask != NULL ? ask(HOOKED(cuMemAlloc_v2), addr, bytes) : -2;
}

/* Prints what NVML reports about the first device, in its old and its new form, and about this
 * process. */
static int meter(void) {
  struct {
    unsigned long long total, free, used;
  } old = {0, 0, 0};
  struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
  } new = {sizeof new | (2u << 24), 0, 0, 0, 0};
  struct {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
  } list[64];
  unsigned count = 64;
  void *device = NULL, *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
#define NVML(name, parameters) ((int(*) parameters)(uintptr_t)dlsym(nvml, name))
  if (nvml == NULL || NVML("nvmlInit_v2", (void))() != 0 ||
      NVML("nvmlDeviceGetHandleByIndex_v2", (unsigned, void **))(0, &device) != 0)
    return 1;
  int code = NVML("nvmlDeviceGetMemoryInfo", (void *, void *))(device, &old);
  int code2 = NVML("nvmlDeviceGetMemoryInfo_v2", (void *, void *))(device, &new);
  int code3 = NVML("nvmlDeviceGetComputeRunningProcesses_v3",
                   (void *, unsigned *, void *))(device, &count, list);
  unsigned long long own = 0;
  for (unsigned i = 0; code3 == 0 && i < count; i++)
    if (list[i].pid == (unsigned)getpid()) own = list[i].bytes;
  printf("nvml %d %d %d total %llu %llu free %llu %llu used %llu %llu own %llu\n", code, code2,
         code3, old.total >> 20, new.total >> 20, old.free >> 20, new.free >> 20, old.used >> 20,
         new.used >> 20, own >> 20);
  return -1;
}

static int take(const char *word, size_t bytes) {
  size_t pitch;
  cu_addr *addr = &taken[taken_count];
  cu_array_size size = {bytes / 4, 0, 0x20, 1};
  if (strncmp(word, "texels:", 7) == 0)
    size = (cu_array_size){4096, 4096, (int)bytes,
                           (unsigned)strtoul(strrchr(word, 'x') + 1, NULL, 10)};
  int code;
  if (strncmp(word, "alloc", 5) == 0)
    code = HOOKED(cuMemAlloc_v2)(addr, bytes);
  else if (strncmp(word, "falloc", 6) == 0)
    code = ask_as_framework(addr, bytes);
  else if (strncmp(word, "pitch", 5) == 0)
    code = HOOKED(cuMemAllocPitch_v2)(addr, &pitch, 1024, bytes / 1024, 4);
  else if (strncmp(word, "managed", 7) == 0)
    code = HOOKED(cuMemAllocManaged)(addr, bytes, 1);
  else
    return HOOKED(cuArrayCreate_v2)((cu_array *)&taken[1000], &size);
  taken_count += code == CU_OK;
  return code;
}

/* Returns the result of one word; -1: it has printed it itself. */
static int run(const char *word) {
  size_t bytes = strchr(word, ':') != NULL ? strtoull(strchr(word, ':') + 1, NULL, 10) : 0;
  void *graph;
  char line[64];
  if (strcmp(word, "free") == 0) return give();
  if (strcmp(word, "arrayfree") == 0) return HOOKED(cuArrayDestroy)((cu_array)taken[1000]);
  if (strncmp(word, "async:", 6) == 0)
    return HOOKED(cuMemAllocAsync)(&async[async_count++], bytes, NULL);
  if (strcmp(word, "xpool") == 0) return make_pool(1, CU_LOCATION_DEVICE, 0);
  if (strncmp(word, "pool:", 5) == 0) return make_pool(0, CU_LOCATION_DEVICE, (int)bytes);
  if (strcmp(word, "unpool") == 0) return HOOKED(cuMemPoolDestroy)(shared_pool);
  if (strcmp(word, "hostpool") == 0) return make_pool(0, CU_LOCATION_HOST, 0);
  if (strncmp(word, "xasync:", 7) == 0)
    return HOOKED(cuMemAllocFromPoolAsync)(&async[async_count++], bytes, shared_pool, NULL);
  if (strcmp(word, "afree") == 0) return HOOKED(cuMemFreeAsync)(async[--async_count], NULL);
  if (strncmp(word, "page:", 5) == 0) return page(bytes);
  if (strncmp(word, "pages:", 6) == 0)
    return request((int)bytes, strtoull(strchr(word, 'x') + 1, NULL, 10));
  if (strcmp(word, "unpage") == 0) return unpage();
  if (strcmp(word, "touch") == 0) return touch();
  if (strncmp(word, "pin:", 4) == 0)
    return HOOKED(cuMemHostAlloc)(&pinned[pinned_count++], bytes, 0);
  if (strcmp(word, "unpin") == 0) return HOOKED(cuMemFreeHost)(pinned[--pinned_count]);
  if (strcmp(word, "reset") == 0) return HOOKED(cuDevicePrimaryCtxReset_v2)(0);
  if (strcmp(word, "nvml") == 0) return meter();
  if (strcmp(word, "driver") == 0) {
    size_t left = 0, total = 0;
    int code =
        ((cu_result(*)(size_t *, size_t *))(uintptr_t)standin("cuMemGetInfo_v2"))(&left, &total);
    printf("driver %d used %zu\n", code, (total - left) >> 20);
    return -1;
  }
  if (strncmp(word, "others:", 7) == 0) { /* bypasses the shim, like a program outside the run */
    static cu_addr foreign;
    return ((cu_result(*)(cu_addr *, size_t))(uintptr_t)standin("cuMemAlloc_v2"))(&foreign, bytes);
  }
  if (strcmp(word, "info") == 0 || strcmp(word, "half") == 0 || strcmp(word, "total") == 0)
    return figures(word);
  if (strcmp(word, "capture") == 0) return HOOKED(cuStreamBeginCapture_v2)(NULL, 0);
  if (strcmp(word, "endcapture") == 0) return HOOKED(cuStreamEndCapture)(NULL, &graph);
  if (strncmp(word, "say:", 4) == 0) {
    puts(word + 4);
    return -1;
  }
  cu_ipc_handle handle;
  if (strncmp(word, "again:", 6) == 0) return again(word, bytes);
  if (strcmp(word, "double") == 0) return HOOKED(cuMemFree_v2)(freed);
  if (strcmp(word, "busy") == 0 || strcmp(word, "idle") == 0) {
    ((void (*)(int))(uintptr_t)standin("standin_hold"))(word[0] == 'b');
    return -1;
  }
  if (strncmp(word, "calls:", 6) == 0) {
    int (*calls)(const char *) = (int (*)(const char *))(uintptr_t)standin("standin_calls");
    printf("%s %d\n", word, calls(word + 6));
    return -1;
  }
  if (strncmp(word, "range:", 6) == 0) return range(bytes);
  if (strncmp(word, "poke:", 5) == 0) return poke(bytes);
  if (strncmp(word, "both:", 5) == 0) return both(bytes);
  if (strcmp(word, "context") == 0 || strcmp(word, "uncontext") == 0) return context_word(word);
  if (strncmp(word, "access:", 7) == 0) return grant((int)bytes);
  if (strcmp(word, "alias") == 0 || strcmp(word, "unalias") == 0) return alias(word);
  if (strcmp(word, "ipc") == 0) return HOOKED(cuIpcGetMemHandle)(&handle, taken[taken_count - 1]);
  if (strcmp(word, "read") == 0) return fgets(line, sizeof line, stdin) != NULL ? -1 : 1;
  return take(word, bytes);
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  start();
  for (int i = 1; i < argc; i++) {
    int code = run(argv[i]);
    if (code >= 0) printf("%s %d\n", argv[i], code);
  }
  return 0;
}
