/* Growth: what stays, or becomes larger, from iteration to iteration (causes/growth.c). */
#ifndef ADVISE_GROWTH_H
#define ADVISE_GROWTH_H

#include "advise/evidence.h"

/* Memory that grows from iteration to iteration. */
typedef struct growth {
  bool found;
  uint32_t whole; /* complete iterations */
  uint64_t per_iteration, total;
  bool graph;      /* a forward pass keeps it for its backward pass */
  bool like_graph; /* it may be a graph: several things of one, and most of what stays */
  bool bare;       /* the program calls no modules */
  bool backward;   /* the iterations run backward */
  bool scalar;     /* each iteration leaves a number behind, like a sum of losses */
  bool loss;       /* that number, or something else that stays, may come from a loss */
  bool evaluates;  /* a function name shows that it evaluates, or dropout is off since training */
  bool strange;    /* there was training, and it never ran this code */
  bool swells;     /* nothing stays, but one object is recreated larger in each iteration */
  uint64_t swollen_bytes; /* its last size, if it was found by its sizes alone; otherwise 0 */
  uint32_t stack_id;      /* the line that grows most */
  uint64_t stack_bytes;   /* how much that line grows */
  uint32_t stack_count;
  uint8_t *of_stack; /* by stack ID: whether it leaves something in most iterations */
} growth;

stow_status growth_find(growth *g, const evidence *e);
/* Returns whether this lifetime is part of what grows. Memory that only the first iteration left (a
 * workspace, gradients) is not. */
bool growth_has(const growth *g, const evidence *e, uint32_t lifetime_number);
double growth_weight(const evidence *e, const growth *g);

#endif
