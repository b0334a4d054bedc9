/* The pickle reader: every form of the plain subset, and everything it must reject, with its
 * message. */
#include "files/pickle.h"

#include <stdlib.h>
#include <zlib.h>

#include "base/buffer.h"
#include "harness.h"
#include "recordings/recording_file.h"

static stow_status read_with(recording *r, const void *bytes, size_t count,
                             const input_limits *limits, uint64_t work) {
  input in;
  recording_init(r, 0);
  stow_status status = input_open_memory(&in, bytes, count, "file", limits);
  if (status != STOW_OK) return status;
  status = recording_read_input(r, &in, KIND_SNAPSHOT, work);
  input_close(&in);
  if (status != STOW_OK) recording_free(r);
  return status;
}

static stow_status read_bytes(recording *r, const void *bytes, size_t count) {
  return read_with(r, bytes, count, NULL, 0);
}

#define BYTES(text)   (text), sizeof(text) - 1
#define READ(r, text) read_bytes((r), (text), sizeof(text) - 1)

/* {"segments": [], "device_traces": [[{"action": "alloc", "addr": 512, "size": …}]]} with `value`
 * (opcodes) as the size, so that every form of number passes through the whole reader. */
static stow_status read_size(recording *r, const char *value, size_t count) {
  static const char head[] = "\x80\x02}(X\x08\0\0\0segments]X\x0d\0\0\0device_traces](](}("
                             "X\x06\0\0\0actionX\x05\0\0\0allocX\x04\0\0\0addrM\0\x02"
                             "X\x04\0\0\0size";
  static const char tail[] = "ueeu.";
  buffer b = BUFFER_INIT;
  buffer_append(&b, head, sizeof head - 1);
  buffer_append(&b, value, count);
  buffer_append(&b, tail, sizeof tail - 1);
  stow_status status = read_bytes(r, b.data, b.length);
  buffer_free(&b);
  return status;
}

TEST(every_form_of_a_number_is_read)
{
  static const struct form {
    const char *bytes;
    size_t count;
    uint64_t value;
  } forms[] = {
      {BYTES("K\x07"), 7},
      {BYTES("M\x34\x12"), 0x1234},
      {BYTES("J\x78\x56\x34\x12"), 0x12345678},
      {BYTES("\x8a\x00"), 0},
      {BYTES("\x8a\x05\x00\x00\x00\x00\x01"), UINT64_C(1) << 32},
      {BYTES("\x8a\x08\x01\x00\x00\x00\x00\x00\x00\x10"), UINT64_C(0x1000000000000001)},
      {BYTES("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00"), UINT64_MAX},
      {BYTES("\x8b\x02\x00\x00\x00\x00\x01"), 256},
  };
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    recording r;
    CHECK_OK(read_size(&r, forms[i].bytes, forms[i].count));
    CHECK_U64(r.event_count, 1);
    CHECK_U64(r.events[0].bytes, forms[i].value);
    CHECK_U64(r.bad_values, 0);
    recording_free(&r);
  }
}

TEST(a_size_that_is_none_skips_its_entry_and_is_counted)
{
  static const struct form {
    const char *bytes;
    size_t count;
  } forms[] = {
      {BYTES("J\xff\xff\xff\xff")},                                /* -1 */
      {BYTES("\x8a\x01\x80")},                                     /* -128 */
      {BYTES("\x8a\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01")}, /* above 64 bits */
      {BYTES("N")},
      {BYTES("\x88")},
      {BYTES("X\x01\0\0\0a")},
      {BYTES("U\x01z")},
      {BYTES("B\x02\0\0\0ab")}, /* bytes */
      {BYTES("C\x02yz")},
      {BYTES("\x96\x02\0\0\0\0\0\0\0ab")},
      {BYTES("G\x40\0\0\0\0\0\0\0")},
      {BYTES("}")},
      {BYTES("]")},
      {BYTES("\x8f")},
      {BYTES("(K\x01K\x02K\x03t")},
      {BYTES("K\x01\x85")},
      {BYTES("K\x01K\x02K\x03\x87")},
      {BYTES("(K\x01K\x02l")},
      {BYTES("(X\x01\0\0\0aK\x02"
             "d")},
      {BYTES(")")},
  };
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    recording r;
    CHECK_OK(read_size(&r, forms[i].bytes, forms[i].count));
    CHECK_U64(r.event_count, 0);
    CHECK_U64(r.skipped_events, 1);
    CHECK_U64(r.bad_values, 1);
    recording_free(&r);
  }
}

TEST(opcodes_that_would_run_code_are_refused_by_name_and_offset)
{
  static const struct op {
    const char *bytes;
    size_t count;
    const char *name, *offset;
  } ops[] = {
      {BYTES("\x80\x02"
             "cos\nsystem\n(X\x02\0\0\0idtR."),
       "GLOBAL", "byte 2"},
      {BYTES("\x80\x04\x8c\x02os\x8c\x06system\x93)R."), "STACK_GLOBAL", "byte 14"},
      {BYTES("\x80\x02)R."), "REDUCE", "byte 3"},
      {BYTES("\x80\x02}}b."), "BUILD", "byte 4"},
      {BYTES("\x80\x02(ios\nsystem\n."), "INST", "byte 3"},
      {BYTES("\x80\x02(o."), "OBJ", "byte 3"},
      {BYTES("\x80\x02))\x81."), "NEWOBJ", "byte 4"},
      {BYTES("\x80\x04))}\x92."), "NEWOBJ_EX", "byte 5"},
      {BYTES("\x80\x02\x82\x01."), "EXT1", "byte 2"},
      {BYTES("\x80\x02\x83\x01\x01."), "EXT2", "byte 2"},
      {BYTES("\x80\x02\x84\x01\x01\x01\x01."), "EXT4", "byte 2"},
      {BYTES("\x80\x02Pid\n."), "PERSID", "byte 2"},
      {BYTES("\x80\x02K\x01Q."), "BINPERSID", "byte 4"},
  };
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
    recording r;
    CHECK_STATUS(read_bytes(&r, ops[i].bytes, ops[i].count), STOW_ERR_FORMAT);
    CHECK_MESSAGE(ops[i].name);
    CHECK_MESSAGE(ops[i].offset);
    CHECK_MESSAGE("would run code");
  }
}

TEST(what_is_no_snapshot_says_what_it_is)
{
  recording r;
  CHECK_STATUS(READ(&r, ""), STOW_ERR_FORMAT);
  CHECK_MESSAGE("empty");
  CHECK_STATUS(READ(&r, "\x80\x02K\x05."), STOW_ERR_FORMAT);
  CHECK_MESSAGE("an int");
  CHECK_STATUS(READ(&r, "\x80\x02}X\x01\0\0\0aK\x01s."), STOW_ERR_FORMAT);
  CHECK_MESSAGE("another dict");
  CHECK_STATUS(READ(&r, "\x80\x02}X\x08\0\0\0segmentsK\x01s."), STOW_ERR_FORMAT);
  CHECK_MESSAGE("\"segments\" is an int");
  CHECK_STATUS(READ(&r, "\x80\x06."), STOW_ERR_UNSUPPORTED);
  CHECK_MESSAGE("protocol 6");
  CHECK_STATUS(READ(&r, "\x80\x02I5\n."), STOW_ERR_UNSUPPORTED);
  CHECK_MESSAGE("protocol 0");
  CHECK_STATUS(READ(&r, "\x80\x02\xfe."), STOW_ERR_FORMAT);
  CHECK_MESSAGE("byte 2 is 0xfe");
  CHECK_STATUS(READ(&r, "\x80\x05\x97."), STOW_ERR_FORMAT);
  CHECK_MESSAGE("out-of-band");
}

TEST(a_broken_stack_or_memo_is_refused_with_its_place)
{
  static const struct bad {
    const char *bytes;
    size_t count;
    const char *words;
  } bads[] = {
      {BYTES("\x80\x02."), "nothing on the stack"},
      {BYTES("\x80\x02K\x01K\x02."), "more than one value"},
      {BYTES("\x80\x02u."), "no mark"},
      {BYTES("\x80\x02"
             "0."),
       "nothing on the stack to pop"},
      {BYTES("\x80\x02"
             "2."),
       "nothing on the stack to duplicate"},
      {BYTES("\x80\x02"
             "h\x05."),
       "entry 5, which was never set"},
      {BYTES("\x80\x02q\x00."), "nothing on the stack to remember"},
      {BYTES("\x80\x02}(K\x01u."), "a dict key without a value"},
      {BYTES("\x80\x02K\x01K\x02"
             "a."),
       "items added to an int"},
      {BYTES("\x80\x02(K\x01u."), "without a list or dict"},
      {BYTES("\x80\x02}q\x00(h\x00K\x01u"
             "h\x00(K\x01K\x02u."),
       "already used elsewhere"},
      {BYTES("\x80\x02K\x01\x86."), "than the stack holds"},
      {BYTES("\x80\x02T\xff\xff\xff\xff."), "negative length"},
  };
  for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
    recording r;
    CHECK_STATUS(read_bytes(&r, bads[i].bytes, bads[i].count), STOW_ERR_FORMAT);
    CHECK_MESSAGE(bads[i].words);
    CHECK_MESSAGE("byte ");
  }
}

static char *slurp(const char *name, size_t *count) {
  gzFile file = gzopen(harness_data(name), "rb");
  CHECK(file != NULL);
  char *bytes = malloc(4 << 20);
  CHECK(bytes != NULL);
  int got = gzread(file, bytes, 4 << 20);
  CHECK(got > 0);
  gzclose(file);
  *count = (size_t)got;
  return bytes;
}

TEST(a_snapshot_cut_anywhere_is_cut_short)
{
  size_t count;
  char *bytes = slurp("fragmentation.pickle.gz", &count);
  size_t stride = harness_rounds(1, 5);
  for (size_t cut = 2; cut < count; cut += cut < 4000 ? stride : 511 * stride) {
    recording r;
    char *exact = malloc(cut); /* so that a sanitizer detects a read past the end */
    CHECK(exact != NULL);
    memcpy(exact, bytes, cut);
    CHECK_STATUS(read_bytes(&r, exact, cut), STOW_ERR_FORMAT);
    CHECK_MESSAGE("truncated");
    free(exact);
  }
  free(bytes);
}

TEST(a_flipped_bit_never_does_harm)
{
  size_t count, fine = 0;
  char *bytes = slurp("one_spike.pickle.gz", &count);
  size_t stride = harness_rounds(1, 7);
  for (size_t at = 0; at < count; at += stride) {
    for (int bit = 0; bit < 8; bit += 3) {
      recording r;
      bytes[at] ^= (char)(1 << bit);
      if (read_bytes(&r, bytes, count) == STOW_OK) {
        fine++;
        recording_free(&r);
      } else {
        CHECK(stow_status_message()[0] != '\0');
      }
      bytes[at] ^= (char)(1 << bit);
    }
  }
  harness_note("%zu bytes, %zu flips left it readable", count, fine);
  free(bytes);
}

/* ---- hostile sizes ---- */

static buffer gzip_of(const void *bytes, size_t count, size_t times) {
  z_stream z = {0};
  buffer out = BUFFER_INIT;
  unsigned char made[1 << 16];
  CHECK(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  for (size_t i = 0; i <= times; i++) {
    z.next_in = (Bytef *)(uintptr_t)bytes;
    z.avail_in = i < times ? (uInt)count : 0;
    do {
      z.next_out = made;
      z.avail_out = sizeof made;
      deflate(&z, i < times ? Z_NO_FLUSH : Z_FINISH);
      buffer_append(&out, made, sizeof made - z.avail_out);
    } while (z.avail_out == 0);
  }
  deflateEnd(&z);
  return out;
}

TEST(a_gz_bomb_is_stopped_by_its_ratio)
{
  static char nothing[1 << 20]; /* FRAME opcodes would do; zeros are enough to inflate */
  memset(nothing, 'N', sizeof nothing);
  buffer bomb = gzip_of(nothing, sizeof nothing, 72);
  recording r;
  CHECK(bomb.length < 400 << 10);
  CHECK_STATUS(read_with(&r, bomb.data, bomb.length, NULL, UINT64_C(1) << 40), STOW_ERR_BUDGET);
  CHECK_MESSAGE("bomb");
  CHECK_STATUS(read_with(&r, bomb.data, bomb.length, &(input_limits){.max_bytes = 1 << 20}, 0),
               STOW_ERR_BUDGET);
  CHECK_MESSAGE("1 MiB");
  buffer_free(&bomb);
}

TEST(a_truncated_or_damaged_gz_says_where)
{
  recording r;
  FILE *file = fopen(harness_data("leak.pickle.gz"), "rb");
  static char bytes[200 << 10];
  size_t count = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  CHECK_STATUS(read_bytes(&r, bytes, count - 1000), STOW_ERR_FORMAT);
  CHECK_MESSAGE("truncated");
  bytes[count / 2] ^= 0x40;
  CHECK_STATUS(read_bytes(&r, bytes, count), STOW_ERR_FORMAT);
  CHECK_MESSAGE("byte ");
}

TEST(deep_nesting_and_huge_claims_cost_nothing)
{
  recording r;
  buffer b = BUFFER_INIT;
  buffer_append(&b, "\x80\x02", 2);
  for (int i = 0; i < 100000; i++) buffer_append(&b, "](", 2);
  CHECK_STATUS(read_bytes(&r, b.data, b.length), STOW_ERR_FORMAT);
  CHECK_MESSAGE("deeper than 512");
  buffer_clear(&b);
  buffer_append(&b, "\x80\x02", 2);
  for (int i = 0; i < 1000000; i++) buffer_char(&b, ']');
  for (int i = 0; i < 999999; i++) buffer_char(&b, 'a');
  buffer_char(&b, '.');
  CHECK_STATUS(read_bytes(&r, b.data, b.length), STOW_ERR_FORMAT);
  CHECK_MESSAGE("not a memory snapshot");
  CHECK_STATUS(read_with(&r, b.data, b.length, NULL, 1 << 20), STOW_ERR_BUDGET);
  CHECK_MESSAGE("1 MiB of working memory");
  buffer_free(&b);
  CHECK_STATUS(READ(&r, "\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7fx."), STOW_ERR_FORMAT);
  CHECK_MESSAGE("truncated");
  CHECK_STATUS(READ(&r, "\x80\x02X\xff\xff\xff\xffx."), STOW_ERR_FORMAT);
  CHECK_MESSAGE("truncated");
  CHECK_STATUS(READ(&r, "\x80\x02]r\xff\xff\xff\xff."), STOW_ERR_FORMAT); /* memo index 2^32-1 */
}

TEST_MAIN
