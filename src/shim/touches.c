/* Touches: the visitor that records. See touches.h. */
#include "shim/touches.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/lock.h"
#include "base/variables.h"
#include "shim/account.h"
#include "shim/capture.h"
#include "shim/gate.h"
#include "shim/graph.h"
#include "shim/launch.h"
#include "shim/page_table.h"
#include "shim/recorder.h"
#include "shim/sampler.h"
#include "shim/shim.h"

/* Of one launch; a graph may name more, and the rest is left out. */
enum { TOUCHES_MAX = 1024 };
/* A kind of launch is timed the first few times, and then from time to time. */
enum { TIMED_FIRST = 4, TIMED_EVERY = 32 };

static _Atomic uint64_t low = UINT64_MAX, high; /* all device memory is in between */

/* Guarded by pages_lock: */
static launch latest;
static map names;        /* function to tag */
static map turns, times; /* kind of launch to how often it came, and its last time */
static sampler samples;
static uint64_t sampled[SAMPLES_MAX]; /* their kinds */

/* The same function with the same amount of work. */
static uint64_t kind_of(const launch *l) {
  return hash_u64(l->work, l->function);
}

static uint32_t name_of(unsigned symbol, const launch *l) {
  ASSERT(lock_held(&pages_lock));
  ASSERT(symbol < SYMBOL_COUNT);
  const uint64_t *known = map_get(&names, l->function);
  if (known != NULL) return (uint32_t)*known;
  const cuda_driver *driver = shim_driver();
  const char *name = NULL;
  char made[32];
  void *function = (void *)(uintptr_t)l->function;
  if (l->kernel && l->graph == NULL) {
    if (driver->cuFuncGetName == NULL || driver->cuFuncGetName(&name, function) != CU_OK)
      name = NULL;
    if (name == NULL && driver->cuKernelGetName != NULL &&
        driver->cuKernelGetName(&name, function) != CU_OK)
      name = NULL;
    if (name == NULL) {
      snprintf(made, sizeof made, "kernel %llx", (unsigned long long)l->function);
      name = made;
    }
  } else if (l->graph != NULL)
    name = "graph";
  else
    name = strstr(shim_symbol_name((shim_symbol)symbol), "Memset") != NULL ? "memset" : "memcpy";
  uint32_t tag = recorder_tag(name);
  map_put(&names, l->function, tag);
  return tag;
}

static void take_samples(void) {
  uint64_t ns;
  for (int i; (i = sampler_take(&samples, &ns)) >= 0;) map_put(&times, sampled[i], ns);
}

/* Times the launch if it is due. */
static void sample(const launch *l, uint64_t kind) {
  uint64_t *turn = map_get(&turns, kind);
  uint64_t count = turn == NULL ? 0 : *turn;
  map_put(&turns, kind, count + 1);
  if (!l->timed || (count >= TIMED_FIRST && count % TIMED_EVERY != 0)) return;
  int i = sampler_begin(&samples, l->stream);
  if (i >= 0) sampled[i] = kind;
}

static void visit(unsigned symbol, const uint64_t *registers, const uint64_t *stack) {
  stow_trace_touch touches[TOUCHES_MAX];
  stow_trace_launch_info info = STOW_TRACE_LAUNCH_INFO_INIT;
  unsigned device = 0;
  cu_context context;
  cu_device ordinal;
  uint64_t from = atomic_load(&low), to = atomic_load(&high);
  /* A captured launch runs when its graph does. */
  if (from >= to || capture_on() || !recorder_on() || !account_here(&device, &context, &ordinal))
    return;
  lock_acquire(&pages_lock);
  bool read = launch_read(&latest, symbol, registers, stack, from, to);
  if (read && latest.graph != NULL) graph_name(&latest, from, to);
  read &= latest.kernel || latest.count > 0;
  if (read) {
    uint64_t kind = kind_of(&latest);
    take_samples();
    const uint64_t *ns = map_get(&times, kind);
    info.function = name_of(symbol, &latest);
    info.device_ns = ns == NULL ? 0 : *ns;
    info.stream = (uintptr_t)latest.stream;
    info.device = device;
    info.touch_count = latest.count < TOUCHES_MAX ? latest.count : TOUCHES_MAX;
    for (uint64_t i = 0; i < info.touch_count; i++)
      touches[i] = (stow_trace_touch){latest.words[i], latest.kernel ? 0 : latest.work};
    sample(&latest, kind);
  }
  lock_release(&pages_lock);
  info.touches = touches;
  if (read) recorder_launch(&info);
}

static bool wanted;

static void decide(void) {
  const char *said = secure_getenv(ENV_TOUCHES);
  wanted = said != NULL && said[0] == '1' && gate_here() && launch_known();
  if (!wanted) return;
  gate_set_visitor(visit);
  ledger_header *header = account_ledger()->header;
  if (header != NULL && xla_settings_off()) atomic_store(&header->xla_graphs_off, 1);
}

void touches_range(uint64_t addr, uint64_t bytes) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, decide);
  if (!wanted) return;
  uint64_t now = atomic_load(&low);
  while (addr < now && !atomic_compare_exchange_weak(&low, &now, addr)) continue;
  now = atomic_load(&high);
  while (addr + bytes > now && !atomic_compare_exchange_weak(&high, &now, addr + bytes)) continue;
}
