/* Progress bar: "reading  [#####.....]  52%  1.2 GiB/s  0:14 left". */
#include "base/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <stowage/size.h>

#include "base/clock.h"

#define QUIET_NS  UINT64_C(2000000000) /* nothing shorter than this shows a bar */
#define REDRAW_NS UINT64_C(100000000)

void progress_begin(progress *p, const char *what, uint64_t total, bool bytes) {
  *p = (progress){.what = what, .total = total, .bytes = bytes};
  p->active = isatty(STDERR_FILENO) == 1;
  p->started_ns = clock_ns();
}

static void amount_text(char *text, size_t size, bool bytes, double amount) {
  char as_size[STOW_SIZE_TEXT_MAX];
  if (bytes)
    snprintf(text, size, "%s", stow_size_format(as_size, (uint64_t)amount));
  else
    snprintf(text, size, "%.0f", amount);
}

void progress_line(char *line, size_t size, const progress *p, uint64_t done, uint64_t elapsed_ns,
                   int width) {
  double seconds = (double)elapsed_ns / 1e9;
  double rate = seconds > 0 ? (double)done / seconds : 0;
  char rate_text[40], done_text[40], bar[64] = "";
  amount_text(rate_text, sizeof rate_text, p->bytes, rate);
  amount_text(done_text, sizeof done_text, p->bytes, (double)done);
  if (p->total == 0) {
    snprintf(line, size, "%s  %s  %s/s", p->what, done_text, rate_text);
    return;
  }
  uint64_t shown = done < p->total ? done : p->total;
  int cells = width - (int)strlen(p->what) - 42;
  if (cells > 40) cells = 40;
  if (cells >= 8) {
    int full = (int)((double)cells * ((double)shown / (double)p->total));
    bar[0] = '[';
    memset(bar + 1, '.', (size_t)cells);
    memset(bar + 1, '#', (size_t)full);
    memcpy(bar + 1 + cells, "]  ", 4);
  }
  uint64_t left = rate > 0 ? (uint64_t)((double)(p->total - shown) / rate + 0.5) : 0;
  snprintf(line, size, "%s  %s%3d%%  %s/s  %" PRIu64 ":%02" PRIu64 " left", p->what, bar,
           (int)(100.0 * ((double)shown / (double)p->total)), rate_text, left / 60, left % 60);
}

void progress_at(progress *p, uint64_t done) {
  if (!p->active) return;
  uint64_t now = clock_ns();
  if (now - p->started_ns < QUIET_NS || now - p->drawn_ns < REDRAW_NS) return;
  struct winsize window = {0};
  int width =
      ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 ? window.ws_col : 80;
  char line[256];
  progress_line(line, sizeof line, p, done, now - p->started_ns, width);
  if ((int)strlen(line) >= width) line[width - 1] = '\0';
  fprintf(stderr, "\r%s\033[K", line);
  fflush(stderr);
  p->drawn_ns = now;
  p->shown = true;
}

void progress_end(progress *p) {
  if (p->shown) fprintf(stderr, "\r\033[K");
  p->shown = false;
}
