/* Account: the process's slot in the ledger and its book. */
#include "shim/account.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/lock.h"
#include "base/variables.h"
#include "shim/gate.h"
#include "shim/page.h"
#include "shim/plain.h"
#include "shim/record.h"
#include "shim/spill.h"

/* How long a first context waits for the run's command to have looked at the cards. */
#define CARDS_WAIT_MS 1000

static lock start_lock = LOCK_INIT(LOCK_HEAP);
static _Atomic bool started;
static ledger the_ledger; /* `own` guarded by start_lock; the rest set before `started` */
static char own_visible[256];
static _Atomic uint64_t released_bytes;

static lock book_lock = LOCK_INIT(LOCK_POOL);
static map book[BOOK_SPACES]; /* guarded by book_lock; name to holding */

/* ---- starting ---- */

/* In a child of fork nothing is ours: the driver does not go with it, and the slot is the parent's.
 * No thread but this one is left, so a lock held is held by nobody. */
static void after_fork(void) {
  lock_init(&start_lock, LOCK_HEAP);
  lock_init(&book_lock, LOCK_POOL);
  the_ledger.own = 0;
  /* What the maps hold is lost to the child: another thread may have been changing them. */
  memset(book, 0, sizeof book);
  measure_after_fork();
  context_after_fork();
  page_after_fork();
  gate_after_fork();
  spill_after_fork();
  plain_after_fork();
}

static void watch_forks(void) {
  pthread_atfork(NULL, NULL, after_fork);
}

/* A limit that does not hold must not look as if it did. Told where the program's own words go: no
 * other road leads from here to the person. */
static void tell_no_ledger(const char *path) {
  if (access(path, R_OK | W_OK) == 0 || errno != EACCES) return;
  char line[PATH_MAX + 256];
  int length = snprintf(line, sizeof line,
                        "stowage: process %d runs as a user who may not open %s: it is neither "
                        "counted nor limited nor recorded; start stowage run as that user\n",
                        (int)getpid(), path);
  if (length <= 0 || (size_t)length >= sizeof line) return;
  ssize_t written = write(STDERR_FILENO, line, (size_t)length);
  (void)written;
}

static void start(void) {
  /* Before a lock is ever held: a fork in between would leave it held in the child. */
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_forks);
  lock_take(&start_lock);
  if (!started) {
    const char *path = secure_getenv(ENV_LEDGER);
    if (path == NULL || path[0] == '\0' || ledger_open(&the_ledger, path) != STOW_OK) {
      if (path != NULL) {
        shim_log("no ledger: %s", stow_status_message());
        tell_no_ledger(path);
      }
      if (ledger_create(&the_ledger, NULL) != STOW_OK) shim_log("%s", stow_status_message());
    } else if (ledger_part_elsewhere(&the_ledger) != STOW_OK)
      shim_log("%s", stow_status_message());
    const char *visible = secure_getenv("CUDA_VISIBLE_DEVICES");
    strncpy(own_visible, visible != NULL ? visible : "", sizeof own_visible - 1);
    started = true;
  }
  if (the_ledger.own == 0 && the_ledger.header != NULL && ledger_join(&the_ledger) != STOW_OK)
    shim_log("not counted: %s", stow_status_message());
  lock_give(&start_lock);
}

ledger *account_ledger(void) {
  if (!atomic_load_explicit(&started, memory_order_acquire) || the_ledger.own == 0) start();
  return &the_ledger;
}

void account_wait_cards(void) {
  static _Atomic bool done;
  const ledger *l = account_ledger();
  if (atomic_load_explicit(&done, memory_order_relaxed) || l->header == NULL) return;
  bool watched = ledger_spill_limit(l) > 0;
  for (unsigned i = 0; i < LEDGER_DEVICES_MAX && !watched; i++)
    watched = ledger_limit(l, i) != LEDGER_UNLIMITED;
  /* The run's command asks NVML while we start; where it died over it nothing is to be had. */
  for (int i = 0; i < CARDS_WAIT_MS && watched && atomic_load(&l->header->cards_known) == 0; i++)
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  atomic_store(&done, true);
}

/* ---- devices ---- */

/* Entry number `i` of a list with commas; its length, 0 past the end. */
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

unsigned account_device(cu_device card) {
  const ledger *l = account_ledger();
  const char *mine, *theirs, *run_list = l->header == NULL ? "" : l->header->visible_devices;
  unsigned number = (unsigned)card;
  /* Both lists name the machine's cards; the run's number is the place in the run's list. */
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

bool account_here(unsigned *device, cu_context *context, cu_device *card) {
  const cuda_driver *driver = shim_driver();
  *context = NULL;
  if (driver->cuCtxGetCurrent == NULL || driver->cuCtxGetDevice == NULL ||
      driver->cuCtxGetCurrent(context) != CU_OK || *context == NULL ||
      driver->cuCtxGetDevice(card) != CU_OK)
    return false;
  *device = account_device(*card);
  return true;
}

/* ---- counting ---- */

/* Bytes taken since the driver's own share was last measured; it grows as code is loaded. */
#define MEASURE_EVERY ((uint64_t)256 << 20)
static _Atomic uint64_t unmeasured_bytes = MEASURE_EVERY;

/* True if the calling thread's context is on that device, and it was measured. */
static bool measure_here(unsigned device) {
  unsigned here;
  cu_context context;
  cu_device card;
  if (!account_here(&here, &context, &card) || here != device) return false;
  atomic_store(&unmeasured_bytes, 0);
  measure_device(device, card);
  return true;
}

void account_look(unsigned device, uint64_t bytes) {
  const ledger *l = account_ledger();
  if (l->header != NULL && ledger_limit(l, device) != LEDGER_UNLIMITED &&
      atomic_fetch_add(&unmeasured_bytes, bytes) >= MEASURE_EVERY)
    measure_here(device);
}

void account_look_soon(void) {
  atomic_store(&unmeasured_bytes, MEASURE_EVERY);
}

bool account_make_room(unsigned device) {
  /* Pools that the driver trimmed since, and a context that shrank, leave room; so does what the
   * heap of plain requests holds idle. */
  bool measured = measure_here(device);
  return plain_trim(device, false) || measured;
}

bool account_trim(unsigned device, uint64_t bytes) {
  bool pages = page_reclaim(device, bytes);
  return plain_trim(device, false) || pages;
}

bool account_take(unsigned device, ledger_kind kind, uint64_t bytes) {
  ledger *l = account_ledger();
  if (l->header == NULL) return true;
  account_look(device, bytes);
  if (ledger_take(l, device, kind, bytes)) return true;
  if (measure_here(device) && ledger_take(l, device, kind, bytes)) return true;
  /* Pages the program let go of are free, and still counted. */
  if (page_reclaim(device, bytes) && ledger_take(l, device, kind, bytes)) return true;
  return plain_trim(device, false) && ledger_take(l, device, kind, bytes);
}

void account_give(unsigned device, ledger_kind kind, uint64_t bytes) {
  ledger *l = account_ledger();
  if (l->header == NULL) return;
  if (kind < LEDGER_VRAM_KINDS) atomic_fetch_add(&released_bytes, bytes);
  ledger_give(l, device, kind, bytes);
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

void account_refused(unsigned device, uint64_t asked_bytes) {
  ledger *l = account_ledger();
  if (l->header == NULL) return;
  ledger_totals totals;
  ledger_reap(l);
  ledger_sum(l, device, &totals);
  ledger_refusal refusal = {(uint64_t)getpid(),
                            device,
                            asked_bytes,
                            ledger_limit(l, device),
                            totals.vram_bytes,
                            ledger_spill_limit(l),
                            totals.bytes[LEDGER_SPILLED],
                            clock_wall_ns(),
                            totals.bytes[LEDGER_CONTEXT],
                            measure_fixed(device)};
  ledger_refuse(l, &refusal);
  record_event(STOW_TRACE_FAIL, account_room(device), asked_bytes, NULL, device, 0);
  shim_log("refused %llu bytes on device %u: %llu held", (unsigned long long)asked_bytes, device,
           (unsigned long long)totals.vram_bytes);
}

/* ---- the book ---- */

static holding *find(book_space space, uint64_t key) {
  uint64_t *value = map_get(&book[space], key);
  return value == NULL ? NULL : (holding *)(uintptr_t)*value;
}

bool book_add(book_space space, uint64_t key, const holding *what) {
  holding *copy = malloc(sizeof *copy);
  if (copy == NULL) return false;
  *copy = *what;
  lock_take(&book_lock);
  holding *old = find(space, key);
  bool added = map_put(&book[space], key, (uintptr_t)copy) == STOW_OK;
  lock_give(&book_lock);
  if (added) ledger_note_peak(account_ledger(), what->device);
  /* Something ended without our seeing it, or its name would not be given out again. */
  if (added && old != NULL) account_give(old->device, old->kind, old->bytes);
  free(added ? old : copy);
  return added;
}

static bool take_out(book_space space, uint64_t key, holding *what) {
  uint64_t value;
  if (!map_remove(&book[space], key, &value)) return false;
  *what = *(holding *)(uintptr_t)value;
  free((void *)(uintptr_t)value);
  return true;
}

bool book_remove(book_space space, uint64_t key, holding *what) {
  lock_take(&book_lock);
  bool found = take_out(space, key, what);
  lock_give(&book_lock);
  return found;
}

int book_use(book_space space, uint64_t key, int more, holding *what) {
  lock_take(&book_lock);
  holding *found = find(space, key);
  int uses = -1;
  if (found != NULL) {
    found->uses = (uint32_t)((int)found->uses + more);
    uses = (int)found->uses;
    *what = *found;
    if (uses <= 0) take_out(space, key, what);
  }
  lock_give(&book_lock);
  if (uses == 0) account_give(what->device, what->kind, what->bytes);
  return uses;
}

/* Takes out what went with a context, at most so many at a time; how many. */
static size_t take_out_of(book_space space, unsigned device, cu_context context, size_t most,
                          uint64_t *keys, holding *gone) {
  size_t count = 0, at = 0;
  uint64_t key, value;
  lock_take(&book_lock);
  while (count < most && map_next(&book[space], &at, &key, &value)) {
    const holding *h = (const holding *)(uintptr_t)value;
    if (h->device == device && (context == NULL || h->context == context)) keys[count++] = key;
  }
  for (size_t i = 0; i < count; i++) {
    gone[i] = (holding){.bytes = 0};
    take_out(space, keys[i], &gone[i]);
  }
  lock_give(&book_lock);
  return count;
}

void book_drop(unsigned device, cu_context context) {
  /* Pages and pinned memory outlive a context; the rest goes with it. */
  static const book_space SPACES[] = {BOOK_ADDRESS, BOOK_ARRAY};
  enum { AT_ONCE = 256 };
  uint64_t keys[AT_ONCE];
  holding gone[AT_ONCE];
  for (size_t s = 0; s < sizeof SPACES / sizeof SPACES[0]; s++) {
    size_t count;
    do {
      count = take_out_of(SPACES[s], device, context, AT_ONCE, keys, gone);
      for (size_t i = 0; i < count; i++) {
        if (gone[i].kind == LEDGER_SPILLED)
          spill_plain_drop(keys[i], &gone[i]);
        else
          account_give(gone[i].device, gone[i].kind, gone[i].bytes);
      }
    } while (count == AT_ONCE);
  }
}
