/* JSON writer: commas and escapes right, and the output always valid UTF-8. */
#include "base/json.h"

#include <math.h>
#include <stdlib.h>

#include "harness.h"

TEST(containers_nest_with_commas_in_their_places)
{
  buffer b = BUFFER_INIT;
  json j = JSON_COMPACT(&b);
  json_begin_object(&j);
  json_key(&j, "a"), json_u64(&j, UINT64_MAX);
  json_key(&j, "b");
  json_begin_array(&j);
  json_i64(&j, INT64_MIN);
  json_begin_array(&j), json_end_array(&j);
  json_begin_object(&j), json_end_object(&j);
  json_bool(&j, true), json_bool(&j, false), json_null(&j);
  json_end_array(&j);
  json_key(&j, "c"), json_text(&j, NULL);
  json_end_object(&j);
  CHECK_TEXT(b.data, "{\"a\":18446744073709551615,\"b\":[-9223372036854775808,[],{},true,false,"
                     "null],\"c\":null}");
  buffer_free(&b);
}

TEST(pretty_output_has_one_member_a_line)
{
  buffer b = BUFFER_INIT;
  json j = JSON_PRETTY(&b);
  json_begin_object(&j);
  json_key(&j, "list");
  json_begin_array(&j);
  json_u64(&j, 1), json_u64(&j, 2);
  json_end_array(&j);
  json_key(&j, "none");
  json_begin_object(&j), json_end_object(&j);
  json_end_object(&j);
  CHECK_TEXT(b.data, "{\n  \"list\": [\n    1,\n    2\n  ],\n  \"none\": {}\n}");
  buffer_free(&b);
}

static const char *written(buffer *b, const char *text, size_t count) {
  buffer_clear(b);
  json j = JSON_COMPACT(b);
  json_text_n(&j, text, count);
  return b->data;
}

TEST(quotes_backslashes_and_control_characters_are_escaped)
{
  buffer b = BUFFER_INIT;
  CHECK_TEXT(written(&b, "a\"b\\c", 5), "\"a\\\"b\\\\c\"");
  CHECK_TEXT(written(&b, "\n\t\0\x1f\x7f", 5), "\"\\u000a\\u0009\\u0000\\u001f\\u007f\"");
  CHECK_TEXT(written(&b, "", 0), "\"\"");
  buffer_free(&b);
}

TEST(bytes_that_are_not_utf8_become_the_replacement_character)
{
  buffer b = BUFFER_INIT;
  static const struct {
    const char *from, *to;
  } cases[] = {
      {"\xc3\xa9", "\"\xc3\xa9\""},                             /* é */
      {"\xe2\x82\xac", "\"\xe2\x82\xac\""},                     /* € */
      {"\xf0\x9f\x92\xbe", "\"\xf0\x9f\x92\xbe\""},             /* past the first plane */
      {"\x80", "\"\\ufffd\""},                                  /* a lone continuation */
      {"\xc3", "\"\\ufffd\""},                                  /* cut short */
      {"\xc0\xaf", "\"\\ufffd\\ufffd\""},                       /* overlong '/' */
      {"\xe0\x80\xaf", "\"\\ufffd\\ufffd\\ufffd\""},            /* overlong again */
      {"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""},            /* a surrogate */
      {"\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""}, /* past U+10FFFF */
      {"a\xff"
       "b",
       "\"a\\ufffdb\""},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    CHECK_TEXT(written(&b, cases[i].from, strlen(cases[i].from)), cases[i].to);
  buffer_free(&b);
}

TEST(numbers_read_back_the_same)
{
  buffer b = BUFFER_INIT;
  uint64_t random = 3;
  for (int i = 0; i < 20000; i++) {
    uint64_t bits = harness_random(&random);
    double value;
    memcpy(&value, &bits, sizeof value);
    buffer_clear(&b);
    json j = JSON_COMPACT(&b);
    json_double(&j, value);
    if (!isfinite(value))
      CHECK_TEXT(b.data, "null");
    else if (strtod(b.data, NULL) != value)
      FAIL("%.17g written as %s", value, b.data);
  }
  buffer_clear(&b);
  json j = JSON_COMPACT(&b);
  json_begin_array(&j);
  json_double(&j, 0.1), json_double(&j, 1.15), json_double(&j, 1e300), json_double(&j, NAN);
  json_end_array(&j);
  CHECK_TEXT(b.data, "[0.1,1.15,1e+300,null]");
  buffer_free(&b);
}

TEST_MAIN
