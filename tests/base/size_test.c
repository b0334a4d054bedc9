/* Sizes: valid text is parsed exactly; invalid text is rejected and named in the message. */
#include <stdlib.h>

#include <stowage/size.h>

#include "harness.h"

static uint64_t parsed(const char *text) {
  uint64_t bytes = 0;
  stow_status status = stow_size_parse(&bytes, text);
  if (status != STOW_OK) FAIL("\"%s\": %s", text, stow_status_message());
  return bytes;
}

TEST(sizes_people_write_are_read)
{
  CHECK_U64(parsed("8G"), UINT64_C(8) << 30);
  CHECK_U64(parsed("512 MiB"), UINT64_C(512) << 20);
  CHECK_U64(parsed("1.5GiB"), UINT64_C(3) << 29);
  CHECK_U64(parsed("4096"), 4096);
  CHECK_U64(parsed("0"), 0);
  CHECK_U64(parsed("10kb"), 10240);
  CHECK_U64(parsed(" 2 t "), UINT64_C(2) << 40);
  CHECK_U64(parsed("0.1G"), 107374182);
  CHECK_U64(parsed("15.999999999999999999999999G"), (UINT64_C(16) << 30) - 1);
  CHECK_U64(parsed("18446744073709551615"), UINT64_MAX);
}

TEST(sizes_that_cannot_be_right_are_refused)
{
  static const char *const bad[] = {
      "",    " ",   "8Q",  "-1",   "+1",    "G",   ".5G", "1.",   "1.5",   "1.5B", "8 G B",
      "8GG", "0x8", "1e9", "8,5G", "8GiBs", "nan", "inf", "8\tG", "1..5G", "8i",   "8KiKiB"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    uint64_t bytes = 77;
    CHECK_STATUS(stow_size_parse(&bytes, bad[i]), STOW_ERR_INVALID);
    CHECK_U64(bytes, 77);
    CHECK_MESSAGE("write a size such as 8G");
  }
  uint64_t bytes;
  CHECK_STATUS(stow_size_parse(&bytes, NULL), STOW_ERR_INVALID);
}

TEST(sizes_past_64_bits_are_refused)
{
  static const char *const big[] = {"18446744073709551616", "16777216T", "99999999999999999999G",
                                    "16384P", "18446744073709551615.5K"};
  for (size_t i = 0; i < sizeof big / sizeof big[0]; i++) {
    uint64_t bytes = 77;
    CHECK_STATUS(stow_size_parse(&bytes, big[i]), STOW_ERR_OVERFLOW);
    CHECK_U64(bytes, 77);
  }
}

TEST(printing_then_reading_stays_within_a_twentieth_of_the_unit)
{
  uint64_t random = 42;
  for (int i = 0; i < 200000; i++) {
    uint64_t bytes = harness_random(&random) >> (harness_random(&random) % 64);
    char text[STOW_SIZE_TEXT_MAX];
    stow_size_format(text, bytes);
    if (strstr(text, "EiB") != NULL) continue; /* printed, but too large to parse */
    uint64_t unit = 1, again = parsed(text);
    while (bytes / unit >= 1024) unit *= 1024;
    uint64_t off = again > bytes ? again - bytes : bytes - again;
    if (off > unit / 19 + 1)
      FAIL("%" PRIu64 " printed as %s reads as %" PRIu64, bytes, text, again);
  }
}

TEST(whole_units_round_trip_exactly)
{
  static const char units[] = "KMGTP";
  for (int u = 0; u < 5; u++) {
    for (uint64_t n = 0; n < 1024; n++) {
      char text[32];
      snprintf(text, sizeof text, "%" PRIu64 "%ciB", n, units[u]);
      CHECK_U64(parsed(text), n << (10 * (u + 1)));
    }
  }
}

TEST(sizes_are_printed_for_people)
{
  static const struct {
    uint64_t bytes;
    const char *text;
  } cases[] = {{0, "0 B"},
               {1023, "1023 B"},
               {1024, "1.0 KiB"},
               {1536, "1.5 KiB"},
               {UINT64_C(2) << 20, "2.0 MiB"},
               {(UINT64_C(1) << 20) - 1, "1.0 MiB"},
               {UINT64_C(17072586752), "15.9 GiB"},
               {UINT64_MAX, "16.0 EiB"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char text[STOW_SIZE_TEXT_MAX];
    CHECK_TEXT(stow_size_format(text, cases[i].bytes), cases[i].text);
  }
}

TEST_MAIN
