/* A library with the name of PyTorch's: requests through it come from a framework that retries. It
 * has a minimal allocator that cuts blocks from segments and reports them as PyTorch's does. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#define PUBLIC __attribute__((visibility("default"), noinline))
enum { SEGMENT = 20 << 20, UNIT = 1 << 20, UNITS = SEGMENT / UNIT, SEGMENTS = 64 };

typedef struct device {
  int8_t kind, index;
} device;
typedef struct stream {
  device on;
  int64_t number;
} stream;

void report(void *addr, int64_t bytes, size_t live, size_t reserved,
            device on) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
void report_failure(int64_t bytes, size_t live, size_t reserved,
                    device on) __asm__("_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE");

PUBLIC int ask_through(int (*ask)(unsigned long long *, size_t), unsigned long long *addr,
                       size_t bytes);
PUBLIC int ask_through(int (*ask)(unsigned long long *, size_t), unsigned long long *addr,
                       size_t bytes) {
  volatile int code = ask(addr, bytes); /* no tail call: the test looks for this frame */
  return code;
}

__attribute__((visibility("default"))) int64_t current_number;
PUBLIC stream current(int8_t index) __asm__("_ZN3c104cuda20getCurrentCUDAStreamEa");
stream current(int8_t index) {
  return (stream){{1, index}, current_number};
}

static unsigned long long segments[SEGMENTS];
static uint32_t taken[SEGMENTS]; /* one bit for each MiB */
static size_t live, reserved;

static uint32_t bits(size_t bytes) {
  return (UINT32_C(1) << (bytes + UNIT - 1) / UNIT) - 1;
}

static int place_in(int s, uint32_t wanted) {
  for (int at = 0; at < UNITS && (uint64_t)wanted << at < UINT32_C(1) << UNITS; at++)
    if ((taken[s] & wanted << at) == 0) return at;
  return -1;
}

static int segment_with_room(uint32_t wanted) {
  static int (*ask)(unsigned long long *, size_t);
  if (ask == NULL)
    ask = (int (*)(unsigned long long *, size_t))(uintptr_t)dlsym(dlopen("libcuda.so.1", RTLD_LAZY),
                                                                  "cuMemAlloc_v2");
  for (int s = 0; s < SEGMENTS; s++) {
    if (segments[s] == 0) {
      if (ask_through(ask, &segments[s], SEGMENT) != 0) return -1;
      reserved += SEGMENT;
    }
    if (place_in(s, wanted) >= 0) return s;
  }
  return -1;
}

/* Allocates a block of at most a segment; 0 without memory. */
PUBLIC unsigned long long block_take(size_t bytes);
PUBLIC unsigned long long block_take(size_t bytes) {
  uint32_t wanted = bits(bytes);
  int s = segment_with_room(wanted);
  if (s < 0) {
    report_failure((int64_t)bytes, live, reserved, (device){1, 0});
    return 0;
  }
  int at = place_in(s, wanted);
  size_t whole = (size_t)__builtin_popcount(wanted) * UNIT;
  taken[s] |= wanted << at;
  live += whole;
  unsigned long long addr = segments[s] + (unsigned long long)at * UNIT;
  report((void *)(uintptr_t)addr, (int64_t)whole, live, reserved, (device){1, 0});
  return addr;
}

PUBLIC void block_give(unsigned long long addr, size_t bytes);
PUBLIC void block_give(unsigned long long addr, size_t bytes) {
  uint32_t had = bits(bytes);
  size_t whole = (size_t)__builtin_popcount(had) * UNIT;
  for (int s = 0; s < SEGMENTS && segments[s] != 0; s++) {
    if (addr < segments[s] || addr >= segments[s] + SEGMENT) continue;
    taken[s] &= ~(had << (addr - segments[s]) / UNIT);
    live -= whole;
    report((void *)(uintptr_t)addr, -(int64_t)whole, live, reserved, (device){1, 0});
  }
}

/* Returns the segments, for a snapshot. */
PUBLIC unsigned long long segment_at(int s);
PUBLIC unsigned long long segment_at(int s) {
  return s < SEGMENTS ? segments[s] : 0;
}
