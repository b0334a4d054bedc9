/* Compares the ordered set of free blocks with a plain sorted array over long random runs. */
#include "replay/policies/order.h"

#include <stdlib.h>

#include "harness.h"

#define MODEL_MAX 4096

typedef struct model {
  order_key keys[MODEL_MAX];
  size_t count;
} model;

static int compare(const order_key *a, const order_key *b) {
  if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
  if (a->addr != b->addr) return a->addr < b->addr ? -1 : 1;
  return a->id < b->id ? -1 : a->id > b->id;
}

static size_t model_rank(const model *m, order_key key) {
  size_t i = 0;
  while (i < m->count && compare(&m->keys[i], &key) < 0) i++;
  return i;
}

static void model_put(model *m, order_key key) {
  size_t at = model_rank(m, key);
  memmove(&m->keys[at + 1], &m->keys[at], (m->count - at) * sizeof key);
  m->keys[at] = key;
  m->count++;
}

static void model_remove(model *m, size_t at) {
  m->count--;
  memmove(&m->keys[at], &m->keys[at + 1], (m->count - at) * sizeof m->keys[0]);
}

static bool same_key(order_key a, order_key b) {
  return compare(&a, &b) == 0;
}

static void check_walk(const order *o, const model *m) {
  order_at at;
  size_t i = 0;
  for (bool more = order_first(o, &at); more; more = order_next(o, &at), i++)
    CHECK(i < m->count && same_key(order_get(o, at), m->keys[i]));
  CHECK_U64(i, m->count);
  CHECK_U64(o->count, m->count);
  CHECK(order_last(o, &at) == (i > 0));
  if (i > 0) CHECK(same_key(order_get(o, at), m->keys[i - 1]));
}

static void check_seek(const order *o, const model *m, uint64_t bytes, uint64_t addr) {
  order_at at;
  size_t expected = model_rank(m, (order_key){bytes, addr, 0});
  bool found = order_seek(o, &at, bytes, addr);
  CHECK(found == (expected < m->count));
  if (found) CHECK(same_key(order_get(o, at), m->keys[expected]));
}

/* Runs random operations. `spread` sizes and few addresses make equal sizes, and equal pairs,
 * common. */
static void run_random(uint64_t seed, uint64_t spread, size_t most) {
  order o = {0};
  static model m;
  m.count = 0;
  for (uint32_t step = 1; step <= 30000; step++) {
    uint64_t r = harness_random(&seed);
    order_key key = {(r >> 8) % spread * 512, (r >> 32) % 64 * 256, step};
    bool grow = m.count < most && (m.count == 0 || (r & 255) < (step / 5000 % 2 == 0 ? 160 : 96));
    if (grow) {
      CHECK_OK(order_put(&o, key));
      model_put(&m, key);
    } else {
      size_t at = (size_t)(r >> 16) % m.count;
      CHECK(order_remove(&o, m.keys[at]));
      CHECK(!order_remove(&o, m.keys[at]));
      model_remove(&m, at);
    }
    check_seek(&o, &m, key.bytes, key.addr);
    check_seek(&o, &m, key.bytes, 0);
    if (step % 997 == 0) check_walk(&o, &m);
  }
  check_walk(&o, &m);
  while (m.count > 0) {
    order_at at;
    CHECK(order_first(&o, &at));
    order_remove_at(&o, at);
    model_remove(&m, 0);
    if (m.count % 61 == 0) check_walk(&o, &m);
  }
  CHECK_U64(o.chunk_count, 0);
  order_free(&o);
}

TEST(order_agrees_with_a_sorted_array)
{
  run_random(1, 4096, 2000);
  run_random(2, UINT64_C(1) << 40, 4000);
}

TEST(order_keeps_equal_sizes_and_equal_pairs_apart)
{
  run_random(3, 1, 700);
  run_random(4, 3, 1500);
}

TEST(order_of_falling_and_rising_keys_stays_dense)
{
  for (int rising = 0; rising < 2; rising++) {
    order o = {0};
    for (uint32_t i = 0; i < 20000; i++)
      CHECK_OK(order_put(&o, (order_key){(rising ? i : 20000 - i) * UINT64_C(512), 0, i}));
    CHECK(o.chunk_count <= 20000 / (ORDER_CHUNK / 2) + 1);
    /* Removing nine in ten must also reduce the chunks. */
    for (uint32_t i = 0; i < 20000; i++)
      if (i % 10 != 0)
        CHECK(order_remove(&o, (order_key){(rising ? i : 20000 - i) * UINT64_C(512), 0, i}));
    CHECK_U64(o.count, 2000);
    CHECK(o.chunk_count <= 2000 / (ORDER_CHUNK / 8));
    order_free(&o);
  }
}

TEST(order_refuses_more_blocks_than_its_keys_can_name)
{
  order o = {0};
  CHECK_STATUS(order_put(&o, (order_key){512, 0, ORDER_ID_MAX + 1}), STOW_ERR_UNSUPPORTED);
  CHECK_OK(order_put(&o, (order_key){512, 0, ORDER_ID_MAX}));
  order_free(&o);
}

TEST_MAIN
