/* Shim log: for finding out what the shim did in a process. Off unless STOWAGE_SHIM_LOG names a
 * file; each line has the process and the milliseconds of the clock, and is one write to a file
 * opened for appending, so that lines of different processes do not mix. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/newfile.h"
#include "base/variables.h"
#include "shim/shim.h"

enum { UNKNOWN = 0, OFF = -1 };
static _Atomic int log_state; /* UNKNOWN, OFF, or descriptor + 1 */
static _Atomic uint64_t log_device, log_inode;

static int log_open(void) {
  const char *path = secure_getenv(ENV_SHIM_LOG);
  descriptor file = DESCRIPTOR_NONE;
  if (path != NULL && path[0] != '\0')
    file = descriptor_keep(newfile_own(AT_FDCWD, path, O_APPEND, 0600));
  int state = file.fd < 0 ? OFF : file.fd + 1, unknown = UNKNOWN;
  /* Threads that arrive at the same time open the same file. */
  atomic_store(&log_device, file.device);
  atomic_store(&log_inode, file.inode);
  if (!atomic_compare_exchange_strong(&log_state, &unknown, state)) {
    descriptor_close(&file);
    return unknown;
  }
  return state;
}

void shim_log(const char *format, ...) {
  int saved = errno, state = atomic_load_explicit(&log_state, memory_order_relaxed);
  if (state == UNKNOWN) state = log_open();
  if (state != OFF) {
    char line[512];
    int at = snprintf(line, sizeof line, "%d %.3f ", (int)getpid(), (double)clock_ns() / 1e6);
    va_list args;
    va_start(args, format);
    int more = vsnprintf(line + at, sizeof line - 1 - (size_t)at, format, args);
    va_end(args);
    size_t length = (size_t)at + (more > 0 ? (size_t)more : 0);
    if (length > sizeof line - 2) length = sizeof line - 2;
    line[length++] = '\n';
    descriptor file = {state - 1, log_device, log_inode};
    ssize_t written = descriptor_ours(&file) ? write(file.fd, line, length) : 0;
    (void)written; /* a log that cannot be written changes nothing */
  }
  errno = saved;
}
