/* Account: the process's slot in the ledger, and the numbers of devices. */
#include "shim/account.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/lock.h"
#include "base/variables.h"

void account_say(const char *format, ...) {
  char line[PATH_MAX + 256];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (length <= 0 || (size_t)length >= sizeof line) return;
  ssize_t written = write(STDERR_FILENO, line, (size_t)length);
  (void)written;
}

/* How long a first context waits until the run's command has read the devices. */
#define DEVICES_WAIT_MS 1000

static lock start_lock = LOCK_INIT(LOCK_HEAP);
static _Atomic bool started;
static ledger the_ledger; /* `own` guarded by start_lock; the rest set before `started` */
static char own_visible[256];
static _Atomic uint64_t released_bytes;

/* ---- starting ---- */

/* The functions of SHIM_AFTER_FORK; the linker defines the bounds of their section. */
extern shim_forked *const __start_shim_forked[] __attribute__((visibility("hidden")));
extern shim_forked *const __stop_shim_forked[] __attribute__((visibility("hidden")));

/* Resets everything in a child of fork: it does not inherit the driver, and the slot belongs to the
 * parent. It has no other thread, so a lock that is held has no owner. */
static void after_fork(void) {
  lock_init(&start_lock, LOCK_HEAP);
  the_ledger.own = 0;
  for (shim_forked *const *f = __start_shim_forked; f < __stop_shim_forked; f++) (*f)();
}

static void watch_forks(void) {
  pthread_atfork(NULL, NULL, after_fork);
}

/* Warns that a limit is not enforced. Written to standard error, because there is no other way to
 * the user from here. */
static void warn_no_ledger(const char *path) {
  if (access(path, R_OK | W_OK) == 0)
    account_say("stowage: process %d: the ledger %s is damaged: Stowage cannot count, limit or "
                "record this process; start stowage run again\n",
                (int)getpid(), path);
  else if (errno == EACCES)
    account_say("stowage: process %d runs as a user who may not open %s: Stowage cannot count, "
                "limit or record it; start stowage run as that user\n",
                (int)getpid(), path);
}

/* Reports that the run has more live processes than the ledger has slots. Printed once in each of
 * them, and counted for the summary. */
static void report_no_slot(void) {
  static _Atomic int reported_pid;
  ledger_header *h = the_ledger.header;
  int pid = (int)getpid();
  if (atomic_exchange(&reported_pid, pid) == pid) return;
  atomic_fetch_add(&h->turned_away, 1);
  bool limited = ledger_spill_limit(&the_ledger) > 0;
  for (unsigned i = 0; i < LEDGER_DEVICES_MAX && !limited; i++)
    limited = ledger_limit(&the_ledger, i) != LEDGER_UNLIMITED;
  account_say(
      "stowage: process %d: %d processes of this run use the device already, as many as can be "
      "counted: %s\n",
      pid, LEDGER_SLOTS_MAX,
      limited ? "under a limit it gets no device memory; run fewer at once" : "it is not counted");
}

static void start(void) {
  /* Before a lock is ever held: a fork in between would leave it held in the child. */
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_forks);
  lock_acquire(&start_lock);
  if (!started) {
    const char *path = secure_getenv(ENV_LEDGER);
    if (path == NULL || path[0] == '\0' || ledger_open(&the_ledger, path) != STOW_OK) {
      if (path != NULL) {
        shim_log("no ledger: %s", stow_status_message());
        warn_no_ledger(path);
      }
      if (ledger_create(&the_ledger, NULL) != STOW_OK) shim_log("%s", stow_status_message());
    } else if (ledger_part_elsewhere(&the_ledger) != STOW_OK)
      shim_log("%s", stow_status_message());
    ledger_guard_process(&the_ledger); /* its file may be cut short while the program runs */
    const char *visible = secure_getenv("CUDA_VISIBLE_DEVICES");
    strncpy(own_visible, visible != NULL ? visible : "", sizeof own_visible - 1);
    started = true;
  }
  if (the_ledger.own == 0 && the_ledger.header != NULL && ledger_join(&the_ledger) != STOW_OK) {
    shim_log("not counted: %s", stow_status_message());
    report_no_slot();
  }
  lock_release(&start_lock);
}

ledger *account_ledger(void) {
  if (!atomic_load_explicit(&started, memory_order_acquire) || the_ledger.own == 0) start();
  return &the_ledger;
}

void account_wait_devices(void) {
  static _Atomic bool done;
  const ledger *l = account_ledger();
  if (atomic_load_explicit(&done, memory_order_relaxed) || l->header == NULL) return;
  bool watched = ledger_spill_limit(l) > 0;
  for (unsigned i = 0; i < LEDGER_DEVICES_MAX && !watched; i++)
    watched = ledger_limit(l, i) != LEDGER_UNLIMITED;
  /* The run's command queries NVML while we start; if it died, there is no result. */
  for (int i = 0; i < DEVICES_WAIT_MS && watched && atomic_load(&l->header->devices_known) == 0;
       i++)
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  atomic_store(&done, true);
}

/* ---- devices ---- */

/* Finds entry number `i` of a list with commas. Returns its length; 0 after the end. */
static size_t entry(const char *list, unsigned i, const char **at) {
  for (;;) {
    list += strspn(list, " ,");
    size_t length = strcspn(list, ", ");
    *at = list;
    if (i == 0 || length == 0) return length;
    list += length;
    i--;
  }
}

unsigned account_device(cu_device ordinal) {
  ASSERT(ordinal >= 0);
  const ledger *l = account_ledger();
  const char *mine, *theirs, *run_list = l->header == NULL ? "" : l->header->visible_devices;
  unsigned number = (unsigned)ordinal;
  /* Both lists name the machine's devices; the run's number is the position in the run's list. */
  size_t length = entry(own_visible, number, &mine);
  if (strcmp(own_visible, run_list) == 0 || length == 0) return number;
  if (run_list[0] == '\0') {
    char *end;
    unsigned long index = strtoul(mine, &end, 10);
    return end == mine + length ? (unsigned)index : number;
  }
  for (unsigned i = 0; i < LEDGER_DEVICES_MAX; i++) {
    size_t other = entry(run_list, i, &theirs);
    if (other == 0) break;
    if (other == length && memcmp(mine, theirs, length) == 0) return i;
  }
  return number;
}

bool account_here(unsigned *device, cu_context *context, cu_device *ordinal) {
  ASSERT(device != NULL && context != NULL && ordinal != NULL);
  const cuda_driver *driver = shim_driver();
  *context = NULL;
  if (driver->cuCtxGetCurrent == NULL || driver->cuCtxGetDevice == NULL ||
      driver->cuCtxGetCurrent(context) != CU_OK || *context == NULL ||
      driver->cuCtxGetDevice(ordinal) != CU_OK)
    return false;
  *device = account_device(*ordinal);
  return true;
}

/* ---- counting ---- */

void account_uncharge(unsigned device, ledger_kind kind, uint64_t bytes) {
  ASSERT((unsigned)kind < LEDGER_KIND_COUNT);
  ledger *l = account_ledger();
  if (l->header == NULL) return;
  if (kind < LEDGER_VRAM_KINDS) atomic_fetch_add(&released_bytes, bytes);
  ledger_uncharge(l, device, kind, bytes);
}

void account_note_released(uint64_t bytes) {
  atomic_fetch_add(&released_bytes, bytes);
}

uint64_t account_released(void) {
  return atomic_load(&released_bytes);
}

uint64_t account_room(unsigned device) {
  const ledger *l = account_ledger();
  ledger_totals totals;
  if (l->header == NULL || ledger_limit(l, device) == LEDGER_UNLIMITED) return 0;
  ledger_sum(l, device, &totals);
  uint64_t limit = ledger_limit(l, device);
  return limit > totals.vram_bytes ? limit - totals.vram_bytes : 0;
}
