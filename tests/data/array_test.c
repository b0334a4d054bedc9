/* Arrays: opened from every kind of file, read in file order and by rows; invalid ones are
 * rejected. */
#include "data/array.h"

#include <stdlib.h>
#include <unistd.h>

#include "data/budget.h"
#include "data/inspect.h"
#include "npz_build.h"

static const budget small = {.bytes = BUDGET_LEAST};

/* Writes a file in the test's current folder; the caller removes it. */
static const char *write_file(const char *name, const void *bytes, size_t count) {
  static char path[128];
  snprintf(path, sizeof path, "/tmp/stowage-array-%ld-%s", (long)getpid(), name);
  FILE *f = fopen(path, "wb");
  CHECK(f != NULL && fwrite(bytes, 1, count, f) == count && fclose(f) == 0);
  return path;
}

TEST(rows_of_both_orders_are_the_same)
{
  /* Item (i, j, k) holds 100 i + 10 j + k. */
  uint64_t shape[3] = {5, 3, 4};
  for (int fortran = 0; fortran < 2; fortran++) {
    buffer b = BUFFER_INIT;
    CHECK_OK(npy_write_header(&b, DTYPE_I16, fortran, shape, 3));
    int16_t values[60];
    for (int i = 0; i < 5; i++)
      for (int j = 0; j < 3; j++)
        for (int k = 0; k < 4; k++)
          values[fortran ? i + 5 * (j + 3 * k) : (i * 3 + j) * 4 + k] =
              (int16_t)(100 * i + 10 * j + k);
    buffer_append(&b, values, sizeof values);
    source from;
    array a;
    source_open_memory(&from, b.data, b.length, "t.npy");
    CHECK_OK(array_open_npy(&a, &from));
    CHECK_U64(array_rows(&a), 5);
    CHECK_U64(array_row_items(&a), 12);
    int16_t rows[24];
    CHECK_OK(array_read_rows(&a, 2, 2, rows));
    for (int i = 0; i < 2; i++)
      for (int j = 0; j < 3; j++)
        for (int k = 0; k < 4; k++) CHECK(rows[(i * 3 + j) * 4 + k] == 100 * (i + 2) + 10 * j + k);
    CHECK_STATUS(array_read_rows(&a, 4, 2, rows), STOW_ERR_INVALID);
    CHECK_STATUS(array_read(&a, 59, rows, 2), STOW_ERR_INVALID);
    array_close(&a);
    buffer_free(&b);
  }
}

TEST(big_endian_values_come_in_the_machines_order)
{
  static const char file[] = "\x93NUMPY\x01\x00\x38\x00{'descr': '>i4', 'fortran_order': False, "
                             "'shape': (2,)}\n\0\0\0\1\xff\xff\xff\xfe";
  source from;
  array a;
  char type[ARRAY_DTYPE_MAX];
  source_open_memory(&from, file, sizeof file - 1, "t.npy");
  CHECK_OK(array_open_npy(&a, &from));
  int32_t values[2];
  CHECK_OK(array_read(&a, 0, values, 2));
  CHECK(values[0] == 1 && values[1] == -2);
  CHECK_TEXT(array_dtype(&a, type), ">i4");
}

TEST(members_are_named_behind_a_colon)
{
  buffer one = BUFFER_INIT, two = BUFFER_INIT, file = BUFFER_INIT;
  build_npy(&one, DTYPE_U8, "\1\2\3", 3);
  build_npy(&two, DTYPE_U8, "\7", 1);
  member_build m[] = {{.name = "one.npy", .bytes = one.data, .count = one.length},
                      {.name = "two.npy", .bytes = two.data, .count = two.length, .deflate = true}};
  build_zip(&file, m, 2);
  const char *path = write_file("m.npz", file.data, file.length);
  char spec[200];
  array a;
  uint8_t value;
  snprintf(spec, sizeof spec, "%s:two", path);
  CHECK_OK(array_open(&a, spec, NULL));
  CHECK_OK(array_read(&a, 0, &value, 1));
  CHECK(value == 7);
  array_close(&a);
  CHECK_STATUS(array_open(&a, path, NULL), STOW_ERR_INVALID);
  CHECK_MESSAGE("one.npy, two.npy");
  snprintf(spec, sizeof spec, "%s:three", path);
  CHECK_STATUS(array_open(&a, spec, NULL), STOW_ERR_NOT_FOUND);
  CHECK_MESSAGE("three");
  array_spec raw = {.type = DTYPE_U16};
  CHECK_STATUS(array_open(&a, path, &raw), STOW_ERR_INVALID);
  raw.type = DTYPE_U8; /* the bytes of the archive itself */
  CHECK_OK(array_open(&a, path, &raw));
  CHECK_OK(array_read(&a, 0, &value, 1));
  CHECK(value == 'P');
  array_close(&a);
  unlink(path);
  buffer_free(&one), buffer_free(&two), buffer_free(&file);
}

TEST(a_member_must_be_as_long_as_its_header_says)
{
  buffer npy = BUFFER_INIT;
  build_npy(&npy, DTYPE_U8, "\1\2\3", 3);
  buffer_char(&npy, 'x'); /* NumPy accepts trailing bytes in a file; in a member they are an
                           * error */
  member_build m = {.name = "a.npy", .bytes = npy.data, .count = npy.length};
  buffer file = BUFFER_INIT;
  build_zip(&file, &m, 1);
  source from;
  zip z;
  array a;
  source_open_memory(&from, file.data, file.length, "t.npz");
  CHECK_OK(zip_open(&z, &from, 1 << 20));
  CHECK_STATUS(array_open_member(&a, &from, &z.entries[0]), STOW_ERR_FORMAT);
  CHECK_MESSAGE("131");
  zip_close(&z);
  buffer_free(&npy), buffer_free(&file);
}

TEST(raw_bytes_must_have_the_size_of_their_shape)
{
  const char *path = write_file("raw.bin", "\1\0\2\0\3\0", 6);
  array a;
  array_spec spec = {.type = DTYPE_I16};
  CHECK_OK(array_open(&a, path, &spec));
  CHECK_U64(a.shape[0], 3);
  array_close(&a);
  spec = (array_spec){.type = DTYPE_I16, .has_shape = true, .dims = 2, .shape = {2, 2}};
  CHECK_STATUS(array_open(&a, path, &spec), STOW_ERR_FORMAT);
  CHECK_MESSAGE("8 bytes, but the file has 6");
  spec.shape[0] = spec.shape[1] = UINT64_C(1) << 40;
  CHECK_STATUS(array_open(&a, path, &spec), STOW_ERR_OVERFLOW);
  unlink(path);
}

/* Rewrites, truncates or grows the file while it is read. */
static stow_status meddle(void *context, uint64_t done, uint64_t total) {
  const char *path = context;
  (void)total;
  if (done > 0 && truncate(path, 100) != 0) return STOW_ERR_IO;
  return STOW_OK;
}

TEST(a_file_cut_while_it_is_read_is_noticed)
{
  buffer b = BUFFER_INIT;
  uint64_t count = 1 << 20;
  CHECK_OK(npy_write_header(&b, DTYPE_U8, false, &count, 1));
  memset(buffer_extend(&b, count), 1, count);
  const char *path = write_file("cut.npy", b.data, b.length);
  file_facts f;
  budget cutting = {.bytes = BUDGET_LEAST, .progress = meddle, .context = (void *)(uintptr_t)path};
  CHECK_STATUS(inspect_file(&f, path, NULL, &cutting), STOW_ERR_IO);
  CHECK_MESSAGE("truncated while being read");
  unlink(path);
  buffer_free(&b);
}

/* ---- sparse matrices ---- */

typedef struct matrix {
  int32_t indptr[4], indices[4];
  int64_t shape[2];
  uint64_t indptr_count, indices_count;
  dtype index_type;
} matrix;

static stow_status inspect_matrix(const matrix *m, file_facts *f) {
  buffer parts[5] = {BUFFER_INIT, BUFFER_INIT, BUFFER_INIT, BUFFER_INIT, BUFFER_INIT};
  double data[4] = {1, 2, 0, 4};
  build_npy(&parts[0], m->index_type, m->indices, m->indices_count);
  build_npy(&parts[1], DTYPE_I32, m->indptr, m->indptr_count);
  buffer_append(&parts[2], "\x93NUMPY\x01\x00\x36\x00", 10);
  buffer_text(&parts[2], "{'descr': '|S3', 'fortran_order': False, 'shape': ()}\ncsr");
  build_npy(&parts[3], DTYPE_I64, m->shape, 2);
  build_npy(&parts[4], DTYPE_F64, data, 4);
  static const char *const names[] = {"indices.npy", "indptr.npy", "format.npy", "shape.npy",
                                      "data.npy"};
  member_build members[5];
  for (int i = 0; i < 5; i++)
    members[i] = (member_build){
        .name = names[i], .bytes = parts[i].data, .count = parts[i].length, .deflate = true};
  buffer file = BUFFER_INIT;
  build_zip(&file, members, 5);
  const char *path = write_file("csr.npz", file.data, file.length);
  stow_status status = inspect_file(f, path, NULL, &small);
  unlink(path);
  for (int i = 0; i < 5; i++) buffer_free(&parts[i]);
  buffer_free(&file);
  return status;
}

#define GOOD                                                                                       \
  {                                                                                                \
    .indptr = {0, 1, 2, 4}, .indices = {0, 4, 1, 2}, .shape = {3, 5}, .indptr_count = 4,           \
    .indices_count = 4, .index_type = DTYPE_I32                                                    \
  }

TEST(a_sparse_matrix_is_recognised_and_measured)
{
  matrix m = GOOD;
  file_facts f;
  CHECK_OK(inspect_matrix(&m, &f));
  CHECK_U64(f.array_count, 1);
  CHECK(f.arrays[0].sparse);
  CHECK_TEXT(f.arrays[0].layout, "csr");
  CHECK_U64(f.arrays[0].shape[1], 5);
  CHECK_U64(f.arrays[0].zeros, 12);
  CHECK_U64(f.bytes, 4 * 8 + 4 * 4 + 4 * 4);
  CHECK_U64(f.bytes_after, 4 * 1 + 4 * 2 + 4 * 4);
  inspect_free(&f);
}

TEST(sparse_matrices_that_scipy_would_take_are_refused)
{
  file_facts f;
  matrix m = GOOD;
  m.indices[1] = 5;
  CHECK_STATUS(inspect_matrix(&m, &f), STOW_ERR_FORMAT);
  CHECK_MESSAGE("entry 1 is 5; the matrix allows 0 to 4");
  m.indices[1] = -1;
  CHECK_STATUS(inspect_matrix(&m, &f), STOW_ERR_FORMAT);
  CHECK_MESSAGE("entry 1 is -1");
  m = (matrix)GOOD;
  m.indptr[1] = 3;
  CHECK_STATUS(inspect_matrix(&m, &f), STOW_ERR_FORMAT);
  CHECK_MESSAGE("less than the 3 before");
  m = (matrix)GOOD;
  m.indptr[0] = 1;
  CHECK_STATUS(inspect_matrix(&m, &f), STOW_ERR_FORMAT);
  CHECK_MESSAGE("not 0");
  m = (matrix)GOOD;
  m.indptr[3] = 3;
  CHECK_STATUS(inspect_matrix(&m, &f), STOW_ERR_FORMAT);
  CHECK_MESSAGE("4 values are stored");
  m = (matrix)GOOD;
  m.indptr_count = 3;
  CHECK_STATUS(inspect_matrix(&m, &f), STOW_ERR_FORMAT);
  CHECK_MESSAGE("needs 4");
  m = (matrix)GOOD;
  m.indices_count = 3;
  CHECK_STATUS(inspect_matrix(&m, &f), STOW_ERR_FORMAT);
  CHECK_MESSAGE("3 indices for 4");
  m = (matrix)GOOD;
  m.index_type = DTYPE_F32;
  CHECK_STATUS(inspect_matrix(&m, &f), STOW_ERR_FORMAT);
  CHECK_MESSAGE("float32");
  m = (matrix)GOOD;
  m.shape[0] = -3;
  CHECK_STATUS(inspect_matrix(&m, &f), STOW_ERR_FORMAT);
  CHECK_MESSAGE("negative");
}

TEST_MAIN
