/* Recorder: finding libstowage.so, opening this process's trace, writing to it. */
#include "shim/recorder.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <stowage/version.h>

#include "base/assert.h"
#include "base/lock.h"
#include "base/rank.h"
#include "base/text.h"
#include "base/variables.h"
#include "run/protocol.h"
#include "run/rings.h"
#include "shim/account.h"
#include "shim/python_stack.h"
#include "shim/shim.h"

/* Events kept for after a crash: about 350,000, several steps of the largest models, and about
 * 10,000 different stacks. */
#define RING_BYTES ((uint64_t)16 << 20)
#define TEXT_BYTES ((uint64_t)4 << 20)

enum { UNKNOWN = 0, OFF = 1, ON = 2 };
static _Atomic int state;
static lock open_lock = LOCK_INIT(LOCK_REGISTRY);
static _Thread_local bool inside; /* the recorder's own work is not recorded */
/* Set before `state` is ON: */
static bool stacks;
static stow_trace *trace;
static struct recorder {
  __typeof__(&stow_trace_open) open;
  __typeof__(&stow_status_message) message;
  __typeof__(&stow_trace_close) close;
  __typeof__(&stow_trace_event) event;
  __typeof__(&stow_trace_fact) fact;
  __typeof__(&stow_trace_stack_find) stack_find;
  __typeof__(&stow_trace_stack) stack;
  __typeof__(&stow_trace_mark_begin) mark_begin;
  __typeof__(&stow_trace_mark_end) mark_end;
  __typeof__(&stow_trace_tag) tag;
  __typeof__(&stow_trace_launch) launch;
} recorder;

/* ---- opening ---- */

/* Opens libstowage.so in the folder of this library, or in the folder above it, as installed. */
static void *open_library(void) {
  static const char *const PLACES[] = {"libstowage.so." STOW_SHIM_SOVERSION,
                                       "../libstowage.so." STOW_SHIM_SOVERSION};
  Dl_info self;
  if (dladdr((void *)(uintptr_t)open_library, &self) == 0) return NULL;
  const char *slash = strrchr(self.dli_fname, '/');
  for (size_t i = 0; slash != NULL && i < sizeof PLACES / sizeof PLACES[0]; i++) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.*s/%s", (int)(slash - self.dli_fname), self.dli_fname,
             PLACES[i]);
    void *library = shim_load(path);
    if (library != NULL) return library;
    shim_log("no recorder: %s", dlerror());
  }
  return NULL;
}

/* Finds the functions. Called without a lock (load.c), so several threads may do it; all find the
 * same. */
static bool find_recorder(struct recorder *r) {
#define FIND(name)                                                                                 \
  ((r->name = (__typeof__(r->name))(uintptr_t)dlsym(library, "stow_trace_" #name)) != NULL)
  void *library = open_library();
  if (library != NULL)
    r->message = (__typeof__(r->message))(uintptr_t)dlsym(library, "stow_status_message");
  return library != NULL && r->message != NULL && FIND(open) && FIND(close) && FIND(event) &&
         FIND(fact) && FIND(stack_find) && FIND(stack) && FIND(mark_begin) && FIND(mark_end) &&
         FIND(tag) && FIND(launch);
#undef FIND
}

static void add_facts(void) {
  char text[256] = "", words[4096];
  FILE *file = fopen("/proc/self/cmdline", "re");
  if (file != NULL) {
    size_t length = fread(words, 1, sizeof words - 1, file);
    if (length == sizeof words - 1) /* the last word is cut: half a URL could show a password */
      while (length > 0 && words[length - 1] != '\0') length--;
    while (length > 0 && words[length - 1] == '\0') length--;
    words[length] = '\0';
    text_hide_command(words, &length); /* a recording is sent to others */
    for (size_t i = 0; i < length; i++)
      if (words[i] == '\0') words[i] = ' ';
    snprintf(text, sizeof text, "%.255s", words);
    fclose(file);
    recorder.fact(trace, "command", text);
  }
  if (rank_text()[0] != '\0') recorder.fact(trace, "rank", rank_text());
  size_t total = 0;
  char name[128] = "";
  const cuda_driver *driver = shim_driver();
  if (driver->cuDeviceGetName != NULL && driver->cuDeviceGetName(name, sizeof name, 0) == CU_OK)
    recorder.fact(trace, "device_name", name);
  if (driver->cuDeviceTotalMem_v2 != NULL && driver->cuDeviceTotalMem_v2(&total, 0) == CU_OK) {
    snprintf(text, sizeof text, "%zu", total);
    recorder.fact(trace, "device_bytes", text);
  }
  uint64_t limit = ledger_limit(account_ledger(), 0);
  if (limit != LEDGER_UNLIMITED) {
    snprintf(text, sizeof text, "%llu", (unsigned long long)limit);
    recorder.fact(trace, "limit_bytes", text);
  }
}

/* Reports to the ledger, which `stowage run` reads, that there is no trace: the disk may be full,
 * but the ledger's space is already allocated. */
static void report_unrecorded(void) {
  ledger_header *h = account_ledger()->header;
  if (h == NULL) return;
  uint64_t number = atomic_fetch_add(&h->unrecorded, 1);
  if (number < LEDGER_UNRECORDED_MAX) atomic_store(&h->unrecorded_pids[number], (uint64_t)getpid());
  if (number == 0)
    snprintf(h->unrecorded_reason, sizeof h->unrecorded_reason, "%s", recorder.message());
}

static bool open_trace(const char *folder) {
  ASSERT(lock_held(&open_lock));
  ASSERT(folder[0] == '/');
  char ring[PATH_MAX], file[PATH_MAX], name[RUN_PROCESS_MAX];
  const char *recorded = secure_getenv(ENV_RECORD);
  run_process_name(name);
  if (!run_process_path(ring, folder, name, RUN_RING) ||
      !run_process_path(file, folder, name, RUN_STOW))
    return false;
  stow_trace_options options = STOW_TRACE_OPTIONS_INIT;
  options.ring_path = ring;
  options.ring_bytes = RING_BYTES;
  options.text_bytes = TEXT_BYTES;
  if (recorded != NULL && recorded[0] == '1')
    options.record_path = file; /* the run writes a recording of every process */
  else
    run_rings_tidy(folder, account_ledger());
  if (recorder.open(&trace, &options) != STOW_OK) {
    if (options.record_path != NULL) report_unrecorded();
    return false;
  }
  const char *wanted = secure_getenv(ENV_STACKS);
  stacks = wanted == NULL || strcmp(wanted, "off") != 0;
  add_facts();
  return true;
}

/* Prevents a fork while a trace is being opened. */
static void before_fork(void) {
  if (!inside) lock_acquire(&open_lock);
}

static void after_fork_parent(void) {
  if (!inside) lock_release(&open_lock);
}

/* A child gets its own trace if it allocates memory. */
static void after_fork_child(void) {
  after_fork_parent();
  atomic_store(&state, UNKNOWN);
}

static void watch_forks(void) {
  pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

/* Does everything that waits for the loader, before the lock is taken. */
static bool prepare(struct recorder *found, const char **folder) {
  *folder = secure_getenv(ENV_RUN);
  if (*folder == NULL || (*folder)[0] != '/' || !find_recorder(found)) return false;
  shim_real(SYMBOL_cuDeviceTotalMem_v2);
  shim_real(SYMBOL_cuDeviceGetName);
  return true;
}

static void open_once(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  struct recorder found;
  const char *folder;
  pthread_once(&once, watch_forks);
  inside = true;
  bool can = prepare(&found, &folder);
  lock_acquire(&open_lock);
  if (atomic_load(&state) == UNKNOWN) {
    if (can) recorder = found;
    bool on = can && open_trace(folder);
    shim_log("recording: %s", on ? "on" : "off");
    atomic_store_explicit(&state, on ? ON : OFF, memory_order_release);
  }
  lock_release(&open_lock);
  inside = false;
}

/* Completes the file when the program exits normally. */
__attribute__((destructor)) static void close_trace(void) {
  int on = ON;
  if (atomic_compare_exchange_strong(&state, &on, OFF)) recorder.close(trace);
}

/* ---- writing ---- */

bool recorder_on(void) {
  int now = atomic_load_explicit(&state, memory_order_acquire);
  if (now == OFF || inside) return false;
  if (now == UNKNOWN) {
    open_once();
    return atomic_load_explicit(&state, memory_order_acquire) == ON;
  }
  return true;
}

/* Returns the number of the current stack. Walking a known stack costs some nanoseconds per frame;
 * its texts are built once. */
static uint32_t stack_here(void) {
  ASSERT(trace != NULL);
  python_stack here;
  uint32_t number = 0;
  if (!stacks || !python_stack_walk(&here)) return 0;
  number = recorder.stack_find(trace, here.key);
  if (number != 0) return number;
  struct words {
    stow_trace_frame frames[PYTHON_STACK_MAX];
    char text[PYTHON_STACK_TEXT];
  } *words = malloc(sizeof *words);
  if (words == NULL) return 0;
  size_t count = python_stack_frames(&here, words->frames, words->text);
  recorder.stack(trace, here.key, words->frames, count, &number);
  free(words);
  return number;
}

/* Returns whether events of this kind have a stack. For a free, only the place of the allocation
 * matters. */
static bool has_stack(stow_trace_kind kind) {
  return kind == STOW_TRACE_ALLOC || kind == STOW_TRACE_SEGMENT_ALLOC ||
         kind == STOW_TRACE_SEGMENT_MAP || kind == STOW_TRACE_SPILL || kind == STOW_TRACE_FAIL;
}

void recorder_event(stow_trace_record *event) {
  ASSERT(event != NULL);
  ASSERT(atomic_load(&state) != UNKNOWN);
  if (has_stack((stow_trace_kind)event->kind)) event->stack = stack_here();
  recorder.event(trace, event);
}

uint32_t recorder_tag(const char *name) {
  uint32_t tag = 0;
  return recorder.tag(trace, name, &tag) == STOW_OK ? tag : 0;
}

void recorder_launch(const stow_trace_launch_info *launch) {
  ASSERT(launch != NULL);
  recorder.launch(trace, launch);
}

/* Returns whether a trace is open. These calls open none, because the program uses no device memory
 * yet. */
static bool is_open(void) {
  return atomic_load_explicit(&state, memory_order_acquire) == ON && !inside;
}

void recorder_mark(const char *name, bool begins) {
  ASSERT(name != NULL);
  if (!is_open()) return;
  if (begins)
    recorder.mark_begin(trace, name);
  else
    recorder.mark_end(trace, name);
}

void recorder_fact(const char *key, const char *value) {
  ASSERT(key != NULL && value != NULL);
  if (is_open()) recorder.fact(trace, key, value);
}
