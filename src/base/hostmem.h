/* Hostmem: how much host memory this process can still allocate.
 *
 * Called by the cuda backend for its host tier, and by `doctor`, `info` and `run`. Reads the
 * kernel's figures for the machine (MemTotal, MemAvailable) and for the control groups of the
 * process (cgroup v1 or v2, every visible level up to the root), and returns the tightest.
 * Guarantees: never reports more than there is, and assumes nothing about where cgroups are
 * mounted. */
#ifndef BASE_HOSTMEM_H
#define BASE_HOSTMEM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define HOSTMEM_CGROUP_MAX 512

typedef struct hostmem {
  uint64_t machine_total_bytes;     /* MemTotal */
  uint64_t machine_available_bytes; /* MemAvailable: free, or reclaimable from the page cache */

  int cgroup_version;              /* 1 or 2; 0: no memory controller that could be read */
  char cgroup[HOSTMEM_CGROUP_MAX]; /* the process's own group, as the kernel names it; "" if none */
  bool limited;                    /* a level has a limit below the machine's memory */
  char limited_by[HOSTMEM_CGROUP_MAX]; /* folder of the level with the least memory left; "" if
                                          unlimited */
  uint64_t limit_bytes;                /* that level's limit */
  uint64_t limit_used_bytes;  /* use counted against that limit, without reclaimable file cache */
  uint64_t limit_cache_bytes; /* that cache: counted too, and dropped by the kernel when needed */

  uint64_t total_bytes;  /* the most this process can ever hold */
  uint64_t usable_bytes; /* what it can allocate now; leaves a reserve for others */
} hostmem;

/* Reads the current values. Returns STOW_ERR_IO if /proc/meminfo cannot be read. A cgroup that
 * cannot be read counts as unlimited; the machine's figures still apply. */
stow_status hostmem_read(hostmem *m);

/* Returns how many processes the kernel has killed for lack of memory so far: in the process's own
 * group or, if no group reports it, on the machine. Returns 0 if neither does. */
uint64_t hostmem_kills(void);

/* The same with every path under the folder `root` ("" for the real system), for tests. */
stow_status hostmem_read_under(hostmem *m, const char *root);
uint64_t hostmem_kills_under(const char *root);

#endif
