/* Buffer: what was appended is there, ended by '\0'; the bound holds; a failure sticks. */
#include "base/buffer.h"

#include "harness.h"

TEST(appended_bytes_are_there_in_order)
{
  buffer b = BUFFER_INIT;
  char expected[5000];
  size_t length = 0;
  uint64_t random = 7;
  while (length < sizeof expected - 64) {
    size_t count = harness_random(&random) % 60;
    for (size_t i = 0; i < count; i++) expected[length + i] = (char)harness_random(&random);
    CHECK_OK(buffer_append(&b, expected + length, count));
    length += count;
    CHECK_U64(b.length, length);
    CHECK(b.data == NULL || b.data[b.length] == '\0');
  }
  CHECK(memcmp(b.data, expected, length) == 0);
  buffer_free(&b);
  CHECK(b.data == NULL && b.length == 0);
}

TEST(text_characters_and_formats_join)
{
  buffer b = BUFFER_INIT;
  buffer_text(&b, "page ");
  buffer_char(&b, '#');
  buffer_printf(&b, "%d of %s", 7, "512");
  buffer_printf(&b, "%s", "");
  CHECK_TEXT(b.data, "page #7 of 512");
  /* A format longer than any first guess at its length. */
  buffer_printf(&b, "%0*d", 3000, 5);
  CHECK_U64(b.length, 14 + 3000);
  buffer_free(&b);
}

TEST(a_buffer_never_passes_its_bound_and_keeps_what_it_had)
{
  buffer b = BUFFER_BOUNDED(10);
  CHECK_OK(buffer_text(&b, "12345"));
  CHECK_STATUS(buffer_text(&b, "678901"), STOW_ERR_BUDGET);
  CHECK_MESSAGE("bound of 10 bytes");
  CHECK_TEXT(b.data, "12345");
  /* The mark stays, so that a writer may check once at the end. */
  CHECK_STATUS(buffer_char(&b, 'x'), STOW_ERR_BUDGET);
  CHECK_STATUS(buffer_printf(&b, "%d", 1), STOW_ERR_BUDGET);
  CHECK(buffer_extend(&b, 1) == NULL);
  CHECK_TEXT(b.data, "12345");
  buffer_clear(&b);
  CHECK_OK(buffer_text(&b, "1234567890"));
  CHECK_U64(b.length, 10);
  buffer_free(&b);
}

TEST(a_size_past_all_memory_is_refused_not_wrapped)
{
  buffer b = BUFFER_INIT;
  CHECK_OK(buffer_text(&b, "x"));
  CHECK(buffer_extend(&b, SIZE_MAX) == NULL);
  CHECK_STATUS(b.status, STOW_ERR_BUDGET);
  CHECK_TEXT(b.data, "x");
  buffer_free(&b);
}

/* Text put together of parts: a part that failed must not be missing without a word. */
TEST(joining_takes_over_the_bytes_or_the_failure)
{
  buffer all = BUFFER_INIT, part = BUFFER_INIT, empty = BUFFER_INIT, small = BUFFER_BOUNDED(2);
  CHECK_OK(buffer_text(&part, "part"));
  CHECK_OK(buffer_join(&all, &part));
  CHECK_OK(buffer_join(&all, &empty));
  CHECK_TEXT(all.data, "part");
  CHECK_STATUS(buffer_text(&small, "abc"), STOW_ERR_BUDGET);
  CHECK_STATUS(buffer_join(&all, &small), STOW_ERR_BUDGET);
  CHECK_STATUS(all.status, STOW_ERR_BUDGET);
  CHECK_TEXT(all.data, "part");
  buffer_free(&all);
  buffer_free(&part);
  buffer_free(&small);
}

TEST_MAIN
