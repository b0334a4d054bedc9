/* Valid: stops the program if our own data structures are inconsistent (valid.h). */
#include "memory/valid.h"

#ifdef STOWAGE_CHECKS
#include <stdio.h>
#include <stdlib.h>

void valid_fail(const char *what, uint64_t found, uint64_t other) {
  fprintf(stderr, "stowage: inconsistent state: %s (%llu, %llu)\n", what, (unsigned long long)found,
          (unsigned long long)other);
  abort();
}
#else
typedef int valid_nothing; /* a file must hold something */
#endif
