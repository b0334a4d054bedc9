/* Window memory: blocks of a file mapped side by side, and what must be read instead. */
#include "data/window_memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "harness.h"

enum { PAGES = 8 };

static int make_file(uint64_t page, char *content) {
  char path[256];
  snprintf(path, sizeof path, "%s/blocks", harness_folder());
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  CHECK(fd >= 0);
  for (uint64_t i = 0; i < PAGES * page; i++) content[i] = (char)(i / 64 + i % 7);
  CHECK(pwrite(fd, content, PAGES * page, 0) == (ssize_t)(PAGES * page));
  return fd;
}

TEST(blocks_of_a_file_are_mapped_in_any_order)
{
  uint64_t page = window_memory_page();
  char *content = malloc(PAGES * page);
  int fd = make_file(page, content);
  window_memory m;
  CHECK(window_memory_open(&m, PAGES * page, true));
  char page_of_file = content[5 * page];
  /* A window that begins and ends within a block: half of page 2, pages 6 and 7, half of page 0. */
  char *rows = m.bytes + page / 2, *next = m.bytes + page;
  CHECK(window_memory_map(rows, fd, 2 * page + page / 2, page / 2, true, false));
  CHECK(window_memory_map(next, fd, 6 * page, 2 * page, false, false));
  CHECK(window_memory_map(next + 2 * page, fd, 0, page / 2, false, true));
  CHECK(memcmp(rows, content + 2 * page + page / 2, page / 2) == 0);
  CHECK(memcmp(next, content + 6 * page, 2 * page) == 0);
  CHECK(memcmp(next + 2 * page, content, page / 2) == 0);
  /* What is read into the memory afterwards stays out of the file. */
  CHECK(pread(fd, next, page, (off_t)(5 * page)) == (ssize_t)page);
  CHECK(memcmp(next, content + 5 * page, page) == 0 && next[0] == page_of_file);
  char back[64];
  CHECK(pread(fd, back, sizeof back, (off_t)(6 * page)) == sizeof back);
  CHECK(memcmp(back, content + 6 * page, sizeof back) == 0);
  window_memory_close(&m);
  close(fd);
  free(content);
}

TEST(bytes_that_share_a_page_or_are_not_there_must_be_read)
{
  uint64_t page = window_memory_page();
  char *content = malloc(PAGES * page);
  int fd = make_file(page, content);
  window_memory m;
  CHECK(window_memory_open(&m, PAGES * page, true));
  CHECK(!window_memory_map(m.bytes + 64, fd, 0, page, true, true)); /* other place in a page */
  CHECK(!window_memory_map(m.bytes + 64, fd, 64, page - 64, false, false)); /* not the first rows */
  CHECK(!window_memory_map(m.bytes, fd, 0, page / 2, false, false));        /* not the last rows */
  CHECK(!window_memory_map(m.bytes, fd, (PAGES - 1) * page, 3 * page, true,
                           true)); /* no such bytes */
  window_memory_close(&m);
  CHECK(window_memory_open(&m, 1 << 20, false));
  memset(m.bytes, 1, 1 << 20);
  window_memory_close(&m);
  close(fd);
  free(content);
}

TEST_MAIN
