/* The public inspection and shrink: structured results, limits, cancelling. */
#include "harness.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stowage/shrink.h>

/* Writes a raw file of `count` float64 values, 0 to 199. */
static const char *raw_file(size_t count) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/values.bin", harness_folder());
  FILE *file = fopen(path, "w");
  CHECK(file != NULL);
  for (size_t i = 0; i < count; i++) {
    double value = (double)(i % 200);
    CHECK(fwrite(&value, sizeof value, 1, file) == 1);
  }
  fclose(file);
  return path;
}

TEST(an_inspection_reports_type_shape_and_the_smallest_type)
{
  const uint64_t shape[] = {10, 200};
  stow_inspect_options options = STOW_INSPECT_OPTIONS_INIT;
  options.raw_dtype = "float64", options.raw_shape = shape, options.raw_dims = 2;
  options.purpose = STOW_FOR_STORAGE;
  stow_inspection *i;
  CHECK_OK(stow_inspect_file(&i, raw_file(2000), &options));
  stow_inspection_info info = STOW_INSPECTION_INFO_INIT;
  CHECK_OK(stow_inspection_get_info(i, &info));
  CHECK_U64(info.bytes, 16000);
  CHECK_U64(info.bytes_after, 2000);
  CHECK(info.item_count == 1 && info.is_table == 0);
  stow_inspection_item item = STOW_INSPECTION_ITEM_INIT;
  CHECK_OK(stow_inspection_get_item(i, 0, &item));
  CHECK_TEXT(item.dtype, "float64");
  CHECK_TEXT(item.smallest_dtype, "uint8");
  CHECK(item.dims == 2 && item.shape[0] == 10 && item.shape[1] == 200);
  CHECK(item.least == 0 && item.most == 199 && item.zeros == 10 && item.scanned == 1);
  CHECK_STATUS(stow_inspection_get_item(i, 1, &item), STOW_ERR_NOT_FOUND);
  CHECK(strstr(stow_inspection_text(i), "uint8") != NULL);
  CHECK(strstr(stow_inspection_json(i), "\"smallest_dtype\": \"uint8\"") != NULL);
  stow_inspection_close(i);
}

TEST(a_table_has_its_columns)
{
  char path[4096];
  snprintf(path, sizeof path, "%s/t.csv", harness_folder());
  FILE *file = fopen(path, "w");
  CHECK(file != NULL && fputs("a,b\n1,x\n-7,y\n3,x\n", file) >= 0);
  fclose(file);
  stow_inspection *i;
  CHECK_OK(stow_inspect_file(&i, path, NULL));
  stow_inspection_info info = STOW_INSPECTION_INFO_INIT;
  CHECK_OK(stow_inspection_get_info(i, &info));
  CHECK(info.is_table == 1 && info.rows == 3 && info.item_count == 2 && info.has_names == 1);
  stow_inspection_item item = STOW_INSPECTION_ITEM_INIT;
  CHECK_OK(stow_inspection_get_item(i, 0, &item));
  CHECK_TEXT(item.name, "a");
  CHECK_TEXT(item.smallest_dtype, "int8");
  CHECK(item.least == -7 && item.most == 3);
  CHECK_OK(stow_inspection_get_item(i, 1, &item));
  CHECK_TEXT(item.dtype, "text");
  stow_inspection_close(i);
}

TEST(shrink_writes_the_file_and_says_what_it_did)
{
  char out[4096];
  struct stat seen;
  snprintf(out, sizeof out, "%s/small.npy", harness_folder());
  stow_shrink_options options = STOW_SHRINK_OPTIONS_INIT;
  options.raw_dtype = "f64", options.purpose = STOW_FOR_STORAGE;
  stow_shrink *s;
  CHECK_OK(stow_shrink_file(&s, raw_file(2000), out, &options));
  stow_shrink_info info = STOW_SHRINK_INFO_INIT;
  CHECK_OK(stow_shrink_get_info(s, &info));
  CHECK(info.bytes == 16000 && info.bytes_after == 2000 && info.item_count == 1);
  CHECK(stat(out, &seen) == 0 && (uint64_t)seen.st_size == info.file_bytes_after);
  stow_shrink_item item = STOW_SHRINK_ITEM_INIT;
  CHECK_OK(stow_shrink_get_item(s, 0, &item));
  CHECK_TEXT(item.from_dtype, "float64");
  CHECK_TEXT(item.to_dtype, "uint8");
  CHECK(item.exact == 1 && item.error == 0);
  CHECK_STATUS(stow_shrink_get_item(s, 1, &item), STOW_ERR_NOT_FOUND);
  CHECK(strstr(stow_shrink_text(s), "uint8") != NULL && stow_shrink_json(s)[0] == '{');
  stow_shrink_close(s);
}

TEST(a_dry_run_writes_nothing)
{
  char out[4096];
  snprintf(out, sizeof out, "%s/small.npy", harness_folder());
  stow_shrink_options options = STOW_SHRINK_OPTIONS_INIT;
  options.raw_dtype = "f64", options.flags = STOW_SHRINK_DRY_RUN;
  stow_shrink *s;
  CHECK_OK(stow_shrink_file(&s, raw_file(2000), out, &options));
  CHECK(access(out, F_OK) != 0);
  stow_shrink_close(s);
}

static int stop(void *user, uint64_t done, uint64_t total) {
  (void)done, (void)total;
  ++*(int *)user;
  return STOW_ERR_INTERRUPTED;
}

TEST(the_caller_can_stop_a_job)
{
  char out[4096];
  int calls = 0;
  snprintf(out, sizeof out, "%s/small.npy", harness_folder());
  stow_shrink_options options = STOW_SHRINK_OPTIONS_INIT;
  options.raw_dtype = "f64", options.progress = stop, options.progress_user = &calls;
  stow_shrink *s;
  CHECK_STATUS(stow_shrink_file(&s, raw_file(100000), out, &options), STOW_ERR_INTERRUPTED);
  CHECK(s == NULL && calls > 0 && access(out, F_OK) != 0);
}

TEST(wrong_options_and_files_have_their_status)
{
  stow_inspection *i;
  stow_shrink *s;
  char path[4096];
  stow_inspect_options options = STOW_INSPECT_OPTIONS_INIT;
  snprintf(path, sizeof path, "%s/none.npy", harness_folder());
  CHECK_STATUS(stow_inspect_file(&i, path, NULL), STOW_ERR_NOT_FOUND);
  CHECK(i == NULL);
  CHECK_STATUS(stow_shrink_file(&s, path, "out.npy", NULL), STOW_ERR_NOT_FOUND);
  options.memory_bytes = 1;
  CHECK_STATUS(stow_inspect_file(&i, raw_file(10), &options), STOW_ERR_INVALID);
  options = (stow_inspect_options)STOW_INSPECT_OPTIONS_INIT;
  options.names = 7;
  CHECK_STATUS(stow_inspect_file(&i, raw_file(10), &options), STOW_ERR_INVALID);
  options = (stow_inspect_options)STOW_INSPECT_OPTIONS_INIT;
  options.raw_dtype = "no_such_type";
  CHECK_STATUS(stow_inspect_file(&i, raw_file(10), &options), STOW_ERR_INVALID);
  stow_shrink_options shrink = STOW_SHRINK_OPTIONS_INIT;
  shrink.tolerance = -1;
  CHECK_STATUS(stow_shrink_file(&s, raw_file(10), "out.npy", &shrink), STOW_ERR_INVALID);
}

TEST_MAIN
