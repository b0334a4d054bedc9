/* Nearest: finds the known word that a mistyped one most likely meant. */
#include <string.h>

#include "cli/verb.h"

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

const char *verb_nearest(const char *word, const char *const *names) {
  const char *nearest = NULL;
  size_t best = 1 + strlen(word) / 3; /* a larger distance is another word, not a typing error */
  for (size_t i = 0; names[i] != NULL; i++) {
    size_t distance = edit_distance(word, names[i]);
    /* A prefix of the name counts as one error: "dev" meant "device". */
    if (strlen(word) >= 3 && strncmp(word, names[i], strlen(word)) == 0) distance = 1;
    if (distance <= best && (nearest == NULL || distance < best)) {
      best = distance;
      nearest = names[i];
    }
  }
  return nearest;
}
