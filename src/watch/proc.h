/* Proc: what the kernel says in small files, and the machine's facts made from them. How much of
 * its memory may be used is base/hostmem.h.
 *
 * Every call takes `root`, put before each path: "" on a running system, a folder of made-up files
 * in tests. A file that is not there is an answer ("not known"), never a failure of the whole. */
#ifndef WATCH_PROC_H
#define WATCH_PROC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"

/* Reads root + path whole, at most 1 MiB, into `text` (cleared first). STOW_ERR_NOT_FOUND if it is
 * not there, STOW_ERR_IO if it cannot be read. */
stow_status proc_read(buffer *text, const char *root, const char *path);
/* The file is one number (anything after it is passed over). STOW_ERR_FORMAT if it is not. */
stow_status proc_number(uint64_t *number, const char *root, const char *path);

typedef struct host_facts {
  char system[80];  /* "Linux 6.1.0" */
  char machine[32]; /* "x86_64", "aarch64" */
  int cpus;         /* that this process may run on */
  int numa_nodes;   /* with memory; 0: not known */
  uint64_t swap_bytes, swap_free_bytes;
} host_facts;

/* What cannot be read stays 0 or "". */
void host_read(host_facts *facts, const char *root);

#endif
