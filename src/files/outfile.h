/* Outfile: an output file that is either the old file or the complete new one, never a partial one.
 *
 * Bytes go to a temporary file next to the target, which outfile_commit renames. "-" is standard
 * output. All our writers use it. The new file has the group and the permissions of the file it
 * replaces, or follows the umask. */
#ifndef FILES_OUTFILE_H
#define FILES_OUTFILE_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/status.h"

typedef struct outfile {
  FILE *file;
  char *path, *temporary;   /* NULL for standard output */
  bool joined;              /* another process renames it */
  bool no_sync;             /* do not flush to disk before the rename */
  bool gzip;                /* the name ends in .gz: compress the contents */
  void *deflater;           /* z_stream */
  stow_status status;       /* the first failure; later writes do nothing */
  unsigned long long bytes; /* received from the writer, before compression */
} outfile;

/* Longest suffix that is added to an output path: .ranks/4294967295.scratch~, .XXXXXX. */
#define OUTFILE_ENDING_MAX 48

/* Returns STOW_ERR_INVALID if `path` cannot be an output: a device such as /dev/null, a pipe, a
 * folder, or a path so long that the files next to it cannot be named. Functions that open an
 * output check it themselves; call this to fail before long work. */
stow_status outfile_check(const char *path);
/* Fails with STOW_ERR_IO if the folder that `path` names a file or folder in does not exist. */
stow_status outfile_check_folder(const char *path);
/* Returns why no file could be created at `path` and what to do, for an errno of base/newfile.h. */
const char *outfile_reason(const char *path, int error);
/* Returns STOW_ERR_INVALID if `path` and `input` are the same file, under any name. */
stow_status outfile_check_input(const char *path, const char *input);
stow_status outfile_open(outfile *out, const char *path);
/* The same with a temporary file of a known name, PATH.partial, which stays if the process is
 * killed. It must be a plain file of this user, not a link (base/newfile.h). `keep` keeps its
 * contents. With `join` the file belongs to another process, which renames it: commit and abandon
 * only close it. Returns STOW_ERR_STATE if another run uses it. */
stow_status outfile_open_partial(outfile *out, const char *path, bool keep, bool join);
/* Opens and locks a file for one run at a time, creating it if needed; empties it unless `keep`.
 * The lock ends with the process. Returns -1 with errno, or with `taken` set if another run holds
 * it. */
int outfile_open_alone(const char *path, bool keep, bool *taken);
/* Returns whether another run holds the lock now. Does not create the file. */
bool outfile_taken(const char *path);
stow_status outfile_write(outfile *out, const void *bytes, size_t count);
/* A sink for writers that need one; the context is the outfile. */
stow_status outfile_sink(void *context, const void *bytes, size_t count);
/* Takes away the permissions that `most` lacks, for a file made from a private one. A file that
 * replaces another keeps the permissions of that. */
void outfile_narrow(const outfile *out, mode_t most);
/* Flushes the file and renames it to its target. On failure the target is unchanged. Always
 * closes. */
stow_status outfile_commit(outfile *out);
/* Removes the temporary file. No effect after a commit. */
void outfile_abandon(outfile *out);
/* Closes the temporary file and keeps it, for a later run that continues with it. */
void outfile_keep(outfile *out);

#endif
