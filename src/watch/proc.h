/* Proc: small files of the kernel, and facts about the machine. base/hostmem.h reports usable
 * memory.
 *
 * Every call takes `root`, a prefix for each path: "" on a running system, a folder of test files
 * in tests. A missing file means "not known"; it does not fail the whole call. */
#ifndef WATCH_PROC_H
#define WATCH_PROC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"

/* Reads root + path, at most 1 MiB, into `text` (cleared first). STOW_ERR_NOT_FOUND if it does not
 * exist, STOW_ERR_IO if it cannot be read. */
stow_status proc_read(buffer *text, const char *root, const char *path);
/* Reads one number from the file (anything after it is ignored). STOW_ERR_FORMAT if there is none.
 */
stow_status proc_number(uint64_t *number, const char *root, const char *path);

typedef struct host_facts {
  char system[80];  /* "Linux 6.1.0" */
  char machine[32]; /* "x86_64", "aarch64" */
  int cpus;         /* CPUs that this process may run on */
  int numa_nodes;   /* NUMA nodes with memory; 0: unknown */
  uint64_t swap_bytes, swap_free_bytes;
} host_facts;

/* Values that cannot be read stay 0 or "". */
void host_read(host_facts *facts, const char *root);

#endif
