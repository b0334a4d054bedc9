/* Test harness. The child reports its result to the parent through its exit code and one line in a
 * pipe. */
#include "harness.h"

#include <errno.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_OK = 0, EXIT_FAILED = 101, EXIT_SKIPPED = 102 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOW 10
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SLOW 10
#endif
#endif
#ifndef SLOW
#define SLOW 1
#endif
/* How much wall time a test may use per second of its deadline, which counts CPU time: on a busy
 * machine a test runs late, not longer. */
#define WALL 4

static harness_test *first_test, **last_test = &first_test;
static int word_fd = -1; /* pipe for the child's line */
static bool here;
static jmp_buf here_end;
static char here_line[1024];
static char folder[256];

void harness_add(harness_test *test) {
  *last_test = test;
  last_test = &test->next;
}

static void say(const char *text) {
  if (here) {
    snprintf(here_line, sizeof here_line, "%s", text);
    return;
  }
  ssize_t done = write(word_fd, text, strlen(text));
  (void)done;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *at) {
  (void)info, (void)kind, (void)at;
  return remove(path);
}

static void clean_up(void) {
  if (folder[0] != '\0') nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
  folder[0] = '\0';
}

static void finish(int code) {
  clean_up();
  if (here) longjmp(here_end, code == EXIT_OK ? 1 : code);
  fflush(NULL);
  exit(code);
}

void harness_fail(const char *file, int line, const char *format, ...) {
  char text[1024];
  int at = snprintf(text, sizeof text,
                    "%s:%d: ", strrchr(file, '/') ? strrchr(file, '/') + 1 : file, line);
  va_list args;
  va_start(args, format);
  vsnprintf(text + at, sizeof text - (size_t)at, format, args);
  va_end(args);
  say(text);
  if (here) finish(EXIT_FAILED);
  clean_up();
  _exit(EXIT_FAILED); /* no leak check after a failure: it would hide the reason */
}

void harness_skip(const char *format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  say(text);
  finish(EXIT_SKIPPED);
  _exit(EXIT_SKIPPED);
}

void harness_note(const char *format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  say(text);
}

void harness_deadline(unsigned seconds) {
  struct itimerval cpu = {.it_value.tv_sec = (time_t)seconds * SLOW};
  setitimer(ITIMER_PROF, &cpu, NULL);
  alarm(seconds * SLOW * WALL); /* a deadlock uses no CPU */
}

const char *harness_folder(void) {
  if (folder[0] != '\0') return folder;
  const char *base = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%s/stowage-test-XXXXXX", base != NULL ? base : "/tmp");
  if (mkdtemp(folder) == NULL) FAIL("cannot make a folder like %s: %s", folder, strerror(errno));
  return folder;
}

bool harness_long(void) {
  const char *set = getenv("STOWAGE_TEST_LONG");
  return set != NULL && set[0] != '\0';
}

uint64_t harness_rounds(uint64_t all, uint64_t part) {
  return SLOW == 1 || harness_long() ? all : part;
}

const char *harness_data(const char *name) {
  static char path[1024];
  snprintf(path, sizeof path, "%s/%s", STOW_TEST_DATA, name);
  return path;
}

const char *harness_shared(void) {
  static char path[1024];
  snprintf(path, sizeof path, "%s/../shared", STOW_SOURCE_DIR);
  struct stat info;
  return stat(path, &info) == 0 ? path : NULL;
}

static bool wanted(const harness_test *test, int count, char **words) {
  for (int i = 0; i < count; i++)
    if (strstr(test->name, words[i]) != NULL) return true;
  return count == 0;
}

static int run_here(const harness_test *test, char *line, size_t size) {
  here_line[0] = '\0';
  int code = setjmp(here_end);
  if (code == 0) {
    test->run();
    clean_up();
    code = 1;
  }
  snprintf(line, size, "%s", here_line);
  return code == 1 ? EXIT_OK : code;
}

static int run_child(const harness_test *test, char *line, size_t size) {
  int ends[2];
  if (pipe(ends) != 0) return EXIT_FAILED;
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    word_fd = ends[1];
    harness_deadline(60);
    test->run();
    clean_up();
    fflush(NULL);
    exit(EXIT_OK);
  }
  close(ends[1]);
  size_t length = 0;
  ssize_t got;
  while ((got = read(ends[0], line + length, size - 1 - length)) > 0) length += (size_t)got;
  line[length] = '\0';
  close(ends[0]);
  int how = 0;
  while (waitpid(child, &how, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(how)) {
    int code = WEXITSTATUS(how);
    if (code != EXIT_OK && code != EXIT_SKIPPED && code != EXIT_FAILED)
      snprintf(line, size, "ended with code %d (a sanitizer's report stands above)", code);
    return code == EXIT_OK || code == EXIT_SKIPPED ? code : EXIT_FAILED;
  }
  if (WTERMSIG(how) == SIGALRM || WTERMSIG(how) == SIGPROF)
    snprintf(line, size, "ran past its deadline");
  else
    snprintf(line, size, "killed by signal %d", WTERMSIG(how));
  return EXIT_FAILED;
}

int harness_main(int argc, char **argv) {
  int words = 0;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--here") == 0)
      here = true;
    else if (strcmp(argv[i], "--list") == 0) {
      for (harness_test *t = first_test; t != NULL; t = t->next) puts(t->name);
      return 0;
    } else
      argv[1 + words++] = argv[i];
  }
  int failed = 0;
  for (harness_test *t = first_test; t != NULL; t = t->next) {
    if (!wanted(t, words, argv + 1)) continue;
    char line[1024] = "";
    int code = here ? run_here(t, line, sizeof line) : run_child(t, line, sizeof line);
    failed += code == EXIT_FAILED;
    printf("%s %s%s%s\n",
           code == EXIT_OK        ? "ok"
           : code == EXIT_SKIPPED ? "skip"
                                  : "FAIL",
           t->name, line[0] ? ": " : "", line);
    fflush(stdout);
  }
  return failed == 0 ? 0 : 1;
}
