/* Ledger guard: see ledger_guard in ledger.h. The signal handler only maps memory and stores
 * words. */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "run/ledger.h"

static struct {
  _Atomic uintptr_t from, until; /* the guarded mapping; both 0: none */
  _Atomic bool lost;
  bool unlimited[LEDGER_DEVICES_MAX]; /* devices of this process without a limit */
  struct sigaction before;
} guard;

static void on_bus_error(int number, siginfo_t *info, void *context) {
  uintptr_t at = (uintptr_t)info->si_addr, from = guard.from, until = guard.until;
  if (at >= from && at < until &&
      mmap((void *)from, until - from, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) {
    /* Bytes that cannot be counted cannot be limited: a limit becomes 0. No limit stays no
     * limit. */
    ledger_header *h = (ledger_header *)from;
    for (int i = 0; i < LEDGER_DEVICES_MAX; i++)
      if (guard.unlimited[i]) h->vram_limit_bytes[i] = LEDGER_UNLIMITED;
    guard.lost = true;
    return;
  }
  /* Not ours: call the program's handler if there is one. Otherwise retry the access, which then
   * ends the process as it would have without us. */
  bool has = guard.before.sa_handler != SIG_DFL && guard.before.sa_handler != SIG_IGN;
  if (has && (guard.before.sa_flags & SA_SIGINFO) != 0)
    guard.before.sa_sigaction(number, info, context);
  else if (has)
    guard.before.sa_handler(number);
  else
    sigaction(number, &guard.before, NULL);
}

void ledger_guard(ledger *l) {
  struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  if (l->header == NULL || guard.from != 0) return;
  guard.lost = false;
  guard.until = (uintptr_t)l->header + l->mapped_bytes;
  guard.from = (uintptr_t)l->header;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &guard.before);
}

void ledger_guard_process(ledger *l) {
  for (int i = 0; l->header != NULL && i < LEDGER_DEVICES_MAX; i++)
    guard.unlimited[i] = l->header->vram_limit_bytes[i] == LEDGER_UNLIMITED;
  ledger_guard(l);
}

void ledger_unguard(const ledger *l) {
  if (l->header == NULL || guard.from != (uintptr_t)l->header) return;
  sigaction(SIGBUS, &guard.before, NULL);
  guard.from = guard.until = 0;
}

bool ledger_lost(const ledger *l, const char *path) {
  struct stat info;
  if (l->header == NULL) return false;
  if (guard.from == (uintptr_t)l->header && guard.lost) return true;
  return stat(path, &info) == 0 && (uint64_t)info.st_size < l->mapped_bytes;
}
