/* Source: direct reads give the bytes of the file, and touch no others. */
#include "files/source.h"

#include <stdlib.h>
#include <unistd.h>

#include "harness.h"

enum { BYTES = 3 * 1000 * 1000 + 123, BOUNCE = 256 << 10, UNIT = 4096 };

static uint8_t byte_at(uint64_t i) {
  return (uint8_t)(i * 131 + i / 251);
}

TEST(a_direct_read_at_any_alignment_fills_exactly_its_memory)
{
  char path[256];
  snprintf(path, sizeof path, "%s/bytes", harness_folder());
  uint8_t *all = malloc(BYTES), *memory = aligned_alloc(UNIT, 4 << 20);
  void *bounce = aligned_alloc(UNIT, BOUNCE);
  CHECK(all != NULL && memory != NULL && bounce != NULL);
  for (uint64_t i = 0; i < BYTES; i++) all[i] = byte_at(i);
  FILE *out = fopen(path, "wb");
  CHECK(out != NULL && fwrite(all, 1, BYTES, out) == BYTES && fclose(out) == 0);
  source s;
  CHECK_OK(source_open_file(&s, path));
  source_go_direct(&s, bounce, BOUNCE);
  static const uint64_t offsets[] = {0, 1, 4095, 4096, 4097, 131072, 700001};
  static const uint64_t counts[] = {131072, 131073, 135167, 135168, 135169, 1 << 20, 2000001};
  for (size_t o = 0; o < 7; o++)
    for (size_t c = 0; c < 8; c++)
      for (int same = 0; same < 2; same++) {
        uint64_t count = c < 7 ? counts[c] : BYTES - offsets[o]; /* also up to the end */
        uint8_t *to = memory + UNIT + (offsets[o] + (same ? 0 : 8)) % UNIT;
        memset(memory, 0xee, 4 << 20);
        CHECK_OK(source_read(&s, offsets[o], to, (size_t)count));
        CHECK(memcmp(to, all + offsets[o], (size_t)count) == 0);
        for (uint8_t *at = memory; at < to; at++) CHECK(*at == 0xee);
        for (uint8_t *at = to + count; at < to + count + 2 * UNIT; at++) CHECK(*at == 0xee);
      }
  CHECK(truncate(path, 1000000) == 0);
  CHECK_STATUS(source_read(&s, 500, memory + 500, 2000000), STOW_ERR_IO);
  source_close(&s);
  free(bounce), free(memory), free(all);
}

TEST(rows_fill_whole_units_where_a_block_of_them_is_small_enough)
{
  CHECK_U64(source_whole_rows(1000, 1 << 20, 1024), 1000);
  CHECK_U64(source_whole_rows(1001, 1 << 20, 1024), 1000);
  CHECK_U64(source_whole_rows(100, 1 << 20, 784), 256);
  CHECK_U64(source_whole_rows(300, 1 << 20, 3141), 300);
  CHECK_U64(source_whole_rows(7, 1 << 20, 4096), 7);
  CHECK_U64(source_whole_rows(7, 1 << 20, 0), 7);
}

TEST_MAIN
