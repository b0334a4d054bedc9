/* Crc32 against zlib's own, at every length, alignment and cut. */
#include "base/crc32.h"

#include <zlib.h>

#include "harness.h"

TEST(the_checksum_is_zlibs_at_any_length_and_cut)
{
  static uint8_t bytes[5000];
  uint64_t random = 3;
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)harness_random(&random);
  for (int round = 0; round < 20000; round++) {
    size_t from = harness_random(&random) % 64, count = harness_random(&random) % 4900;
    size_t cut = harness_random(&random) % (count + 1);
    uint32_t expected = (uint32_t)crc32(0, bytes + from, (uInt)count);
    uint32_t got = crc32_add(crc32_add(0, bytes + from, cut), bytes + from + cut, count - cut);
    if (got != expected) FAIL("%zu bytes from %zu, cut at %zu", count, from, cut);
  }
}

TEST_MAIN
