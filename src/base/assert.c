/* Assertions: stopping where one of our own conditions is broken (assert.h). */
#include "base/assert.h"

#ifdef STOWAGE_CHECKS
#include <stdio.h>
#include <stdlib.h>

void assert_failed(const char *what, const char *file, int line, uint64_t found, uint64_t other) {
  fprintf(stderr, "stowage: %s:%d: assertion failed: %s (%llu, %llu)\n", file, line, what,
          (unsigned long long)found, (unsigned long long)other);
  abort();
}
#else
typedef int assert_nothing; /* a file must not be empty */
#endif
