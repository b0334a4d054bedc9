/* Status: the message is the thread's own, survives being wrapped, and is cut when too long. */
#include "base/status.h"

#include <pthread.h>

#include "harness.h"

TEST(a_message_may_be_made_from_the_present_one)
{
  CHECK_TEXT(stow_status_message(), "");
  CHECK(stow_fail(STOW_ERR_IO, "disk full") == STOW_ERR_IO);
  CHECK(stow_fail(STOW_ERR_FORMAT, "reading x.npy: %s", stow_status_message()) == STOW_ERR_FORMAT);
  CHECK_TEXT(stow_status_message(), "reading x.npy: disk full");
}

TEST(a_long_message_is_cut_with_dots)
{
  stow_fail(STOW_ERR_INVALID, "%0*d", 4000, 7);
  CHECK_U64(strlen(stow_status_message()), STATUS_MESSAGE_MAX - 1);
  CHECK_TEXT(stow_status_message() + STATUS_MESSAGE_MAX - 4, "...");
}

static void *fail_elsewhere(void *arg) {
  (void)arg;
  stow_fail(STOW_ERR_STATE, "the other thread's");
  return (void *)(strcmp(stow_status_message(), "the other thread's") == 0 ? "yes" : NULL);
}

TEST(each_thread_has_its_own_message)
{
  pthread_t thread;
  void *right = NULL;
  stow_fail(STOW_ERR_STATE, "mine");
  CHECK(pthread_create(&thread, NULL, fail_elsewhere, NULL) == 0);
  pthread_join(thread, &right);
  CHECK(right != NULL);
  CHECK_TEXT(stow_status_message(), "mine");
}

TEST(every_status_has_a_name_of_its_own)
{
  for (int a = 0; a >= STOW_ERR_INTERRUPTED; a--) {
    CHECK(strcmp(stow_status_name((stow_status)a), "unknown status") != 0);
    for (int b = 0; b > a; b--)
      CHECK(strcmp(stow_status_name((stow_status)a), stow_status_name((stow_status)b)) != 0);
  }
  CHECK_TEXT(stow_status_name((stow_status)-999), "unknown status");
  CHECK_TEXT(stow_status_name((stow_status)1), "unknown status");
}

TEST_MAIN
