/* Newfile: the only way this project creates files (tests/guards/files.sh checks that).
 *
 * In a shared folder such as /tmp, another user can plant a link under a name that we are about to
 * use. So no function here follows a symbolic link, and an existing file is used only if it is a
 * plain file of this user with one name. The functions return a descriptor with O_CLOEXEC set, or
 * -1 with errno; they neither print nor set the thread's message. They need no memory from malloc,
 * so the shim may call them anywhere. */
#ifndef BASE_NEWFILE_H
#define BASE_NEWFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Creates `path`, which must not exist, for reading and writing. */
int newfile_create(const char *path, mode_t mode);

/* Opens `path` for reading and writing, and creates it if it does not exist. For files with fixed
 * names: OUT.partial, locks, logs. `flags` may add O_APPEND. errno is ELOOP for a symbolic link,
 * EPERM for a file of another user or with several names, EINVAL for anything but a plain file.
 * Paths below /dev and /proc (not /dev/shm) are opened without these checks: only the system
 * creates names there. `folder` is as for openat(2). */
int newfile_own(int folder, const char *path, int flags, mode_t mode);
/* The same for a file that must exist. */
int newfile_find(int folder, const char *path);
/* Returns what newfile_own's errno means and what to do. */
const char *newfile_reason(int error);

/* Creates a file with an unpredictable name beside `path` (PATH.XXXXXX) and writes the name into
 * `name`. ENAMETOOLONG if it does not fit into `size` bytes. */
int newfile_beside(char *name, size_t size, const char *path, mode_t mode);
/* Creates an unnamed file in `folder`, mode 0600. */
int newfile_unnamed(const char *folder);
/* Returns the folder for large unnamed files: $TMPDIR, or /var/tmp, because /tmp may be in memory.
 */
const char *newfile_folder(void);

/* Replaces the file at `path` with these bytes, through a temporary file, so that a reader sees the
 * old file or the new one. Mode 0600. Returns false with errno. */
bool newfile_write(const char *path, const void *bytes, size_t count);

#endif
