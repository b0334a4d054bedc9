/* Fix: what to change, what it saves, what it costs. */
#ifndef ADVISE_FIX_H
#define ADVISE_FIX_H

#include <stdbool.h>
#include <stdint.h>

#define FIXES_MAX 8

typedef struct fix {
  char change[400]; /* the line or the setting */
  char cost[200];
  uint64_t saves_bytes;
  bool raises_limit; /* allows more memory, and uses no less */
  bool replayed;
  bool fits; /* a replay under the same limit gets past the failure */
} fix;

typedef struct fixes {
  fix list[FIXES_MAX];
  uint32_t count;
} fixes;

#endif
