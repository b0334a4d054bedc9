/* Progress: a bar on a terminal for work longer than two seconds; silent otherwise.
 *
 *   progress p; progress_begin(&p, "reading", total_bytes, true);
 *   while (...) progress_at(&p, done);
 *   progress_end(&p);
 *
 * Only for the command; the library reports progress through callbacks. */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct progress {
  const char *what;
  uint64_t total; /* 0: not known; then only amount and rate are shown */
  bool bytes;     /* amounts are bytes, shown as sizes; otherwise plain counts */
  bool active;    /* standard error is a terminal */
  bool shown;     /* a bar is on the screen */
  uint64_t started_ns, drawn_ns;
} progress;

void progress_begin(progress *p, const char *what, uint64_t total, bool bytes);
/* Cheap enough to call per chunk: reads the clock, draws at most ten times a second. */
void progress_at(progress *p, uint64_t done);
/* Clears the bar; call it before printing anything else. */
void progress_end(progress *p);

/* Formats the line for a bar `width` columns wide; separate so that tests need no terminal. */
void progress_line(char *line, size_t size, const progress *p, uint64_t done, uint64_t elapsed_ns,
                   int width);

#endif
