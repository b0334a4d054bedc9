/* Headers of safetensors and GGUF files: valid ones are listed, each kind of invalid one is
 * rejected. */
#include "arrays/tensors.h"

#include <stdlib.h>

#include "harness.h"

static tensors list;

static stow_status read_safe(const char *json, size_t data_bytes) {
  buffer b = BUFFER_INIT;
  uint64_t length = strlen(json);
  for (int i = 0; i < 8; i++) buffer_char(&b, (char)(length >> (8 * i)));
  buffer_text(&b, json);
  if (data_bytes > 0) memset(buffer_extend(&b, data_bytes), 0, data_bytes);
  source from;
  source_open_memory(&from, b.data, b.length, "m.safetensors");
  tensors_free(&list);
  stow_status status = safetensors_read(&list, &from, 1 << 20);
  buffer_free(&b);
  return status;
}

#define W(type, shape, offsets)                                                                    \
  "{\"dtype\":\"" type "\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}"

TEST(safetensors_are_listed)
{
  CHECK_OK(read_safe("{\"__metadata__\":{\"format\":\"pt\"}, \"w\":" W(
                         "BF16", "2,3", "4,16") ",\n"
                                                "\"b\\u00e9\":" W("F32", "", "0,4") ",\"e\":" W(
                                                    "I8", "0,5", "16,16") "}   ",
                     16));
  CHECK_U64(list.count, 3);
  CHECK_TEXT(list.list[0].type_name, "bfloat16");
  CHECK_U64(list.list[0].shape[1], 3);
  CHECK_TEXT(list.list[1].name, "b\xc3\xa9");
  CHECK_U64(list.list[1].count, 1);
  CHECK_U64(list.list[2].bytes, 0);
  CHECK_OK(read_safe("{}", 0));
  CHECK_OK(
      read_safe("{\"a\":" W("F8_E4M3FNUZ", "3", "0,3") ",\"b\":" W("F4", "3,2", "3,6") ",\"c\":" W(
                    "F6_E2M3", "4", "6,9") ",\"d\":" W("F8_E5M2FNUZ", "1", "9,10") "}",
                10));
  CHECK_U64(list.count, 4);
  CHECK_U64(list.list[1].bytes, 3);
}

static void refused(const char *json, size_t data_bytes, const char *why) {
  CHECK_STATUS(read_safe(json, data_bytes), STOW_ERR_FORMAT);
  CHECK_MESSAGE(why);
}

TEST(wrong_safetensors_are_refused)
{
  refused("{\"w\":" W("F32", "1", "0,4") ",\"w\":" W("F32", "1", "4,8") "}", 8, "duplicate");
  refused("{\"w\":" W("F31", "1", "0,4") "}", 4, "unknown type");
  refused("{\"w\":" W("F4", "3", "0,2") "}", 2, "whole bytes");
  refused("{\"w\":" W("F32", "1.5", "0,4") "}", 4, "whole number");
  refused("{\"w\":" W("F32", "-1", "0,4") "}", 4, "whole number");
  refused("{\"w\":" W("F32", "1", "0,4") ",\"v\":" W("F32", "1", "2,6") "}", 6, "overlap");
  refused("{\"w\":" W("F32", "1", "0,4") ",\"v\":" W("F32", "1", "6,10") "}", 10, "unused bytes");
  refused("{\"w\":" W("F32", "1", "0,4") "}", 5, "unused bytes");
  refused("{\"w\":" W("F32", "1", "0,4") "}", 3, "the file ends at byte");
  refused("{\"w\":" W("F32", "2", "0,4") "}", 4, "disagree");
  refused("{\"w\":" W("F32", "4294967296,4294967296", "0,0") "}", 0, "63 bits");
  refused("{\"\xff\":" W("F32", "1", "0,4") "}", 4, "UTF-8");
  refused("{\"w\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "missing");
  refused("{\"w\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1]}}", 4, "duplicate");
  refused("{\"__metadata__\":{\"a\":1}}", 0, "expected a text");
  refused("{\"w\":" W("F32", "1", "0,4") "} x", 4, "text after");
  refused("[]", 0, "does not begin with '{'");
  refused("{\"w\"", 0, "expected ':'");
}

/* ---- GGUF ---- */

static void put(buffer *b, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) buffer_char(b, (char)(value >> (8 * i)));
}

static void put_text(buffer *b, const char *text) {
  put(b, strlen(text), 8);
  buffer_text(b, text);
}

typedef struct gguf_build {
  uint32_t version, type, dims;
  uint64_t row, offset, more_tensors;
  uint32_t key_type, list_type;
  uint8_t bool_value;
  bool twice, key_twice;
  size_t cut;
} gguf_build;

#define GOOD                                                                                       \
  { .version = 3, .type = 2, .dims = 2, .row = 64, .key_type = 7, .list_type = 5, .bool_value = 1 }

static stow_status read_gguf(const gguf_build *g) {
  buffer b = BUFFER_INIT;
  buffer_text(&b, "GGUF");
  put(&b, g->version, 4), put(&b, (g->twice ? 2 : 1) + g->more_tensors, 8), put(&b, 3, 8);
  put_text(&b, "general.alignment"), put(&b, 4, 4), put(&b, 64, 4);
  put_text(&b, g->key_twice ? "general.alignment" : "flag"), put(&b, g->key_type, 4),
      put(&b, g->bool_value, 1);
  put_text(&b, "list"), put(&b, 9, 4), put(&b, g->list_type, 4), put(&b, 2, 8), put(&b, 0, 8);
  for (int i = 0; i < (g->twice ? 2 : 1); i++) {
    put_text(&b, "w"), put(&b, g->dims, 4), put(&b, g->row, 8), put(&b, 3, 8);
    put(&b, g->type, 4), put(&b, g->offset, 8);
  }
  while (b.length % 64 != 0) buffer_char(&b, 0);
  put(&b, 0, 8);
  memset(buffer_extend(&b, 6 * 18 - 8), 0, 6 * 18 - 8);
  CHECK_OK(b.status);
  source from;
  source_open_memory(&from, b.data, b.length - g->cut, "m.gguf");
  tensors_free(&list);
  stow_status status = gguf_read(&list, &from, 1 << 20);
  buffer_free(&b);
  return status;
}

TEST(gguf_tensors_are_listed_slowest_dimension_first)
{
  gguf_build g = GOOD;
  CHECK_OK(read_gguf(&g));
  CHECK_U64(list.count, 1);
  CHECK_TEXT(list.list[0].type_name, "Q4_0");
  CHECK_U64(list.list[0].shape[0], 3);
  CHECK_U64(list.list[0].shape[1], 64);
  CHECK_U64(list.list[0].bytes, 6 * 18);
  CHECK_U64(list.list[0].offset % 64, 0);
}

TEST(gguf_types_of_newer_programs_are_listed)
{
  gguf_build g = GOOD;
  g.type = 40;
  CHECK_OK(read_gguf(&g));
  CHECK_TEXT(list.list[0].type_name, "NVFP4");
  CHECK_U64(list.list[0].bytes, 3 * 36);
  g.type = 41, g.row = 128;
  CHECK_OK(read_gguf(&g));
  CHECK_TEXT(list.list[0].type_name, "Q1_0");
  CHECK_U64(list.list[0].bytes, 3 * 18);
}

TEST(wrong_gguf_files_are_refused)
{
#define WRONG(why, ...)                                                                            \
  do {                                                                                             \
    gguf_build g = GOOD;                                                                           \
    __VA_ARGS__;                                                                                   \
    CHECK_STATUS(read_gguf(&g), STOW_ERR_FORMAT);                                                  \
    CHECK_MESSAGE(why);                                                                            \
  } while (0)
  WRONG("version", g.version = 1);
  WRONG("big-endian", g.version = 3u << 24);
  WRONG("unknown type", g.type = 4);
  WRONG("unknown type", g.type = 99);
  WRONG("4 dimensions", g.dims = 5);
  WRONG("multiple of the block", g.row = 65);
  WRONG("63 bits", g.row = UINT64_C(1) << 62);
  WRONG("aligned", g.offset = 8);
  WRONG("the file ends at byte", g.offset = 64);
  WRONG("neither 0 nor 1", g.bool_value = 2);
  WRONG("unknown type", g.key_type = 13);
  WRONG("nested lists", g.list_type = 9);
  WRONG("duplicate tensor", g.twice = true);
  WRONG("duplicate key", g.key_twice = true);
  WRONG("the file ends at byte", g.cut = 1);
  WRONG("GGUF header", g.more_tensors = UINT64_C(1) << 40);
}

TEST_MAIN
