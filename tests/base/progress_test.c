/* Progress: the line's amounts, rate and time left; nothing is printed without a terminal. */
#include "base/progress.h"

#include <unistd.h>

#include "harness.h"

#define SECOND UINT64_C(1000000000)

static const char *line(const progress *p, uint64_t done, uint64_t ns, int width) {
  static char text[256];
  progress_line(text, sizeof text, p, done, ns, width);
  return text;
}

TEST(a_known_total_shows_bar_share_rate_and_time_left)
{
  progress p = {.what = "reading", .total = UINT64_C(4) << 30, .bytes = true};
  CHECK_TEXT(line(&p, UINT64_C(1) << 30, 2 * SECOND, 80),
             "reading  [#######........................]   25%  512.0 MiB/s  0:06 left");
  CHECK_TEXT(line(&p, UINT64_C(4) << 30, 8 * SECOND, 80),
             "reading  [###############################]  100%  512.0 MiB/s  0:00 left");
}

TEST(counts_are_plain_numbers)
{
  progress p = {.what = "rows", .total = 1000};
  CHECK_TEXT(line(&p, 100, 10 * SECOND, 30), "rows   10%  10/s  1:30 left");
}

TEST(an_unknown_total_shows_amount_and_rate_only)
{
  progress p = {.what = "reading", .bytes = true};
  CHECK_TEXT(line(&p, UINT64_C(3) << 20, 3 * SECOND, 80), "reading  3.0 MiB  1.0 MiB/s");
}

TEST(extremes_stay_inside_the_line)
{
  progress p = {.what = "reading", .total = 10, .bytes = true};
  char text[256];
  /* More done than the total, no time passed, no space, a huge number: no write past the end. */
  for (int width = -5; width < 300; width += 7) {
    for (size_t size = 1; size < sizeof text; size += 13) {
      memset(text, 'x', sizeof text);
      progress_line(text, size, &p, UINT64_MAX, 0, width);
      CHECK(strlen(text) < size);
      CHECK(size == sizeof text || text[size] == 'x');
      progress_line(text, size, &p, 1, UINT64_MAX, width);
      CHECK(strlen(text) < size);
    }
  }
  p.total = UINT64_MAX;
  CHECK(strstr(line(&p, 1, SECOND, 80), "  0%") != NULL);
}

TEST(nothing_is_drawn_where_there_is_no_terminal)
{
  int ends[2];
  CHECK(pipe(ends) == 0);
  int kept = dup(STDERR_FILENO);
  CHECK(kept >= 0 && dup2(ends[1], STDERR_FILENO) >= 0);
  progress p;
  progress_begin(&p, "reading", 100, true);
  p.started_ns = 1; /* long ago: on a terminal a bar would be due */
  for (uint64_t i = 0; i <= 100; i++) progress_at(&p, i);
  progress_end(&p);
  CHECK(dup2(kept, STDERR_FILENO) >= 0);
  close(ends[1]), close(kept);
  char byte;
  CHECK_U64(read(ends[0], &byte, 1), 0);
  close(ends[0]);
}

TEST_MAIN
