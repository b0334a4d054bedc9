/* Budget: see budget.h. */
#include "data/budget.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/size.h>

#include "base/hostmem.h"

uint64_t budget_default(void) {
  hostmem host;
  if (hostmem_read(&host) != STOW_OK) return UINT64_C(64) << 20;
  uint64_t quarter = host.usable_bytes / 4;
  return quarter > BUDGET_LEAST ? quarter : BUDGET_LEAST;
}

stow_status budget_check(uint64_t bytes) {
  if (bytes >= BUDGET_LEAST) return STOW_OK;
  char given[STOW_SIZE_TEXT_MAX], least[STOW_SIZE_TEXT_MAX];
  return stow_fail(STOW_ERR_INVALID, "a memory budget of %s is too small; %s is the least",
                   stow_size_format(given, bytes), stow_size_format(least, BUDGET_LEAST));
}

/* ru_maxrss would count what the parent held before exec; the kernel's own line does not. */
uint64_t budget_peak(void) {
  FILE *file = fopen("/proc/self/status", "re");
  if (file == NULL) return 0;
  char line[256];
  uint64_t peak = 0;
  while (peak == 0 && fgets(line, sizeof line, file) != NULL)
    if (strncmp(line, "VmHWM:", 6) == 0) peak = strtoull(line + 6, NULL, 10) << 10;
  fclose(file);
  return peak;
}
