/* Valid: the cheap validity checks, made at every change in debug builds (STOWAGE_CHECKS) and
 * compiled to nothing in others. One that fails is our own mistake: the program stops with what was
 * found. The dear ones, which walk everything, are arena_check, slabs_check, lane_check and
 * pool_check, behind stow_heap_check. */
#ifndef MEMORY_VALID_H
#define MEMORY_VALID_H

#include <stdint.h>

#ifdef STOWAGE_CHECKS
_Noreturn void valid_fail(const char *what, uint64_t found, uint64_t other);
#define VALID(condition, what, found, other)                                                       \
  ((condition) ? (void)0 : valid_fail(what, (uint64_t)(found), (uint64_t)(other)))
#else
#define VALID(condition, what, found, other) ((void)0)
#endif

#endif
