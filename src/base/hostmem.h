/* Hostmem: how much of the host's memory this process may still take.
 *
 * Called by the cuda backend for its host tier, by `doctor`, `info` and `run`. Reads what the
 * kernel says about the machine (MemTotal, MemAvailable) and about the control groups the process
 * is in (cgroup v1 or v2, every level up to the root it can see), and answers with the tightest of
 * them. Guarantees: never more than really is there, nothing assumed about where cgroups are
 * mounted. */
#ifndef BASE_HOSTMEM_H
#define BASE_HOSTMEM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define HOSTMEM_CGROUP_MAX 512

typedef struct hostmem {
  uint64_t machine_total_bytes; /* MemTotal */
  uint64_t
      machine_available_bytes; /* MemAvailable: free, or given up by the page cache on demand */

  int cgroup_version;              /* 1 or 2; 0: no memory controller that could be read */
  char cgroup[HOSTMEM_CGROUP_MAX]; /* the process's own group, as the kernel names it; "" if none */
  bool limited;                    /* some level has a limit below what the machine has */
  char
      limited_by[HOSTMEM_CGROUP_MAX]; /* folder of the level with the least left; "" if unlimited */
  uint64_t limit_bytes;               /* that level's limit */
  uint64_t limit_used_bytes;          /* counted against it, less the file cache it would give up */

  uint64_t total_bytes;  /* the most this process could ever hold: the machine's, or the limit */
  uint64_t usable_bytes; /* what it may take now, with room left for others */
} hostmem;

/* Reads it anew. STOW_ERR_IO if not even /proc/meminfo can be read. A cgroup that cannot be read is
 * one that does not limit: the kernel's own figures still hold. */
stow_status hostmem_read(hostmem *m);

/* How many processes the kernel has killed for want of memory so far: in the process's own group,
 * or, where no group tells, on the machine. 0 where it is not told at all. */
uint64_t hostmem_kills(void);

/* The same with every path under the folder `root` ("" for the real ones): for tests. */
stow_status hostmem_read_under(hostmem *m, const char *root);
uint64_t hostmem_kills_under(const char *root);

#endif
