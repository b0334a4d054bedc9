/* Inspect: see inspect.h. */
#include "data/weights/inspect.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/size.h>

#include "base/hash.h"
#include "base/table.h"
#include "base/text.h"
#include "data/weights/count.h"
#include "data/weights/parts.h"

#define SAMPLE_BYTES 4096
#define SAMPLES      4
#define READ_BYTES   (UINT64_C(1) << 20)
#define LAYER_MAX    256
#define ROWS_MAX     40 /* rows of a table of layers */
#define TENSORS_MAX  24 /* rows of a table of tensors */

/* ---- equal tensors ---- */

/* Hashes a few places of a tensor, or all of it. */
static stow_status hash_tensor(model *m, size_t i, bool whole, uint8_t *bytes, uint64_t *hash) {
  const tensor *t = m->list[i].facts;
  source *from = &m->files[m->list[i].file].from;
  uint64_t key = hash_u64(t->bytes, t->stored);
  for (uint32_t k = 0; k < t->dims; k++) key = hash_u64(t->shape[k], key);
  if (whole || t->bytes <= SAMPLES * SAMPLE_BYTES) {
    for (uint64_t at = 0; at < t->bytes; at += READ_BYTES) {
      size_t part = (size_t)(t->bytes - at < READ_BYTES ? t->bytes - at : READ_BYTES);
      STOW_TRY(source_read(from, t->offset + at, bytes, part));
      key = hash_bytes(bytes, part, key);
    }
  } else {
    for (uint64_t k = 0; k < SAMPLES; k++) {
      uint64_t at = (t->bytes - SAMPLE_BYTES) / (SAMPLES - 1) * k;
      STOW_TRY(source_read(from, t->offset + at, bytes, SAMPLE_BYTES));
      key = hash_bytes(bytes, SAMPLE_BYTES, key);
    }
  }
  *hash = key;
  return STOW_OK;
}

/* Tensors whose samples agree are read whole and compared by a hash of 64 bits. */
static stow_status find_same(model_facts *f, uint8_t *bytes) {
  map samples = {0}, wholes = {0};
  stow_status status = STOW_OK;
  for (size_t i = 0; i < f->in.count && status == STOW_OK; i++) {
    const tensor *t = f->in.list[i].facts;
    uint64_t sample, whole, first_whole;
    f->same[i] = (uint32_t)i;
    if (t->bytes < 64) continue; /* scalars are equal by chance */
    status = hash_tensor(&f->in, i, false, bytes, &sample);
    if (status != STOW_OK) break;
    const uint64_t *first = map_get(&samples, sample);
    if (first == NULL) {
      status = map_put(&samples, sample, i);
      continue;
    }
    size_t other = (size_t)*first;
    status = hash_tensor(&f->in, i, true, bytes, &whole);
    if (status == STOW_OK) status = hash_tensor(&f->in, other, true, bytes, &first_whole);
    if (status == STOW_OK && map_get(&wholes, first_whole) == NULL)
      status = map_put(&wholes, first_whole, other);
    const uint64_t *same = status == STOW_OK ? map_get(&wholes, whole) : NULL;
    if (same != NULL && *same != i) {
      f->same[i] = (uint32_t)*same;
      f->same_bytes += t->bytes;
    } else if (status == STOW_OK) {
      status = map_put(&wholes, whole, i);
    }
  }
  map_free(&samples);
  map_free(&wholes);
  return status;
}

stow_status model_inspect(model_facts *f, const char *path, const budget *b) {
  *f = (model_facts){0};
  STOW_TRY(model_open(&f->in, path, b->bytes / 4));
  f->same = calloc(f->in.count + 1, sizeof *f->same);
  f->counts = calloc(f->in.count + 1, sizeof *f->counts);
  uint8_t *bytes = malloc(READ_BYTES);
  stow_status status = f->same != NULL && f->counts != NULL && bytes != NULL
                           ? STOW_OK
                           : stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", path);
  for (size_t i = 0; i < f->in.file_count; i++) f->file_bytes += f->in.files[i].from.bytes;
  if (status == STOW_OK) status = count_parameters(f->counts, &f->in);
  for (size_t i = 0; i < f->in.count && status == STOW_OK; i++) f->parameters += f->counts[i];
  bool local = f->in.file_count > 0 && f->in.files[0].from.fd >= 0;
  if (status == STOW_OK && local) status = find_same(f, bytes);
  for (size_t i = 0; i < f->in.count && status == STOW_OK && !local; i++) f->same[i] = (uint32_t)i;
  if (status == STOW_OK) status = model_check(&f->in);
  free(bytes);
  if (status != STOW_OK) model_facts_free(f);
  return status;
}

void model_facts_free(model_facts *f) {
  free(f->same);
  free(f->counts);
  model_close(&f->in);
  *f = (model_facts){0};
}

/* ---- layers ---- */

/* Writes the layer of a name: "model.layers.12" for "model.layers.12.mlp.up_proj.weight"; the first
 * part of a name without a number. */
static void layer_of(char layer[LAYER_MAX], const char *name) {
  const char *at = name;
  while (*at != '\0') {
    const char *dot = strchr(at, '.');
    size_t length = dot != NULL ? (size_t)(dot - at) : strlen(at);
    bool number = length > 0;
    for (size_t i = 0; i < length; i++) number = number && isdigit((unsigned char)at[i]);
    if (number) {
      snprintf(layer, LAYER_MAX, "%.*s", (int)(at + length - name), name);
      return;
    }
    if (dot == NULL) break;
    at = dot + 1;
  }
  const char *last = strrchr(name, '.');
  snprintf(layer, LAYER_MAX, "%.*s", last != NULL ? (int)(last - name) : (int)strlen(name), name);
}

typedef struct layer_sum {
  char name[LAYER_MAX];
  uint64_t parameters, bytes, tensors;
} layer_sum;

static stow_status sum_layers(const model_facts *f, layer_sum **sums, size_t *count) {
  map places = {0};
  *count = 0;
  *sums = calloc(f->in.count + 1, sizeof **sums);
  stow_status status =
      *sums != NULL ? STOW_OK : stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for the layers");
  for (size_t i = 0; i < f->in.count && status == STOW_OK; i++) {
    const tensor *t = f->in.list[i].facts;
    char name[LAYER_MAX];
    layer_of(name, t->name);
    uint64_t hash = hash_bytes(name, strlen(name), 0);
    const uint64_t *found = map_get(&places, hash);
    size_t place = found != NULL ? (size_t)*found : *count;
    if (found == NULL) {
      memcpy((*sums)[(*count)++].name, name, sizeof name);
      status = map_put(&places, hash, place);
    }
    layer_sum *s = &(*sums)[place];
    s->tensors++;
    s->bytes += t->bytes;
    s->parameters += f->counts[i];
  }
  map_free(&places);
  return status;
}

static int by_name(const void *a, const void *b) {
  return strverscmp(((const layer_sum *)a)->name, ((const layer_sum *)b)->name);
}

/* ---- what fits ---- */

typedef struct fit {
  const char *name;
  uint64_t bytes;
  bool direct; /* `stowage shrink` makes it of this file */
} fit;

#define FITS_MAX 8

/* Computes the bytes of the weights in each type; for safetensors also the size of a GGUF file. */
static stow_status find_fits(const model_facts *f, fit fits[FITS_MAX], size_t *count) {
  static const struct {
    const char *name;
    weights_options o;
    bool gguf;
  } kinds[] = {
      {"as it is", {0}, false},
      {"bf16", {.type = TENSOR_BF16}, false},
      {"fp8", {.quantize = WEIGHTS_FP8}, false},
      {"int8", {.quantize = WEIGHTS_INT8}, false},
      {"q8_0", {.quantize = WEIGHTS_Q8_0}, true},
      {"q6_k", {.quantize = WEIGHTS_Q6_K}, true},
      {"q4_k", {.quantize = WEIGHTS_Q4_K}, true},
      {"q4_0", {.quantize = WEIGHTS_Q4_0}, true},
  };
  bool gguf = f->in.format == MODEL_GGUF;
  *count = 0;
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    if (gguf && (kinds[i].o.quantize == WEIGHTS_FP8 || kinds[i].o.quantize == WEIGHTS_INT8))
      continue;
    fits[(*count)++] = (fit){kinds[i].name, weights_bytes_as(&f->in, &kinds[i].o, kinds[i].gguf),
                             i == 0 || kinds[i].gguf == gguf || kinds[i].o.type != TENSOR_NONE};
  }
  return STOW_OK;
}

static const char *fit_word(const fit *one, uint64_t vram) {
  if (one->bytes > vram) return "no";
  return one->bytes > vram / 10 * 9 ? "barely" : "yes";
}

static void fits_text(buffer *to, const model_facts *f, uint64_t vram, bool bold) {
  fit fits[FITS_MAX];
  size_t count, best = FITS_MAX;
  char size[STOW_SIZE_TEXT_MAX];
  table t = TABLE_INIT(4, 1u << 1 | 1u << 2);
  if (find_fits(f, fits, &count) != STOW_OK) return;
  table_cell(&t, "type"), table_cell(&t, "weights"), table_cell(&t, "left"), table_cell(&t, "fits");
  for (size_t i = 0; i < count; i++) {
    table_printf(&t, "%s%s", fits[i].name, fits[i].direct ? "" : " (GGUF)");
    table_size(&t, fits[i].bytes);
    if (fits[i].bytes <= vram)
      table_size(&t, vram - fits[i].bytes);
    else
      table_cell(&t, "-");
    table_cell(&t, fit_word(&fits[i], vram));
    if (best == FITS_MAX && strcmp(fit_word(&fits[i], vram), "yes") == 0) best = i;
  }
  buffer_printf(to, "in %s of device memory (left: for activations and the key-value cache)\n",
                stow_size_format(size, vram));
  table_write(&t, to, 2, bold);
  if (best == FITS_MAX)
    buffer_text(to, "none leaves a tenth of the memory free: a smaller model, a larger GPU, or "
                    "`stowage run` to spill\n");
  else
    buffer_printf(to, "mildest that fits: %s\n", fits[best].name);
}

/* ---- text ---- */

static void types_text(buffer *to, const model_facts *f, bool bold) {
  table t = TABLE_INIT(4, 1u << 1 | 1u << 2 | 1u << 3);
  table_cell(&t, "type"), table_cell(&t, "tensors"), table_cell(&t, "parameters");
  table_cell(&t, "bytes");
  for (int type = TENSOR_NONE + 1; type < TENSOR_TYPES; type++) {
    uint64_t count = 0, parameters = 0, bytes = 0;
    for (size_t i = 0; i < f->in.count; i++) {
      const tensor *one = f->in.list[i].facts;
      if (one->stored != (tensor_type)type) continue;
      count++;
      bytes += one->bytes;
      parameters += f->counts[i];
    }
    if (count == 0) continue;
    table_cell(&t, tensor_type_name((tensor_type)type));
    table_printf(&t, "%" PRIu64, count);
    table_printf(&t, "%" PRIu64, parameters);
    table_size(&t, bytes);
  }
  table_write(&t, to, 2, bold);
}

static void layers_text(buffer *to, const model_facts *f, bool bold) {
  layer_sum *sums;
  size_t count;
  if (sum_layers(f, &sums, &count) != STOW_OK) {
    free(sums);
    to->status = STOW_ERR_HOST_MEMORY;
    return;
  }
  qsort(sums, count, sizeof *sums, by_name);
  table t = TABLE_INIT(4, 1u << 1 | 1u << 2 | 1u << 3);
  table_cell(&t, "layer"), table_cell(&t, "tensors"), table_cell(&t, "parameters");
  table_cell(&t, "bytes");
  for (size_t i = 0; i < count && i < ROWS_MAX; i++) {
    char name[LAYER_MAX];
    table_cell(&t, text_show(name, sizeof name, sums[i].name));
    table_printf(&t, "%" PRIu64, sums[i].tensors);
    table_printf(&t, "%" PRIu64, sums[i].parameters);
    table_size(&t, sums[i].bytes);
  }
  table_write(&t, to, 2, bold);
  if (count > ROWS_MAX)
    buffer_printf(to, "  … and %zu more layers (--json lists all)\n", count - ROWS_MAX);
  free(sums);
}

/* Writes "(3, 4)", as NumPy prints a shape. */
static const char *shape_text(char *text, size_t size, const tensor *t) {
  size_t at = (size_t)snprintf(text, size, "(");
  for (uint32_t i = 0; i < t->dims && at + 24 < size; i++)
    at += (size_t)snprintf(text + at, size - at, "%s%" PRIu64, i > 0 ? ", " : "", t->shape[i]);
  snprintf(text + at, size - at, t->dims == 1 ? ",)" : ")");
  return text;
}

/* Lists the tensors of a small model; a large one has thousands. */
static void tensors_text(buffer *to, const model_facts *f, bool bold) {
  if (f->in.count > TENSORS_MAX) {
    buffer_printf(to, "  %zu tensors (--json lists all)\n", f->in.count);
    return;
  }
  table t = TABLE_INIT(4, 1u << 3);
  table_cell(&t, "tensor"), table_cell(&t, "type"), table_cell(&t, "shape"),
      table_cell(&t, "bytes");
  for (size_t i = 0; i < f->in.count; i++) {
    const tensor *one = f->in.list[i].facts;
    char name[512], shape[512];
    table_cell(&t, text_show(name, sizeof name, one->name));
    table_cell(&t, one->type_name);
    table_cell(&t, shape_text(shape, sizeof shape, one));
    table_size(&t, one->bytes);
  }
  table_write(&t, to, 2, bold);
}

static void same_text(buffer *to, const model_facts *f) {
  char a[512], b[512], size[STOW_SIZE_TEXT_MAX];
  size_t shown = 0;
  for (size_t i = 0; i < f->in.count; i++) {
    if (f->same[i] == i) continue;
    if (shown++ == 8) {
      buffer_text(to, "  …\n");
      break;
    }
    buffer_printf(to, "same bytes: %s and %s, %s\n",
                  text_show(a, sizeof a, f->in.list[f->same[i]].facts->name),
                  text_show(b, sizeof b, f->in.list[i].facts->name),
                  stow_size_format(size, f->in.list[i].facts->bytes));
  }
}

stow_status model_text(buffer *to, const model_facts *f, const char *path, uint64_t vram_bytes,
                       bool bold) {
  char name[TEXT_PATH_MAX], size[STOW_SIZE_TEXT_MAX];
  buffer_printf(to, "%s%s%s: %s, %zu file%s, %s; %zu tensor%s, %" PRIu64 " parameter%s\n",
                bold ? "\033[1m" : "", text_show(name, sizeof name, path), bold ? "\033[0m" : "",
                model_format_name(f->in.format), f->in.file_count, text_s(f->in.file_count),
                stow_size_format(size, f->file_bytes), f->in.count, text_s(f->in.count),
                f->parameters, text_s(f->parameters));
  types_text(to, f, bold);
  layers_text(to, f, bold);
  tensors_text(to, f, bold);
  same_text(to, f);
  if (vram_bytes > 0) fits_text(to, f, vram_bytes, bold);
  return to->status;
}

/* ---- JSON ---- */

static void json_tensor(json *j, const model_facts *f, size_t i) {
  const tensor *t = f->in.list[i].facts;
  json_begin_object(j);
  json_key(j, "name"), json_text(j, t->name);
  json_key(j, "shape");
  json_begin_array(j);
  for (uint32_t k = 0; k < t->dims; k++) json_u64(j, t->shape[k]);
  json_end_array(j);
  json_key(j, "dtype"), json_text(j, t->type_name);
  json_number(j, "bytes", t->bytes);
  json_key(j, "file"), json_text(j, f->in.files[f->in.list[i].file].name);
  json_key(j, "same_as");
  json_text(j, f->same[i] != i ? f->in.list[f->same[i]].facts->name : NULL);
  json_end_object(j);
}

static void json_layers(json *j, const model_facts *f) {
  layer_sum *sums;
  size_t count;
  stow_status status = sum_layers(f, &sums, &count);
  json_begin_array(j);
  if (status == STOW_OK) qsort(sums, count, sizeof *sums, by_name);
  for (size_t i = 0; i < count && status == STOW_OK; i++) {
    json_begin_object(j);
    json_key(j, "name"), json_text(j, sums[i].name);
    json_number(j, "tensors", sums[i].tensors);
    json_number(j, "parameters", sums[i].parameters);
    json_number(j, "bytes", sums[i].bytes);
    json_end_object(j);
  }
  json_end_array(j);
  if (status != STOW_OK) j->out->status = status;
  free(sums);
}

static void json_fits(json *j, const model_facts *f, uint64_t vram) {
  fit fits[FITS_MAX];
  size_t count;
  json_begin_array(j);
  if (find_fits(f, fits, &count) != STOW_OK) count = 0;
  for (size_t i = 0; i < count; i++) {
    json_begin_object(j);
    json_key(j, "type"), json_text(j, fits[i].name);
    json_number(j, "weights_bytes", fits[i].bytes);
    json_key(j, "fits"), json_bool(j, fits[i].bytes <= vram);
    json_key(j, "comfortable"), json_bool(j, strcmp(fit_word(&fits[i], vram), "yes") == 0);
    json_key(j, "needs_gguf"), json_bool(j, !fits[i].direct);
    json_end_object(j);
  }
  json_end_array(j);
}

void model_json(json *j, const model_facts *f, const char *path, uint64_t vram_bytes,
                uint64_t peak_bytes) {
  char name[TEXT_PATH_MAX];
  json_begin_object(j);
  json_key(j, "path"), json_text(j, text_show(name, sizeof name, path));
  json_key(j, "format"), json_text(j, model_format_name(f->in.format));
  json_number(j, "file_bytes", f->file_bytes);
  json_number(j, "bytes", f->in.bytes);
  json_number(j, "bytes_after", f->in.bytes);
  json_number(j, "parameters", f->parameters);
  json_number(j, "duplicate_bytes", f->same_bytes);
  json_key(j, "layers"), json_layers(j, f);
  if (vram_bytes > 0) {
    json_number(j, "vram_bytes", vram_bytes);
    json_key(j, "fits"), json_fits(j, f, vram_bytes);
  }
  json_key(j, "arrays");
  json_begin_array(j);
  for (size_t i = 0; i < f->in.count; i++) json_tensor(j, f, i);
  json_end_array(j);
  if (peak_bytes > 0) json_number(j, "peak_memory_bytes", peak_bytes);
  json_end_object(j);
}
