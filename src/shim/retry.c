/* Retry: who is told "out of memory" first, and when. See spill.h for the rule. */
#include <execinfo.h>
#include <link.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/variables.h"
#include "shim/spill.h"

#define SKIP_MAX    64
#define ENOUGH_PART 128

/* What one thread was told. */
typedef struct asking {
  bool refused;         /* its request was refused, and the answer to the next ask is due */
  bool judged;          /* whether that refusal freed anything is known */
  uint64_t released_at; /* account_released() when it was refused */
  uint64_t enough;      /* released bytes that make a refusal worth it */
  uint32_t skip;        /* requests that will not be refused */
  uint32_t skip_next;   /* how many after the next refusal in vain */
} asking;
static _Thread_local asking mine;

static _Atomic int captures, private_pools;

static void add(_Atomic int *count, int more) {
  int now = atomic_fetch_add(count, more) + more;
  if (now < 0) atomic_store(count, 0);
}

void spill_capture(int more) {
  add(&captures, more);
}

void spill_private_pool(int more) {
  add(&private_pools, more);
}

bool spill_capturing(void) {
  return atomic_load(&captures) > 0;
}

/* ---- deciding ---- */

/* The library of PyTorch that asks for memory, and asks again. Where it is loaded, in `retries_*`.
 */
#define RETRYING_LIBRARY "libc10_cuda.so"
static _Atomic bool retries_known; /* set after the two below */
static _Atomic uintptr_t retries_from, retries_to;
static _Atomic bool retries_all; /* a test says that everybody does */

/* A dl_iterate_phdr callback. */
static int is_retrying(struct dl_phdr_info *info, size_t size, void *user) {
  (void)size;
  (void)user;
  if (info->dlpi_name == NULL || strstr(info->dlpi_name, RETRYING_LIBRARY) == NULL) return 0;
  uintptr_t from = UINTPTR_MAX, to = 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    if (part->p_type != PT_LOAD) continue;
    uintptr_t start = info->dlpi_addr + part->p_vaddr, end = start + part->p_memsz;
    if (start < from) from = start;
    if (end > to) to = end;
  }
  atomic_store(&retries_from, from);
  atomic_store(&retries_to, to);
  return 1;
}

bool spill_retry_known(void) {
  enum { LOOKS_MAX = 64 };
  static _Atomic int looks;
  if (atomic_load(&retries_known)) return true;
  /* A framework loads its libraries before it first takes memory; after so many looks in vain
   * there is none. */
  if (atomic_load(&looks) >= LOOKS_MAX) return false;
  atomic_fetch_add(&looks, 1);
  /* The variable is for tests, and for frameworks of which we do not know. */
  const char *said = secure_getenv(ENV_RETRIES);
  if (said != NULL && said[0] == '1') atomic_store(&retries_all, true);
  if (atomic_load(&retries_all) || dl_iterate_phdr(is_retrying, NULL) != 0)
    atomic_store(&retries_known, true);
  return atomic_load(&retries_known);
}

/* Does the one who asks now ask again? In a process with such a framework others ask too: cuBLAS
 * takes its workspace once, and gives up when it is told no. Only looked at when there is no room.
 */
static bool caller_retries(void) {
  enum { FRAMES_MAX = 48 };
  void *frames[FRAMES_MAX];
  if (!spill_retry_known()) return false;
  if (atomic_load(&retries_all)) return true;
  uintptr_t from = atomic_load(&retries_from), to = atomic_load(&retries_to);
  int count = backtrace(frames, FRAMES_MAX);
  for (int i = 0; i < count; i++)
    if ((uintptr_t)frames[i] >= from && (uintptr_t)frames[i] < to) return true;
  return false;
}

void spill_asked(void) {
  if (!mine.refused || mine.judged) return;
  mine.judged = true;
  if (account_released() - mine.released_at >= mine.enough) {
    mine.skip_next = 0;
    return;
  }
  mine.skip_next = mine.skip_next == 0 ? 1 : mine.skip_next * 2;
  if (mine.skip_next > SKIP_MAX) mine.skip_next = SKIP_MAX;
  mine.skip = mine.skip_next;
}

bool spill_refused(void) {
  return mine.refused;
}

void spill_served(void) {
  if (mine.refused) {
    ledger *l = account_ledger();
    if (l->header != NULL) atomic_fetch_add(&l->header->retried_count, 1);
  } else if (mine.skip > 0)
    mine.skip--;
  mine.refused = false;
}

bool spill_wanted(unsigned device, cu_device card, uint64_t bytes) {
  if ((spill_capturing() || atomic_load(&private_pools) > 0 || mine.refused || mine.skip > 0 ||
       !caller_retries()) &&
      spill_budget(card) > 0)
    return true;
  account_refused(device, bytes);
  mine.refused = true;
  mine.judged = false;
  mine.released_at = account_released();
  /* A framework waits for the card before it lets go: not for a few pages. */
  const ledger *l = account_ledger();
  uint64_t limit = l->header != NULL ? ledger_limit(l, device) : LEDGER_UNLIMITED;
  mine.enough =
      limit != LEDGER_UNLIMITED && limit / ENOUGH_PART > bytes ? limit / ENOUGH_PART : bytes;
  return false;
}

void retry_after_fork(void) {
  atomic_store(&captures, 0);
  atomic_store(&private_pools, 0);
  mine = (asking){0};
}
