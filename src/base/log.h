/* Saying something to whoever listens (stowage/log.h). */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stowage/log.h>

/* One line, no newline. Costs one load when nobody listens. */
STOW_API void stow_log_line(stow_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
