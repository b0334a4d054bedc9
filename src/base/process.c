/* Process: reading /proc/PID/stat, fields 3 (state), 4 (parent), 20 (threads) and 22 (start). */
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Reads a small file of /proc into `text`. Returns false if it cannot be read. */
static bool read_text(const char *path, char *text, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t got = read(fd, text, size - 1);
  close(fd);
  text[got > 0 ? got : 0] = '\0';
  return got > 0;
}

/* The kernel adds the offset of the reader's time namespace to every start time. Returns it in
 * ticks, so that processes in different namespaces agree about a start. */
static int64_t clock_offset(void) {
  char text[256];
  const char *line;
  if (!read_text("/proc/self/timens_offsets", text, sizeof text)) return 0; /* before Linux 5.6 */
  line = strstr(text, "boottime");
  return line != NULL ? strtoll(line + 8, NULL, 10) * sysconf(_SC_CLK_TCK) : 0;
}

process_fate process_read(process *p, pid_t pid) {
  char path[64], text[512];
  *p = (process){0, 0};
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return kill(pid, 0) != 0 && errno == ESRCH ? PROCESS_DEAD : PROCESS_UNKNOWN;
  ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  if (got <= 0) return PROCESS_DEAD;
  text[got] = '\0';
  /* The name in parentheses may contain parentheses: start after the last one. */
  const char *at = strrchr(text, ')');
  if (at == NULL || at[1] == '\0') return PROCESS_UNKNOWN;
  at += 2;
  char state = *at;
  long threads = 1;
  for (int field = 4; field <= 22 && at != NULL; field++) {
    at = strchr(at, ' ');
    if (at == NULL) break;
    at++;
    if (field == 4) p->parent = (pid_t)strtol(at, NULL, 10);
    if (field == 20) threads = strtol(at, NULL, 10);
    if (field == 22) p->start = strtoull(at, NULL, 10);
  }
  if (p->start > 0) p->start -= (uint64_t)clock_offset();
  /* If the first thread has ended, the process looks dead but lives while it has other threads. */
  if ((state == 'Z' && threads <= 1) || state == 'X') return PROCESS_DEAD;
  return p->start == 0 ? PROCESS_UNKNOWN : PROCESS_LIVES;
}
