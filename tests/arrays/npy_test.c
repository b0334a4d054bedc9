/* npy headers: written as NumPy 2.4 writes them, byte for byte; hostile ones are rejected with the
 * position. */
#include "arrays/npy.h"
#include "harness.h"

/* Checks what numpy.save writes: the dict, then spaces up to `total` bytes less one, then a
 * newline. */
static void check_written(dtype type, bool fortran, const uint64_t *shape, uint32_t dims,
                          const char *dict, size_t total) {
  buffer out = BUFFER_INIT;
  CHECK_OK(npy_write_header(&out, type, fortran, shape, dims));
  CHECK_U64(out.length, total);
  CHECK(memcmp(out.data, "\x93NUMPY\x01\x00", 8) == 0);
  CHECK_U64((unsigned char)out.data[8] | (unsigned char)out.data[9] << 8, total - 10);
  CHECK(memcmp(out.data + 10, dict, strlen(dict)) == 0);
  for (size_t i = 10 + strlen(dict); i < total - 1; i++) CHECK(out.data[i] == ' ');
  CHECK(out.data[total - 1] == '\n');
  npy_header h;
  uint64_t bytes;
  CHECK_OK(npy_header_bytes(&bytes, out.data, out.length, "x.npy"));
  CHECK_U64(bytes, total);
  CHECK_OK(npy_read_header(&h, out.data, out.length, UINT64_MAX, "x.npy"));
  CHECK(h.type == type && h.fortran_order == fortran && h.dims == dims);
  for (uint32_t i = 0; i < dims; i++) CHECK_U64(h.shape[i], shape[i]);
  buffer_free(&out);
}

TEST(headers_are_written_as_numpy_writes_them)
{
  check_written(DTYPE_F32, false, (uint64_t[]){2, 3}, 2,
                "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 128);
  check_written(DTYPE_I8, false, NULL, 0, "{'descr': '|i1', 'fortran_order': False, 'shape': (), }",
                128);
  check_written(DTYPE_F64, false, (uint64_t[]){5}, 1,
                "{'descr': '<f8', 'fortran_order': False, 'shape': (5,), }", 128);
  check_written(DTYPE_U16, true, (uint64_t[]){2, 3}, 2,
                "{'descr': '<u2', 'fortran_order': True, 'shape': (2, 3), }", 128);
}

static stow_status read_text(npy_header *h, const char *dict, uint64_t file_bytes) {
  static char bytes[16384];
  size_t length = strlen(dict);
  memcpy(bytes, "\x93NUMPY\x01\x00", 8);
  bytes[8] = (char)(length & 0xff);
  bytes[9] = (char)(length >> 8);
  memcpy(bytes + 10, dict, length);
  return npy_read_header(h, bytes, 10 + length, file_bytes, "x.npy");
}

#define DICT(descr, order, shape)                                                                  \
  "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape "}\n"

TEST(headers_any_numpy_wrote_are_read)
{
  npy_header h;
  CHECK_OK(read_text(&h, DICT("'<f4'", "False", "(2L, 3L)"), UINT64_MAX));
  CHECK_U64(h.data_bytes, 24);
  CHECK_OK(
      read_text(&h, "{\"shape\":(7,),'fortran_order' : True , 'descr':'>i8' ,}  \n", UINT64_MAX));
  CHECK(h.big_endian && h.type == DTYPE_I64 && h.fortran_order);
  CHECK_OK(read_text(&h, DICT("'|V2'", "False", "(4,)"), UINT64_MAX));
  CHECK(h.type == DTYPE_NONE && h.item_bytes == 2);
  CHECK_OK(read_text(&h, DICT("'<U3'", "False", "(4,)"), UINT64_MAX));
  CHECK_U64(h.data_bytes, 48);
  CHECK_OK(read_text(&h, DICT("'<M8[ns]'", "False", "(0, 9)"), UINT64_MAX));
  CHECK_U64(h.count, 0);
  CHECK_OK(read_text(&h, DICT("'<c16'", "False", "()"), UINT64_MAX));
  CHECK_U64(h.data_bytes, 16);
}

TEST(types_are_read_without_an_order_and_by_name_as_numpy_reads_them)
{
  static const struct {
    const char *text;
    dtype type;
  } types[] = {
      {DICT("'f8'", "False", "(1,)"), DTYPE_F64},
      {DICT("'float32'", "False", "(1,)"), DTYPE_F32},
      {DICT("'d'", "False", "(1,)"), DTYPE_F64},
      {DICT("u'<f8'", "False", "(1,)"), DTYPE_F64},
      {DICT("'b'", "False", "(1,)"), DTYPE_I8},
      {DICT("'b1'", "False", "(1,)"), DTYPE_BOOL},
      {DICT("'?'", "False", "(1,)"), DTYPE_BOOL},
      {DICT("'uint8'", "False", "(1,)"), DTYPE_U8},
      {DICT("'<int64'", "False", "(1,)"), DTYPE_I64},
  };
  npy_header h;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    CHECK_OK(read_text(&h, types[i].text, UINT64_MAX));
    CHECK(h.type == types[i].type && !h.big_endian);
  }
  CHECK_OK(read_text(&h, DICT("'>d'", "False", "(1,)"), UINT64_MAX));
  CHECK(h.type == DTYPE_F64 && h.big_endian);
  CHECK_OK(read_text(&h, DICT("'|U2'", "False", "(1,)"), UINT64_MAX));
  CHECK_TEXT(h.descr, "<U2");
  CHECK_OK(read_text(&h, DICT("'S3'", "False", "(1,)"), UINT64_MAX));
  CHECK_TEXT(h.descr, "|S3");
  CHECK_STATUS(read_text(&h, DICT("'O'", "False", "(1,)"), UINT64_MAX), STOW_ERR_FORMAT);
  CHECK_STATUS(read_text(&h, DICT("'<'", "False", "(1,)"), UINT64_MAX), STOW_ERR_FORMAT);
}

TEST(headers_that_lie_are_refused_with_the_reason)
{
  static const struct {
    const char *dict, *words;
  } bad[] = {
      {DICT("'|O'", "False", "(2,)"), "Python objects"},
      {DICT("[('a', '<f4')]", "False", "(2,)"), "structured"},
      {DICT("'<f4'", "False", "(-2,)"), "negative"},
      {DICT("'<f4'", "0", "(2,)"), "neither True nor False"},
      {DICT("'<f4'", "False", "(2)"), "not a tuple"},
      {DICT("'<f4'", "False", "2"), "not a tuple"},
      {DICT("'<f4'", "False", "(99999999999999999999,)"), "2^64"},
      {DICT("'<f8'", "False", "(4294967296, 4294967296, 4)"), "64 bits"},
      {DICT("'<f8'", "False", "(9223372036854775807,)"), "63 bits"},
      {DICT("'<f8'", "False", "(0, 4294967296, 4294967296, 4294967296)"), "64 bits"},
      {DICT("'<f3'", "False", "(2,)"), "unknown type"},
      {DICT("'<q8'", "False", "(2,)"), "unknown kind"},
      {DICT("'float'", "False", "(2,)"), "no width"},
      {DICT("''", "False", "(2,)"), "unknown type"},
      {"{'descr': '<f4', 'shape': (2,)}\n", "missing"},
      {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}\n",
       "duplicate key"},
      {"{'descr': '<f4', 'x': 1, 'fortran_order': False, 'shape': (2,)}\n", "unknown key"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} + 1\n", "after the dict"},
      {"__import__('os')\n", "not a dict"},
      {"{'descr': '<f4", "unclosed quote"},
      {"", "not a dict"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    npy_header h;
    CHECK_STATUS(read_text(&h, bad[i].dict, UINT64_MAX), STOW_ERR_FORMAT);
    CHECK_MESSAGE(bad[i].words);
    CHECK_MESSAGE("x.npy");
  }
  npy_header h;
  CHECK_STATUS(read_text(&h, DICT("'<f4'", "False", "(1000,)"), 500), STOW_ERR_FORMAT);
  CHECK_MESSAGE("declares 4000 bytes");
  CHECK_STATUS(npy_read_header(&h, "\x93NUMPY\x09\x00__", 10, 10, "x.npy"), STOW_ERR_FORMAT);
  CHECK_MESSAGE("version 9.0");
  CHECK_STATUS(npy_read_header(&h, "PK\x03\x04______", 10, 10, "x.npy"), STOW_ERR_FORMAT);
}

TEST(bfloat16_is_refused_where_the_format_has_none)
{
  buffer out = BUFFER_INIT;
  CHECK_STATUS(npy_write_header(&out, DTYPE_BF16, false, NULL, 0), STOW_ERR_UNSUPPORTED);
  CHECK_U64(out.length, 0);
}

TEST_MAIN
