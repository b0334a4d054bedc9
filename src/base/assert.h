/* Assertions: conditions that only a mistake of ours can break, checked in debug builds
 * (STOWAGE_CHECKS) and not evaluated in others. One that fails stops the program with what was
 * found. Input is never checked with them: errors of callers and drivers are status codes. */
#ifndef BASE_ASSERT_H
#define BASE_ASSERT_H

#include <stdint.h>

#ifdef STOWAGE_CHECKS
_Noreturn void assert_failed(const char *what, const char *file, int line, uint64_t found,
                             uint64_t other);
/* With two values to print. */
#define ASSERT_VALUES(condition, what, found, other)                                               \
  ((condition) ? (void)0                                                                           \
               : assert_failed(what, __FILE__, __LINE__, (uint64_t)(found), (uint64_t)(other)))
#else
#define ASSERT_VALUES(condition, what, found, other) ((void)sizeof((condition) ? 1 : 0))
#endif

#define ASSERT(condition) ASSERT_VALUES(condition, #condition, 0, 0)

#endif
