/* Retrying: finding the framework's library, and its code on the stack. */
#include "shim/retrying.h"

#include <execinfo.h>
#include <link.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/variables.h"

/* The library of PyTorch that allocates device memory and retries, and where it is loaded. */
#define RETRYING_LIBRARY "libc10_cuda.so"
static _Atomic bool retries_known; /* set after the two below */
static _Atomic uintptr_t retries_from, retries_to;
static _Atomic bool retries_all; /* a test makes every caller count as retrying */

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

bool retrying_known(void) {
  enum { LOOKS_MAX = 64 };
  static _Atomic int looks;
  if (atomic_load(&retries_known)) return true;
  /* A framework loads its libraries before its first allocation: after this many searches there is
   * none. */
  if (atomic_load(&looks) >= LOOKS_MAX) return false;
  atomic_fetch_add(&looks, 1);
  /* The variable is for tests, and for frameworks that are unknown here. */
  const char *said = secure_getenv(ENV_RETRIES);
  if (said != NULL && said[0] == '1') atomic_store(&retries_all, true);
  if (atomic_load(&retries_all) || dl_iterate_phdr(is_retrying, NULL) != 0)
    atomic_store(&retries_known, true);
  return atomic_load(&retries_known);
}

bool retrying_caller(void) {
  enum { FRAMES_MAX = 48 };
  void *frames[FRAMES_MAX];
  if (!retrying_known()) return false;
  if (atomic_load(&retries_all)) return true;
  uintptr_t from = atomic_load(&retries_from), to = atomic_load(&retries_to);
  int count = backtrace(frames, FRAMES_MAX);
  for (int i = 0; i < count; i++)
    if ((uintptr_t)frames[i] >= from && (uintptr_t)frames[i] < to) return true;
  return false;
}
