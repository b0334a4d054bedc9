/* Writer: a data file written at any offset, which takes its name only when it is whole.
 *
 * Called by shrink and by the writer of archives. Guarantees what outfile.h does (the old file or
 * the complete new one), refuses to write over the file that is being read, looks for room on the
 * disk before it starts, and sends what it wrote to the disk as it goes, so that unwritten pages do
 * not pile up in the container's memory. */
#ifndef FILES_WRITER_H
#define FILES_WRITER_H

#include "files/outfile.h"
#include "files/source.h"

typedef struct writer {
  outfile out;
  int fd;
  uint64_t bytes;  /* the furthest byte written */
  uint64_t synced; /* sent to the disk up to here */
  bool no_sync;    /* set by the caller once open: the disk is not waited for, nor sent to early */
} writer;

/* STOW_ERR_INVALID if `path` is the file being read, by any name. For refusing before long work. */
stow_status writer_check(const char *path, const source *reading);

/* Into PATH.partial, as outfile_open_partial says. `reading` is what must not be overwritten (NULL:
 * nothing). `expected_bytes` is how much will be written, about. */
stow_status writer_open_partial(writer *w, const char *path, const source *reading,
                                uint64_t expected_bytes, bool keep, bool join);
stow_status writer_write(writer *w, uint64_t offset, const void *bytes, size_t count);
/* The same from several threads at once, each its own bytes; writer_end tells the length after. */
stow_status writer_put(const writer *w, uint64_t offset, const void *bytes, size_t count);
/* The file is `bytes` long: what was written past that is cut off. */
stow_status writer_end(writer *w, uint64_t bytes);
/* Like outfile's. */
stow_status writer_commit(writer *w);
void writer_abandon(writer *w);
void writer_keep(writer *w);

#endif
