/* The page: its digests, its policy, and that it contains no text of a trace. */
#include "harness.h"

#include <stdlib.h>

#include "report/digest.h"
#include "report/report.h"
#include "report/viewer.h"

static void check_digest(const char *text, size_t count, const char *hex) {
  uint8_t digest[DIGEST_BYTES];
  char got[2 * DIGEST_BYTES + 1];
  digest_sha256(digest, text, count);
  for (int i = 0; i < DIGEST_BYTES; i++) snprintf(got + 2 * i, 3, "%02x", digest[i]);
  CHECK_TEXT(got, hex);
}

TEST(sha256_agrees_with_the_standard)
{
  /* FIPS 180-4 examples, and lengths around the padding's edges. */
  check_digest("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  check_digest("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  check_digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
               "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  char a[119];
  memset(a, 'a', sizeof a);
  check_digest(a, 55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  check_digest(a, 64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
  check_digest(a, 119, "31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb");
}

TEST(base64_agrees_with_the_standard)
{
  static const char *const pairs[][2] = {{"", ""},
                                         {"f", "Zg=="},
                                         {"fo", "Zm8="},
                                         {"foo", "Zm9v"},
                                         {"foob", "Zm9vYg=="},
                                         {"fooba", "Zm9vYmE="},
                                         {"foobar", "Zm9vYmFy"}};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    buffer b = BUFFER_INIT;
    buffer_text(&b, "");
    CHECK_OK(digest_base64(&b, pairs[i][0], strlen(pairs[i][0])));
    CHECK_TEXT(b.data != NULL ? b.data : "", pairs[i][1]);
    buffer_free(&b);
  }
}

/* Records one allocation whose file, function and tag are the given text. */
static uint32_t record_named(recording *r, const char *text) {
  recording_init(r, 0);
  uint32_t name, frame_id, stack_id;
  CHECK_OK(recording_name(r, &name, text, strlen(text)));
  CHECK_OK(recording_frame(r, &frame_id, name, name, 1));
  CHECK_OK(recording_stack(r, &stack_id, &frame_id, 1));
  event e = {.kind = EVENT_ALLOC, .addr = 4096, .bytes = 10, .stack_id = stack_id};
  CHECK_OK(recording_add_event(r, &e, &(origin){.tag_id = name}));
  return name;
}

TEST(nothing_of_the_trace_is_in_the_page_as_text)
{
  static const char hostile[] = "</script><img src=x onerror=alert(1)>";
  recording r;
  uint32_t name = record_named(&r, hostile);
  CHECK_OK(recording_add_setting(&r, hostile, hostile));
  r.error_id = r.device_name_id = name;
  report made;
  CHECK_OK(report_build(&made, &r, hostile, 0));
  buffer page = BUFFER_INIT;
  CHECK_OK(report_html(&made, 1, &page));
  CHECK(strstr(page.data, "onerror") == NULL);
  CHECK(strstr(page.data, "default-src 'none'; script-src 'sha256-") != NULL);
  CHECK(strstr(page.data, "{{") == NULL);
  /* There is one data block and one script, and no other closing tag. */
  int ends = 0;
  for (const char *at = page.data; (at = strstr(at, "</script")) != NULL; at++) ends++;
  CHECK_U64(ends, 2);
  buffer_free(&page);
  report_free(&made);
  recording_free(&r);
}

TEST(a_terminal_gets_no_control_characters)
{
  static const char hostile[] = "evil\033]0;title\007\n";
  recording r;
  record_named(&r, hostile);
  report both[2];
  CHECK_OK(report_build(&both[0], &r, hostile, 0));
  CHECK_OK(report_build(&both[1], &r, hostile, 0));
  buffer text = BUFFER_INIT;
  CHECK_OK(report_text(both, 2, &text, false));
  for (const char *at = text.data; *at != '\0'; at++)
    CHECK(*at == '\n' || (unsigned char)*at >= 0x20);
  buffer_free(&text);
  report_free(&both[0]);
  report_free(&both[1]);
  recording_free(&r);
}

TEST(the_modules_are_all_inside)
{
  size_t count = 0;
  while (viewer_module(count).text != NULL) {
    CHECK(viewer_module(count).length > 100);
    count++;
  }
  CHECK(count >= 8);
  CHECK(viewer_style().length > 100);
}

/* Nothing repeats: every allocation has its own stack, tag, stream, size and address, and long
 * names. Such a page would have 20 MB. */
TEST(a_page_stays_small_whatever_is_in_the_trace)
{
  const uint64_t events = harness_rounds(300000, 100000);
  recording r;
  recording_init(&r, 0);
  static char name[3000];
  uint64_t random = 1;
  for (uint64_t i = 0; i < events; i++) {
    uint64_t draw = harness_random(&random);
    uint32_t name_id, frame_id, stack_id;
    memset(name, 'a' + (int)(i % 26), sizeof name);
    int length = snprintf(name, sizeof name, "/home/%llx/%llx.py", (unsigned long long)draw,
                          (unsigned long long)i);
    if (i % 100 == 0) name[length] = 'x';
    CHECK_OK(recording_name(&r, &name_id, name, i % 100 == 0 ? sizeof name : (size_t)length));
    CHECK_OK(recording_frame(&r, &frame_id, name_id, name_id, (uint32_t)i));
    CHECK_OK(recording_stack(&r, &stack_id, &frame_id, 1));
    event e = {.kind = i % 3 == 2 ? EVENT_SEGMENT_ALLOC : EVENT_ALLOC,
               .addr = draw >> 16 << 9,
               .bytes = draw % 10000000,
               .time_ns = i * 1000000 + draw % 1000000,
               .stack_id = stack_id};
    CHECK_OK(recording_add_event(&r, &e, &(origin){.stream = i, .tag_id = name_id}));
  }
  report made;
  buffer page = BUFFER_INIT;
  CHECK_OK(report_build(&made, &r, "all different", 0));
  CHECK_OK(report_replay(&made));
  CHECK_OK(report_html(&made, 1, &page));
  CHECK(page.length <= 5000000);
  CHECK(events < 300000 || page.length >= 3000000); /* and the space is used */
  harness_note("%.2f MB", (double)page.length / 1e6);
  buffer_free(&page);
  report_free(&made);
  recording_free(&r);
}

TEST_MAIN
