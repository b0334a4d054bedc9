/* Test harness: each TEST runs in its own process with a deadline, and prints one line: ok, FAIL or
 * skip.
 *
 *   TEST(size_refuses_a_sign) { CHECK(stow_size_parse(&n, "-1") == STOW_ERR_INVALID); }
 *   int main(int argc, char **argv) { return harness_main(argc, argv); }   (TEST_MAIN)
 *
 * With arguments, only tests whose name contains one of them run. --here runs them in this process
 * (for a debugger, and for drivers that do not survive a fork), --list names them.
 * */
#ifndef HARNESS_H
#define HARNESS_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <stowage/status.h>

typedef struct harness_test {
  const char *name, *file;
  void (*run)(void);
  struct harness_test *next;
} harness_test;

void harness_add(harness_test *test);
int harness_main(int argc, char **argv);
/* Ends the test as failed. */
void harness_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4), noreturn));
/* Ends the test as skipped. */
void harness_skip(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Adds words to the test's ok line: what it measured or how much it covered. */
void harness_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Sets the CPU seconds that this test may use (default 60; ten times that under a sanitizer). Wall
 * time may be four times as long, so that a busy machine fails no test. */
void harness_deadline(unsigned seconds);
/* Returns a new empty folder, which is removed with its contents when the test ends. */
const char *harness_folder(void);
/* Returns true under `make test-long` (STOWAGE_TEST_LONG is set): sweeps run in full. Otherwise
 * they run a part, with the same seed. */
bool harness_long(void);
/* Returns how many rounds of a sweep to run: `all`, or `part` in a sanitizer build under
 * `make test`, where a round takes up to ten times as long. The release build runs all of them, and
 * `make test-long` runs all in every build (tests/long/sanitizers.sh). */
uint64_t harness_rounds(uint64_t all, uint64_t part);
/* Returns the path of a file under tests/samples. Valid until the test ends. */
const char *harness_data(const char *name);
/* Returns the folder of the shared recordings if it is beside this checkout, otherwise NULL. */
const char *harness_shared(void);

#define TEST(name)                                                                                 \
  static void test_##name(void);                                                                   \
  static harness_test entry_##name = {#name, __FILE__, test_##name, NULL};                         \
  __attribute__((constructor)) static void add_##name(void) {                                      \
    harness_add(&entry_##name);                                                                    \
  }                                                                                                \
  static void test_##name(void)

#define TEST_MAIN                                                                                  \
  int main(int argc, char **argv) {                                                                \
    return harness_main(argc, argv);                                                               \
  }

#define FAIL(...) harness_fail(__FILE__, __LINE__, __VA_ARGS__)
#define SKIP(...) harness_skip(__VA_ARGS__)
#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) FAIL("not so: %s", #condition);                                              \
  } while (0)
#define CHECK_OK(call)                                                                             \
  do {                                                                                             \
    stow_status check_status = (call);                                                             \
    if (check_status != STOW_OK)                                                                   \
      FAIL("%s: %s: %s", #call, stow_status_name(check_status), stow_status_message());            \
  } while (0)
#define CHECK_STATUS(call, expected)                                                               \
  do {                                                                                             \
    stow_status check_status = (call);                                                             \
    if (check_status != (expected))                                                                \
      FAIL("%s: %s, expected %s (%s)", #call, stow_status_name(check_status),                      \
           stow_status_name(expected), stow_status_message());                                     \
  } while (0)
#define CHECK_U64(a, b)                                                                            \
  do {                                                                                             \
    uint64_t check_a = (uint64_t)(a), check_b = (uint64_t)(b);                                     \
    if (check_a != check_b)                                                                        \
      FAIL("%s is %" PRIu64 ", expected %s = %" PRIu64, #a, check_a, #b, check_b);                 \
  } while (0)
#define CHECK_TEXT(a, b)                                                                           \
  do {                                                                                             \
    const char *check_a = (a), *check_b = (b);                                                     \
    if (strcmp(check_a, check_b) != 0)                                                             \
      FAIL("%s is \"%s\", expected \"%s\"", #a, check_a, check_b);                                 \
  } while (0)
/* Checks that the thread's message contains the text: tests of an error check its message too. */
#define CHECK_MESSAGE(part)                                                                        \
  do {                                                                                             \
    if (strstr(stow_status_message(), (part)) == NULL)                                             \
      FAIL("message \"%s\" lacks \"%s\"", stow_status_message(), (part));                          \
  } while (0)

/* A small, fast generator, the same on every machine and seeded by the test, so that failures can
 * be reproduced. */
static inline uint64_t harness_random(uint64_t *state) {
  uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

#endif
