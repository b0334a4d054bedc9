/* Writes numbers to a file, inspects it, shrinks it, and reads the result back in batches.
 *
 *   cc data.c -lstowage-data -lstowage && ./a.out FOLDER */
#include <inttypes.h>
#include <stdio.h>

#include <stowage/array.h>
#include <stowage/arrow.h>
#include <stowage/batches.h>
#include <stowage/inspect.h>
#include <stowage/shrink.h>
#include <stowage/text.h>
#include <stowage/values.h>

#define COUNT 10000

static int stop(const char *what) {
  char shown[256]; /* a name from outside may hold escape sequences */
  fprintf(stderr, "%s: %s\n", stow_text_show(shown, sizeof shown, what), stow_status_message());
  return 1;
}

/* Finds the smallest type that holds the numbers. */
static int look(const double *numbers) {
  stow_values *values;
  stow_values_facts facts = STOW_VALUES_FACTS_INIT;
  if (stow_values_open(&values, "float64") != STOW_OK) return stop("values");
  stow_values_add(values, numbers, COUNT);
  stow_values_get(values, &facts);
  stow_values_close(values);
  printf("%" PRIu64 " values from %g to %g fit %s\n", facts.count, facts.least, facts.most,
         facts.smallest);
  return 0;
}

static int shrink(const char *from, const char *to) {
  stow_inspect_options inspect = STOW_INSPECT_OPTIONS_INIT;
  stow_shrink_options options = STOW_SHRINK_OPTIONS_INIT;
  stow_inspection *inspection;
  stow_shrink *result;
  inspect.raw_dtype = options.raw_dtype = "float64";
  if (stow_inspect_file(&inspection, from, &inspect) != STOW_OK) return stop(from);
  stow_inspection_item item = STOW_INSPECTION_ITEM_INIT;
  stow_inspection_get_item(inspection, 0, &item);
  printf("on disk as %s; %s holds every value\n", item.dtype, item.smallest_dtype);
  stow_inspection_close(inspection);
  if (stow_shrink_file(&result, from, to, &options) != STOW_OK) return stop(to);
  stow_shrink_info info = STOW_SHRINK_INFO_INIT;
  stow_shrink_get_info(result, &info);
  printf("%" PRIu64 " bytes became %" PRIu64 "\n", info.bytes, info.bytes_after);
  stow_shrink_close(result);
  return 0;
}

static int read_back(const char *path) {
  stow_array_options file = STOW_ARRAY_OPTIONS_INIT;
  stow_array_info info = STOW_ARRAY_INFO_INIT;
  stow_array *array;
  uint8_t rows[3];
  file.path = path;
  if (stow_array_open(&array, &file) != STOW_OK) return stop(path);
  stow_array_get_info(array, &info);
  if (stow_array_read(array, 100, 3, 1, 0, 0, rows) != STOW_OK) return stop(path);
  printf("rows of %s: %u, %u, %u …\n", info.dtype, rows[0], rows[1], rows[2]);
  stow_array_close(array);

  const stow_array_options *files[1] = {&file};
  stow_batches_options options = STOW_BATCHES_OPTIONS_INIT;
  stow_batches *batches;
  options.files = files, options.file_count = 1;
  options.batch_rows = 256, options.shuffle = 1, options.world = 1;
  if (stow_batches_open(&batches, &options) != STOW_OK) return stop("batches");
  uint64_t count, total = 0;
  void *data;
  while (stow_batches_next(batches, &data, &count) == STOW_OK && count > 0) {
    total += count;
    stow_batches_release(data);
  }
  stow_batches_close(batches);
  printf("an epoch of %" PRIu64 " rows\n", total);
  return total != COUNT;
}

/* Opens the file as an Arrow stream, which pandas, polars or DuckDB could read. */
static int hand_over(const char *path) {
  struct ArrowArrayStream stream;
  struct ArrowArray batch;
  int64_t rows = 0;
  if (stow_arrow_open(&stream, path, 0) != STOW_OK) return stop(path);
  while (stream.get_next(&stream, &batch) == 0 && batch.release != NULL) {
    rows += batch.length;
    batch.release(&batch);
  }
  stream.release(&stream);
  printf("%" PRId64 " rows in Arrow batches\n", rows);
  return rows != COUNT;
}

int main(int argc, char **argv) {
  static double numbers[COUNT];
  char from[512], to[512];
  const char *folder = argc > 1 ? argv[1] : ".";
  snprintf(from, sizeof from, "%s/numbers.bin", folder);
  snprintf(to, sizeof to, "%s/small.npy", folder);
  for (int i = 0; i < COUNT; i++) numbers[i] = i % 200;
  FILE *out = fopen(from, "wb");
  if (out == NULL || fwrite(numbers, sizeof numbers, 1, out) != 1 || fclose(out) != 0)
    return perror(from), 1;
  return look(numbers) || shrink(from, to) || read_back(to) || hand_over(to);
}
