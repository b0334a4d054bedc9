/* Budget: see budget.h. */
#include "data/budget.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <stowage/size.h>

#include "arrays/hdf5.h"
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
  return stow_fail(STOW_ERR_INVALID, "a memory budget of %s is too small; the minimum is %s",
                   stow_size_format(given, bytes), stow_size_format(least, BUDGET_LEAST));
}

/* Returns this process's peak: the kernel's VmHWM, because ru_maxrss includes what the parent held
 * before exec. */
static uint64_t own_peak(void) {
  char text[4096]; /* the whole file has about 1,500 bytes */
  int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  size_t length = 0;
  for (;;) {
    ssize_t got = read(file, text + length, sizeof text - 1 - length);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    length += (size_t)got;
  }
  close(file);
  text[length] = '\0';
  const char *line = strstr(text, "\nVmHWM:");
  return line != NULL ? strtoull(line + 7, NULL, 10) << 10 : 0;
}

uint64_t budget_peak(void) {
  uint64_t own = own_peak();
  return own > 0 ? own + hdf5_worker_peak() : 0;
}
