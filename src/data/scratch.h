/* Scratch: values kept in a file between two passes: an unnamed file that vanishes with the job, a
 * named one that a resumed job finds again, or the part of an output after its header.
 *
 * Called by shrink. Reads and writes at any offset, from several threads. */
#ifndef DATA_SCRATCH_H
#define DATA_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/status.h"

typedef struct scratch {
  int fd;
  bool owned;
  uint64_t base;    /* offset of its first byte in the file */
  const char *name; /* for messages: the output's */
} scratch;

/* Opens an unnamed file in the folder of `beside`. */
stow_status scratch_open(scratch *s, const char *beside);
/* Opens the file at `path`, which stays if the process is killed; `keep` keeps its contents.
 * STOW_ERR_STATE if another run uses it. */
stow_status scratch_open_named(scratch *s, const char *path, bool keep);
void scratch_close(scratch *s);
stow_status scratch_write(const scratch *s, uint64_t offset, const void *bytes, size_t count);
/* Writes several pieces, one after another. Changes `all`. */
stow_status scratch_write_all(const scratch *s, uint64_t offset, struct iovec *all, size_t count);
stow_status scratch_read(const scratch *s, uint64_t offset, void *to, size_t count);

#endif
