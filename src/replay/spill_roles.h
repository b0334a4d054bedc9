/* Roles: what the scripts inside PyTorch (docs/spill.md) do with each block of a step.
 *
 * A recording shows what launches touch, not what autograd saves. Roles follow from the order of
 * the touches:
 *
 *      forward                 turn                 backward           optimizer
 *      |--a----b----c------------|------------c----b----a----------------|
 *
 *   saved    belongs to the step, and its longest pause contains a turn
 *   state    outlives the step, and is touched only after backward passes
 *   weight   outlives the step, and gets no gradient: frozen, or the step has no backward pass
 *   table    the same, but launches are too short to read more than some rows of it
 *   stays    all others
 *
 * A step may have several passes: two networks in turn, or one per micro-batch. */
#ifndef REPLAY_SPILL_ROLES_H
#define REPLAY_SPILL_ROLES_H

#include "replay/spill.h"

#define ROLE_NO_BLOCK UINT32_MAX

typedef enum spill_role { ROLE_STAYS, ROLE_SAVED, ROLE_STATE, ROLE_WEIGHT, ROLE_TABLE } spill_role;

/* Launches are numbered from 1; 0: none. */
typedef struct role_block {
  uint64_t bytes;
  uint32_t first, last; /* touches */
  uint32_t leave, back; /* the touches before and after the longest pause */
  uint8_t role, touched;
  bool outlives; /* live before the step and after it */
  bool own;      /* allocated in the step */
  bool gradient; /* used together with a block of the same size that outlives the step */
  bool trained;  /* used in a pass, and by an optimizer */
} role_block;

typedef struct role_pass {
  uint32_t begin, turn, end;
} role_pass;

/* Launches in which an optimizer uses its state. */
typedef struct role_update {
  uint32_t begin, end;
  uint64_t state_bytes, trained_bytes;
} role_update;

typedef struct role_use { /* of a weight */
  uint32_t launch, block;
} role_use;

typedef struct spill_roles {
  role_block *blocks;
  size_t block_count;
  uint32_t *op_block, *word_block; /* of each allocation and free, and of each word */
  role_pass *passes;
  size_t pass_count, pass_capacity;
  role_update *updates;
  size_t update_count, update_capacity;
  role_use *uses;
  size_t use_count, use_capacity;
  uint64_t saved_bytes, state_bytes, weight_bytes, table_bytes;
  size_t saved_count;
} spill_roles;

/* Finds the roles in one step. Free with spill_roles_free, also after a failure. */
stow_status spill_roles_find(spill_roles *r, const spill_program *p);
void spill_roles_free(spill_roles *r);

#endif
