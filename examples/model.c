/* Writes a model of one tensor as a safetensors file in float16, and reads a column of it back.
 *
 *   cc model.c -lstowage-data -lstowage && ./a.out FOLDER */
#include <inttypes.h>
#include <stdio.h>

#include <stowage/model.h>

enum { ROWS = 4, COLUMNS = 8 };

static int stop(const char *what) {
  fprintf(stderr, "%s: %s\n", what, stow_status_message());
  return 1;
}

static int write_model(const char *path) {
  float values[ROWS * COLUMNS];
  const uint64_t shape[] = {ROWS, COLUMNS};
  stow_model_entry entry = STOW_MODEL_ENTRY_INIT;
  const stow_model_entry *entries[] = {&entry};
  stow_model_writer *writer;
  for (int i = 0; i < ROWS * COLUMNS; i++) values[i] = (float)i / 2;
  entry.name = "layer.weight", entry.dtype = "float16", entry.dims = 2, entry.shape = shape;
  if (stow_model_writer_open(&writer, path, entries, 1, NULL) != STOW_OK) return stop(path);
  stow_status status =
      stow_model_writer_put(writer, 0, 0, (uint64_t)ROWS * COLUMNS, "float32", values);
  if (status == STOW_OK) status = stow_model_writer_commit(writer);
  stow_model_writer_close(writer); /* removes the file unless it was committed */
  return status == STOW_OK ? 0 : stop(path);
}

static int read_model(const char *path) {
  float column[ROWS];
  stow_model *model;
  stow_model_tensor tensor = STOW_MODEL_TENSOR_INIT;
  stow_model_piece piece = STOW_MODEL_PIECE_INIT;
  if (stow_model_open(&model, path, NULL) != STOW_OK) return stop(path);
  stow_model_get_tensor(model, 0, &tensor);
  printf("%s: %s, %" PRIu64 " values\n", tensor.name, tensor.dtype, tensor.count);
  piece.first = 3, piece.count = 1, piece.runs = ROWS, piece.step = COLUMNS;
  piece.dtype = "float32", piece.to = column;
  stow_status status = stow_model_read(model, 0, &piece);
  if (status == STOW_OK) status = stow_model_check(model);
  stow_model_close(model);
  if (status != STOW_OK) return stop(path);
  printf("column 3: %g, %g, %g, %g\n", (double)column[0], (double)column[1], (double)column[2],
         (double)column[3]);
  return 0;
}

int main(int argc, char **argv) {
  char path[512];
  snprintf(path, sizeof path, "%s/model.safetensors", argc > 1 ? argv[1] : ".");
  return write_model(path) || read_model(path);
}
