/* Latch: only one thread is inside at a time while favourites change. Also run under
 * ThreadSanitizer. */
#include <pthread.h>
#include <sched.h>

#include "harness.h"
#include "memory/latch.h"

#define THREADS 4

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define BURSTS 60
#else
#define BURSTS 1500
#endif

static latch shared;
static uint64_t counter, inside; /* guarded by `shared` */

static void enter_often(int times) {
  for (int i = 0; i < times; i++) {
    latch_acquire(&shared);
    CHECK(inside++ == 0);
    counter++;
    inside--;
    latch_release(&shared);
  }
}

/* Enters in long bursts, which make a thread the favourite; bursts of the others end that. */
static void *bursts(void *user) {
  uint64_t seed = (uint64_t)(uintptr_t)user, done = 0;
  for (int i = 0; i < BURSTS; i++) {
    uint64_t r = harness_random(&seed);
    int times = r % 4 ? 150 : 1;
    enter_often(times);
    done += (uint64_t)times;
    if (r % 3 == 0) sched_yield();
  }
  return (void *)(uintptr_t)done;
}

static void begin(void) {
  latch_prepare();
  latch_init(&shared, LOCK_ARENA);
  counter = inside = 0;
}

TEST(threads_that_favour_changes_between_never_meet)
{
  begin();
  pthread_t threads[THREADS];
  uint64_t total = 0;
  for (uintptr_t i = 0; i < THREADS; i++)
    CHECK(pthread_create(&threads[i], NULL, bursts, (void *)(i + 1)) == 0);
  for (int i = 0; i < THREADS; i++) {
    void *done;
    CHECK(pthread_join(threads[i], &done) == 0);
    total += (uint64_t)(uintptr_t)done;
  }
  CHECK_U64(counter, total);
  harness_note("%" PRIu64 " times inside", total);
}

TEST(a_thread_alone_becomes_the_favourite_and_another_ends_that)
{
  begin();
  enter_often(200);
  latch_cell *mine = atomic_load(&shared.favourite);
  if (mine == NULL) SKIP("this kernel has no membarrier(2): nobody is ever a favourite");
  CHECK(mine == latch_mine);
  CHECK(latch_enter(&shared));
  latch_leave(&shared);
  pthread_t other;
  CHECK(pthread_create(&other, NULL, bursts, (void *)1) == 0);
  CHECK(pthread_join(other, NULL) == 0);
  CHECK(atomic_load(&shared.favourite) != mine);
  CHECK(!latch_enter(&shared));
  enter_often(1); /* the favour of the dead thread ends */
  CHECK(atomic_load(&shared.favourite) == NULL);
}

static atomic_bool other_is_in;

static void *enter_once(void *user) {
  (void)user;
  latch_acquire(&shared);
  atomic_store(&other_is_in, true);
  latch_release(&shared);
  return NULL;
}

TEST(nobody_enters_while_the_favourite_is_inside)
{
  begin();
  enter_often(200);
  for (int way = 0; way < 2; way++) { /* as a favourite, and then, without a favour, by exchange */
    atomic_store(&other_is_in, false);
    pthread_t other;
    latch_acquire(&shared);
    CHECK(pthread_create(&other, NULL, enter_once, NULL) == 0);
    while (way == 0 && latch_mine->inside == &shared && atomic_load(&shared.taken) == 0)
      sched_yield(); /* until it waits to enter */
    for (int i = 0; i < 2000; i++) {
      CHECK(!atomic_load(&other_is_in));
      sched_yield();
    }
    latch_release(&shared);
    CHECK(pthread_join(other, NULL) == 0);
    CHECK(atomic_load(&other_is_in));
  }
}

static void *once_each(void *user) {
  (void)user;
  enter_often(200);
  return latch_mine;
}

TEST(threads_that_end_pass_their_cells_on)
{
  begin();
  void *first = NULL, *cell;
  for (int i = 0; i < 50; i++) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, once_each, NULL) == 0);
    CHECK(pthread_join(thread, &cell) == 0);
    if (i == 0) first = cell;
    CHECK(cell == first);
  }
  CHECK_U64(counter, 50 * 200);
}

#ifndef STOWAGE_CHECKS /* in checked builds, two locks of one rank must not nest */
TEST(a_favourite_inside_one_latch_takes_another_the_plain_way)
{
  begin();
  latch other;
  latch_init(&other, LOCK_ARENA);
  for (int i = 0; i < 200; i++) {
    latch_acquire(&other);
    latch_release(&other);
  }
  enter_often(200);
  latch_acquire(&shared);
  latch_acquire(&other);
  CHECK(atomic_load(&latch_mine->inside) == &shared || atomic_load(&shared.taken) == 1);
  CHECK_U64(atomic_load(&other.taken), 1);
  latch_release(&other);
  CHECK_U64(atomic_load(&other.taken), 0);
  latch_release(&shared);
  CHECK(atomic_load(&latch_mine->inside) == NULL);
}
#endif

TEST_MAIN
