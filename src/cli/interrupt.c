/* Interrupt: see interrupt.h. */
#include "cli/interrupt.h"

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/output.h"

/* Written before the handler is installed. */
static struct {
  char checkpoint[PATH_MAX];
  uint64_t empty_bytes;
  char kept[2][PATH_MAX + 256], none[2][PATH_MAX + 256]; /* for SIGINT and SIGTERM */
} watched;

/* Prints how to continue, then ends as the signal would have. Calls only async-signal-safe
 * functions. */
static void on_signal(int number) {
  struct stat st;
  bool term = number == SIGTERM;
  bool there = stat(watched.checkpoint, &st) == 0 && (uint64_t)st.st_size > watched.empty_bytes;
  const char *text = there ? watched.kept[term] : watched.none[term];
  ssize_t wrote = write(STDERR_FILENO, text, strlen(text));
  (void)wrote;
  signal(number, SIG_DFL);
  raise(number);
}

static void watch(int number) {
  struct sigaction old, mine = {.sa_handler = on_signal};
  sigemptyset(&mine.sa_mask);
  if (sigaction(number, NULL, &old) == 0 && old.sa_handler == SIG_DFL)
    sigaction(number, &mine, NULL);
}

void interrupt_watch(const char *verb, const char *out, uint64_t empty_bytes) {
  static const char *const how[] = {"interrupted", "ended by SIGTERM"};
  char path[PATH_MAX];
  int length = (int)strlen(out);
  while (length > 1 && out[length - 1] == '/') length--;
  snprintf(path, sizeof path, "%.*s", length, out);
  snprintf(watched.checkpoint, sizeof watched.checkpoint, "%.*s.resume", PATH_MAX - 8, path);
  const char *name = output_name(path); /* no control characters reach the terminal */
  watched.empty_bytes = empty_bytes;
  for (int i = 0; i < 2; i++) {
    snprintf(watched.kept[i], sizeof watched.kept[i],
             "\nstowage %s: %s; %s.partial is kept: run the same command with --resume to "
             "continue from the last checkpoint\n",
             verb, how[i], name);
    snprintf(watched.none[i], sizeof watched.none[i],
             "\nstowage %s: %s before the first checkpoint; run the same command to start again, "
             "which replaces %s.partial\n",
             verb, how[i], name);
  }
  watch(SIGINT);
  watch(SIGTERM);
}
