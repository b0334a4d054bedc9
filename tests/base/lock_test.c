/* Lock: one holder at a time with any number of threads, and the rank order is enforced. */
#include "base/lock.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

enum { THREADS = 8, TURNS = 20000 };

typedef struct shared {
  lock guard;
  uint64_t count; /* guarded by guard, and not atomic: a race would lose some */
  _Atomic int inside, overlaps;
} shared;

static void *take_turns(void *arg) {
  shared *s = arg;
  for (int i = 0; i < TURNS; i++) {
    lock_acquire(&s->guard);
    if (atomic_fetch_add(&s->inside, 1) != 0) atomic_fetch_add(&s->overlaps, 1);
    s->count++;
    atomic_fetch_sub(&s->inside, 1);
    lock_release(&s->guard);
  }
  return NULL;
}

static void *try_turns(void *arg) {
  shared *s = arg;
  for (int done = 0; done < TURNS;) {
    if (!lock_try(&s->guard)) continue;
    if (atomic_fetch_add(&s->inside, 1) != 0) atomic_fetch_add(&s->overlaps, 1);
    s->count++;
    done++;
    atomic_fetch_sub(&s->inside, 1);
    lock_release(&s->guard);
  }
  return NULL;
}

TEST(a_lock_lets_one_thread_in_at_a_time)
{
  shared s = {.guard = LOCK_INIT(LOCK_POOL)};
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++)
    CHECK(pthread_create(&threads[i], NULL, i == 0 ? try_turns : take_turns, &s) == 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  CHECK_U64(s.count, (uint64_t)THREADS * TURNS);
  CHECK_U64(atomic_load(&s.overlaps), 0);
  CHECK_U64(atomic_load(&s.guard.state), 0);
}

TEST(a_taken_lock_is_not_had_by_trying)
{
  lock l;
  lock_init(&l, LOCK_HEAP);
  CHECK(lock_try(&l));
  CHECK(!lock_try(&l));
  lock_release(&l);
  CHECK(lock_try(&l));
  lock_release(&l);
}

TEST(locks_taken_in_rising_rank_and_given_in_any_order_are_fine)
{
  lock a = LOCK_INIT(LOCK_REGISTRY), b = LOCK_INIT(LOCK_ARENA), c = LOCK_INIT(LOCK_DEVICE);
  lock_acquire(&a), lock_acquire(&b), lock_acquire(&c);
  lock_release(&b), lock_release(&c), lock_release(&a);
  lock_acquire(&b), lock_acquire(&c);
  lock_release(&c), lock_release(&b);
}

#ifdef STOWAGE_CHECKS
/* Returns the signal that kills a child which runs `what`. */
static int dies_of(void (*what)(void)) {
  fflush(NULL);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    /* Its output is expected; do not show it in the log. */
    if (freopen("/dev/null", "w", stderr) == NULL) _exit(3);
    signal(SIGABRT, SIG_DFL);
    what();
    _exit(0);
  }
  int how;
  CHECK(waitpid(child, &how, 0) == child);
  return WIFSIGNALED(how) ? WTERMSIG(how) : 0;
}

static void take_falling(void) {
  lock low = LOCK_INIT(LOCK_HEAP), high = LOCK_INIT(LOCK_POOL);
  lock_acquire(&high), lock_acquire(&low);
}

static void take_equal(void) {
  lock one = LOCK_INIT(LOCK_ARENA), two = LOCK_INIT(LOCK_ARENA);
  lock_acquire(&one), lock_acquire(&two);
}

static void give_unheld(void) {
  lock one = LOCK_INIT(LOCK_ARENA);
  lock_release(&one);
}

static void take_rising(void) {
  lock low = LOCK_INIT(LOCK_HEAP), high = LOCK_INIT(LOCK_POOL);
  lock_acquire(&low), lock_acquire(&high);
  lock_release(&high), lock_release(&low);
}
#endif

TEST(breaking_the_order_of_ranks_stops_a_checked_build)
{
#ifdef STOWAGE_CHECKS
  CHECK(dies_of(take_falling) == SIGABRT);
  CHECK(dies_of(take_equal) == SIGABRT);
  CHECK(dies_of(give_unheld) == SIGABRT);
  CHECK(dies_of(take_rising) == 0);
#else
  harness_note("checked builds only (asan, tsan); this one has no checks");
#endif
}

TEST_MAIN
