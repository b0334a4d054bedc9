/* Models: shrink and merge over small files made here. Values are checked one by one. */
#include "data/weights/weights.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/weights/inspect.h"
#include "data/weights/merge.h"
#include "harness.h"
#include "numbers/half.h"

#define LAYER "model.layers.%d.mlp.up_proj.weight"

static char path_buffer[8][4096];
static const char *path_of(int which, const char *name) {
  snprintf(path_buffer[which], sizeof path_buffer[which], "%s/%s", harness_folder(), name);
  return path_buffer[which];
}

static void write_file(const char *path, const void *bytes, size_t count) {
  FILE *file = fopen(path, "wb");
  CHECK(file != NULL);
  CHECK(fwrite(bytes, 1, count, file) == count);
  fclose(file);
}

static char *read_file(const char *path, size_t *count) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) FAIL("%s cannot be opened", path);
  fseek(file, 0, SEEK_END);
  *count = (size_t)ftell(file);
  rewind(file);
  char *bytes = malloc(*count + 1);
  CHECK(fread(bytes, 1, *count, file) == *count);
  fclose(file);
  return bytes;
}

/* Writes a safetensors file of float32 matrices with consecutive `values`. */
static void write_model(const char *path, const char *const *names, size_t count, uint64_t rows,
                        uint64_t columns, const float *values) {
  buffer b = BUFFER_INIT, header = BUFFER_INIT;
  uint64_t each = rows * columns * 4;
  buffer_char(&header, '{');
  for (size_t i = 0; i < count; i++)
    buffer_printf(&header,
                  "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%" PRIu64 ",%" PRIu64
                  "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
                  i > 0 ? "," : "", names[i], rows, columns, i * each, (i + 1) * each);
  buffer_char(&header, '}');
  for (int i = 0; i < 8; i++) buffer_char(&b, (char)((uint64_t)header.length >> (8 * i)));
  buffer_append(&b, header.data, header.length);
  buffer_append(&b, values, count * each);
  CHECK_OK(b.status);
  write_file(path, b.data, b.length);
  buffer_free(&b);
  buffer_free(&header);
}

static uint64_t seed;
static float normal(void) {
  float sum = 0;
  for (int i = 0; i < 12; i++) sum += (float)(harness_random(&seed) >> 40) * 0x1p-24f;
  return sum - 6;
}

enum { LAYERS = 3, ROWS = 300, COLUMNS = 512, VALUES = ROWS * COLUMNS };
static float *made;
static const char *make_model(void) {
  static char names[LAYERS][64];
  const char *list[LAYERS];
  seed = 5;
  free(made);
  made = malloc(sizeof(float) * LAYERS * VALUES);
  for (size_t i = 0; i < LAYERS * VALUES; i++) made[i] = normal() * 0.02f;
  for (int i = 0; i < LAYERS; i++) {
    snprintf(names[i], sizeof names[i], LAYER, i);
    list[i] = names[i];
  }
  write_model(path_of(0, "in.safetensors"), list, LAYERS, ROWS, COLUMNS, made);
  return path_buffer[0];
}

static const budget small = {.bytes = 16 << 20, .threads = 2};

static stow_status shrink(const char *out, const weights_options *o, const budget *b) {
  weights_result r;
  STOW_TRY(weights_shrink(&r, path_buffer[0], out, o, b));
  weights_free(&r);
  return STOW_OK;
}

/* ---- types ---- */

TEST(a_cast_rounds_every_value_once_and_reports_the_error)
{
  make_model();
  weights_result r;
  weights_options o = {.type = TENSOR_BF16, .verify = true};
  CHECK_OK(weights_shrink(&r, path_buffer[0], path_of(1, "out.safetensors"), &o, &small));
  CHECK(r.verified && r.changed == LAYERS && r.bytes_after * 2 == r.bytes);
  double squares = 0, errors = 0;
  model m;
  CHECK_OK(model_open(&m, path_buffer[1], 1 << 20));
  uint16_t *values = malloc(VALUES * 2);
  for (size_t k = 0; k < LAYERS; k++) {
    CHECK_OK(source_read(&m.files[0].from, m.list[k].facts->offset, values, VALUES * 2));
    for (size_t i = 0; i < VALUES; i++) {
      float before = made[k * VALUES + i];
      CHECK(values[i] == bfloat_from_float(before));
      double error = (double)bfloat_to_float(values[i]) - (double)before;
      squares += (double)before * (double)before, errors += error * error;
    }
  }
  CHECK(fabs(r.error.sum_error_squares - errors) <= 1e-9 * errors);
  CHECK(fabs(r.error.sum_squares - squares) <= 1e-9 * squares);
  free(values);
  model_close(&m);
  weights_free(&r);
}

TEST(values_that_are_not_finite_are_refused_unless_allowed)
{
  make_model();
  const char *out = path_of(1, "out.safetensors");
  weights_options o = {.type = TENSOR_F16};
  made[VALUES + 7] = 70000; /* past float16 */
  const char *names[] = {"a.weight", "b.weight", "c.weight"};
  write_model(path_buffer[0], names, LAYERS, ROWS, COLUMNS, made);
  CHECK_STATUS(shrink(out, &o, &small), STOW_ERR_INVALID);
  CHECK_MESSAGE("b.weight");
  CHECK(access(out, F_OK) != 0);
  made[VALUES + 7] = NAN;
  write_model(path_buffer[0], names, LAYERS, ROWS, COLUMNS, made);
  CHECK_STATUS(shrink(out, &o, &small), STOW_ERR_INVALID);
  CHECK_MESSAGE("NaN");
  char partial[4200];
  snprintf(partial, sizeof partial, "%s.partial", out);
  CHECK(access(out, F_OK) != 0 && access(partial, F_OK) != 0);
  o.allow_nan = true;
  CHECK_OK(shrink(out, &o, &small));
}

/* ---- the output does not depend on how it is made ---- */

static void same_files(const char *a, const char *b) {
  size_t p, q;
  char *x = read_file(a, &p), *y = read_file(b, &q);
  CHECK(p == q && memcmp(x, y, p) == 0);
  free(x), free(y);
}

TEST(threads_and_budget_do_not_change_the_output)
{
  make_model();
  const weights_options all[] = {{.prune = 0.4},
                                 {.prune = 0.3, .prune_model = true},
                                 {.prune_2_4 = true},
                                 {.prune = 0.6, .sparse = true},
                                 {.prune_2_4 = true, .sparse = true, .type = TENSOR_BF16},
                                 {.type = TENSOR_F16},
                                 {.quantize = WEIGHTS_INT8},
                                 {.quantize = WEIGHTS_FP8, .prune = 0.5}};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    budget one = {.bytes = 4 << 20, .threads = 1}, many = {.bytes = 1 << 30, .threads = 8};
    CHECK_OK(shrink(path_of(1, "one.safetensors"), &all[i], &one));
    CHECK_OK(shrink(path_of(2, "many.safetensors"), &all[i], &many));
    same_files(path_buffer[1], path_buffer[2]);
  }
}

TEST(pruning_sets_the_smallest_values_to_zero)
{
  make_model();
  weights_result r;
  weights_options o = {.prune = 0.4};
  CHECK_OK(weights_shrink(&r, path_buffer[0], path_of(1, "out.safetensors"), &o, &small));
  model m;
  CHECK_OK(model_open(&m, path_buffer[1], 1 << 20));
  float *values = malloc(VALUES * 4);
  for (size_t k = 0; k < LAYERS; k++) {
    CHECK_OK(source_read(&m.files[0].from, m.list[k].facts->offset, values, VALUES * 4));
    uint64_t zeros = 0;
    float largest_gone = 0, least_kept = INFINITY;
    for (size_t i = 0; i < VALUES; i++) {
      float was = fabsf(made[k * VALUES + i]);
      zeros += values[i] == 0;
      if (values[i] == 0 && was > largest_gone) largest_gone = was;
      if (values[i] != 0) {
        CHECK(values[i] == made[k * VALUES + i]);
        if (was < least_kept) least_kept = was;
      }
    }
    CHECK(largest_gone <= least_kept);
    CHECK(zeros + ROWS >= (uint64_t)(0.4 * VALUES) && zeros <= (uint64_t)(0.4 * VALUES) + ROWS);
    CHECK_U64(r.items[k].zeros, zeros);
  }
  free(values);
  model_close(&m);
  weights_free(&r);
}

/* ---- without zeros ---- */

/* Reads a tensor of the model, named after a layer; the caller frees it. */
static void *read_part(model *m, int layer, const char *word, tensor_type type, uint64_t count) {
  char name[96];
  snprintf(name, sizeof name, "model.layers.%d.mlp.up_proj.%s", layer, word);
  const model_tensor *t = model_find(m, name);
  if (t == NULL) FAIL("no tensor %s", name);
  CHECK(t->facts->stored == type);
  CHECK_U64(t->facts->count, count);
  void *bytes = malloc(t->facts->bytes);
  CHECK_OK(source_read(&m->files[t->file].from, t->facts->offset, bytes, t->facts->bytes));
  return bytes;
}

/* Compares a layer without its zeros with the same layer stored dense. */
static void check_sparse(model *m, model *dense, int layer, bool two_of_four) {
  float *want = read_part(dense, layer, "weight", TENSOR_F32, VALUES);
  uint64_t kept = 0, at = 0;
  for (size_t i = 0; i < VALUES; i++) kept += want[i] != 0;
  float *values = read_part(m, layer, "compressed", TENSOR_F32, two_of_four ? VALUES / 2 : kept);
  uint8_t *bits = read_part(m, layer, "bitmask", TENSOR_U8, VALUES / 8);
  int64_t *shape = read_part(m, layer, "shape", TENSOR_I64, 2);
  int64_t *rows = two_of_four ? NULL : read_part(m, layer, "row_offsets", TENSOR_I64, ROWS);
  CHECK(shape[0] == ROWS && shape[1] == COLUMNS);
  for (size_t i = 0; i < VALUES; i++) {
    if (rows != NULL && i % COLUMNS == 0) CHECK_U64(rows[i / COLUMNS], at);
    bool is_kept = bits[i / 8] >> i % 8 & 1;
    CHECK((is_kept ? values[at] : 0) == want[i]);
    at += is_kept;
    if (two_of_four && i % 4 == 3) CHECK_U64(at, (i + 1) / 2);
  }
  free(want), free(values), free(bits), free(shape), free(rows);
}

TEST(sparse_layouts_hold_the_same_values_as_the_dense_model)
{
  make_model();
  for (size_t i = 0; i < VALUES; i += 64) memset(made + i, 0, 5 * sizeof *made); /* four equal */
  static const char *names[] = {"model.layers.0.mlp.up_proj.weight",
                                "model.layers.1.mlp.up_proj.weight",
                                "model.layers.2.mlp.up_proj.weight"};
  write_model(path_buffer[0], names, LAYERS, ROWS, COLUMNS, made);
  const weights_options all[] = {
      {.prune = 0.6}, {.prune_2_4 = true}, {.prune = 0.3, .prune_model = true}};
  for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
    weights_options o = all[k];
    weights_result r;
    model m, dense;
    CHECK_OK(shrink(path_of(1, "dense.safetensors"), &o, &small));
    o.sparse = o.verify = true;
    CHECK_OK(weights_shrink(&r, path_buffer[0], path_of(2, "out.safetensors"), &o, &small));
    CHECK(r.verified && r.bytes_after < r.bytes);
    weights_free(&r);
    CHECK_OK(model_open(&m, path_buffer[2], 1 << 20));
    CHECK_OK(model_open(&dense, path_buffer[1], 1 << 20));
    for (int i = 0; i < LAYERS; i++) check_sparse(&m, &dense, i, o.prune_2_4);
    model_close(&m), model_close(&dense);
  }
}

TEST(a_tensor_that_gains_nothing_stays_dense)
{
  make_model();
  for (size_t i = 0; i < VALUES; i++)
    if (i % 3 != 0) made[i] = 0; /* the first layer has zeros, the others have none */
  static const char *names[] = {"model.layers.0.mlp.up_proj.weight",
                                "model.layers.1.mlp.up_proj.weight",
                                "model.layers.2.mlp.up_proj.weight"};
  write_model(path_buffer[0], names, LAYERS, ROWS, COLUMNS, made);
  weights_options o = {.sparse = true};
  weights_result r;
  CHECK_OK(weights_shrink(&r, path_buffer[0], path_of(2, "out.safetensors"), &o, &small));
  CHECK(r.items[0].action == ACTION_BITMASK);
  CHECK(r.items[1].action == ACTION_COPY && r.items[2].action == ACTION_COPY);
  CHECK_U64(r.changed, 1);
  weights_free(&r);
  model m, in;
  CHECK_OK(model_open(&m, path_buffer[2], 1 << 20));
  CHECK_OK(model_open(&in, path_buffer[0], 1 << 20));
  check_sparse(&m, &in, 0, false);
  model_close(&m), model_close(&in);
  o.quantize = WEIGHTS_INT8;
  CHECK_STATUS(shrink(path_of(3, "no.safetensors"), &o, &small), STOW_ERR_INVALID);
}

TEST(two_of_four_stay_even_if_one_is_nan)
{
  make_model();
  for (size_t i = 0; i < VALUES; i += 8) made[i] = NAN;
  const char *names[] = {"a.weight", "b.weight", "c.weight"};
  write_model(path_buffer[0], names, LAYERS, ROWS, COLUMNS, made);
  weights_options o = {.prune_2_4 = true, .allow_nan = true};
  CHECK_OK(shrink(path_of(1, "out.safetensors"), &o, &small));
  model m;
  CHECK_OK(model_open(&m, path_buffer[1], 1 << 20));
  float *values = malloc(VALUES * 4);
  CHECK_OK(source_read(&m.files[0].from, m.list[0].facts->offset, values, VALUES * 4));
  for (size_t i = 0; i < VALUES; i += 4) {
    int kept = 0;
    for (size_t k = 0; k < 4; k++) kept += values[i + k] != 0;
    CHECK(kept == 2);
  }
  free(values);
  model_close(&m);
}

TEST(pruned_float64_values_keep_all_their_digits)
{
  enum { WIDE = 64 };
  double values[WIDE * WIDE], read[WIDE * WIDE];
  char header[256];
  seed = 9;
  for (size_t i = 0; i < WIDE * WIDE; i++) values[i] = (double)normal() * 1.0000000001;
  int length =
      snprintf(header, sizeof header,
               "{\"a.weight\":{\"dtype\":\"F64\",\"shape\":[%d,%d],\"data_offsets\":[0,%zu]}}",
               WIDE, WIDE, sizeof values);
  buffer b = BUFFER_INIT;
  uint64_t prefix = (uint64_t)length;
  buffer_append(&b, &prefix, 8);
  buffer_append(&b, header, (size_t)length);
  buffer_append(&b, values, sizeof values);
  CHECK_OK(b.status);
  write_file(path_of(0, "in.safetensors"), b.data, b.length);
  buffer_free(&b);
  weights_options o = {.prune = 0.5};
  CHECK_OK(shrink(path_of(1, "out.safetensors"), &o, &small));
  model m;
  CHECK_OK(model_open(&m, path_buffer[1], 1 << 20));
  CHECK_OK(source_read(&m.files[0].from, m.list[0].facts->offset, read, sizeof read));
  size_t kept = 0;
  for (size_t i = 0; i < WIDE * WIDE; i++) {
    CHECK(read[i] == 0 || read[i] == values[i]);
    kept += read[i] != 0;
  }
  CHECK(kept > WIDE * WIDE * 2 / 5 && kept < WIDE * WIDE * 3 / 5);
  model_close(&m);
}

/* ---- stopped and resumed ---- */

typedef struct stop_at {
  uint64_t calls, limit;
} stop_at;

static stow_status stop(void *context, uint64_t done, uint64_t total) {
  stop_at *s = context;
  (void)done, (void)total;
  return ++s->calls > s->limit ? stow_fail(STOW_ERR_INTERRUPTED, "stopped") : STOW_OK;
}

TEST(a_stopped_run_is_resumed_to_the_same_output)
{
  make_model();
  weights_options o = {.type = TENSOR_F16}, again = o;
  CHECK_OK(shrink(path_of(1, "whole.safetensors"), &o, &small));
  stop_at s = {.limit = 4}; /* two chunks for each tensor of 153600 values */
  budget b = {.bytes = 4 << 20, .threads = 1, .progress = stop, .context = &s};
  const char *out = path_of(2, "part.safetensors");
  CHECK_STATUS(shrink(out, &o, &b), STOW_ERR_INTERRUPTED);
  CHECK(access(out, F_OK) != 0);
  again.resume = true, again.verify = true;
  b.progress = NULL;
  weights_result r;
  CHECK_OK(weights_shrink(&r, path_buffer[0], out, &again, &b));
  CHECK(r.resumed && r.verified);
  CHECK(r.error.values == LAYERS * VALUES);
  weights_free(&r);
  same_files(path_buffer[1], out);
  char left[4200];
  snprintf(left, sizeof left, "%s.resume", out);
  CHECK(access(left, F_OK) != 0);
}

TEST(a_run_is_resumed_with_other_threads)
{
  make_model();
  weights_options o = {.type = TENSOR_F16}, again = {.type = TENSOR_F16, .resume = true};
  CHECK_OK(shrink(path_of(1, "whole.safetensors"), &o, &small));
  static const struct {
    uint64_t calls; /* one for each chunk: the first tensor is complete */
    uint64_t mib_before, mib_after;
    unsigned threads_after;
    bool resumed;
  } runs[] = {
      {4, 6, 6, 2, true},   {4, 6, 6, 64, true},
      {4, 6, 16, 1, true},  {2, 24, 24, 4, true}, /* one thread for the chunks of before */
      {2, 24, 6, 1, false},                       /* whose chunks do not fit */
  };
  for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
    stop_at s = {.limit = runs[i].calls};
    budget b = {.bytes = runs[i].mib_before << 20, .threads = 1, .progress = stop, .context = &s};
    const char *out = path_of(2, "part.safetensors");
    unlink(out);
    CHECK_STATUS(shrink(out, &o, &b), STOW_ERR_INTERRUPTED);
    b = (budget){.bytes = runs[i].mib_after << 20, .threads = runs[i].threads_after};
    weights_result r;
    CHECK_OK(weights_shrink(&r, path_buffer[0], out, &again, &b));
    CHECK(r.resumed == runs[i].resumed);
    weights_free(&r);
    same_files(path_buffer[1], out);
  }
}

TEST(a_sparse_run_is_resumed_to_the_same_output)
{
  make_model();
  weights_options o = {.prune = 0.5, .sparse = true}, again = o;
  CHECK_OK(shrink(path_of(1, "whole.safetensors"), &o, &small));
  /* 3 chunks for each tensor: 18 calls for the thresholds, 9 for the counts, then the output. */
  stop_at s = {.limit = 18 + 9 + 4};
  budget b = {.bytes = 4 << 20, .threads = 1, .progress = stop, .context = &s};
  const char *out = path_of(2, "part.safetensors");
  CHECK_STATUS(shrink(out, &o, &b), STOW_ERR_INTERRUPTED);
  CHECK(access(out, F_OK) != 0);
  again.resume = again.verify = true;
  b.progress = NULL;
  weights_result r;
  CHECK_OK(weights_shrink(&r, path_buffer[0], out, &again, &b));
  CHECK(r.resumed && r.verified);
  weights_free(&r);
  same_files(path_buffer[1], out);
}

TEST(a_resume_with_other_options_begins_again)
{
  make_model();
  stop_at s = {.limit = 4};
  budget b = {.bytes = 4 << 20, .threads = 1, .progress = stop, .context = &s};
  weights_options o = {.type = TENSOR_F16};
  const char *out = path_of(2, "part.safetensors");
  CHECK_STATUS(shrink(out, &o, &b), STOW_ERR_INTERRUPTED);
  o = (weights_options){.type = TENSOR_BF16, .resume = true};
  b.progress = NULL;
  weights_result r;
  CHECK_OK(weights_shrink(&r, path_buffer[0], out, &o, &b));
  CHECK(!r.resumed);
  weights_free(&r);
  o.resume = false;
  CHECK_OK(shrink(path_of(1, "whole.safetensors"), &o, &small));
  same_files(path_buffer[1], out);
}

/* ---- files and folders ---- */

TEST(shards_join_to_the_same_file)
{
  make_model();
  weights_options cut = {.shard_bytes = 700 << 10}, none = {0};
  weights_result r;
  CHECK_OK(weights_shrink(&r, path_buffer[0], path_of(1, "cut"), &cut, &small));
  CHECK_U64(r.file_count, 3);
  weights_free(&r);
  CHECK_OK(weights_shrink(&r, path_buffer[1], path_of(2, "joined.safetensors"), &none, &small));
  weights_free(&r);
  CHECK_OK(weights_shrink(&r, path_buffer[0], path_of(3, "copy.safetensors"), &none, &small));
  weights_free(&r);
  same_files(path_buffer[2], path_buffer[3]);
  char index[4200];
  snprintf(index, sizeof index, "%s/model.safetensors.index.json", path_buffer[1]);
  write_file(index, "{\"weight_map\":{\"w\":\"../in.safetensors\"}}", 40);
  CHECK_STATUS(weights_shrink(&r, path_buffer[1], path_of(4, "no.safetensors"), &none, &small),
               STOW_ERR_FORMAT);
  write_file(index, "{\"weight_map\":{\"w\":\"model-00001-of-00003.safetensors\"}}", 55);
  CHECK_STATUS(weights_shrink(&r, path_buffer[1], path_of(4, "no.safetensors"), &none, &small),
               STOW_ERR_FORMAT);
}

TEST(a_folder_is_carried_over_and_its_config_brought_up_to_date)
{
  char path[4200];
  size_t count;
  const char *folder = path_of(5, "model");
  make_model();
  CHECK(mkdir(folder, 0755) == 0);
  snprintf(path, sizeof path, "%s/model.safetensors", folder);
  CHECK(rename(path_buffer[0], path) == 0);
  snprintf(path, sizeof path, "%s/config.json", folder);
  const char *config = "{\n  \"torch_dtype\": \"float32\",\n  \"x\": [1, 2]\n}\n";
  write_file(path, config, strlen(config));
  snprintf(path, sizeof path, "%s/tokenizer.json", folder);
  write_file(path, "{}", 2);
  snprintf(path, sizeof path, "%s/other.onnx", folder);
  write_file(path, "old", 3);
  weights_options o = {.type = TENSOR_F16};
  weights_result r;
  CHECK_OK(weights_shrink(&r, folder, path_of(6, "small"), &o, &small));
  CHECK(r.carried == 2 && r.left_out == 1);
  weights_free(&r);
  snprintf(path, sizeof path, "%s/config.json", path_buffer[6]);
  char *text = read_file(path, &count);
  text[count] = '\0';
  CHECK_TEXT(text, "{\n  \"torch_dtype\": \"float16\",\n  \"x\": [1, 2]\n}\n");
  free(text);
  /* An existing folder is never mixed with, nor the input written into. */
  CHECK_STATUS(weights_shrink(&r, folder, path_buffer[6], &o, &small), STOW_ERR_INVALID);
  snprintf(path, sizeof path, "%s/inner", folder);
  CHECK_STATUS(weights_shrink(&r, folder, path, &o, &small), STOW_ERR_INVALID);
  o = (weights_options){.quantize = WEIGHTS_INT8};
  CHECK_OK(weights_shrink(&r, folder, path_of(7, "int8"), &o, &small));
  weights_free(&r);
  snprintf(path, sizeof path, "%s/config.json", path_buffer[7]);
  text = read_file(path, &count);
  text[count] = '\0';
  CHECK(strstr(text, "\"quantization_config\"") != NULL && strstr(text, "pack-quantized") != NULL);
  free(text);
}

TEST(what_cannot_be_done_is_refused_before_anything_is_written)
{
  make_model();
  weights_options o = {.type = TENSOR_F16};
  CHECK_STATUS(shrink(path_of(1, "x.gguf"), &o, &small), STOW_ERR_INVALID);
  CHECK_MESSAGE("convert_hf_to_gguf.py");
  CHECK_STATUS(shrink(path_buffer[0], &o, &small), STOW_ERR_INVALID);
  o = (weights_options){.quantize = WEIGHTS_Q4_0};
  CHECK_STATUS(shrink(path_of(1, "x.safetensors"), &o, &small), STOW_ERR_INVALID);
  const char *const nothing[] = {"no.such.*"};
  o = (weights_options){.type = TENSOR_F16, .include = nothing, .include_count = 1};
  CHECK_STATUS(shrink(path_buffer[1], &o, &small), STOW_ERR_INVALID);
  o = (weights_options){.shard_bytes = 1 << 20};
  CHECK_STATUS(shrink(path_buffer[1], &o, &small), STOW_ERR_INVALID);
  CHECK(access(path_buffer[1], F_OK) != 0);
}

TEST(torch_files_are_read_and_code_in_them_is_refused)
{
  static const struct {
    const char *name;
    stow_status status;
    size_t count;
  } cases[] = {{"state_dict", STOW_OK, 3},
               {"ordered_tied", STOW_OK, 3},
               {"float8", STOW_OK, 1},
               {"protocol4", STOW_OK, 1},
               {"strided", STOW_OK, 1},
               {"nested", STOW_OK, 1}, /* the model of a checkpoint */
               {"evil", STOW_ERR_UNSUPPORTED, 0},
               {"old", STOW_OK, 3}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    source from;
    tensors t;
    char path[4096];
    snprintf(path, sizeof path, STOW_SOURCE_DIR "/tests/fuzz/corpus/torch/%s", cases[i].name);
    CHECK_OK(source_open_file(&from, path));
    CHECK_STATUS(torch_file_read(&t, &from, 1 << 20), cases[i].status);
    if (cases[i].status == STOW_OK) {
      CHECK_U64(t.count, cases[i].count);
      float values[6];
      if (strcmp(cases[i].name, "strided") == 0) { /* 3 by 2: the transpose of 2 by 3 */
        CHECK_OK(source_read(&from, t.list[0].offset, values, sizeof values));
        CHECK(values[1] == 3 && values[2] == 1 && values[5] == 5 && t.list[0].shape[1] == 2);
      } else if (t.list[0].stored == TENSOR_F32) {
        CHECK_OK(source_read(&from, t.list[0].offset, values, sizeof values));
        CHECK(values[0] == 0 && values[5] == 5 && t.list[0].shape[1] == 3);
      }
      tensors_free(&t);
    }
    source_close(&from);
  }
}

/* ---- merging ---- */

enum { RANK = 4 };

/* Writes an adapter for layer 1: A is RANK x COLUMNS, B is ROWS x RANK. */
static void write_adapter(const char *folder, const float *a, const float *b, const char *config) {
  char path[4200];
  buffer out = BUFFER_INIT, header = BUFFER_INIT;
  size_t a_bytes = RANK * COLUMNS * 4, b_bytes = ROWS * RANK * 4;
  CHECK(mkdir(folder, 0755) == 0);
  snprintf(path, sizeof path, "%s/adapter_config.json", folder);
  write_file(path, config, strlen(config));
  buffer_printf(
      &header,
      "{\"base_model.model.model.layers.1.mlp.up_proj.lora_A.weight\":{\"dtype\":\"F32\","
      "\"shape\":[%d,%d],\"data_offsets\":[0,%zu]},\"base_model.model.model.layers.1.mlp."
      "up_proj.lora_B.weight\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[%zu,"
      "%zu]}}",
      RANK, COLUMNS, a_bytes, ROWS, RANK, a_bytes, a_bytes + b_bytes);
  for (int i = 0; i < 8; i++) buffer_char(&out, (char)((uint64_t)header.length >> (8 * i)));
  buffer_append(&out, header.data, header.length);
  buffer_append(&out, a, a_bytes);
  buffer_append(&out, b, b_bytes);
  snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
  write_file(path, out.data, out.length);
  buffer_free(&out);
  buffer_free(&header);
}

TEST(a_merge_is_the_float64_merge_rounded_once)
{
  static float a[RANK * COLUMNS], b[ROWS * RANK], values[VALUES];
  make_model();
  for (size_t i = 0; i < RANK * COLUMNS; i++) a[i] = normal() * 0.05f;
  for (size_t i = 0; i < ROWS * RANK; i++) b[i] = normal() * 0.05f;
  const char *folder = path_of(1, "adapter");
  write_adapter(folder, a, b,
                "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":6,\"use_rslora\":true}");
  merge_result r;
  weights_options o = {.verify = true};
  const char *const list[] = {folder};
  CHECK_OK(
      weights_merge(&r, path_buffer[0], list, 1, path_of(2, "merged.safetensors"), &o, &small));
  CHECK(r.merged == 1 && r.replaced == 0 && r.weights.verified);
  merge_free(&r);
  model m;
  CHECK_OK(model_open(&m, path_buffer[2], 1 << 20));
  for (size_t k = 0; k < LAYERS; k++) {
    CHECK_OK(source_read(&m.files[0].from, m.list[k].facts->offset, values, sizeof values));
    for (size_t i = 0; i < VALUES; i++) {
      double sum = 0, was = (double)made[k * VALUES + i];
      for (size_t n = 0; n < RANK && k == 1; n++)
        sum += (double)b[i / COLUMNS * RANK + n] * (double)a[n * COLUMNS + i % COLUMNS];
      float want = (float)(was + 3.0 * sum);
      CHECK(values[i] == want || fabsf(values[i] - want) <= fabsf(want) * 0x1p-22f);
    }
  }
  model_close(&m);
}

TEST(adapters_that_do_not_fit_are_refused)
{
  static float a[RANK * COLUMNS], b[ROWS * RANK];
  static const char *const configs[] = {
      "{\"peft_type\":\"IA3\",\"r\":4,\"lora_alpha\":6}",
      "{\"peft_type\":\"LORA\",\"lora_alpha\":6}",
      "{\"peft_type\":\"LORA\",\"r\":8,\"lora_alpha\":6}",
      "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":6,\"use_dora\":true}",
      "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":6,\"init_lora_weights\":\"pissa_niter_4\"}",
      "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":6,\"layer_replication\":[[0,2]]}",
      "not json",
  };
  make_model();
  weights_options o = {0};
  merge_result r;
  for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
    char name[16];
    snprintf(name, sizeof name, "adapter%zu", i);
    const char *folder = path_of(1, name), *const list[] = {folder};
    write_adapter(folder, a, b, configs[i]);
    CHECK(weights_merge(&r, path_buffer[0], list, 1, path_of(2, "m.safetensors"), &o, &small) !=
          STOW_OK);
    CHECK(access(path_buffer[2], F_OK) != 0);
  }
}

TEST(an_adapter_with_nan_is_named)
{
  static float a[RANK * COLUMNS], b[ROWS * RANK];
  make_model();
  a[7] = NAN, a[9] = INFINITY;
  const char *folder = path_of(1, "adapter-nan"), *const list[] = {folder};
  write_adapter(folder, a, b, "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":6}");
  weights_options o = {0};
  merge_result r;
  const char *out = path_of(2, "nan-merged.safetensors");
  CHECK_STATUS(weights_merge(&r, path_buffer[0], list, 1, out, &o, &small), STOW_ERR_INVALID);
  CHECK_MESSAGE("lora_A.weight of the adapter: 2 values are NaN or infinite: a damaged or diverged "
                "adapter; use --allow-nan to merge it anyway");
  o.allow_nan = true;
  CHECK_OK(weights_merge(&r, path_buffer[0], list, 1, out, &o, &small));
  merge_free(&r);
}

/* Writes a file of one tensor "w". */
static const char *one_tensor(int which, const char *type, const char *shape, const void *bytes,
                              size_t count) {
  char name[32], header[256], file[4096];
  snprintf(name, sizeof name, "one%d.safetensors", which);
  uint64_t length = (uint64_t)snprintf(
      header, sizeof header, "{\"w\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[0,%zu]}}",
      type, shape, count);
  memcpy(file, &length, 8);
  memcpy(file + 8, header, length);
  memcpy(file + 8 + length, bytes, count);
  write_file(path_of(which, name), file, 8 + length + count);
  return path_buffer[which];
}

TEST(messages_of_values_that_are_not_finite_name_what_helps)
{
  const float largest = 3.4e38f, half = 1e5f;
  const double huge = 1e300;
  weights_options o = {.type = TENSOR_BF16};
  weights_result r;
  one_tensor(0, "F32", "1", &largest, 4);
  const char *out = path_of(2, "large-out.safetensors");
  CHECK_STATUS(weights_shrink(&r, path_buffer[0], out, &o, &small), STOW_ERR_INVALID);
  CHECK_MESSAGE("w: 1 value is too large for bfloat16 and would become infinite; use --dtype f32, "
                "leave the tensor as it is with --exclude, or use --allow-nan to write it anyway");
  one_tensor(0, "F64", "1", &huge, 8);
  o.type = TENSOR_F32;
  CHECK_STATUS(weights_shrink(&r, path_buffer[0], out, &o, &small), STOW_ERR_INVALID);
  CHECK_MESSAGE("would become infinite; leave the tensor as it is with --exclude, or use --allow");
  one_tensor(0, "F32", "1", &half, 4);
  o.type = TENSOR_F16;
  CHECK_STATUS(weights_shrink(&r, path_buffer[0], out, &o, &small), STOW_ERR_INVALID);
  CHECK_MESSAGE("use --dtype bf16 or f32, leave");
}

/* ---- inspecting ---- */

TEST(equal_tensors_and_differences_are_found)
{
  const char *names[] = {"a.weight", "b.weight", "c.weight"};
  make_model();
  memcpy(made + 2 * VALUES, made, VALUES * 4);
  made[2 * VALUES + 77777] += 0; /* c equals a */
  write_model(path_buffer[0], names, LAYERS, ROWS, COLUMNS, made);
  model_facts f;
  CHECK_OK(model_inspect(&f, path_buffer[0], &small));
  CHECK(f.same[0] == 0 && f.same[1] == 1 && f.same[2] == 0);
  CHECK_U64(f.same_bytes, VALUES * 4);
  CHECK_U64(f.parameters, LAYERS * VALUES);
  model_facts_free(&f);
  made[2 * VALUES + 77777] += 0.5f; /* outside the samples */
  write_model(path_of(1, "b.safetensors"), names, LAYERS, ROWS, COLUMNS, made);
  CHECK_OK(model_inspect(&f, path_buffer[1], &small));
  CHECK(f.same[2] == 2 && f.same_bytes == 0);
  model_facts_free(&f);
  model_diff d;
  CHECK_OK(model_compare(&d, path_buffer[0], path_buffer[1], &small));
  CHECK(d.items[0].kind == DIFF_SAME && d.items[2].kind == DIFF_VALUES && !model_diff_equal(&d));
  CHECK(fabs(d.items[2].error.max_error - 0.5) < 1e-6);
  model_diff_free(&d);
}

/* Compares two such files, and checks the figures of the JSON and a part of the text. */
static void check_diff(const char *rms, const char *max, const char *part) {
  model_diff d;
  buffer text = BUFFER_INIT, out = BUFFER_INIT;
  json j = JSON_PRETTY(&out);
  char line[128];
  CHECK_OK(model_compare(&d, path_buffer[0], path_buffer[1], &small));
  CHECK(!model_diff_equal(&d));
  CHECK_OK(model_diff_text(&text, &d, "A", "B", false));
  if (strstr(text.data, part) == NULL) FAIL("\"%s\" lacks \"%s\"", text.data, part);
  model_diff_json(&j, &d, "A", "B");
  snprintf(line, sizeof line, "\"relative_rms_error\": %s,", rms);
  for (const char *at = out.data; (at = strstr(at, "\"relative_rms_error\"")) != NULL; at++)
    if (strncmp(at, line, strlen(line)) != 0) FAIL("%.40s, expected %s", at, line);
  snprintf(line, sizeof line, "\"max_error\": %s,", max);
  for (const char *at = out.data; (at = strstr(at, "\"max_error\"")) != NULL; at++)
    if (strncmp(at, line, strlen(line)) != 0) FAIL("%.40s, expected %s", at, line);
  buffer_free(&text);
  buffer_free(&out);
  model_diff_free(&d);
}

TEST(differences_that_are_not_known_are_not_zero)
{
  const float odd[4] = {NAN, 1, INFINITY, NAN}, fine[4] = {2, 1, -INFINITY, NAN};
  const float zeros[4] = {0}, ones[4] = {1, 1, 1, 1};
  const double large[2] = {1e300, 3}, larger[2] = {1e300, 4};
  const int64_t whole[2] = {INT64_C(9007199254740993), -4},
                other[2] = {INT64_C(9007199254740992), -4};
  const uint8_t eight[4] = {0x38, 0x38, 0x38, 0x40}; /* 1, 1, 1, 2 */
  const uint8_t words[3] = {1, 2, 3};
  one_tensor(0, "F32", "4", odd, 16), one_tensor(1, "F32", "4", fine, 16);
  check_diff("null", "null", "not finite: 2 values differ where A or B has NaN or infinity\n");
  one_tensor(0, "F32", "4", zeros, 16), one_tensor(1, "F32", "4", ones, 16);
  check_diff("null", "1", "difference: at most 1; all values of A are 0\n");
  one_tensor(0, "F64", "2", large, 16), one_tensor(1, "F64", "2", larger, 16);
  check_diff("0", "1", "at most 1\n");
  one_tensor(0, "I64", "2", whole, 16), one_tensor(1, "I64", "2", other, 16);
  check_diff("1.1102230246251565e-16", "1", "at most 1\n");
  one_tensor(0, "F32", "4", ones, 16), one_tensor(1, "F8_E4M3", "4", eight, 4);
  check_diff("0.5", "1", "difference: 50% RMS, at most 1\n");
  one_tensor(0, "F4", "4", words, 2), one_tensor(1, "F4", "4", words + 1, 2);
  check_diff("null", "null", "not compared: the values of 1 tensor, packed");
}

TEST_MAIN
