/* Compares decimal with strtod, over every way a number is converted. */
#include "arrays/decimal.h"

#include <stdlib.h>

#include "harness.h"

/* Returns the text with the padding that the reader requires. */
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
  for (int i = 0; i < (harness_long() ? 400000 : 80000); i++) {
    uint64_t bits = harness_random(&random);
    double d;
    memcpy(&d, &bits, sizeof d);
    if (d != d || d - d != 0) continue;
    int digits = 1 + (int)(harness_random(&random) % 19);
    snprintf(text, sizeof text, "%.*e", digits, d); /* the whole range */
    check_like_strtod(text);
    /* Around one, where the 128-bit paths decide. */
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
                                      "1e-400",
                                      "0e9999999999",
                                      "0.000000000000000000000000000000000000001",
                                      "179769313486231580793e288",
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
               {"1e400", DECIMAL_BIG, 0}, /* a number, but not a double: not infinity */
               {"-1.7976931348623159e308", DECIMAL_BIG, 0},
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

/* decimal_field returns the same as decimal_read, if the number ends with the field. */
TEST(a_field_reads_as_the_number_it_is)
{
  static const char letters[] = "0123456789012345678900..-+eE x";
  uint64_t random = 11;
  for (int i = 0; i < 2000000; i++) {
    char text[64];
    size_t length;
    uint64_t bits = harness_random(&random);
    if (i % 3 == 0) {
      length = 1 + bits % 26;
      for (size_t k = 0; k < length; k++)
        text[k] = letters[harness_random(&random) % (sizeof letters - 1)];
    } else {
      double d = (double)(int64_t)bits / 0x1p63 * (double)(UINT64_C(1) << bits % 40);
      length =
          (size_t)snprintf(text, sizeof text, i % 3 == 1 ? "%.*f" : "%.*g", (int)(bits % 20), d);
    }
    memset(text + length, '7', 16); /* digits of the next field must not be read */
    text[length] = ',';
    decimal field = {0}, read = {0};
    const char *end;
    decimal_kind kind = decimal_field(text, length, &field);
    decimal_kind expected = decimal_read(text, &end, &read);
    if (end != text + length) expected = DECIMAL_NONE;
    bool number = kind != DECIMAL_NONE && kind != DECIMAL_BIG;
    if (kind != expected || (number && field.u != read.u))
      FAIL("\"%.*s\" is of kind %d and %.17g, expected %d and %.17g", (int)length, text, (int)kind,
           field.d, (int)expected, read.d);
  }
}

TEST_MAIN
