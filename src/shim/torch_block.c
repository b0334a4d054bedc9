/* Torch block: records the blocks that PyTorch's allocator cuts out of its segments. The driver
 * sees only segments, which say little about a program.
 *
 * PyTorch reports every block it allocates and frees to its profiler, through two functions of
 * libc10.so that libc10_cuda.so calls through its import table. The shim hooks both and calls the
 * real ones. The allocator's lock is held during these calls; they come from any thread, with or
 * without the interpreter's lock, so nothing here waits for either. A free is reported when the
 * program frees the block; PyTorch reuses it only after streams that still use it are done.
 *
 * The mangled names contain the parameter types: a PyTorch with other parameters is not hooked. */
#include "shim/torch_block.h"

#include <dlfcn.h>
#include <stdatomic.h>

#include "base/assert.h"
#include "shim/account.h"
#include "shim/gate.h"
#include "shim/host_tier.h"
#include "shim/live_blocks.h"
#include "shim/record.h"
#include "shim/shim.h"

typedef struct torch_device { /* c10::Device */
  int8_t kind, index;
} torch_device;
enum { KIND_CUDA = 1, DEVICES_MAX = 64 };

typedef struct torch_stream { /* c10::cuda::CUDAStream, returned in two registers */
  torch_device device;
  int64_t number; /* identifies the stream; 0 is the default one */
} torch_stream;

/* In older versions the last two sizes are signed. */
#define BLOCK_REPORTED         "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
#define BLOCK_REPORTED_OLDER   "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE"
#define FAILURE_REPORTED       "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE"
#define FAILURE_REPORTED_OLDER "_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE"
typedef void block_reported(void *addr, int64_t bytes, size_t live, size_t reserved,
                            torch_device on);
typedef void failure_reported(int64_t bytes, size_t live, size_t reserved, torch_device on);
SHIM_HOOK block_reported torch_block_reported __asm__(BLOCK_REPORTED);
SHIM_HOOK block_reported torch_block_reported_older __asm__(BLOCK_REPORTED_OLDER);
SHIM_HOOK failure_reported torch_failure_reported __asm__(FAILURE_REPORTED);
SHIM_HOOK failure_reported torch_failure_reported_older __asm__(FAILURE_REPORTED_OLDER);

static _Atomic uint64_t live_bytes[DEVICES_MAX], highest_bytes[DEVICES_MAX],
    peak_bytes[DEVICES_MAX];
static _Atomic bool live_known[DEVICES_MAX];

bool torch_block_seen(void) {
  for (int i = 0; i < DEVICES_MAX; i++)
    if (atomic_load(&live_known[i])) return true;
  return false;
}

bool torch_block_live(int device, uint64_t *bytes) {
  if (device < 0 || device >= DEVICES_MAX || !atomic_load(&live_known[device])) return false;
  *bytes = atomic_load(&live_bytes[device]);
  return true;
}

bool torch_block_highest(int device, uint64_t *bytes, uint64_t *highest) {
  if (!torch_block_live(device, bytes)) return false;
  *highest = atomic_exchange(&highest_bytes[device], *bytes);
  if (*highest < *bytes) *highest = *bytes;
  return true;
}

/* Looked up before the first use, possibly by several threads at the same time: all find the same,
 * and none waits for another, which may wait for the loader's lock (load.c). */
static _Atomic bool reported_known, stream_known;
static block_reported *_Atomic real_block;
static failure_reported *_Atomic real_failure;
typedef torch_stream stream_of(int8_t index);
static stream_of *_Atomic current_stream;

/* PyTorch's libraries are only in their own search scope. */
static void *find(const char *library, const char *name, const char *older) {
  void *open = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  if (open == NULL) return NULL;
  void *found = dlsym(open, name);
  if (found == NULL) found = dlsym(open, older);
  dlclose(open);
  return found;
}

static void find_profiler(void) {
  if (atomic_load_explicit(&reported_known, memory_order_acquire)) return;
  real_block = (block_reported *)(uintptr_t)find("libc10.so", BLOCK_REPORTED, BLOCK_REPORTED_OLDER);
  real_failure =
      (failure_reported *)(uintptr_t)find("libc10.so", FAILURE_REPORTED, FAILURE_REPORTED_OLDER);
  reported_known = true;
}

/* Finds the function late, because host memory is reported before libc10_cuda.so is loaded. */
static void find_stream(void) {
  static const char NAME[] = "_ZN3c104cuda20getCurrentCUDAStreamEa";
  if (atomic_load_explicit(&stream_known, memory_order_acquire)) return;
  current_stream = (stream_of *)(uintptr_t)find("libc10_cuda.so", NAME, NAME);
  stream_known = true;
  shim_log("following PyTorch's blocks%s", current_stream == NULL ? ", without streams" : "");
}

static unsigned run_device(int8_t index) {
  static _Atomic uint16_t known[DEVICES_MAX]; /* the run's number and 1 */
  unsigned at = (unsigned)index < DEVICES_MAX ? (unsigned)index : 0;
  uint16_t number = atomic_load_explicit(&known[at], memory_order_relaxed);
  if (number == 0) {
    number = (uint16_t)(account_device((cu_device)at) + 1);
    atomic_store_explicit(&known[at], number, memory_order_relaxed);
  }
  ASSERT(number > 0);
  return number - 1u;
}

static const void *stream_here(int8_t index) {
  find_stream();
  stream_of *stream = atomic_load_explicit(&current_stream, memory_order_relaxed);
  return stream == NULL ? NULL : (const void *)(uintptr_t)stream(index).number;
}

void torch_block_reported(void *addr, int64_t bytes, size_t live, size_t reserved,
                          torch_device on) {
  find_profiler();
  block_reported *real = atomic_load_explicit(&real_block, memory_order_relaxed);
  if (real != NULL) real(addr, bytes, live, reserved, on);
  if (on.kind != KIND_CUDA || bytes == 0) return;
  if (on.index >= 0 && on.index < DEVICES_MAX) {
    atomic_store_explicit(&live_bytes[on.index], live, memory_order_relaxed);
    /* Two threads at once may store the lower figure: an estimate is made of it. */
    if (live > atomic_load_explicit(&highest_bytes[on.index], memory_order_relaxed))
      atomic_store_explicit(&highest_bytes[on.index], live, memory_order_relaxed);
    if (live > atomic_load_explicit(&peak_bytes[on.index], memory_order_relaxed) &&
        host_tier_on()) {
      atomic_store_explicit(&peak_bytes[on.index], live, memory_order_relaxed);
      ledger_note_need(account_ledger(), run_device(on.index), live, 0);
    }
    atomic_store_explicit(&live_known[on.index], true, memory_order_release);
  }
  if (host_tier_on() && gate_here())
    live_blocks_note((uintptr_t)addr, bytes > 0 ? (uint64_t)bytes : 0, run_device(on.index));
  if (bytes > 0)
    record_event(STOW_TRACE_ALLOC, (uintptr_t)addr, (uint64_t)bytes, stream_here(on.index),
                 run_device(on.index), 0);
  else
    record_event(STOW_TRACE_FREE, (uintptr_t)addr, (uint64_t)-bytes, NULL, run_device(on.index), 0);
}

/* Records what the program requested; the driver's refusal is recorded where it happens. */
void torch_failure_reported(int64_t bytes, size_t live, size_t reserved, torch_device on) {
  find_profiler();
  failure_reported *real = atomic_load_explicit(&real_failure, memory_order_relaxed);
  if (real != NULL) real(bytes, live, reserved, on);
  if (on.kind == KIND_CUDA && bytes > 0)
    record_event(STOW_TRACE_FAIL, account_room(run_device(on.index)), (uint64_t)bytes,
                 stream_here(on.index), run_device(on.index), 0);
}

void torch_block_reported_older(void *addr, int64_t bytes, size_t live, size_t reserved,
                                torch_device on) {
  torch_block_reported(addr, bytes, live, reserved, on);
}

void torch_failure_reported_older(int64_t bytes, size_t live, size_t reserved, torch_device on) {
  torch_failure_reported(bytes, live, reserved, on);
}
