/* Host valid: marks of ranges, replaced, split and read. */
#include "shim/host_valid.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness.h"

static uint64_t gap_bytes, gap_count;
static void count_gap(void *user, uint64_t offset, uint64_t bytes) {
  (void)offset;
  CHECK(user == &gap_bytes);
  gap_bytes += bytes;
  gap_count++;
}

static void forget_all(void) {
  CHECK(host_valid_mark(0, UINT64_MAX, NULL));
  gap_bytes = gap_count = 0;
}

TEST(a_marked_range_is_found_and_an_unmarked_one_is_not)
{
  static const char file[4096] = "x";
  forget_all();
  CHECK_U64(host_valid_bytes(0x10000, 4096), 0);
  CHECK(host_valid_mark(0x10000, 4096, file));
  CHECK_U64(host_valid_bytes(0x10000, 4096), 4096);
  CHECK_U64(host_valid_bytes(0x10000 - 100, 200), 100);
  CHECK_U64(host_valid_bytes(0x11000, 1), 0);
  CHECK(host_valid_mark(0x10400, 1024, NULL)); /* splits it */
  CHECK_U64(host_valid_bytes(0x10000, 4096), 3072);
  CHECK(!host_valid_mark(0x10000, 0, file) && !host_valid_mark(UINT64_MAX, 2, file));
}

TEST(marked_parts_are_copied_and_gaps_are_named)
{
  char file[64], to[64];
  for (int i = 0; i < 64; i++) file[i] = (char)(i + 1);
  forget_all();
  CHECK(host_valid_mark(1000, 16, file));
  CHECK(host_valid_mark(1016, 16, file + 16)); /* goes on */
  CHECK(host_valid_mark(1040, 8, file + 40));
  memset(to, 0, sizeof to);
  CHECK_U64(host_valid_copy(1000, 64, to, count_gap, &gap_bytes), 40);
  CHECK(memcmp(to, file, 32) == 0 && memcmp(to + 40, file + 40, 8) == 0);
  CHECK(to[32] == 0 && to[48] == 0);
  CHECK(gap_count == 2 && gap_bytes == 24);
  memset(to, 0, sizeof to);
  CHECK_U64(host_valid_copy(1004, 8, to, count_gap, &gap_bytes), 8); /* from inside a mark */
  CHECK(memcmp(to, file + 4, 8) == 0);
}

/* Compares with a list of bytes, over random marks. */
TEST(random_marks_agree_with_a_plain_list)
{
  enum { SPACE = 512 };
  static uint8_t host[SPACE], wrong[SPACE];
  uint8_t want[SPACE] = {0}, to[SPACE];
  uint64_t seed = 3;
  forget_all();
  for (int i = 0; i < SPACE; i++) host[i] = (uint8_t)(i * 7 | 1), wrong[i] = 0xee;
  for (int round = 0; round < 20000; round++) {
    uint64_t first = harness_random(&seed) % SPACE, kind = harness_random(&seed) % 3;
    uint64_t count = 1 + harness_random(&seed) % (SPACE - first);
    const uint8_t *from = kind == 0 ? NULL : kind == 1 ? host : wrong;
    CHECK(host_valid_mark(4096 + first, count, from == NULL ? NULL : from + first));
    for (uint64_t i = first; i < first + count; i++) want[i] = from == NULL ? 0 : from[i];
    uint64_t marked = 0;
    for (int i = 0; i < SPACE; i++) marked += want[i] != 0;
    CHECK_U64(host_valid_bytes(4096, SPACE), marked);
    if (round % 16 != 0) continue;
    memset(to, 0, sizeof to);
    CHECK_U64(host_valid_copy(4096, SPACE, to, count_gap, &gap_bytes), marked);
    CHECK(memcmp(to, want, SPACE) == 0);
  }
}

TEST(a_file_that_was_truncated_counts_as_a_gap)
{
  enum { PAGES = 4 };
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char path[4200], *to = malloc(PAGES * page);
  snprintf(path, sizeof path, "%s/weights", harness_folder());
  FILE *file = fopen(path, "w+b");
  CHECK(file != NULL && ftruncate(fileno(file), (off_t)(PAGES * page)) == 0);
  char *map = mmap(NULL, PAGES * page, PROT_READ, MAP_PRIVATE, fileno(file), 0);
  CHECK(map != MAP_FAILED);
  forget_all();
  for (int i = 0; i < PAGES; i++) /* one mark for each page: a mark is copied whole or not at all */
    CHECK(host_valid_mark(0x100000 + (uint64_t)i * 2 * page, page, map + (size_t)i * page));
  CHECK(ftruncate(fileno(file), (off_t)page) == 0);
  CHECK_U64(host_valid_copy(0x100000, page, to, count_gap, &gap_bytes), page);
  CHECK_U64(host_valid_copy(0x100000 + 2 * page, page, to, count_gap, &gap_bytes), 0);
  CHECK(gap_count == 1 && gap_bytes == page);
  munmap(map, PAGES * page);
  fclose(file);
  free(to);
}

TEST_MAIN
