/* The roles of blocks in a step: what autograd saves, what an optimizer keeps, what is a weight. */
#include "replay/spill_roles.h"

#include "harness.h"

#define MIB (UINT64_C(1) << 20)

enum { OPS_MAX = 256, BLOCKS_MAX = 64 };

/* A step that a test writes down: blocks are numbers. */
typedef struct written {
  spill_program p;
  spill_op ops[OPS_MAX];
  uint64_t words[4 * OPS_MAX];
  spill_block word_blocks[4 * OPS_MAX], initial[BLOCKS_MAX];
  uint64_t bytes[BLOCKS_MAX];
} written;

static uint64_t addr_of(int id) {
  return ((uint64_t)id + 1) << 32;
}

static void begin(written *w) {
  *w = (written){0};
  w->p.ops = w->ops;
  w->p.words = w->words;
  w->p.word_blocks = w->word_blocks;
  w->p.initial = w->initial;
}

static void outlives(written *w, int id, uint64_t mib) {
  w->bytes[id] = mib * MIB;
  w->initial[w->p.initial_count++] = (spill_block){addr_of(id), mib * MIB};
}

static void add(written *w, spill_op_kind kind, int id) {
  CHECK(w->p.op_count < OPS_MAX);
  w->ops[w->p.op_count++] =
      (spill_op){.kind = (uint8_t)kind, .addr = addr_of(id), .bytes = w->bytes[id]};
}

static void allocate(written *w, int id, uint64_t mib) {
  w->bytes[id] = mib * MIB;
  add(w, SPILL_ALLOC, id);
}

static void launch(written *w, uint64_t device_ns, const int *blocks, uint32_t count) {
  spill_op op = {.kind = SPILL_LAUNCH,
                 .device_ns = device_ns,
                 .first_word = w->p.word_count,
                 .word_count = count};
  for (uint32_t i = 0; i < count; i++) {
    w->words[w->p.word_count] = addr_of(blocks[i]);
    w->word_blocks[w->p.word_count++] = (spill_block){addr_of(blocks[i]), w->bytes[blocks[i]]};
  }
  CHECK(w->p.op_count < OPS_MAX);
  w->ops[w->p.op_count++] = op;
  w->p.launch_count++;
}

enum { LAYERS = 4, WEIGHT = 0, STATE = 10, SAVED = 20, GRADIENT = 30 };

static void add_pass(written *w, bool gradients) {
  for (int i = 0; i < LAYERS; i++) {
    allocate(w, SAVED + i, 16);
    launch(w, 0, (int[]){WEIGHT + i, SAVED + i}, 2);
  }
  for (int i = LAYERS; i-- > 0;) {
    if (gradients) allocate(w, GRADIENT + i, 32);
    launch(w, 0, (int[]){SAVED + i, GRADIENT + i}, 2);
    launch(w, 0, (int[]){WEIGHT + i}, 1);
    add(w, SPILL_FREE, SAVED + i);
  }
}

static void add_weights(written *w, bool state) {
  for (int i = 0; i < LAYERS; i++) {
    outlives(w, WEIGHT + i, 32);
    if (state) outlives(w, STATE + i, 64);
  }
}

/* Each parameter is updated by a launch of its own, in the order of the layers: gradients wait for
 * their next use like saved tensors, and are used in reverse order. */
static void add_update(written *w) {
  for (int i = 0; i < LAYERS; i++) launch(w, 0, (int[]){WEIGHT + i, GRADIENT + i, STATE + i}, 3);
  for (int i = 0; i < LAYERS; i++) add(w, SPILL_FREE, GRADIENT + i);
}

TEST(gradients_are_not_saved_tensors)
{
  written w;
  spill_roles r;
  begin(&w);
  add_weights(&w, true);
  add_pass(&w, true);
  add_update(&w);
  CHECK_OK(spill_roles_find(&r, &w.p));
  CHECK_U64(r.pass_count, 1);
  CHECK_U64(r.passes[0].turn, LAYERS);
  CHECK_U64(r.saved_bytes, LAYERS * 16 * MIB);
  CHECK_U64(r.state_bytes, LAYERS * 64 * MIB);
  CHECK_U64(r.weight_bytes, 0);
  CHECK_U64(r.update_count, 1);
  CHECK_U64(r.updates[0].state_bytes, LAYERS * 64 * MIB);
  CHECK_U64(r.updates[0].trained_bytes, LAYERS * 32 * MIB);
  spill_roles_free(&r);
}

/* An optimizer without lists starts several kernels per parameter; some use the state alone. */
TEST(state_that_a_kernel_uses_alone_is_state)
{
  written w;
  spill_roles r;
  begin(&w);
  add_weights(&w, true);
  add_pass(&w, true);
  for (int i = 0; i < LAYERS; i++) {
    launch(&w, 0, (int[]){STATE + i}, 1);
    launch(&w, 0, (int[]){WEIGHT + i}, 1);
    launch(&w, 0, (int[]){STATE + i, GRADIENT + i, WEIGHT + i}, 3);
  }
  for (int i = 0; i < LAYERS; i++) add(&w, SPILL_FREE, GRADIENT + i);
  CHECK_OK(spill_roles_find(&r, &w.p));
  CHECK_U64(r.state_bytes, LAYERS * 64 * MIB);
  CHECK_U64(r.weight_bytes, 0);
  CHECK_U64(r.update_count, 1);
  spill_roles_free(&r);
}

/* Gradients add up over micro-batches, then one update follows. */
TEST(each_micro_batch_is_a_pass)
{
  written w;
  spill_roles r;
  begin(&w);
  add_weights(&w, true);
  add_pass(&w, true);
  add_pass(&w, false);
  add_pass(&w, false);
  add_update(&w);
  CHECK_OK(spill_roles_find(&r, &w.p));
  CHECK_U64(r.pass_count, 3);
  CHECK_U64(r.saved_bytes, 3 * LAYERS * 16 * MIB);
  CHECK_U64(r.state_bytes, LAYERS * 64 * MIB);
  CHECK_U64(r.update_count, 1);
  spill_roles_free(&r);
}

/* A frozen network under a trained one: its weights are used in both directions and never updated.
 */
TEST(weights_without_an_update_are_frozen)
{
  written w;
  spill_roles r;
  begin(&w);
  add_weights(&w, false);
  add_pass(&w, true);
  CHECK_OK(spill_roles_find(&r, &w.p));
  CHECK_U64(r.pass_count, 1);
  CHECK_U64(r.weight_bytes, LAYERS * 32 * MIB);
  CHECK_U64(r.use_count, 2 * LAYERS - 1); /* the last layer's uses are one after the other */
  spill_roles_free(&r);
}

/* Skip connections of a network that is only evaluated are used in reverse order as well. Rows of a
 * table are read too fast for all of it to be read. */
TEST(a_network_that_is_only_evaluated_saves_nothing)
{
  written w;
  spill_roles r;
  begin(&w);
  for (int i = 0; i < 2 * LAYERS; i++) outlives(&w, WEIGHT + i, 32);
  outlives(&w, STATE, 1024);
  launch(&w, 5000, (int[]){STATE}, 1);
  for (int i = 0; i < LAYERS; i++) {
    allocate(&w, SAVED + i, 16);
    launch(&w, 20000, (int[]){WEIGHT + i, SAVED + i}, 2);
  }
  for (int i = LAYERS; i-- > 0;) {
    launch(&w, 20000, (int[]){SAVED + i, WEIGHT + LAYERS + i}, 2);
    add(&w, SPILL_FREE, SAVED + i);
  }
  CHECK_OK(spill_roles_find(&r, &w.p));
  CHECK_U64(r.pass_count, 0);
  CHECK_U64(r.saved_bytes + r.state_bytes, 0);
  CHECK_U64(r.weight_bytes, (uint64_t)2 * LAYERS * 32 * MIB);
  CHECK_U64(r.table_bytes, 1024 * MIB);
  CHECK_U64(r.use_count, 2 * LAYERS);
  spill_roles_free(&r);
}

TEST(a_step_without_blocks_has_no_roles)
{
  written w;
  spill_roles r;
  begin(&w);
  launch(&w, 1000, NULL, 0);
  CHECK_OK(spill_roles_find(&r, &w.p));
  CHECK_U64(r.pass_count + r.use_count + r.update_count, 0);
  spill_roles_free(&r);
}

TEST_MAIN
