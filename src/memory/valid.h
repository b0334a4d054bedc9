/* Valid: cheap validity checks at every change in debug builds (STOWAGE_CHECKS); other builds omit
 * them. A check that fails is our own mistake: the program stops and prints the reason. The slow
 * checks of whole structures are arena_check, slabs_check, lane_check and pool_check, called by
 * stow_heap_check. */
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
