/* Decimal against strtod, over every way a number is converted. */
#include "formats/decimal.h"

#include <stdlib.h>

#include "harness.h"

/* With the room behind it that the reader asks for. */
static const char *padded(const char *text) {
  static char room[256];
  snprintf(room, sizeof room - DECIMAL_SLACK, "%s", text);
  return room;
}

static void check_like_strtod(const char *plain) {
  const char *text = padded(plain);
  const char *end;
  char *expected_end;
  decimal value = {0};
  double expected = strtod(text, &expected_end);
  decimal_kind kind = decimal_read(text, &end, &value);
  if (end != expected_end)
    FAIL("\"%s\" ends at %td, expected %td", text, end - text, expected_end - text);
  double got = kind == DECIMAL_SIGNED     ? (double)value.i
               : kind == DECIMAL_UNSIGNED ? (double)value.u
                                          : value.d;
  if (kind != DECIMAL_BIG && memcmp(&got, &expected, sizeof got) != 0)
    FAIL("\"%s\" is %.17g, expected %.17g", text, got, expected);
}

TEST(doubles_come_out_as_strtod_reads_them)
{
  uint64_t random = 5;
  char text[64];
  for (int i = 0; i < 400000; i++) {
    uint64_t bits = harness_random(&random);
    double d;
    memcpy(&d, &bits, sizeof d);
    if (d != d || d - d != 0) continue;
    int digits = 1 + (int)(harness_random(&random) % 19);
    snprintf(text, sizeof text, "%.*e", digits, d); /* the whole range */
    check_like_strtod(text);
    /* Around one, where the 128-bit ways decide. */
    double near = (double)(int64_t)bits / 0x1p63 * (double)(1 + (bits & 0xffff));
    snprintf(text, sizeof text, "%.*g", digits, near);
    check_like_strtod(text);
    snprintf(text, sizeof text, "%" PRIu64 "e%d", bits, (int)(harness_random(&random) % 60) - 30);
    check_like_strtod(text);
  }
}

TEST(halfway_cases_round_to_even)
{
  static const char *const cases[] = {"9007199254740993.0",
                                      "9007199254740993.00000000001",
                                      "9007199254740995.0",
                                      "0.5",
                                      ".5",
                                      "5.",
                                      "1e22",
                                      "1e23",
                                      "8.5e22",
                                      "123456789012345678e-27",
                                      "18446744073709551615.0",
                                      "1e-27",
                                      "18446744073709551615e27",
                                      "2.2250738585072011e-308",
                                      "4.9e-324",
                                      "1e400",
                                      "1e-400",
                                      "0e9999999999",
                                      "0.000000000000000000000000000000000000001",
                                      "179769313486231580793e289",
                                      "+7",
                                      "-7.25e+3",
                                      "-0.0"};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_like_strtod(cases[i]);
}

TEST(integers_stay_integers)
{
  static const struct {
    const char *text;
    decimal_kind kind;
    int64_t value;
  } cases[] = {{"0", DECIMAL_SIGNED, 0},
               {"-9223372036854775808", DECIMAL_SIGNED, INT64_MIN},
               {"9223372036854775807", DECIMAL_SIGNED, INT64_MAX},
               {"9223372036854775808", DECIMAL_UNSIGNED, INT64_MIN},
               {"18446744073709551615", DECIMAL_UNSIGNED, -1},
               {"18446744073709551616", DECIMAL_BIG, 0},
               {"-9223372036854775809", DECIMAL_BIG, 0},
               {"00000000000000000000000000000012", DECIMAL_SIGNED, 12},
               {"12x", DECIMAL_SIGNED, 12},
               {"12e", DECIMAL_SIGNED, 12},
               {"", DECIMAL_NONE, 0},
               {"-", DECIMAL_NONE, 0},
               {".", DECIMAL_NONE, 0},
               {"e5", DECIMAL_NONE, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const char *end;
    decimal value = {0};
    decimal_kind kind = decimal_read(padded(cases[i].text), &end, &value);
    if (kind != cases[i].kind) FAIL("\"%s\" is of kind %d", cases[i].text, (int)kind);
    if (kind == DECIMAL_SIGNED || kind == DECIMAL_UNSIGNED) CHECK(value.i == cases[i].value);
  }
  const char *end;
  decimal value;
  CHECK(decimal_read(padded("-0"), &end, &value) == DECIMAL_FLOAT && 1 / value.d < 0);
}

TEST_MAIN
