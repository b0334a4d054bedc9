/* Log: the library reports through a callback; without one it prints nothing.
 *
 * Threads: the callback may run on any thread. Fork: a child keeps the callback. */
#ifndef STOWAGE_LOG_H
#define STOWAGE_LOG_H

#include <stowage/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum stow_log_level {
  STOW_LOG_ERROR = 0,
  STOW_LOG_WARNING = 1,
  STOW_LOG_INFO = 2,
  STOW_LOG_DEBUG = 3
} stow_log_level;

/* Called on the thread that logs, with no lock of the library held. `line` has no newline. */
typedef void (*stow_log_fn)(void *user, stow_log_level level, const char *line);

/* Sends lines of level `most` and more severe ones to `fn`; NULL disables the log (the default). */
STOW_API void stow_log_set(stow_log_fn fn, void *user, stow_log_level most);

#ifdef __cplusplus
}
#endif
#endif
