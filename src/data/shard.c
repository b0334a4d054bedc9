/* Shard: see shard.h. */
#include "data/shard.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/rank.h"

static stow_status read_number(uint32_t *number, const char *name, const char *text) {
  char *end;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno != 0 || value > UINT32_MAX)
    return stow_fail(STOW_ERR_INVALID,
                     "%s=%.40s in the environment: must be a whole number; or give rank and world",
                     name, text);
  *number = (uint32_t)value;
  return STOW_OK;
}

stow_status shard_find(shard *s) {
  const rank_names *names = rank_find(true);
  *s = (shard){0, 1};
  if (names == NULL) return STOW_OK;
  STOW_TRY(read_number(&s->rank, names->rank, getenv(names->rank)));
  STOW_TRY(read_number(&s->world, names->world, getenv(names->world)));
  if (s->rank < s->world) return STOW_OK;
  return stow_fail(STOW_ERR_INVALID,
                   "%s=%u and %s=%u in the environment: the rank must be less than the world; or "
                   "give rank and world",
                   names->rank, s->rank, names->world, s->world);
}

stow_status shard_check(const shard *s) {
  if (s->world > 0 && s->rank < s->world) return STOW_OK;
  return stow_fail(STOW_ERR_INVALID, "rank %u of %u: the rank must be less than the world", s->rank,
                   s->world);
}

void shard_range(const shard *s, uint64_t rows, uint64_t *first, uint64_t *end) {
  unsigned __int128 all = rows;
  *first = (uint64_t)(all * s->rank / s->world);
  *end = (uint64_t)(all * (s->rank + 1) / s->world);
}
