/* Outfile: a file that is the old one or the complete new one, never a half.
 *
 * Bytes go to a temporary file beside the target, which takes its name only in outfile_commit. "-"
 * is standard output. Every writer in this folder writes through one. The new file has the
 * permissions of the one it replaces, or follows the umask. */
#ifndef FILES_OUTFILE_H
#define FILES_OUTFILE_H

#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"

typedef struct outfile {
  FILE *file;
  char *path, *temporary;   /* NULL for standard output */
  bool joined;              /* another process gives it its name */
  bool no_sync;             /* do not wait for the disk before it takes its name */
  bool gzip;                /* the name ends in .gz: contents are compressed */
  void *deflater;           /* z_stream */
  stow_status status;       /* the first failure; later writes do nothing */
  unsigned long long bytes; /* taken from the writer, before compression */
} outfile;

/* Longest ending that is put behind the path of an output: .ranks/4294967295.scratch~, .XXXXXX. */
#define OUTFILE_ENDING_MAX 48

/* Returns STOW_ERR_INVALID if `path` cannot be an output: it is a device such as /dev/null, a pipe
 * or a folder, or so long that the files beside it would have no name. Functions that open an
 * output check it themselves; call this to refuse before long work. */
stow_status outfile_check(const char *path);
/* Returns STOW_ERR_INVALID if `path` is the same file as `input`, by any name. */
stow_status outfile_check_input(const char *path, const char *input);
stow_status outfile_open(outfile *out, const char *path);
/* The same with a temporary file of a known name, PATH.partial, which stays if the process is
 * killed. It must be a plain file of this user, not a link (base/newfile.h). `keep` what stands in
 * it; with `join` it is another process's, which gives it its name: committing and abandoning only
 * close it. STOW_ERR_STATE if another run has it. */
stow_status outfile_open_partial(outfile *out, const char *path, bool keep, bool join);
/* A file that one run at a time has, made if need be, empty unless `keep`. The lock goes with the
 * process. -1 with errno, or with `taken` if another run has it. */
int outfile_open_alone(const char *path, bool keep, bool *taken);
/* Does another run have it now? It is not made. */
bool outfile_taken(const char *path);
stow_status outfile_write(outfile *out, const void *bytes, size_t count);
/* As a sink for writers that take one: the context is the output. */
stow_status outfile_sink(void *context, const void *bytes, size_t count);
/* Brings it to disk under its name. On failure the target is untouched. Always closes. */
stow_status outfile_commit(outfile *out);
/* Removes what was written. Fine after a commit. */
void outfile_abandon(outfile *out);
/* Closes the temporary file and leaves it, for a run that goes on with it. */
void outfile_keep(outfile *out);

#endif
