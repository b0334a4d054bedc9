/* Course: the rows that one rank reads in an epoch, in order.
 *
 * The epoch's order has positions 0 to rows - 1 (shuffle.h). A share is a contiguous range of
 * positions that belongs to one rank; its windows start at the first position of the share. A
 * stretch is a part of a share. Normally a course is one stretch: the rank's whole share. After a
 * state of another world size was loaded, a course is what that world left over: the ends of its
 * ranks' shares, one after another, divided among the ranks of this world.
 *
 *   shares of a world of 2:   |xxxx......|xxxx......|    x: read before the state was taken
 *   courses of a world of 3:       aaaa bb    bb cccc
 *
 * An index counts the rows of a course: 0 to rows - 1. Called by batches (makes it) and prefetch
 * (reads along it). */
#ifndef DATA_COURSE_H
#define DATA_COURSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stowage/batches.h>

#include "data/shard.h"

typedef struct stretch {
  uint64_t first, end; /* positions of the share */
  uint64_t from, to;   /* the part of it, relative to `first` */
  uint64_t index;      /* of its first row */
  uint64_t window;     /* number of its first window in the course */
} stretch;

typedef struct course {
  stretch *stretches;
  size_t count;
  uint64_t rows;        /* of this rank */
  uint64_t total;       /* of all ranks */
  uint64_t share_rows;  /* of the largest share that it touches */
  uint64_t window_rows; /* 0: no windows */
  uint64_t windows;
} course;

/* Where a window of the course lies. */
typedef struct course_window {
  uint64_t first, end; /* positions, of the whole window */
  uint64_t from, to;   /* indices of the rows that the course takes from it */
  uint64_t slot;       /* of the row at index `from`, in the window's drawn order */
} course_window;

/* Makes the course of this rank: what remains of `rows` after each of the earlier worlds has read
 * its batches. STOW_ERR_INVALID if an earlier world is impossible. */
stow_status course_make(course *c, uint64_t rows, const shard *s,
                        const stow_batches_earlier *earlier, uint32_t earlier_count);
void course_free(course *c);
/* Divides the course into windows. */
void course_divide(course *c, uint64_t window_rows);

/* Returns how many rows from `index` on have contiguous positions; *place is the first. */
uint64_t course_run(const course *c, uint64_t index, uint64_t *place);
/* Returns the window that holds that index. */
uint64_t course_window_of(const course *c, uint64_t index);
course_window course_window_at(const course *c, uint64_t number);

#endif
