/* Text: no control sequence and no secret passes; safe text is unchanged. */
#include "base/text.h"
#include "base/utf8.h"

#include "base/status.h"
#include "harness.h"

static const char *show(const char *text) {
  static char to[512];
  return text_show(to, sizeof to, text);
}

TEST(what_a_terminal_obeys_becomes_a_question_mark)
{
  CHECK_TEXT(show("a\x1b[31mb\x07"), "a?[31mb?");
  CHECK_TEXT(show("c1 \xc2\x9b"
                  "31m \xc2\x85"),
             "c1 ?31m ?");
  CHECK_TEXT(show("\x9b"
                  "31m"),
             "?31m");                                                  /* C1 as one byte */
  CHECK_TEXT(show("x\xe2\x80\xae y\xe2\x81\xa6z\xd8\x9c"), "x? y?z?"); /* RLO, LRI, ALM */
  CHECK_TEXT(show("a\xe2\x80\xa8"
                  "b"),
             "a?b");                                   /* line separator */
  CHECK_TEXT(show("\xed\xa0\x80 \xc0\xaf"), "??? ??"); /* a surrogate, an overlong '/' */
  CHECK_TEXT(show("one\ntwo\tthree\x7f"), "one?two?three?");
  CHECK_TEXT(show("\xf3\xa0\x81\xa1"), "?"); /* a tag character */
}

TEST(characters_of_every_script_stay)
{
  const char *all = "Größe, שלום, 日本語, emoji \xf0\x9f\x98\x80, nbsp\xc2\xa0.";
  CHECK_TEXT(show(all), all);
}

TEST(lines_stay_where_they_are_wanted)
{
  char text[] = "a\n\tb\x1b\n";
  size_t length = text_clean(text, sizeof text - 1, true);
  text[length] = '\0';
  CHECK_TEXT(text, "a\n\tb?\n");
}

TEST(a_cut_does_not_leave_half_a_letter)
{
  char to[6];
  CHECK_TEXT(text_show(to, sizeof to, "abc\xe2\x82\xac"), "abc");
  CHECK_TEXT(text_show(to, sizeof to, "abcd\xc3\xa9"), "abcd");
}

TEST(urls_lose_passwords_queries_and_fragments)
{
  CHECK_TEXT(show("https://u:p@h.org:81/x.npy?sig=s#f"), "https://h.org:81/x.npy");
  CHECK_TEXT(show("HTTP://token@h/x"), "HTTP://h/x");
  CHECK_TEXT(show("http://u:p a\"ss@h/x"), "http://h/x");
  CHECK_TEXT(show("http://u:pa/ss@h/x?q"), "http://h/x"); /* malformed, and still a password */
  CHECK_TEXT(show("http://u:a@b@h/x"), "http://h/x");
  CHECK_TEXT(show("no file http:/u:p@h/x?q, nor HTTPS:/u:p@h/y"),
             "no file http:/h/x, nor HTTPS:/h/y"); /* mistyped: a file name */
  CHECK_TEXT(show("c:/a?b:/c@d xhttp:/a"), "c:/a?b:/c@d xhttp:/a");
  CHECK_TEXT(show("http://h/a@b/c"), "http://h/a@b/c");
  CHECK_TEXT(show("http://[::1]:80/x?y"), "http://[::1]:80/x");
  CHECK_TEXT(show("http://h?sig=s"), "http://h");
  CHECK_TEXT(show("s3://key:secret@bucket/x"), "s3://bucket/x");
}

TEST(messages_are_one_safe_line_without_secrets)
{
  stow_fail(STOW_ERR_IO, "%s: not there (404), nor \"%s\"; name \x1b[2J\n", "http://u:pw@h/x?sig=1",
            "https://h/y?sig=2");
  CHECK_TEXT(stow_status_message(), "http://h/x: not there (404), nor \"https://h/y\"; name ?[2J?");
}

TEST(command_lines_lose_what_options_keep_secret)
{
  char words[] = "prog\0--header\0X-Key: SECRET\0--api-key=SECRET\0http://u:SECRET@h/x?s=SECRET\0"
                 "--token\0SECRET\0--keep=this\0";
  size_t length = sizeof words - 2;
  text_hide_command(words, &length);
  for (size_t i = 0; i < length; i++)
    if (words[i] == '\0') words[i] = ' ';
  CHECK_TEXT(words, "prog --header … --api-key=… http://h/x --token … --keep=this");
}

TEST(origins_are_scheme_host_and_port)
{
  CHECK(text_same_origin("http://h/x", "HTTP://u:p@H:80/y?z"));
  CHECK(text_same_origin("https://h:443", "https://h/"));
  CHECK(text_same_origin("http://[::1]/a", "http://[::1]:80/b"));
  CHECK(!text_same_origin("http://h/", "https://h/"));
  CHECK(!text_same_origin("http://h:80/", "http://h:81/"));
  CHECK(!text_same_origin("http://h/", "http://h.evil/"));
  CHECK(!text_same_origin("http://h/", "http://h@evil/"));
  CHECK(!text_same_origin("http://h/", "http://evil\\@h/"));
  CHECK(!text_same_origin("http://h/", "file://h/"));
}

TEST(every_character_is_read_as_it_was_written)
{
  static const uint32_t edges[] = {0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xffff, 0x10000};
  static const size_t lengths[] = {1, 2, 2, 3, 3, 3, 3, 4};
  unsigned char bytes[4];
  uint32_t point;
  for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
    CHECK_U64(utf8_put(bytes, edges[i]), lengths[i]);
  for (uint32_t c = 0; c <= 0x10ffff; c += c < 0x3000 ? 1 : 61) {
    if (c >= 0xd800 && c < 0xe000) continue;
    size_t count = utf8_put(bytes, c);
    CHECK_U64(utf8_take(bytes, count, &point), count);
    CHECK_U64(point, c);
  }
}

TEST_MAIN
