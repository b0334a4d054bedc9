/* Nearest: see nearest.h. */
#include "base/nearest.h"

#include <string.h>

#define WORD_MAX 48

/* Returns the number of changes, insertions, deletions and swaps of neighbours that turn `a` into
 * `b`, like typing errors. Words longer than WORD_MAX are far from everything. */
static size_t edit_distance(const char *a, const char *b) {
  size_t m = strlen(a), n = strlen(b);
  if (m >= WORD_MAX || n >= WORD_MAX) return WORD_MAX;
  unsigned char rows[3][WORD_MAX];
  for (size_t j = 0; j <= n; j++) rows[0][j] = (unsigned char)j;
  for (size_t i = 1; i <= m; i++) {
    unsigned char *now = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
    now[0] = (unsigned char)i;
    for (size_t j = 1; j <= n; j++) {
      unsigned best = last[j - 1] + (a[i - 1] != b[j - 1] ? 1u : 0u);
      if (last[j] + 1u < best) best = last[j] + 1u;
      if (now[j - 1] + 1u < best) best = now[j - 1] + 1u;
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
          before[j - 2] + 1u < best)
        best = before[j - 2] + 1u;
      now[j] = (unsigned char)best;
    }
  }
  return rows[m % 3][n];
}

nearest nearest_begin(const char *word) {
  return (nearest){.word = word, .best = 1 + strlen(word) / 3};
}

bool nearest_try(nearest *n, const char *name) {
  size_t distance = edit_distance(n->word, name), length = strlen(n->word);
  /* A prefix of the name counts as one error: "dev" meant "device". */
  if (length >= 3 && strncmp(n->word, name, length) == 0) distance = 1;
  if (distance > n->best || (n->found && distance == n->best)) return false;
  n->best = distance;
  n->found = true;
  return true;
}
