/* Writing log lines (stowage/log.h). */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stowage/log.h>

/* Logs one line without a newline. Costs one load if no log function is set. */
STOW_API void stow_log_line(stow_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
