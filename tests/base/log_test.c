/* Log: no output without a listener, levels are respected, and the callback may log itself. */
#include "base/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "harness.h"

typedef struct heard {
  int count;
  stow_log_level level;
  char line[2048];
} heard;

static void listen(void *user, stow_log_level level, const char *line) {
  heard *h = user;
  h->count++;
  h->level = level;
  snprintf(h->line, sizeof h->line, "%s", line);
}

TEST(lines_reach_the_listener_down_to_the_level_it_asked_for)
{
  heard h = {0};
  stow_log_line(STOW_LOG_ERROR, "before anybody listens");
  stow_log_set(listen, &h, STOW_LOG_WARNING);
  stow_log_line(STOW_LOG_WARNING, "page %d", 7);
  CHECK_U64(h.count, 1);
  CHECK_TEXT(h.line, "page 7");
  CHECK(h.level == STOW_LOG_WARNING);
  stow_log_line(STOW_LOG_INFO, "not this");
  stow_log_line(STOW_LOG_DEBUG, "nor this");
  CHECK_U64(h.count, 1);
  stow_log_line(STOW_LOG_ERROR, "but this");
  CHECK_U64(h.count, 2);
  stow_log_set(NULL, NULL, STOW_LOG_DEBUG);
  stow_log_line(STOW_LOG_ERROR, "after");
  CHECK_U64(h.count, 2);
}

static void answer_back(void *user, stow_log_level level, const char *line) {
  int *depth = user;
  (void)line;
  if (++*depth < 3) stow_log_line(level, "again %d", *depth);
}

TEST(a_listener_may_log_because_no_lock_is_held)
{
  int depth = 0;
  stow_log_set(answer_back, &depth, STOW_LOG_DEBUG);
  stow_log_line(STOW_LOG_INFO, "once");
  CHECK_U64(depth, 3);
  stow_log_set(NULL, NULL, STOW_LOG_ERROR);
}

TEST(a_line_too_long_is_cut_not_spilled)
{
  heard h = {0};
  stow_log_set(listen, &h, STOW_LOG_DEBUG);
  stow_log_line(STOW_LOG_INFO, "%0*d", 5000, 1);
  CHECK_U64(strlen(h.line), 1023);
  stow_log_set(NULL, NULL, STOW_LOG_ERROR);
}

static _Atomic int total;

static void count_up(void *user, stow_log_level level, const char *line) {
  (void)user, (void)level, (void)line;
  atomic_fetch_add(&total, 1);
}

static void *say_many(void *arg) {
  (void)arg;
  for (int i = 0; i < 1000; i++) stow_log_line(STOW_LOG_INFO, "line %d", i);
  return NULL;
}

TEST(threads_log_while_the_listener_changes)
{
  pthread_t threads[4];
  stow_log_set(count_up, NULL, STOW_LOG_INFO);
  for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, say_many, NULL) == 0);
  for (int i = 0; i < 1000; i++) stow_log_set(count_up, i % 2 ? &total : NULL, STOW_LOG_INFO);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  CHECK_U64(atomic_load(&total), 4000);
  stow_log_set(NULL, NULL, STOW_LOG_ERROR);
}

TEST_MAIN
