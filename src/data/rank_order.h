/* Rank order: the rows that one rank reads in an epoch, in order.
 *
 * The epoch's order has positions 0 to rows - 1 (shuffle.h). A share is a contiguous range of
 * positions that belongs to one rank; its windows start at the first position of the share. A
 * stretch is a part of a share. Normally a rank reads one stretch: its whole share. After a state
 * of another world size was loaded, the ranks read what that world left over: the ends of its
 * ranks' shares, one after another, divided among the ranks of this world.
 *
 *   shares of a world of 2:   |xxxx......|xxxx......|    x: read before the state was taken
 *   ranks of a world of 3:         aaaa bb    bb cccc
 *
 * An index counts the rows of a rank: 0 to rows - 1. Called by batches (makes it) and prefetch
 * (reads along it). */
#ifndef DATA_RANK_ORDER_H
#define DATA_RANK_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stowage/batches.h>

#include "data/shard.h"

typedef struct stretch {
  uint64_t first, end; /* positions of the share */
  uint64_t from, to;   /* the part of it, relative to `first` */
  uint64_t index;      /* of its first row */
  uint64_t window;     /* number of its first window in the order */
} stretch;

typedef struct rank_order {
  stretch *stretches;
  size_t count;
  uint64_t rows;        /* of this rank */
  uint64_t total;       /* of all ranks */
  uint64_t share_rows;  /* of the largest share that it touches */
  uint64_t window_rows; /* 0: no windows */
  uint64_t windows;
} rank_order;

/* Where a window of the order lies. */
typedef struct rank_order_window {
  uint64_t first, end; /* positions, of the whole window */
  uint64_t from, to;   /* indices of the rows that the rank takes from it */
  uint64_t slot;       /* of the row at index `from`, in the window's drawn order */
} rank_order_window;

/* Makes the order of this rank: what remains of `rows` after each of the earlier worlds has read
 * its batches. STOW_ERR_INVALID if an earlier world is impossible. */
stow_status rank_order_make(rank_order *c, uint64_t rows, const shard *s,
                            const stow_batches_earlier *earlier, uint32_t earlier_count);
void rank_order_free(rank_order *c);
/* Divides the order into windows. */
void rank_order_divide(rank_order *c, uint64_t window_rows);

/* Returns how many rows from `index` on have contiguous positions; *place is the first. */
uint64_t rank_order_run(const rank_order *c, uint64_t index, uint64_t *place);
/* Returns the window that holds that index. */
uint64_t rank_order_window_of(const rank_order *c, uint64_t index);
rank_order_window rank_order_window_at(const rank_order *c, uint64_t number);

#endif
