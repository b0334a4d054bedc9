/* Outlook: what a recording shows beyond the moment at which a smaller device refuses a request.
 *
 * `explain --vram` replays a whole recording and stops where the device is full. What comes later
 * is known all the same: a backward pass that frees the graphs of several passes, memory that grows
 * with each step, copies that no kernel ever uses. causes.c calls it after the growth; the causes
 * (causes/outlook.c) and the fixes (fix_outlook.c) use it. All zero without a whole recording. */
#ifndef ADVISE_OUTLOOK_H
#define ADVISE_OUTLOOK_H

#include "advise/growth.h"

typedef struct outlook {
  /* Graphs of independent passes that wait for one backward pass. */
  uint32_t waiting, waits_for; /* complete passes at the failure, and all of them; 0: none */
  uint64_t waiting_bytes;
  uint32_t waiting_from, waiting_until; /* ticks of the complete passes */
  /* Allocations that no kernel uses after they are made, all from one line. */
  uint64_t unused_bytes;
  uint32_t unused_stack_id;
  bool unused_enough;  /* without them the live memory fits */
  uint8_t *unused;     /* by lifetime; NULL: none */
  uint32_t work_tick;  /* the first forward pass of the recording */
  uint32_t *last_used; /* by lifetime: the tick of its last kernel; NULL: not known */
  bool data;           /* the refused request is kept to the end, and each step uses it */
  /* Growth that goes on after the failure. */
  growth ahead;
  bool ahead_enough; /* without it the whole recording fits */
  bool ahead_most;   /* without it all live bytes fit, though perhaps not in one piece, and it had
                      * grown when it failed */
} outlook;

/* `now`: the growth up to the failure; found in `now`, it is not looked for ahead. */
stow_status outlook_find(outlook *o, const evidence *e, const growth *now);
void outlook_free(outlook *o);

/* Sets *stack_id to where the largest allocation was made that one iteration keeps and a forward
 * pass of a later iteration uses: a state carried on with its graph. 0: none is known. */
stow_status outlook_carried(uint32_t *stack_id, const evidence *e, const growth *g);

#endif
