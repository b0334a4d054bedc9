/* The public model: listed, read in pieces, converted, written. */
#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stowage/model.h>

static const char *path_of(const char *name) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/%s", harness_folder(), name);
  return path;
}

static stow_model_writer *begin(const char *name, const char *dtype, uint64_t rows, uint64_t row) {
  const uint64_t shape[] = {rows, row};
  stow_model_entry entry = STOW_MODEL_ENTRY_INIT;
  const stow_model_entry *list[] = {&entry};
  stow_model_writer *w;
  entry.dims = 2, entry.name = "w", entry.dtype = dtype, entry.shape = shape;
  CHECK_OK(stow_model_writer_open(&w, path_of(name), list, 1, "{\"format\":\"pt\"}"));
  return w;
}

/* Makes a model of 40 rows of 1000 float32 values, each equal to its index. */
static stow_model *numbers(void) {
  float values[1000];
  stow_model_writer *w = begin("n.safetensors", "float32", 40, 1000);
  stow_model *m;
  for (uint64_t r = 0; r < 40; r++) {
    for (uint64_t i = 0; i < 1000; i++) values[i] = (float)(r * 1000 + i);
    CHECK_OK(stow_model_writer_put(w, 0, r * 1000, 1000, NULL, values));
  }
  CHECK_OK(stow_model_writer_commit(w));
  stow_model_writer_close(w);
  CHECK_OK(stow_model_open(&m, path_of("n.safetensors"), NULL));
  return m;
}

TEST(a_model_reports_its_tensors)
{
  stow_model *m = numbers();
  stow_model_info info = STOW_MODEL_INFO_INIT;
  stow_model_tensor t = STOW_MODEL_TENSOR_INIT;
  CHECK_OK(stow_model_get_info(m, &info));
  CHECK_TEXT(info.format, "safetensors");
  CHECK_TEXT(info.metadata, "{\"format\":\"pt\"}");
  CHECK(info.tensor_count == 1 && info.bytes == 160000 && info.file_count == 1);
  CHECK_OK(stow_model_get_tensor(m, 0, &t));
  CHECK_TEXT(t.name, "w");
  CHECK_TEXT(t.dtype, "float32");
  CHECK(t.dims == 2 && t.shape[0] == 40 && t.shape[1] == 1000 && t.count == 40000);
  CHECK(t.block_values == 1 && t.block_bytes == 4 && t.convertible == 1);
  CHECK_STATUS(stow_model_get_tensor(m, 1, &t), STOW_ERR_NOT_FOUND);
  stow_model_close(m);
}

TEST(pieces_and_columns_are_read_and_converted)
{
  stow_model *m = numbers();
  stow_model_piece p = STOW_MODEL_PIECE_INIT;
  double *all = malloc(40000 * sizeof *all);
  float some[80];
  CHECK(all != NULL);
  p.count = 40000, p.dtype = "float64", p.to = all;
  CHECK_OK(stow_model_read(m, 0, &p));
  for (int i = 0; i < 40000; i++) CHECK(all[i] == i);
  p = (stow_model_piece)STOW_MODEL_PIECE_INIT;
  p.first = 998, p.count = 2, p.runs = 40, p.step = 1000, p.to = some;
  CHECK_OK(stow_model_read(m, 0, &p));
  for (int i = 0; i < 80; i++) CHECK(some[i] == (float)(i / 2 * 1000 + 998 + i % 2));
  CHECK_OK(stow_model_check(m));
  free(all);
  stow_model_close(m);
}

TEST(values_too_large_for_a_type_are_refused_unless_allowed)
{
  stow_model_writer *w = begin("large.safetensors", "float64", 2, 100);
  stow_model *m;
  stow_model_piece p = STOW_MODEL_PIECE_INIT;
  double values[200] = {0};
  uint16_t halves[200];
  values[150] = 1e6, values[199] = INFINITY;
  CHECK_OK(stow_model_writer_put(w, 0, 0, 200, NULL, values));
  CHECK_OK(stow_model_writer_commit(w));
  stow_model_writer_close(w);
  CHECK_OK(stow_model_open(&m, path_of("large.safetensors"), NULL));
  p.count = 200, p.dtype = "float16", p.to = halves;
  CHECK_STATUS(stow_model_read(m, 0, &p), STOW_ERR_INVALID);
  CHECK_MESSAGE("w: 1 value is too large for float16");
  p.count = 150; /* the others are there */
  CHECK_OK(stow_model_read(m, 0, &p));
  p.first = 151, p.count = 49; /* infinite in the file */
  CHECK_OK(stow_model_read(m, 0, &p));
  CHECK(halves[48] == 0x7c00);
  p.first = 150, p.count = 1, p.allow_nan = 1;
  CHECK_OK(stow_model_read(m, 0, &p));
  CHECK(halves[0] == 0x7c00);
  stow_model_close(m);

  w = begin("half.safetensors", "float16", 1, 100);
  CHECK_OK(stow_model_writer_put(w, 0, 0, 50, "float64", values));
  CHECK_STATUS(stow_model_writer_put(w, 0, 50, 50, "float64", values + 101), STOW_ERR_INVALID);
  CHECK_STATUS(stow_model_writer_put(w, 0, 50, 50, "float64", values + 150), STOW_ERR_INVALID);
  CHECK_MESSAGE("w: 1 value is NaN or infinite");
  stow_model_writer_close(w);
}

TEST(what_lies_outside_is_refused)
{
  stow_model *m = numbers();
  float some[4];
  const struct {
    uint64_t first, count, runs, step;
  } wrong[] = {{40000, 1, 1, 0},      {0, 40001, 1, 0},      {UINT64_MAX, 2, 1, 0},
               {1, UINT64_MAX, 1, 0}, {39999, 1, 2, 1},      {0, 1, 41, 1000},
               {0, 1, 3, UINT64_MAX}, {0, 1, UINT64_MAX, 2}, {0, 40000, 2, 40000}};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    stow_model_piece p = STOW_MODEL_PIECE_INIT;
    p.first = wrong[i].first, p.count = wrong[i].count;
    p.runs = wrong[i].runs, p.step = wrong[i].step, p.to = some;
    CHECK_STATUS(stow_model_read(m, 0, &p), STOW_ERR_INVALID);
  }
  stow_model_piece p = STOW_MODEL_PIECE_INIT;
  p.count = 1, p.to = some, p.dtype = "word";
  CHECK_STATUS(stow_model_read(m, 0, &p), STOW_ERR_INVALID);
  CHECK_STATUS(stow_model_read(m, 0, NULL), STOW_ERR_INVALID);
  CHECK_STATUS(stow_model_read(m, 1, &p), STOW_ERR_NOT_FOUND);
  stow_model_close(m);
}

TEST(an_output_appears_only_when_it_is_complete)
{
  float values[4] = {1, 2, 3, 4};
  uint16_t halves[4];
  stow_model *m;
  stow_model_piece p = STOW_MODEL_PIECE_INIT;
  stow_model_writer *w = begin("c.safetensors", "float16", 2, 2);
  CHECK_OK(stow_model_writer_put(w, 0, 0, 2, "float32", values));
  CHECK_STATUS(stow_model_writer_put(w, 0, 3, 2, "float32", values), STOW_ERR_INVALID);
  CHECK_STATUS(stow_model_writer_put(w, 1, 0, 1, "float32", values), STOW_ERR_INVALID);
  CHECK_STATUS(stow_model_writer_commit(w), STOW_ERR_STATE);
  CHECK(access(path_of("c.safetensors"), F_OK) != 0);
  CHECK_OK(stow_model_writer_put(w, 0, 2, 2, "float32", values + 2));
  CHECK_OK(stow_model_writer_commit(w));
  stow_model_writer_close(w);
  CHECK_OK(stow_model_open(&m, path_of("c.safetensors"), NULL));
  p.count = 4, p.to = halves;
  CHECK_OK(stow_model_read(m, 0, &p));
  CHECK(halves[0] == 0x3c00 && halves[1] == 0x4000 && halves[3] == 0x4400);
  stow_model_close(m);
  w = begin("d.safetensors", "float32", 2, 2);
  stow_model_writer_close(w);
  CHECK(access(path_of("d.safetensors"), F_OK) != 0);
  CHECK(access(path_of("d.safetensors.partial"), F_OK) != 0);
}

TEST(wrong_entries_are_refused)
{
  const uint64_t shape[] = {UINT64_MAX, 3};
  stow_model_entry entry = STOW_MODEL_ENTRY_INIT;
  const stow_model_entry *list[] = {&entry, &entry};
  stow_model_writer *w;
  entry.dims = 2, entry.name = "w", entry.dtype = "float32", entry.shape = shape;
  CHECK(stow_model_writer_open(&w, path_of("e.safetensors"), list, 1, NULL) < 0 && w == NULL);
  entry.dims = 0;
  CHECK_STATUS(stow_model_writer_open(&w, path_of("e.safetensors"), list, 2, NULL),
               STOW_ERR_INVALID);
  entry.dtype = "words";
  CHECK_STATUS(stow_model_writer_open(&w, path_of("e.safetensors"), list, 1, NULL),
               STOW_ERR_INVALID);
  entry.dtype = "float32", entry.name = "__metadata__";
  CHECK_STATUS(stow_model_writer_open(&w, path_of("e.safetensors"), list, 1, NULL),
               STOW_ERR_INVALID);
  CHECK_STATUS(stow_model_writer_open(&w, path_of("none/e.safetensors"), list, 0, NULL),
               STOW_ERR_IO);
}

TEST_MAIN
