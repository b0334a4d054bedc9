/* Space: the program's address ranges that can move (units), the blocks that are live in them, and
 * which units a parameter word names.
 *
 * A unit is one physical page of the program's address space: a multiple of 2 MiB. A block is one
 * allocation of the program's allocator. A word inside a block names the whole block, because a
 * kernel may use all of it. A block of more than 64 MiB in which several words were seen is an
 * arena (weights of all layers in one buffer, the pool of another allocator): a word then names the
 * bytes up to the next word in use. A word that was not seen for long belongs to a buffer that is
 * gone. Buffers of one step overlap if they are not live together, so the next word may lie inside
 * the buffer: a word names at least what the same parameter of the same kernel names elsewhere. A
 * kernel over a whole buffer, of which others use parts one by one, begins at the same word as the
 * first part: its parameter may name the bytes up to its own word in another launch (`wide`). All
 * that is a guess: a launch may write to other bytes of the arena. space_in_arena says where, and
 * nothing is copied ahead into vram there.
 *
 * A word is resolved without a search, except in an arena: a table finds the unit by the address,
 * and at most two blocks of a unit cross its edges, one at each end. */
#ifndef RESIDENCY_SPACE_H
#define RESIDENCY_SPACE_H

#include <stdbool.h>

#include "base/hash.h"
#include "base/status.h"

#define SPACE_GRANULE_BITS 21 /* 2 MiB: the smallest physical page */
#define SPACE_NO_UNIT      UINT32_MAX

typedef struct space_unit {
  uint64_t addr, bytes; /* 0 bytes: the number is free */
  /* Blocks that cross the edges: [.., head_end) began before the unit, [tail_start, ..) continues
   * after it. */
  uint64_t head_end, tail_start;
  uint64_t head_addr, tail_addr; /* where those blocks begin */
  uint64_t stamp;                /* the last launch that named it */
  uint64_t wrote;                /* as in space_block, for words whose block is not known */
  uint32_t live;                 /* blocks that overlap it */
} space_unit;

typedef struct space_slot {
  uint64_t granule; /* address >> SPACE_GRANULE_BITS, plus 1; 0: empty */
  uint32_t unit;
} space_slot;

struct space_small;

/* Blocks by address. Like `map`, but without a seed, because every word is looked up once. */
typedef struct space_block {
  uint64_t addr; /* 0: empty */
  uint64_t bytes;
  uint64_t wrote; /* the last launch passed to space_write that has a word in it */
  uint32_t arena; /* its number plus 1; 0: none */
} space_block;

/* The words seen in a large block, in order, with the last launch that had each and the most
 * launches after which it was seen again. They are kept when the block is freed, because a block of
 * the same place and size is likely to be used in the same way. */
typedef struct space_arena {
  uint64_t addr, bytes;
  uint64_t *words, *seen, *pauses;
  uint32_t count, capacity;
  uint64_t pause;  /* the most of `pauses` ever */
  uint64_t latest; /* after how many launches the word seen last was seen again */
  uint64_t newest; /* the launch that had a new word last */
  /* Bytes of ranges between two words: of the largest, and what one of ten exceeds (0: unknown), as
   * of launch `measured_at`. */
  uint64_t most, typical;
  uint64_t measured_at;
  bool live;
} space_arena;

/* A number of bytes that launches agree on; see level_learn. */
typedef struct space_level {
  uint64_t bytes, more;       /* what they agree on, and a larger number that some show */
  uint32_t score, more_score; /* 0: the next launch replaces it */
} space_level;

#define SPACE_PEERS  6
#define SPACE_BEYOND 6

/* How many bytes a parameter of a kernel names, as far as its words in arenas show: up to the next
 * word of any launch, and up to the next one that it has itself in other launches. */
typedef struct space_extent {
  uint64_t key; /* 0: none */
  space_level near, wide;
  uint64_t peers[SPACE_PEERS]; /* its last words */
  uint32_t next;               /* the next of them to be replaced */
} space_extent;

typedef struct space {
  space_unit *units;
  uint32_t count, capacity;
  uint32_t free_list; /* head of the list of free numbers, linked through `live` */
  space_slot *table;  /* open addressing */
  uint64_t table_mask, table_used;
  uint64_t low, high;  /* all units lie in [low, high) */
  space_block *blocks; /* open addressing */
  uint64_t block_mask, block_count;
  struct space_small *small; /* small touches of the last launch resolved; SPACE_SMALL_MAX
                              * entries */
  uint32_t small_count;
  bool small_lost;       /* there were more */
  space_extent *extents; /* NULL: none yet, or no host memory */
  space_arena *arenas;
  uint32_t arena_count, arena_next; /* the next to be replaced */
  uint64_t
      key; /* hash of the units of the last launch resolved. In an arena only units that contain a
              word count: what the words name there may change from launch to launch */
  bool arena_named; /* the last launch resolved has a word in an arena: it may name other units the
                     * next time */
  bool arena_learning; /* and words of that arena may be missing */
  /* Ranges after those that words of the last launch name, up to the next word that the parameter
   * has in other launches: the launch may use them too. */
  struct {
    uint64_t from, to;
  } beyond[SPACE_BEYOND];
  uint32_t beyond_count;
  bool beyond_large; /* one of them is larger than most ranges of the arena */
  bool arena_new; /* a block became an arena since this was last cleared: words name other units */
} space;

void space_free(space *s);
/* Adds a range that overlaps no other. STOW_ERR_INVALID: not a multiple of 2 MiB, or overlapping.
 */
stow_status space_add(space *s, uint64_t addr, uint64_t bytes, uint32_t *unit);
/* Removes a unit. Returns SPACE_NO_UNIT if no unit begins there. */
uint32_t space_remove(space *s, uint64_t addr);
/* Returns the unit that contains the address, or SPACE_NO_UNIT. */
uint32_t space_find(const space *s, uint64_t addr);

/* Returns where the unit that contains the address ends, and the unit; where no unit is, the end of
 * the 2 MiB around the address, and SPACE_NO_UNIT. Visits the units of a range. */
uint64_t space_step(const space *s, uint64_t addr, uint32_t *unit);

/* Adds or removes a live block. Blocks outside all units are remembered but not counted. Calls
 * `changed` (may be NULL) for units whose `live` rose from 0 or fell to 0. */
typedef void (*space_changed)(void *context, uint32_t unit);
stow_status space_block_add(space *s, uint64_t addr, uint64_t bytes, space_changed changed,
                            void *context);
void space_block_remove(space *s, uint64_t addr, space_changed changed, void *context);
/* Counts the live blocks in a unit that was just added. Visits every block. */
void space_count_blocks(space *s, uint32_t unit, space_changed changed, void *context);

/* A launch that touches less than this of a unit does not justify moving it. Reading 64 KiB over
 * the bus takes 2 us, moving a unit of 20 MiB about 700. */
#define SPACE_SMALL_BYTES (UINT64_C(64) << 10)
#define SPACE_SMALL_MAX   1024

typedef struct space_small {
  uint32_t unit, bytes;
} space_small;

/* Returns whether a launch may write to the unit without naming it: part of it is in an arena. */
bool space_in_arena(const space *s, uint32_t unit);

/* Whether a launch also names the ranges that are `beyond` otherwise: none, those that are not
 * larger than most, or all. */
typedef enum space_width { SPACE_NARROW = 0, SPACE_WIDE, SPACE_WIDEST } space_width;

/* A launch: its number, from 1, its function, and a number that identifies function and size.
 * `copied`: it is a copy or fill, whose words show nothing about buffers, because one buffer is
 * copied in many pieces. It names the bytes that it copies, or all of a block if they are not known
 * (0), or if it `fills` a new block.
 */
typedef struct space_launch {
  uint64_t stamp, function, shape;
  space_width wide;
  bool copied, fills;
  uint64_t copied_bytes;
  const uint64_t *words;
  size_t count;
} space_launch;

/* Resolves the words of a launch to distinct units, at most `max`. Returns their number. Small
 * touches go to s->small instead. */
uint32_t space_resolve(space *s, const space_launch *l, uint32_t *units, uint32_t max);

/* Notes that a launch may write to the blocks of its words, more exactly than by units: two blocks
 * may share one. */
void space_write(space *s, const uint64_t *words, size_t count, uint64_t stamp);
/* Returns the last launch passed to space_write that may have written to what the block at `addr`
 * has in the unit. Sets `*known` to false if no block begins there. */
uint64_t space_written(const space *s, uint32_t unit, uint64_t addr, bool *known);

#endif
