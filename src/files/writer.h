/* Writer: a data file written at any offset and renamed to its target only when complete.
 *
 * Called by shrink and by the archive writer. Guarantees what outfile.h does (the old file or the
 * complete new one), refuses to overwrite the file being read, checks the free disk space first,
 * and flushes as it goes, so that dirty pages do not pile up in the container's memory. */
#ifndef FILES_WRITER_H
#define FILES_WRITER_H

#include "files/outfile.h"
#include "files/source.h"

typedef struct writer {
  outfile out;
  int fd;
  uint64_t bytes;  /* end of the furthest byte written */
  uint64_t synced; /* flushed up to here */
  bool no_sync;    /* set by the caller after opening: never flush */
} writer;

/* Returns STOW_ERR_INVALID if `path` is the file being read, under any name. Call it to fail before
 * long work. */
stow_status writer_check(const char *path, const source *reading);

/* Writes to PATH.partial, like outfile_open_partial. `reading` must not be overwritten (NULL:
 * nothing). `expected_bytes` is the approximate size. */
stow_status writer_open_partial(writer *w, const char *path, const source *reading,
                                uint64_t expected_bytes, bool keep, bool join);
stow_status writer_write(writer *w, uint64_t offset, const void *bytes, size_t count);
/* Writes from several threads at once, each its own bytes; call writer_end with the length
 * afterwards. */
stow_status writer_put(const writer *w, uint64_t offset, const void *bytes, size_t count);
/* Begins to flush the bytes before `end`, which writer_put wrote. Not thread-safe. */
void writer_flush_to(writer *w, uint64_t end);
/* Sets the length of the file to `bytes`, truncating anything after it. */
stow_status writer_end(writer *w, uint64_t bytes);
/* Commit and abandon, as for outfile. */
stow_status writer_commit(writer *w);
void writer_abandon(writer *w);
void writer_keep(writer *w);

#endif
