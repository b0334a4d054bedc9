/* Exports: what a program or a test can ask the preloaded shim, found with dlsym. Declared in
 * hooks.h. */
#include "shim/shim.h"

#include <string.h>

#include <stowage/version.h>

#include "shim/account.h"
#include "shim/hooks.h"
#include "shim/measure.h"
#include "shim/page_step.h"

const char *stow_shim_version(void) {
  return STOW_VERSION_TEXT;
}

const char *stow_shim_driver(void) {
  return shim_driver_path();
}

void *stow_shim_real(const char *name) {
  return name == NULL ? NULL : shim_resolve(NULL, name);
}

uint64_t stow_shim_bytes(unsigned device, const char *kind) {
  const ledger *l = account_ledger();
  unsigned here;
  cu_context context;
  cu_device ordinal;
  uint64_t sum = 0;
  if (l->header == NULL) return 0;
  if (account_here(&here, &context, &ordinal) && here == device) measure_device(device, ordinal);
  for (int k = 0; k < LEDGER_KIND_COUNT; k++)
    if (kind == NULL ? k < LEDGER_VRAM_KINDS : strcmp(kind, ledger_kind_name((ledger_kind)k)) == 0)
      sum += ledger_own(l, device, (ledger_kind)k);
  return sum;
}

int stow_shim_trim(int what) {
  if (what == 0) return page_trim_wanted();
  if (what == 1 || what == 2) page_trimming(what == 1);
  return 0;
}
