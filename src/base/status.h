/* Setting the thread's message; reading it is public (stowage/status.h). */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include <stowage/status.h>

/* Size of the message buffer; longer messages are cut with "...". */
#define STATUS_MESSAGE_MAX 1024

/* Sets the calling thread's message and returns `status`, so that a failure is one line:
 *   return stow_fail(STOW_ERR_INVALID, "page of %s: not a multiple of 2 MiB", text);
 * The arguments may include the thread's current message, to wrap the error of a lower layer. */
STOW_API stow_status stow_fail(stow_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#ifdef __clang_analyzer__
/* The analyzer sees one file at a time: show it that a failure never returns STOW_OK. */
#define stow_fail(status, ...) (stow_fail((status), __VA_ARGS__), (status))
#endif

/* Returns from the calling function if `call` fails. */
#define STOW_TRY(call)                                                                             \
  do {                                                                                             \
    stow_status stow_try_status = (call);                                                          \
    if (stow_try_status != STOW_OK) return stow_try_status;                                        \
  } while (0)

#endif
