/* Spill: finds what the scripts inside PyTorch do with each block of a step (spill_roles.h). */
#include "replay/spill_roles.h"

#include <stdlib.h>
#include <string.h>

#include "base/compare.h"
#include "base/list.h"
#include "residency/cost.h"

/* The limits of the scripts: activations.py, states.py and weights.py. */
#define SAVED_MIN_BYTES  (UINT64_C(1) << 20)
#define STATE_MIN_BYTES  (UINT64_C(1) << 20)
#define WEIGHT_MIN_BYTES (UINT64_C(4) << 20)

enum {
  PASSES_MAX = 64, /* of one step */
  PASS_PART = 8,   /* a further pass saves at least this part of what the largest one saves */
  AGAIN_PART = 4,  /* a backward pass uses at least this part of the weights again */
  END_PART = 100,  /* a pass ends when all but this part of what it saved was used */
  NEAR_TOUCHES = 4 /* launches; touches that are as close belong to one use of a weight */
};

/* When a block is touched, and whether it is read as a weight: once, or more often; and whether
 * some of its rows are, or may be all of it. */
enum {
  IN_FORWARD = 1,
  IN_BACKWARD = 2,
  AFTER_PASS = 4,
  BEFORE_PASS = 8,
  READ = 16,
  OFTEN = 32,
  ROWS = 64,
  WHOLE = 128
};

/* ---- blocks ---- */

typedef struct addresses {
  uint64_t *list;  /* of all blocks, ascending */
  uint32_t *block; /* the one that is live there */
  size_t count;
} addresses;

static size_t address_at(const addresses *a, uint64_t addr) {
  size_t low = 0, high = a->count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (a->list[middle] < addr)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static stow_status list_addresses(addresses *a, const spill_program *p) {
  size_t most = p->initial_count + p->op_count, count = 0;
  a->list = malloc((most + 1) * sizeof *a->list);
  a->block = malloc((most + 1) * sizeof *a->block);
  if (a->list == NULL || a->block == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %zu blocks", most);
  for (size_t i = 0; i < p->initial_count; i++) a->list[count++] = p->initial[i].addr;
  for (size_t i = 0; i < p->op_count; i++)
    if (p->ops[i].kind != SPILL_LAUNCH) a->list[count++] = p->ops[i].addr;
  qsort(a->list, count, sizeof *a->list, compare_u64);
  for (size_t i = 0; i < count; i++)
    if (a->count == 0 || a->list[a->count - 1] != a->list[i]) a->list[a->count++] = a->list[i];
  for (size_t i = 0; i < a->count; i++) a->block[i] = ROLE_NO_BLOCK;
  return STOW_OK;
}

static void begin_block(spill_roles *r, addresses *a, uint64_t addr, uint64_t bytes,
                        bool outlives) {
  a->block[address_at(a, addr)] = (uint32_t)r->block_count;
  r->blocks[r->block_count++] =
      (role_block){.bytes = bytes, .outlives = outlives, .own = !outlives};
}

static void touch(role_block *b, uint32_t launch) {
  if (b->last == launch) return;
  if (b->first == 0) b->first = launch;
  if (b->last != 0 && launch - b->last > b->back - b->leave) b->leave = b->last, b->back = launch;
  b->last = launch;
}

/* Resolves the addresses of the step to blocks. */
static stow_status find_blocks(spill_roles *r, const spill_program *p, addresses *a) {
  STOW_TRY(list_addresses(a, p));
  r->blocks = malloc((p->initial_count + p->op_count + 1) * sizeof *r->blocks);
  r->op_block = malloc((p->op_count + 1) * sizeof *r->op_block);
  r->word_block = malloc((p->word_count + 1) * sizeof *r->word_block);
  if (r->blocks == NULL || r->op_block == NULL || r->word_block == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %zu operations", p->op_count);
  for (size_t i = 0; i < p->initial_count; i++)
    begin_block(r, a, p->initial[i].addr, p->initial[i].bytes, true);
  uint32_t launch = 0;
  for (size_t i = 0; i < p->op_count; i++) {
    const spill_op *op = &p->ops[i];
    if (op->kind == SPILL_ALLOC) begin_block(r, a, op->addr, op->bytes, false);
    if (op->kind != SPILL_LAUNCH) {
      uint32_t *at = &a->block[address_at(a, op->addr)];
      r->op_block[i] = *at;
      if (op->kind == SPILL_FREE && *at != ROLE_NO_BLOCK) {
        r->blocks[*at].outlives = false;
        *at = ROLE_NO_BLOCK;
      }
      continue;
    }
    launch++;
    for (size_t w = op->first_word; w < op->first_word + op->word_count; w++) {
      size_t at = address_at(a, p->word_blocks[w].addr);
      bool known =
          p->word_blocks[w].bytes > 0 && at < a->count && a->list[at] == p->word_blocks[w].addr;
      r->word_block[w] = known ? a->block[at] : ROLE_NO_BLOCK;
      if (r->word_block[w] != ROLE_NO_BLOCK) touch(&r->blocks[r->word_block[w]], launch);
    }
  }
  return STOW_OK;
}

/* Lists the sizes of the blocks of a launch that outlive the step, ascending. */
static size_t list_sizes(const spill_roles *r, const uint32_t *ids, uint32_t count,
                         uint64_t *sizes) {
  size_t n = 0;
  for (uint32_t w = 0; w < count; w++)
    if (ids[w] != ROLE_NO_BLOCK && r->blocks[ids[w]].outlives) sizes[n++] = r->blocks[ids[w]].bytes;
  qsort(sizes, n, sizeof *sizes, compare_u64);
  return n;
}

/* Marks gradients: when an optimizer uses one, it uses the weight of the same size as well. */
static stow_status mark_gradients(spill_roles *r, const spill_program *p) {
  uint32_t launch = 0;
  uint64_t *sizes = malloc((p->word_count + 1) * sizeof *sizes);
  if (sizes == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %zu touches", p->word_count);
  for (size_t i = 0; i < p->op_count; i++) {
    const spill_op *op = &p->ops[i];
    if (op->kind != SPILL_LAUNCH) continue;
    launch++;
    const uint32_t *ids = r->word_block + op->first_word;
    size_t count = list_sizes(r, ids, op->word_count, sizes);
    for (uint32_t w = 0; w < op->word_count && count > 0; w++) {
      role_block *b = ids[w] != ROLE_NO_BLOCK ? &r->blocks[ids[w]] : NULL;
      if (b != NULL && b->own && !b->gradient && (b->back == launch || b->last == launch))
        b->gradient = bsearch(&b->bytes, sizes, count, sizeof *sizes, compare_u64) != NULL;
    }
  }
  free(sizes);
  return STOW_OK;
}

/* ---- passes ---- */

/* Returns whether autograd may have saved this block in a pass that is not known yet. */
static bool may_be_saved(const spill_roles *r, const role_block *b) {
  if (!b->own || b->gradient || b->bytes < SAVED_MIN_BYTES || b->back == 0) return false;
  for (size_t i = 0; i < r->pass_count; i++)
    if (b->leave < r->passes[i].end && b->back > r->passes[i].begin) return false;
  return true;
}

/* Finds the turn: where the most bytes wait for their next use. Returns these bytes. */
static uint64_t find_turn(const spill_roles *r, int64_t *change, size_t launches, uint32_t *turn) {
  memset(change, 0, (launches + 2) * sizeof *change);
  for (size_t i = 0; i < r->block_count; i++) {
    const role_block *b = &r->blocks[i];
    if (!may_be_saved(r, b)) continue;
    change[b->leave] += (int64_t)b->bytes;
    change[b->back] -= (int64_t)b->bytes;
  }
  int64_t now = 0, most = 0;
  for (uint32_t i = 1; i <= launches; i++) {
    now += change[i];
    if (now > most) most = now, *turn = i;
  }
  return (uint64_t)most;
}

/* Returns whether a pass with this turn saves the block. */
static bool is_saved_at(const spill_roles *r, const role_block *b, uint32_t turn) {
  return may_be_saved(r, b) && b->leave <= turn && b->back > turn;
}

/* Finds where a pass begins and ends, and counts the blocks it saves. */
static size_t find_ends(const spill_roles *r, int64_t *used, size_t launches, uint64_t bytes,
                        role_pass *pass) {
  size_t count = 0;
  int64_t left = (int64_t)bytes;
  memset(used, 0, (launches + 2) * sizeof *used);
  pass->begin = pass->turn;
  for (size_t i = 0; i < r->block_count; i++) {
    const role_block *b = &r->blocks[i];
    if (!is_saved_at(r, b, pass->turn)) continue;
    if (b->first < pass->begin) pass->begin = b->first;
    used[b->back] += (int64_t)b->bytes;
    count++;
  }
  for (pass->end = pass->turn; pass->end < launches && left > (int64_t)(bytes / END_PART);)
    left -= used[++pass->end];
  return count;
}

/* Returns whether what was allocated first is used last: a backward pass runs backwards. */
static bool runs_backwards(const spill_roles *r, const role_pass *pass, size_t count) {
  double sums[2] = {0};
  size_t n = 0;
  for (size_t i = 0; i < r->block_count; i++) /* in the order of their allocation */
    if (is_saved_at(r, &r->blocks[i], pass->turn)) {
      if (n < count / 2 || n >= count - count / 2) sums[n >= count / 2] += r->blocks[i].back;
      n++;
    }
  return sums[0] > sums[1];
}

/* Returns whether weights of a pass are used again after its turn: by the backward pass, or, where
 * that uses copies in another type, by the optimizer. A network that is only evaluated uses each
 * once. */
static bool uses_weights_again(spill_roles *r, const spill_program *p, const role_pass *pass) {
  uint64_t before = 0, again = 0;
  uint32_t launch = 0;
  for (size_t i = 0; i < r->block_count; i++) r->blocks[i].touched = 0;
  for (size_t i = 0; i < p->op_count; i++) {
    const spill_op *op = &p->ops[i];
    if (op->kind != SPILL_LAUNCH || ++launch < pass->begin) continue;
    for (size_t w = op->first_word; w < op->first_word + op->word_count; w++)
      if (r->word_block[w] != ROLE_NO_BLOCK)
        r->blocks[r->word_block[w]].touched |= launch <= pass->turn ? IN_FORWARD : IN_BACKWARD;
  }
  for (size_t i = 0; i < r->block_count; i++) {
    const role_block *b = &r->blocks[i];
    if (!b->outlives || (b->touched & IN_FORWARD) == 0) continue;
    before += b->bytes;
    if ((b->touched & IN_BACKWARD) != 0) again += b->bytes;
  }
  return before > 0 && again >= before / AGAIN_PART;
}

static stow_status find_passes(spill_roles *r, const spill_program *p) {
  uint64_t largest = 0;
  int64_t *sums = malloc((p->launch_count + 2) * sizeof *sums);
  if (sums == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for %zu launches", p->launch_count);
  stow_status status = STOW_OK;
  while (r->pass_count < PASSES_MAX) {
    role_pass pass = {0};
    uint64_t bytes = find_turn(r, sums, p->launch_count, &pass.turn);
    if (bytes == 0 || bytes < largest / PASS_PART) break;
    size_t count = find_ends(r, sums, p->launch_count, bytes, &pass);
    if (!runs_backwards(r, &pass, count) || !uses_weights_again(r, p, &pass)) break;
    status = LIST_ROOM(r->passes, r->pass_count, r->pass_capacity, 16, "passes");
    if (status != STOW_OK) break;
    for (size_t i = 0; i < r->block_count; i++) {
      role_block *b = &r->blocks[i];
      if (!is_saved_at(r, b, pass.turn)) continue;
      b->role = ROLE_SAVED;
      r->saved_bytes += b->bytes;
      r->saved_count++;
    }
    r->passes[r->pass_count++] = pass;
    if (bytes > largest) largest = bytes;
  }
  free(sums);
  return status;
}

/* ---- state and weights ---- */

/* Returns when in the step a launch is, as one of the flags. */
static uint8_t moment(const spill_roles *r, uint32_t launch) {
  bool after = false;
  for (size_t i = 0; i < r->pass_count; i++) {
    const role_pass *pass = &r->passes[i];
    if (launch >= pass->begin && launch <= pass->end)
      return launch <= pass->turn ? IN_FORWARD : IN_BACKWARD;
    after = after || launch > pass->end;
  }
  return after ? AFTER_PASS : BEFORE_PASS;
}

/* Returns whether a launch is too short to read the whole block: it looks up rows of a table. */
static bool looks_up(const spill_op *op, const role_block *b) {
  double least = (double)b->bytes * residency_costs_h200.check_ns_per_byte / 2;
  return op->device_ns > 0 && (double)op->device_ns < least;
}

/* Adds a use of a possible weight, unless this touch belongs to the use before. */
static stow_status add_use(spill_roles *r, uint32_t launch, uint32_t id) {
  role_block *b = &r->blocks[id];
  bool same = (b->touched & READ) != 0 && launch - b->last <= NEAR_TOUCHES;
  b->last = launch;
  if (same) return STOW_OK;
  b->touched |= (b->touched & READ) != 0 ? OFTEN : READ;
  STOW_TRY(LIST_ROOM(r->uses, r->use_count, r->use_capacity, 1024, "uses of weights"));
  r->uses[r->use_count++] = (role_use){launch, id};
  return STOW_OK;
}

/* Returns whether a launch uses one weight at most, and no gradient: it is no update. */
static bool is_alone(const spill_roles *r, const spill_op *op) {
  uint32_t first = ROLE_NO_BLOCK;
  for (size_t w = op->first_word; w < op->first_word + op->word_count; w++) {
    uint32_t id = r->word_block[w];
    if (id == ROLE_NO_BLOCK || r->blocks[id].bytes < STATE_MIN_BYTES) continue;
    if (r->blocks[id].gradient) return false;
    if (!r->blocks[id].outlives || id == first) continue;
    if (first != ROLE_NO_BLOCK) return false;
    first = id;
  }
  return true;
}

/* Notes when each block is touched, and lists the uses of possible weights. */
static stow_status note_touches(spill_roles *r, const spill_program *p) {
  uint32_t launch = 0;
  for (size_t i = 0; i < r->block_count; i++) r->blocks[i].touched = 0;
  for (size_t i = 0; i < p->op_count; i++) {
    const spill_op *op = &p->ops[i];
    if (op->kind != SPILL_LAUNCH) continue;
    uint8_t now = moment(r, ++launch);
    /* The last of what a pass saved may be used before the last weight of the pass. */
    uint8_t again = now == AFTER_PASS && is_alone(r, op) ? IN_BACKWARD : now;
    for (size_t w = op->first_word; w < op->first_word + op->word_count; w++) {
      if (r->word_block[w] == ROLE_NO_BLOCK) continue;
      role_block *b = &r->blocks[r->word_block[w]];
      b->touched |= (b->touched & IN_FORWARD) != 0 ? again : now;
      bool rows = looks_up(op, b);
      if (b->outlives && b->bytes >= WEIGHT_MIN_BYTES && !rows)
        STOW_TRY(add_use(r, launch, r->word_block[w]));
      b->touched |= rows ? ROWS : WHOLE;
    }
  }
  return STOW_OK;
}

static spill_role role_of(const spill_roles *r, const role_block *b) {
  if (!b->outlives || b->touched == 0) return (spill_role)b->role;
  bool updated = r->pass_count > 0 && (b->touched & AFTER_PASS) != 0;
  if ((b->touched & WHOLE) == 0 && !updated && b->bytes >= WEIGHT_MIN_BYTES) return ROLE_TABLE;
  if (r->pass_count == 0)
    return (b->touched & READ) != 0 && (b->touched & OFTEN) == 0 ? ROLE_WEIGHT : ROLE_STAYS;
  uint8_t when = b->touched & (IN_FORWARD | IN_BACKWARD | AFTER_PASS | BEFORE_PASS);
  if (when == AFTER_PASS && b->bytes >= STATE_MIN_BYTES) return ROLE_STATE;
  bool both = (when & IN_FORWARD) != 0 && (when & IN_BACKWARD) != 0;
  bool read = (b->touched & READ) != 0 && (when & AFTER_PASS) == 0;
  return both && read ? ROLE_WEIGHT : ROLE_STAYS;
}

static void give_roles(spill_roles *r) {
  size_t kept = 0;
  for (size_t i = 0; i < r->block_count; i++) {
    role_block *b = &r->blocks[i];
    b->role = (uint8_t)role_of(r, b);
    b->trained = b->outlives && r->pass_count > 0 && (b->touched & AFTER_PASS) != 0 &&
                 (b->touched & (IN_FORWARD | IN_BACKWARD)) != 0;
    if (b->role == ROLE_STATE) r->state_bytes += b->bytes;
    if (b->role == ROLE_WEIGHT) r->weight_bytes += b->bytes;
    if (b->role == ROLE_TABLE) r->table_bytes += b->bytes;
  }
  for (size_t i = 0; i < r->use_count; i++)
    if (r->blocks[r->uses[i].block].role == ROLE_WEIGHT) r->uses[kept++] = r->uses[i];
  r->use_count = kept;
}

/* Joins launches that use state to updates: a pass lies between two of them. */
static stow_status find_updates(spill_roles *r, const spill_program *p) {
  uint32_t launch = 0;
  size_t kept = 0;
  for (size_t i = 0; i < p->op_count; i++) {
    const spill_op *op = &p->ops[i];
    launch += op->kind == SPILL_LAUNCH;
    bool any = false;
    for (size_t w = op->first_word; op->kind == SPILL_LAUNCH && w < op->first_word + op->word_count;
         w++)
      any = any ||
            (r->word_block[w] != ROLE_NO_BLOCK && r->blocks[r->word_block[w]].role == ROLE_STATE);
    if (!any) continue;
    STOW_TRY(LIST_ROOM(r->updates, r->update_count, r->update_capacity, 64, "updates"));
    r->updates[r->update_count++] = (role_update){launch, launch, 0, 0};
  }
  for (size_t i = 0; i < r->update_count; i++) {
    role_update *last = kept > 0 ? &r->updates[kept - 1] : NULL;
    bool apart = last == NULL;
    for (size_t k = 0; k < r->pass_count && !apart; k++)
      apart = r->passes[k].begin > last->end && r->passes[k].begin < r->updates[i].begin;
    if (apart)
      r->updates[kept++] = r->updates[i];
    else
      last->end = r->updates[i].end;
  }
  r->update_count = kept;
  return STOW_OK;
}

/* Adds up what each update uses. */
static void weigh_updates(spill_roles *r, const spill_program *p) {
  uint32_t launch = 0;
  size_t at = 0;
  for (size_t i = 0; i < r->block_count; i++) r->blocks[i].touched = 0;
  for (size_t i = 0; i < p->op_count && at < r->update_count; i++) {
    const spill_op *op = &p->ops[i];
    if (op->kind != SPILL_LAUNCH || ++launch < r->updates[at].begin) continue;
    for (size_t w = op->first_word; w < op->first_word + op->word_count; w++) {
      if (r->word_block[w] == ROLE_NO_BLOCK) continue;
      role_block *b = &r->blocks[r->word_block[w]];
      if (b->touched == (uint8_t)(at % 255 + 1)) continue;
      b->touched = (uint8_t)(at % 255 + 1);
      if (b->role == ROLE_STATE) r->updates[at].state_bytes += b->bytes;
      if (b->trained) r->updates[at].trained_bytes += b->bytes;
    }
    if (launch == r->updates[at].end) at++;
  }
}

stow_status spill_roles_find(spill_roles *r, const spill_program *p) {
  *r = (spill_roles){0};
  addresses a = {0};
  stow_status status = find_blocks(r, p, &a);
  free(a.list);
  free(a.block);
  STOW_TRY(status);
  STOW_TRY(mark_gradients(r, p));
  STOW_TRY(find_passes(r, p));
  STOW_TRY(note_touches(r, p));
  give_roles(r);
  STOW_TRY(find_updates(r, p));
  weigh_updates(r, p);
  return STOW_OK;
}

void spill_roles_free(spill_roles *r) {
  free(r->blocks);
  free(r->op_block);
  free(r->word_block);
  free(r->passes);
  free(r->updates);
  free(r->uses);
  *r = (spill_roles){0};
}
