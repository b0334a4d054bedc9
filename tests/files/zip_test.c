/* The zip reader: valid archives are read at any offset, every kind of invalid one is rejected by
 * name. */
#include "files/zip.h"

#include "../data/npz_build.h"

#define MAX_BYTES (UINT64_C(1) << 20)

/* Opens the archive and reads every member; returns the first failure. */
static stow_status read_all(const buffer *b) {
  source from;
  zip z;
  source_open_memory(&from, b->data, b->length, "t.npz");
  STOW_TRY(zip_open(&z, &from, MAX_BYTES));
  stow_status status = STOW_OK;
  for (size_t i = 0; i < z.count && status == STOW_OK; i++) {
    zip_member m;
    char byte[8192];
    status = zip_member_open(&m, &from, &z.entries[i]);
    for (uint64_t at = 0; at < z.entries[i].bytes && status == STOW_OK;) {
      uint64_t left = z.entries[i].bytes - at;
      size_t part = left < sizeof byte ? (size_t)left : sizeof byte;
      status = zip_member_read(&m, at, byte, part);
      at += part;
    }
    zip_member_close(&m);
  }
  zip_close(&z);
  return status;
}

static void check_refused(const member_build *members, size_t count, const char *why) {
  buffer b = BUFFER_INIT;
  build_zip(&b, members, count);
  CHECK_STATUS(read_all(&b), STOW_ERR_FORMAT);
  CHECK_MESSAGE(why);
  CHECK_MESSAGE("t.npz");
  buffer_free(&b);
}

static char text[40000];

static void fill_text(void) {
  uint64_t random = 7;
  for (size_t i = 0; i < sizeof text; i++) text[i] = (char)('a' + harness_random(&random) % 9);
}

TEST(members_are_read_at_any_offset)
{
  fill_text();
  for (int form = 0; form < 4; form++) {
    member_build m[] = {
        {.name = "one.npy", .bytes = "xyz", .count = 3, .zip64 = form & 1},
        {.name = "two.npy",
         .bytes = text,
         .count = sizeof text,
         .deflate = form & 2,
         .zip64 = form & 1},
    };
    buffer b = BUFFER_INIT;
    build_zip(&b, m, 2);
    source from;
    zip z;
    zip_member member;
    source_open_memory(&from, b.data, b.length, "t.npz");
    CHECK_OK(zip_open(&z, &from, MAX_BYTES));
    CHECK_U64(z.count, 2);
    CHECK(zip_find(&z, "three.npy") == NULL);
    CHECK_OK(zip_member_open(&member, &from, zip_find(&z, "two.npy")));
    uint64_t random = 3;
    char got[5000];
    for (int i = 0; i < 60; i++) {
      size_t at = (size_t)(harness_random(&random) % (sizeof text - sizeof got));
      CHECK_OK(zip_member_read(&member, at, got, sizeof got));
      CHECK(memcmp(got, text + at, sizeof got) == 0);
    }
    CHECK_STATUS(zip_member_read(&member, sizeof text - 1, got, 2), STOW_ERR_FORMAT);
    zip_member_close(&member);
    zip_close(&z);
    CHECK_OK(read_all(&b));
    buffer_free(&b);
  }
}

/* zlib takes the last stored byte before it returns the last bytes made of it. */
TEST(small_deflated_members_are_read_in_two_parts)
{
  char few[400], got[sizeof few];
  uint64_t random = 11;
  for (size_t i = 0; i < sizeof few; i++) few[i] = (char)(harness_random(&random) % 5);
  for (size_t count = 100; count < sizeof few; count++) {
    for (size_t first = 1; first < count; first += 17) {
      member_build m = {.name = "a.npy", .bytes = few, .count = count, .deflate = true};
      buffer b = BUFFER_INIT;
      source from;
      zip z;
      zip_member member;
      build_zip(&b, &m, 1);
      source_open_memory(&from, b.data, b.length, "t.npz");
      CHECK_OK(zip_open(&z, &from, MAX_BYTES));
      CHECK_OK(zip_member_open(&member, &from, &z.entries[0]));
      CHECK_OK(zip_member_read(&member, 0, got, first));
      CHECK_OK(zip_member_read(&member, first, got + first, count - first));
      CHECK(memcmp(got, few, count) == 0);
      zip_member_close(&member);
      zip_close(&z);
      buffer_free(&b);
    }
  }
}

TEST(what_is_wrong_in_a_member_is_named)
{
  fill_text();
#define ONE(...) (&(member_build){.name = "a.npy", .bytes = text, .count = 20000, __VA_ARGS__}), 1
  check_refused(ONE(.flags = 1), "encrypted");
  check_refused(ONE(.disk = 1), "multi-disk");
  check_refused(ONE(.method_override = 12), "only deflate");
  check_refused(ONE(.crc_xor = 1), "checksum");
  check_refused(ONE(.crc_xor = 1, .deflate = true), "checksum");
  check_refused(ONE(.declared_more = -1), "two different sizes");
  check_refused(ONE(.declared_more = -1, .deflate = true), "more than the declared size");
  check_refused(ONE(.declared_more = 1, .deflate = true), "less than the declared size");
  check_refused(ONE(.stored_more = -1, .deflate = true), "before the declared size");
  check_refused(ONE(.stored_more = 1 << 20, .declared_more = 1 << 20), "past the end");
  check_refused(ONE(.local_name_differs = true), "name differs");
  check_refused(ONE(.local_size_differs = true), "size or checksum differs");
  check_refused(ONE(.header_offset = 5), "no member at the offset");
  check_refused(ONE(.header_offset = 1 << 20), "past the end");
}

TEST(names_that_lead_elsewhere_are_refused)
{
#define NAMED(text_, length)                                                                       \
  (&(member_build){.name = (text_), .name_length = (length), .bytes = "x", .count = 1}), 1
  check_refused(NAMED("/b.npy", 6), "absolute");
  check_refused(NAMED("a/../b.npy", 10), "..");
  check_refused(NAMED("a\\b.npy", 7), "backslash");
  check_refused(NAMED("../b.npy", 8), "..");
  check_refused(NAMED("a/..", 4), "..");
  check_refused(NAMED("..", 2), "..");
  check_refused(NAMED("a\0b.npy", 7), "NUL");
}

/* Columns called "No.", ".", "a..b". */
TEST(names_with_dots_are_not_folders)
{
  static const char *const names[] = {"No..npy", "..npy", "a..b.npy", "a/b...npy", "...npy"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    member_build one = {
        .name = names[i], .name_length = strlen(names[i]), .bytes = "x", .count = 1};
    buffer b = BUFFER_INIT;
    build_zip(&b, &one, 1);
    CHECK_OK(read_all(&b));
    buffer_free(&b);
  }
}

TEST(members_that_overlap_or_stand_twice_are_refused)
{
  member_build twice[] = {{.name = "a.npy", .bytes = "x", .count = 1},
                          {.name = "a.npy", .bytes = "y", .count = 1}};
  check_refused(twice, 2, "two members have the same name");
  /* The first claims the bytes of the second as well. */
  member_build inside[] = {
      {.name = "a.npy", .bytes = "x", .count = 1, .stored_more = 20, .declared_more = 20},
      {.name = "b.npy", .bytes = "y", .count = 1}};
  check_refused(inside, 2, "overlap");
}

TEST(a_zip_cut_anywhere_is_refused)
{
  fill_text();
  member_build m = {.name = "a.npy", .bytes = text, .count = 300, .deflate = true};
  buffer b = BUFFER_INIT;
  build_zip(&b, &m, 1);
  size_t whole = b.length;
  for (b.length = 0; b.length < whole; b.length++) CHECK_STATUS(read_all(&b), STOW_ERR_FORMAT);
  CHECK_OK(read_all(&b));
  buffer_free(&b);
}

TEST(a_directory_past_the_budget_is_not_read)
{
  member_build m = {.name = "a.npy", .bytes = "x", .count = 1};
  buffer b = BUFFER_INIT;
  build_zip(&b, &m, 1);
  source from;
  zip z;
  source_open_memory(&from, b.data, b.length, "t.npz");
  CHECK_STATUS(zip_open(&z, &from, 64), STOW_ERR_BUDGET);
  buffer_free(&b);
}

/* Adds the piece of `text` from `from` on to the sums. */
static bool add_piece(zip_sums *s, uint64_t from, uint64_t count) {
  return zip_sums_add(s, from, count, (uint32_t)crc32(0, (const Bytef *)text + from, (uInt)count));
}

TEST(pieces_in_any_order_make_one_checksum)
{
  enum { PIECES = 60, BYTES = 5 };
  fill_text();
  for (int wrong = 0; wrong < 2; wrong++) {
    zip_sums *s;
    uint32_t crc = (uint32_t)crc32(0, (const Bytef *)text, PIECES * BYTES);
    CHECK_OK(zip_sums_open(&s, PIECES * BYTES, wrong ? ~crc : crc));
    for (uint64_t i = 0; i < PIECES - 1; i++) {
      CHECK(add_piece(s, i * 37 % PIECES * BYTES, BYTES));
      CHECK(add_piece(s, i * 37 % PIECES * BYTES, BYTES)); /* again: ignored */
      CHECK(add_piece(s, 0, 3 * BYTES));                   /* overlaps, sooner or later */
    }
    for (uint64_t i = 0; i < PIECES; i++)
      CHECK(add_piece(s, i * BYTES, BYTES) == (wrong == 0 || i < (PIECES - 1) * 37 % PIECES));
    CHECK(zip_sums_wants(s) == (wrong == 1));
    zip_sums_close(s);
  }
}

TEST(a_member_in_too_many_pieces_is_not_checked)
{
  zip_sums *s;
  CHECK_OK(zip_sums_open(&s, 4 * ZIP_SUMS_MOST, 1));
  for (uint64_t i = 0; i < ZIP_SUMS_MOST; i++) CHECK(zip_sums_add(s, 2 * i, 1, 0));
  CHECK(zip_sums_wants(s));
  CHECK(zip_sums_add(s, 2 * ZIP_SUMS_MOST, 1, 0));
  CHECK(!zip_sums_wants(s));
  zip_sums_close(s);
}

TEST_MAIN
