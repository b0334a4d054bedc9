/* Stacks as a tree, and the texts in use: the part of a recording's tables that allocations refer
 * to, renumbered for the viewer. */
#ifndef REPORT_STACKS_H
#define REPORT_STACKS_H

#include "replay/timeline.h"

/* Node 0 is the root; a node's parent has a lower number. Frames are numbered from 1. */
typedef struct stack_tree {
  uint32_t *parents, *frames; /* node → parent, frame number */
  uint32_t count, capacity;
  uint32_t *leaf_of_stack;   /* stack id → node; 0 for no stack */
  uint32_t *number_of_frame; /* frame id → frame number; 0 not in use */
  uint32_t *frame_ids;       /* frame number → frame id */
  uint32_t frame_count;      /* numbers in use, 0 included */
} stack_tree;

stow_status stack_tree_build(stack_tree *tree, const timeline *t);
void stack_tree_free(stack_tree *tree);

/* Names numbered in order of first use; 0 is "". */
typedef struct text_table {
  uint32_t *number_of; /* name id → number */
  uint32_t *ids;       /* number → name id */
  uint32_t count, names;
} text_table;

stow_status text_table_init(text_table *t, const recording *r);
uint32_t text_number(text_table *t, uint32_t name_id);
void text_table_free(text_table *t);

#endif
