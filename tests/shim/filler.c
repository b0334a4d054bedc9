/* filler COMMAND [WORDS…]: takes every free slot of the run's ledger in the name of its parent,
 * which is alive, and then executes COMMAND: a process that comes after as many as the ledger can
 * count. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/process.h"
#include "run/ledger.h"

int main(int argc, char **argv) {
  ledger l;
  process p;
  const char *path = getenv("STOWAGE_LEDGER");
  if (argc < 2 || path == NULL || ledger_open(&l, path) != STOW_OK) return 2;
  if (process_read(&p, getppid()) != PROCESS_LIVES) return 3;
  uint64_t owner = (uint64_t)getppid() << 32 | (uint32_t)p.start;
  for (int i = 0; i < LEDGER_SLOTS_MAX; i++) {
    uint64_t nobody = 0;
    atomic_compare_exchange_strong(&l.slots[i].owner, &nobody, owner);
  }
  l.header->slots_high = LEDGER_SLOTS_MAX;
  execvp(argv[1], argv + 1);
  return 4;
}
