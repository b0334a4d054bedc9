/* Layers: adapters that change more than the weights of linear layers. The expected values are
 * computed here from PEFT's definitions, one by one. */
#include "data/weights/merge.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness.h"

enum { EXPERTS = 3, RANK = 2, HIDDEN = 10, INNER = 6, VOCABULARY = 12 };
#define SCALE    2.5 /* lora_alpha 5, r 2 */
#define CONFIG   "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":5"
#define PREFIX   "base_model.model."
#define MLP      "model.layers.0.mlp."
#define EXPERTS_ MLP "experts."
#define BOTH     ",\"target_parameters\":[\"experts.gate_up_proj\",\"mlp.experts.down_proj\"]}"

typedef struct entry {
  char name[128];
  size_t shape[3]; /* 0 ends it */
  float *values;
  size_t count;
} entry;

typedef struct file {
  entry list[32];
  size_t count;
} file;

static uint64_t seed = 11;

static float *add(file *f, const char *name, size_t a, size_t b, size_t c) {
  entry *e = &f->list[f->count++];
  snprintf(e->name, sizeof e->name, "%s", name);
  e->shape[0] = a, e->shape[1] = b, e->shape[2] = c;
  e->count = a * (b > 0 ? b : 1) * (c > 0 ? c : 1);
  e->values = malloc(e->count * sizeof *e->values);
  for (size_t i = 0; i < e->count; i++)
    e->values[i] = (float)(harness_random(&seed) >> 40) * 0x1p-24f - 0.5f;
  return e->values;
}

static const float *values_of(const file *f, const char *name) {
  for (size_t i = 0; i < f->count; i++)
    if (strcmp(f->list[i].name, name) == 0) return f->list[i].values;
  FAIL("no tensor %s", name);
  return NULL;
}

static void drop(file *f) {
  for (size_t i = 0; i < f->count; i++) free(f->list[i].values);
  f->count = 0;
}

static void write_bytes(const char *path, const void *bytes, size_t count) {
  FILE *out = fopen(path, "wb");
  CHECK(out != NULL && fwrite(bytes, 1, count, out) == count && fclose(out) == 0);
}

static void write_tensors(const file *f, const char *path) {
  buffer header = BUFFER_INIT, all = BUFFER_INIT;
  size_t at = 0;
  for (size_t i = 0; i < f->count; i++) {
    const entry *e = &f->list[i];
    buffer_printf(&header, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%zu", i > 0 ? "," : "{", e->name,
                  e->shape[0]);
    for (size_t k = 1; k < 3 && e->shape[k] > 0; k++) buffer_printf(&header, ",%zu", e->shape[k]);
    buffer_printf(&header, "],\"data_offsets\":[%zu,%zu]}", at, at + e->count * 4);
    at += e->count * 4;
  }
  buffer_char(&header, '}');
  for (int i = 0; i < 8; i++) buffer_char(&all, (char)((uint64_t)header.length >> (8 * i)));
  buffer_append(&all, header.data, header.length);
  for (size_t i = 0; i < f->count; i++)
    buffer_append(&all, f->list[i].values, f->list[i].count * 4);
  CHECK_OK(all.status);
  write_bytes(path, all.data, all.length);
  buffer_free(&header);
  buffer_free(&all);
}

/* Merges the adapter into the base. On success `out` has the tensors of the result. */
static stow_status merge(const file *base, const file *adapter, const char *config, file *out) {
  static const budget small = {.bytes = 16 << 20, .threads = 2};
  char path[3][4096], name[4200];
  static int number;
  number++;
  snprintf(path[0], sizeof path[0], "%s/base%d.safetensors", harness_folder(), number);
  snprintf(path[1], sizeof path[1], "%s/adapter%d", harness_folder(), number);
  snprintf(path[2], sizeof path[2], "%s/merged%d.safetensors", harness_folder(), number);
  write_tensors(base, path[0]);
  CHECK(mkdir(path[1], 0755) == 0);
  snprintf(name, sizeof name, "%s/adapter_model.safetensors", path[1]);
  write_tensors(adapter, name);
  snprintf(name, sizeof name, "%s/adapter_config.json", path[1]);
  write_bytes(name, config, strlen(config));
  const char *const list[] = {path[1]};
  weights_options o = {.verify = true};
  merge_result r;
  STOW_TRY(weights_merge(&r, path[0], list, 1, path[2], &o, &small));
  merge_free(&r);
  model m;
  CHECK_OK(model_open(&m, path[2], 1 << 20));
  for (size_t i = 0; i < m.count; i++) {
    const tensor *t = m.list[i].facts;
    float *to = add(out, t->name, (size_t)t->count, 0, 0);
    CHECK_OK(source_read(&m.files[0].from, t->offset, to, (size_t)t->count * 4));
  }
  model_close(&m);
  return STOW_OK;
}

static void check_value(float got, double want) {
  CHECK(got == (float)want || fabs((double)got - want) <= fabs(want) * 0x1p-23);
}

/* Returns one value of B_e A_e as PEFT stacks them; `in` is the width of A. */
static double delta(const float *a, const float *b, size_t e, size_t out, size_t in_at, size_t in) {
  double sum = 0;
  for (size_t k = 0; k < RANK; k++)
    sum +=
        (double)b[out * RANK * EXPERTS + k * EXPERTS + e] * (double)a[(e * RANK + k) * in + in_at];
  return SCALE * sum;
}

TEST(experts_in_one_tensor_take_their_own_part)
{
  file base = {0}, adapter = {0}, out = {0};
  const float *up = add(&base, EXPERTS_ "gate_up_proj", EXPERTS, HIDDEN, 2 * INNER);
  const float *down = add(&base, EXPERTS_ "down_proj", EXPERTS, HIDDEN, HIDDEN);
  /* PEFT nests the parameters: gate_up_proj is inside. The experts are in x out, which the square
   * down_proj does not show. */
  const float *up_a =
      add(&adapter, PREFIX EXPERTS_ "base_layer.lora_A.weight", EXPERTS * RANK, HIDDEN, 0);
  const float *up_b =
      add(&adapter, PREFIX EXPERTS_ "base_layer.lora_B.weight", 2 * INNER, EXPERTS * RANK, 0);
  const float *a = add(&adapter, PREFIX EXPERTS_ "lora_A.weight", EXPERTS * RANK, HIDDEN, 0);
  const float *b = add(&adapter, PREFIX EXPERTS_ "lora_B.weight", HIDDEN, EXPERTS * RANK, 0);
  CHECK_OK(merge(&base, &adapter, CONFIG BOTH, &out));
  const float *new_up = values_of(&out, EXPERTS_ "gate_up_proj");
  const float *new_down = values_of(&out, EXPERTS_ "down_proj");
  for (size_t e = 0; e < EXPERTS; e++)
    for (size_t i = 0; i < HIDDEN; i++) {
      for (size_t o = 0; o < 2 * INNER; o++) {
        size_t at = (e * HIDDEN + i) * 2 * INNER + o;
        check_value(new_up[at], (double)up[at] + delta(up_a, up_b, e, o, i, HIDDEN));
      }
      for (size_t o = 0; o < HIDDEN; o++) {
        size_t at = (e * HIDDEN + i) * HIDDEN + o;
        check_value(new_down[at], (double)down[at] + delta(a, b, e, o, i, HIDDEN));
      }
    }
  drop(&base);
  drop(&adapter);
  drop(&out);
}

TEST(experts_stored_one_by_one_take_their_own_part)
{
  static const char *const parts[] = {"w1", "w3"};
  file base = {0}, adapter = {0}, out = {0};
  char name[128];
  for (size_t e = 0; e < EXPERTS; e++)
    for (size_t k = 0; k < 2; k++) {
      snprintf(name, sizeof name, "model.layers.0.block_sparse_moe.experts.%zu.%s.weight", e,
               parts[k]);
      add(&base, name, INNER, HIDDEN, 0);
    }
  add(&base, MLP "shared.gate_up_proj.weight", INNER, HIDDEN, 0); /* an ordinary layer */
  const float *a = add(&adapter, PREFIX EXPERTS_ "lora_A.weight", EXPERTS * RANK, HIDDEN, 0);
  const float *b = add(&adapter, PREFIX EXPERTS_ "lora_B.weight", 2 * INNER, EXPERTS * RANK, 0);
  add(&adapter, PREFIX MLP "shared.gate_up_proj.lora_A.weight", RANK, HIDDEN, 0);
  add(&adapter, PREFIX MLP "shared.gate_up_proj.lora_B.weight", INNER, RANK, 0);
  CHECK_OK(merge(&base, &adapter, CONFIG ",\"target_parameters\":[\"gate_up_proj\"]}", &out));
  for (size_t e = 0; e < EXPERTS; e++)
    for (size_t k = 0; k < 2; k++) {
      const float *was = base.list[e * 2 + k].values;
      const float *now = values_of(&out, base.list[e * 2 + k].name);
      for (size_t i = 0; i < INNER * HIDDEN; i++)
        check_value(now[i],
                    (double)was[i] + delta(a, b, e, k * INNER + i / HIDDEN, i % HIDDEN, HIDDEN));
    }
  drop(&base);
  drop(&adapter);
  drop(&out);
}

TEST(experts_whose_shapes_leave_a_choice_are_refused)
{
  file base = {0}, adapter = {0}, out = {0};
  add(&base, EXPERTS_ "down_proj", EXPERTS, HIDDEN, HIDDEN);
  add(&adapter, PREFIX EXPERTS_ "lora_A.weight", EXPERTS * RANK, HIDDEN, 0);
  add(&adapter, PREFIX EXPERTS_ "lora_B.weight", HIDDEN, EXPERTS * RANK, 0);
  CHECK_STATUS(merge(&base, &adapter, CONFIG BOTH, &out), STOW_ERR_UNSUPPORTED);
  CHECK_MESSAGE("is square");
  CHECK_STATUS(merge(&base, &adapter, CONFIG ",\"rank_pattern\":{\"down_proj\":-2}" BOTH, &out),
               STOW_ERR_INVALID);
  add(&base, EXPERTS_ "gate_up_proj", EXPERTS, HIDDEN, HIDDEN);
  CHECK_STATUS(merge(&base, &adapter, CONFIG BOTH, &out), STOW_ERR_UNSUPPORTED);
  CHECK_MESSAGE("more than one");
  drop(&base);
  add(&base, EXPERTS_ "down_proj", EXPERTS, HIDDEN, HIDDEN + 1);
  CHECK_STATUS(merge(&base, &adapter, CONFIG BOTH, &out), STOW_ERR_INVALID);
  CHECK_MESSAGE("fits no parameter");
  drop(&base);
  add(&base, EXPERTS_ "down_proj_blocks", EXPERTS, HIDDEN, HIDDEN);
  CHECK_STATUS(
      merge(&base, &adapter, CONFIG ",\"target_parameters\":[\"experts.down_proj\"]}", &out),
      STOW_ERR_UNSUPPORTED);
  CHECK_MESSAGE("the base is quantized");
  drop(&base);
  drop(&adapter);
}

TEST(trained_tokens_replace_their_rows)
{
  file base = {0}, adapter = {0}, out = {0};
  const float *was = add(&base, "model.embed_tokens.weight", VOCABULARY, HIDDEN, 0);
  const float *new_rows =
      add(&adapter, PREFIX "model.embed_tokens.token_adapter.trainable_tokens_delta", 2, HIDDEN, 0);
  CHECK_OK(merge(&base, &adapter, CONFIG ",\"trainable_token_indices\":{\"embed_tokens\":[7,3]}}",
                 &out));
  const float *now = values_of(&out, "model.embed_tokens.weight");
  for (size_t i = 0; i < VOCABULARY * HIDDEN; i++) {
    size_t row = i / HIDDEN, column = i % HIDDEN;
    CHECK(now[i] == (row == 7 ? new_rows[column] : row == 3 ? new_rows[HIDDEN + column] : was[i]));
  }
  CHECK_STATUS(merge(&base, &adapter, CONFIG ",\"trainable_token_indices\":[7]}", &out),
               STOW_ERR_FORMAT);
  CHECK_STATUS(merge(&base, &adapter, CONFIG ",\"trainable_token_indices\":[7,-1]}", &out),
               STOW_ERR_FORMAT);
  CHECK_STATUS(merge(&base, &adapter, CONFIG ",\"trainable_token_indices\":[7,12]}", &out),
               STOW_ERR_INVALID);
  adapter.list[0].shape[1] = 0; /* as many numbers in one dimension */
  adapter.list[0].shape[0] = 2 * HIDDEN;
  CHECK_STATUS(merge(&base, &adapter, CONFIG ",\"trainable_token_indices\":[]}", &out),
               STOW_ERR_FORMAT);
  drop(&base);
  drop(&adapter);
  drop(&out);
}

/* W less its part in the space of its first two columns, as OLoRA leaves it. */
static double without_first_columns(const float *w, size_t row, size_t column) {
  double dot[2] = {0}, lengths[2] = {0}, mixed = 0, q[2][INNER];
  for (size_t i = 0; i < INNER; i++) lengths[0] += (double)w[i * HIDDEN] * (double)w[i * HIDDEN];
  for (size_t i = 0; i < INNER; i++) q[0][i] = (double)w[i * HIDDEN] / sqrt(lengths[0]);
  for (size_t i = 0; i < INNER; i++) mixed += q[0][i] * (double)w[i * HIDDEN + 1];
  for (size_t i = 0; i < INNER; i++) q[1][i] = (double)w[i * HIDDEN + 1] - mixed * q[0][i];
  for (size_t i = 0; i < INNER; i++) lengths[1] += q[1][i] * q[1][i];
  for (size_t i = 0; i < INNER; i++) q[1][i] /= sqrt(lengths[1]);
  for (size_t k = 0; k < 2; k++)
    for (size_t i = 0; i < INNER; i++) dot[k] += q[k][i] * (double)w[i * HIDDEN + column];
  return (double)w[row * HIDDEN + column] - SCALE * (q[0][row] * dot[0] + q[1][row] * dot[1]);
}

TEST(what_olora_took_from_the_base_is_taken_again)
{
  file base = {0}, adapter = {0}, out = {0};
  const float *was = add(&base, MLP "up_proj.weight", INNER, HIDDEN, 0);
  const float *a = add(&adapter, PREFIX MLP "up_proj.lora_A.weight", RANK, HIDDEN, 0);
  const float *b = add(&adapter, PREFIX MLP "up_proj.lora_B.weight", INNER, RANK, 0);
  CHECK_OK(merge(&base, &adapter, CONFIG ",\"init_lora_weights\":\"olora\"}", &out));
  const float *now = values_of(&out, MLP "up_proj.weight");
  for (size_t i = 0; i < INNER * HIDDEN; i++) {
    double sum = 0;
    for (size_t k = 0; k < RANK; k++)
      sum += (double)b[i / HIDDEN * RANK + k] * (double)a[k * HIDDEN + i % HIDDEN];
    double left = (double)(float)without_first_columns(was, i / HIDDEN, i % HIDDEN);
    check_value(now[i], left + SCALE * sum);
  }
  for (size_t i = 0; i < INNER; i++)
    base.list[0].values[i * HIDDEN + 1] = 3 * base.list[0].values[i * HIDDEN];
  CHECK_STATUS(merge(&base, &adapter, CONFIG ",\"init_lora_weights\":\"olora\"}", &out),
               STOW_ERR_UNSUPPORTED);
  CHECK_MESSAGE("depend on each other");
  CHECK_STATUS(merge(&base, &adapter, CONFIG ",\"init_lora_weights\":\"lora_ga\"}", &out),
               STOW_ERR_UNSUPPORTED);
  CHECK_MESSAGE("path_initial_model_for_weight_conversion");
  drop(&base);
  drop(&adapter);
  drop(&out);
}

/* Rotates the columns p and q of u, rows x columns, until they are orthogonal, and those of v with
 * them. Returns whether they were not. */
static bool rotate(double *u, size_t rows, double *v, size_t columns, size_t p, size_t q) {
  double a = 0, b = 0, g = 0;
  for (size_t i = 0; i < rows; i++) {
    a += u[i * columns + p] * u[i * columns + p];
    b += u[i * columns + q] * u[i * columns + q];
    g += u[i * columns + p] * u[i * columns + q];
  }
  if (fabs(g) <= 1e-15 * sqrt(a * b)) return false;
  double zeta = (b - a) / (2 * g), t = copysign(1 / (fabs(zeta) + sqrt(1 + zeta * zeta)), zeta);
  double c = 1 / sqrt(1 + t * t), s = c * t;
  for (size_t i = 0; i < rows + columns; i++) {
    double *row = i < rows ? u + i * columns : v + (i - rows) * columns, old = row[p];
    row[p] = c * old - s * row[q];
    row[q] = s * old + c * row[q];
  }
  return true;
}

/* Computes W without the part of its RANK largest singular values: Jacobi's method. */
static void without_largest(const float *w, size_t rows, size_t columns, double *left) {
  double *u = malloc(rows * columns * sizeof *u), *v = calloc(columns * columns, sizeof *v);
  for (size_t i = 0; i < rows * columns; i++) u[i] = left[i] = (double)w[i];
  for (size_t i = 0; i < columns; i++) v[i * columns + i] = 1;
  for (int sweep = 0, more = 1; more && sweep < 14; sweep++) { /* then only noise turns */
    more = false;
    for (size_t p = 0; p < columns; p++)
      for (size_t q = p + 1; q < columns; q++) more |= rotate(u, rows, v, columns, p, q);
  }
  for (size_t k = 0; k < RANK; k++) {
    size_t best = 0;
    double most = -1;
    for (size_t p = 0; p < columns; p++) {
      double length = 0;
      for (size_t i = 0; i < rows; i++) length += u[i * columns + p] * u[i * columns + p];
      if (length > most) most = length, best = p;
    }
    for (size_t i = 0; i < rows * columns; i++)
      left[i] -= u[i / columns * columns + best] * v[i % columns * columns + best];
    for (size_t i = 0; i < rows; i++) u[i * columns + best] = 0;
  }
  free(u);
  free(v);
}

TEST(what_pissa_took_from_the_base_is_taken_again)
{
  /* Some in one round of steps, some in several, wide and tall. */
  static const size_t shapes[][2] = {{6, 10}, {10, 6}, {90, 120}, {150, 90}, {40, 200}, {1, 2}};
  static const char config[] = CONFIG ",\"init_lora_weights\":\"pissa\"}";
  for (size_t n = 0; n < sizeof shapes / sizeof shapes[0]; n++) {
    file base = {0}, adapter = {0}, out = {0};
    size_t rows = shapes[n][0], columns = shapes[n][1];
    const float *was = add(&base, MLP "up_proj.weight", rows, columns, 0);
    const float *a = add(&adapter, PREFIX MLP "up_proj.lora_A.weight", RANK, columns, 0);
    const float *b = add(&adapter, PREFIX MLP "up_proj.lora_B.weight", rows, RANK, 0);
    if (rows < RANK) { /* fewer singular values than the rank */
      CHECK_STATUS(merge(&base, &adapter, config, &out), STOW_ERR_UNSUPPORTED);
    } else {
      double *left = malloc(rows * columns * sizeof *left);
      CHECK_OK(merge(&base, &adapter, config, &out));
      without_largest(was, rows, columns, left);
      const float *now = values_of(&out, MLP "up_proj.weight");
      for (size_t i = 0; i < rows * columns; i++) {
        double sum = 0;
        for (size_t k = 0; k < RANK; k++)
          sum += (double)b[i / columns * RANK + k] * (double)a[k * columns + i % columns];
        /* One unit of the value or of what was left: that is rounded too. */
        CHECK(fabs((double)now[i] - ((double)(float)left[i] + SCALE * sum)) <=
              0x1p-23 * fmax(fabs((double)now[i]), fabs(left[i])));
      }
      free(left);
    }
    drop(&base);
    drop(&adapter);
    drop(&out);
  }
}

TEST(what_pissa_took_depends_on_rounding_where_singular_values_are_equal)
{
  file base = {0}, adapter = {0}, out = {0};
  float *was = add(&base, MLP "up_proj.weight", 60, 60, 0);
  add(&adapter, PREFIX MLP "up_proj.lora_A.weight", RANK, 60, 0);
  add(&adapter, PREFIX MLP "up_proj.lora_B.weight", 60, RANK, 0);
  /* The values 4, 3, 3 and many below 1: with a rank of 2, one of the threes would be taken. */
  for (size_t i = 0; i < 3600; i++)
    was[i] = i % 61 != 0 ? 0 : i == 0 ? 4 : i <= 122 ? 3 : 1 / (float)(1 + i);
  CHECK_STATUS(merge(&base, &adapter, CONFIG ",\"init_lora_weights\":\"pissa\"}", &out),
               STOW_ERR_UNSUPPORTED);
  CHECK_MESSAGE("singular values 2 and 3 are equal");
  was[0] = 3, was[61] = 4, was[122] = 4; /* both fours are taken */
  stow_status status = merge(&base, &adapter, CONFIG ",\"init_lora_weights\":\"pissa\"}", &out);
  CHECK(status == STOW_OK || status == STOW_ERR_UNSUPPORTED);
  if (status == STOW_OK) CHECK(fabsf(values_of(&out, MLP "up_proj.weight")[0]) < 100);
  memset(was, 0, 3600 * sizeof *was); /* nothing to take */
  CHECK_OK(merge(&base, &adapter, CONFIG ",\"init_lora_weights\":\"pissa\"}", &out));
  drop(&base);
  drop(&adapter);
  drop(&out);
}

TEST(the_module_behind_a_trained_copy_is_left_out)
{
  file base = {0}, adapter = {0}, out = {0};
  add(&base, "classifier.bias", INNER, 0, 0);
  const float *now = add(&adapter, PREFIX "classifier.modules_to_save.bias", INNER, 0, 0);
  add(&adapter, PREFIX "classifier.original_module.bias", INNER, 0, 0);
  CHECK_OK(merge(&base, &adapter, CONFIG ",\"bias\":\"all\"}", &out));
  CHECK(memcmp(values_of(&out, "classifier.bias"), now, INNER * 4) == 0);
  drop(&base);
  drop(&adapter);
  drop(&out);
}

TEST_MAIN

/* Merges with alpha_pattern {key: 10}. Returns 1 if the key fits the module, 0 if not, -1 if it is
 * refused. */
static int alpha_fits(const char *key) {
  file base = {0}, adapter = {0}, out = {0};
  char config[2048];
  int fits = -1;
  add(&base, "model.layers.12.self_attn.q_proj.weight", 3, 3, 0);
  float *a = add(&adapter, PREFIX "model.layers.12.self_attn.q_proj.lora_A.weight", 2, 3, 0);
  float *b = add(&adapter, PREFIX "model.layers.12.self_attn.q_proj.lora_B.weight", 3, 2, 0);
  snprintf(config, sizeof config, CONFIG ",\"alpha_pattern\":{\"%s\":10}}", key);
  stow_status status = merge(&base, &adapter, config, &out);
  if (status == STOW_OK) {
    const char *name = "model.layers.12.self_attn.q_proj.weight";
    double moved = (double)(values_of(&out, name)[0] - values_of(&base, name)[0]);
    double product = (double)b[0] * a[0] + (double)b[1] * a[3];
    fits = fabs(moved - 5 * product) < 1e-5;
    CHECK(fits || fabs(moved - SCALE * product) < 1e-5);
  } else {
    CHECK_STATUS(status, STOW_ERR_UNSUPPORTED);
    CHECK_MESSAGE("use PEFT's merge_and_unload");
  }
  drop(&base);
  drop(&adapter);
  drop(&out);
  return fits;
}

/* What Python's re.match(rf"(.*\.)?({key})$", name) says. */
TEST(keys_of_patterns_are_expressions_of_python)
{
  static const struct {
    const char *key;
    int fits;
  } cases[] = {
      {"q_proj", 1},
      {"proj", 0},
      {"k_proj", 0},
      {"self_attn.q_proj", 1},
      {"self.attn.q.proj", 1},
      {"attn.q_proj", 0},
      {"model.layers.12.self_attn.q_proj", 1},
      {"x.model.layers.12.self_attn.q_proj", 0},
      {"self_attn\\\\.q_proj", 1},
      {"self\\\\.attn\\\\.q_proj", 0},
      {"^model.layers.12.self_attn.q_proj", 1},
      {"^q_proj", 0},
      {"layers\\\\.\\\\d+\\\\.self_attn\\\\.(q|k)_proj", 1},
      {"layers\\\\.(?:1\\\\d|7)\\\\..*", 1},
      {"layers\\\\.[0-9]{2}\\\\..*?_proj", 1},
      {"layers\\\\.[0-9]{3}\\\\..*_proj", 0},
      {"layers.1[3-9]?.*", 1},
      {"\\\\w+", 1},
      {"(self_)?attn.q_proj", 1},
      /* Not the same in the C library, or without end in it. */
      {"(x*)*(x*)*(x*)*(x*)*(x*)*(x*)*(x*)*(x*)*(x*)*(x*)*(x*)*(x*)*(x*)*(x*)*(x*)*(x*)*(x*)*", -1},
      {"x**x**x**x**x**x**x**x**x**x**x**x**x**x**x**x**x**x**x**x**x**x**x**x**x**x**x**", -1},
      {"(.*)+", -1},
      {"x{0,99}x{0,99}x{0,99}x{0,99}x{0,99}", -1},
      {"(?!k)q_proj", -1},
      {"(q)\\\\1", -1},
      {"\\\\bq_proj", -1},
      {"[\\\\w]+", -1},
      {"q_proj(", -1},
      {"*", -1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    int fits = alpha_fits(cases[i].key);
    if (fits != cases[i].fits) FAIL("%s: %d instead of %d", cases[i].key, fits, cases[i].fits);
  }
  char longer[400] = "[q]";
  memset(longer + 3, 'x', 300);
  CHECK(alpha_fits(longer) == -1);
}
