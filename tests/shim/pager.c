/* Pager: a program that reserves a range and maps pages into it call by call, as its arguments say.
 *
 *   pager WORD…    make:H (creates page H)   drop:H (its handle is released)
 *                  map:H@I (at place I of the range)   unmap:I+N  grant:I+N  grant2:I+N (device 1)
 *                  take:I+N (N pages at I, as PyTorch asks: all made, all mapped, one grant; what
 *                  was made is dropped where one is refused)   give:I+N (unmapped and dropped)
 *                  fill:I=V (by the driver)   see:I (its first and last byte)
 *                  export:H  retain:I>H  prop:H  alias:H@I  leave (the range is given up)
 *                  calls:NAME (of the driver, since the last asking)   info   where:I (vram or
 * host) type:I (as reported to the program) trim:N (0 is it wanted? 1 begins 2 done)   capture
 * endcapture endother (a stream that is not) plain:BYTES fork (the rest is done by a child)
 *
 * Pages have PAGER_BYTES (4 MiB). Every answer is one line, "WORD CODE". What was written with fill
 * must be what see shows, wherever the page has come to be. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/cuda_driver.h"
#include "shim/hooks.h"

enum { PLACES = 64, HANDLES = 256 };
static void *library;
static cu_addr range;
static size_t bytes = (size_t)4 << 20;
static cu_handle handles[HANDLES];
static cu_handle taken[PLACES];

#define DRIVER(name, type) ((type)(uintptr_t)dlsym(library, name))
#define HOOKED(name)       ((__typeof__(&name))(uintptr_t)dlsym(library, #name))

/* Returns a function of the stand-in, which is behind the shim or, without a shim, the driver
 * itself. */
static void *standin(const char *name) {
  void *(*real)(const char *) = DRIVER("stow_shim_real", void *(*)(const char *));
  return real != NULL ? real(name) : dlsym(library, name);
}

static void start(void) {
  cu_context context;
  library = dlopen("libcuda.so.1", RTLD_NOW);
  const char *said = getenv("PAGER_BYTES");
  if (said != NULL) bytes = strtoull(said, NULL, 10);
  if (library == NULL || DRIVER("cuInit", cu_result(*)(unsigned))(0) != CU_OK ||
      DRIVER("cuDevicePrimaryCtxRetain", cu_result(*)(cu_context *, cu_device))(&context, 0) !=
          CU_OK ||
      DRIVER("cuCtxSetCurrent", cu_result(*)(cu_context))(context) != CU_OK ||
      DRIVER("cuMemAddressReserve",
             cu_result(*)(cu_addr *, size_t, size_t, cu_addr, unsigned long long))(
          &range, PLACES * bytes, 0, 0, 0) != CU_OK) {
    puts("no driver");
    exit(3);
  }
}

static cu_addr place(unsigned long i) {
  return range + i * bytes;
}

static int make(cu_handle *handle) {
  cu_prop prop = {.type = CU_ALLOCATION_PINNED, .location = {CU_LOCATION_DEVICE, 0}};
  prop.handle_types = getenv("PAGER_EXPORTS") != NULL;
  return HOOKED(cuMemCreate)(handle, bytes, &prop, 0);
}

static int grant(unsigned long i, unsigned long count, int device) {
  cu_access access = {{CU_LOCATION_DEVICE, device}, CU_ACCESS_READ_WRITE};
  return HOOKED(cuMemSetAccess)(place(i), count * bytes, &access, 1);
}

static int take(unsigned long i, unsigned long count) {
  for (unsigned long k = i; k < i + count; k++) {
    int code = make(&taken[k]);
    if (code == CU_OK) continue;
    while (k-- > i) HOOKED(cuMemRelease)(taken[k]);
    return code;
  }
  for (unsigned long k = i; k < i + count; k++) {
    int code = HOOKED(cuMemMap)(place(k), bytes, 0, taken[k], 0);
    if (code != CU_OK) return code;
  }
  return grant(i, count, 0);
}

static int give(unsigned long i, unsigned long count) {
  int code = CU_OK;
  for (unsigned long k = i; k < i + count && code == CU_OK; k++) {
    code = HOOKED(cuMemUnmap)(place(k), bytes);
    if (code == CU_OK) code = HOOKED(cuMemRelease)(taken[k]);
  }
  return code;
}

static int calls(const char *word, const char *name) {
  static struct {
    char name[64];
    int count;
  } before[16];
  int (*count)(const char *) = (int (*)(const char *))(uintptr_t)standin("standin_calls");
  int now = count(name), i = 0;
  while (i < 15 && before[i].name[0] != '\0' && strcmp(before[i].name, name) != 0) i++;
  printf("%s %d\n", word, now - before[i].count);
  snprintf(before[i].name, sizeof before[i].name, "%s", name);
  before[i].count = now;
  return -1;
}

static int figures(const char *word) {
  size_t left = 0, total = 0;
  int code = HOOKED(cuMemGetInfo_v2)(&left, &total);
  printf("%s %d free %zu total %zu\n", word, code, left >> 20, total >> 20);
  return -1;
}

/* Prints the first and the last byte, and the tier of the driver's page. */
static int see(const char *word, unsigned long i) {
  const volatile unsigned char *at = (const unsigned char *)(uintptr_t)place(i);
  printf("%s %d %d\n", word, at[0], at[bytes - 1]);
  return -1;
}

static int where(const char *word, unsigned long i) {
  int (*location)(uint64_t) = (int (*)(uint64_t))(uintptr_t)standin("standin_location");
  int type = location(place(i));
  printf("%s %s\n", word, type == CU_LOCATION_DEVICE ? "vram" : type == 0 ? "nothing" : "host");
  return -1;
}

/* Prints what the driver reports about an address inside it, in both ways: the kind of memory and
 * the device. */
static int type(const char *word, unsigned long i) {
  unsigned kind = 0, kinds = 0;
  int device = -1, devices = -1, which[] = {2, 9};
  void *values[] = {&kinds, &devices};
  HOOKED(cuPointerGetAttribute)(&kind, 2, place(i) + 4096);
  HOOKED(cuPointerGetAttribute)(&device, 9, place(i) + 4096);
  HOOKED(cuPointerGetAttributes)(2, which, values, place(i) + 4096);
  printf("%s %u %d %u %d\n", word, kind, device, kinds, devices);
  return -1;
}

static int export(cu_handle handle) {
  int fd = -1;
  int code = HOOKED(cuMemExportToShareableHandle)(&fd, handle, 1, 0);
  return code == CU_OK && fd < 0 ? -2 : code;
}

static int prop(cu_handle handle) {
  cu_prop got = {0};
  int code = HOOKED(cuMemGetAllocationPropertiesFromHandle)(&got, handle);
  return code == CU_OK && got.location.type != CU_LOCATION_DEVICE ? -2 : code;
}

static int fill(unsigned long i, unsigned long value) {
  return DRIVER("cuMemsetD8Async", cu_result(*)(cu_addr, unsigned char, size_t, cu_stream))(
      place(i), (unsigned char)value, bytes, NULL);
}

/* Returns the result of one word; -1: it has printed it itself. */
static int run(const char *word) {
  const char *colon = strchr(word, ':');
  char *end = NULL;
  unsigned long a = colon != NULL ? strtoul(colon + 1, &end, 10) : 0;
  unsigned long b = end != NULL && *end != '\0' ? strtoul(end + 1, NULL, 10) : 1;
  cu_addr addr;
  void *graph;
#define IS(name) (strncmp(word, name ":", sizeof name) == 0)
  if (IS("make")) return make(&handles[a]);
  if (IS("drop")) return HOOKED(cuMemRelease)(handles[a]);
  if (IS("map")) return HOOKED(cuMemMap)(place(b), bytes, 0, handles[a], 0);
  if (IS("unmap")) return HOOKED(cuMemUnmap)(place(a), b * bytes);
  if (IS("grant")) return grant(a, b, 0);
  if (IS("grant2")) return grant(a, b, 1);
  if (IS("take")) return take(a, b);
  if (IS("give")) return give(a, b);
  if (IS("fill")) return fill(a, b);
  if (IS("see")) return see(word, a);
  if (IS("where")) return where(word, a);
  if (IS("type")) return type(word, a);
  if (IS("export")) return export(handles[a]);
  if (IS("retain"))
    return HOOKED(cuMemRetainAllocationHandle)(&handles[b], (void *)(uintptr_t)(place(a) + 4096));
  if (IS("prop")) return prop(handles[a]);
  if (IS("calls")) return calls(word, colon != NULL ? colon + 1 : "");
  if (IS("plain")) return HOOKED(cuMemAlloc_v2)(&addr, a);
  if (IS("trim")) return HOOKED(stow_shim_trim)((int)a);
  if (strcmp(word, "leave") == 0) return HOOKED(cuMemAddressFree)(range, PLACES * bytes);
  if (strcmp(word, "info") == 0) return figures(word);
  if (strcmp(word, "capture") == 0) return HOOKED(cuStreamBeginCapture_v2)(NULL, 0);
  if (strcmp(word, "endother") == 0) return HOOKED(cuStreamEndCapture)((cu_stream)2, &graph);
  if (strcmp(word, "endcapture") == 0) return HOOKED(cuStreamEndCapture)(NULL, &graph);
  return -2;
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  start();
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "fork") == 0) {
      pid_t child = fork();
      if (child == 0) {
        start();
        continue;
      }
      int how = 0;
      waitpid(child, &how, 0);
      return WIFEXITED(how) ? WEXITSTATUS(how) : 1;
    }
    int code = run(argv[i]);
    if (code != -1) printf("%s %d\n", argv[i], code);
  }
  return 0;
}
