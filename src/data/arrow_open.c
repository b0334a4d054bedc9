/* Arrow: a table or an array on disk as a stream of record batches (stowage/arrow.h).
 *
 * A column is one array of numbers, or the text of up to four arrays (docs/formats.md, "Tables as
 * npz"). Each batch has its own memory, which the receiver frees. The words of a dictionary are
 * read again for every batch. */
#include <stowage/array.h>
#include <stowage/arrow.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/utf8.h"
#include "data/array.h"
#include "data/arrow_parts.h"
#include "data/slice.h"
#include "numbers/cast.h"

enum { BATCH_BYTES = 4 << 20, DIRECTORY_BYTES = 64 << 20 };

/* One array of a file. */
typedef struct part {
  stow_array *array; /* NULL: no such part */
  stow_array_info info;
} part;

typedef struct column {
  char *name;
  dtype type;          /* DTYPE_NONE: text or times */
  char time;           /* unit of datetime64 or timedelta64: 's', 'm', 'u', 'n', 'D'; 0: neither */
  bool is_span;        /* timedelta64 */
  part values;         /* numbers, or the codes of a dictionary */
  part offsets, bytes; /* parts of text; with codes, parts of the words */
} column;

typedef struct opened {
  char *path;
  source from; /* of a table: its archive, whose directory is read once for all columns */
  zip archive;
  bool is_table;
  column *columns;
  size_t count;
  uint64_t rows, at, batch_bytes;
  char said[512]; /* the last error */
} opened;

/* ---- opening ---- */

/* Opens NAME + ending of a table; the array at the path of anything else. */
static stow_status open_part(part *p, const opened *o, const char *name, const char *ending) {
  char whole[ZIP_NAME_MAX + 64];
  stow_array_options options = STOW_ARRAY_OPTIONS_INIT;
  options.path = o->path;
  if (o->is_table) {
    snprintf(whole, sizeof whole, "%s%s.npy", name, ending);
    const zip_entry *entry = zip_find(&o->archive, whole);
    if (entry == NULL)
      return stow_fail(STOW_ERR_NOT_FOUND, "%s: no member %s in it", o->path, whole);
    STOW_TRY(slice_open_member(&p->array, o->archive.from, entry));
  } else {
    STOW_TRY(stow_array_open(&p->array, &options));
  }
  p->info = (stow_array_info)STOW_ARRAY_INFO_INIT;
  return stow_array_get_info(p->array, &p->info);
}

static bool is_text(const column *c) {
  return c->bytes.array != NULL;
}

static uint64_t texts_of(const column *c) {
  return c->offsets.array != NULL ? c->offsets.info.rows - 1 : c->bytes.info.rows;
}

static uint64_t rows_of(const column *c) {
  return c->values.array != NULL ? c->values.info.rows : texts_of(c);
}

static stow_status refuse_column(const opened *o, const column *c, const char *why) {
  return stow_fail(STOW_ERR_UNSUPPORTED, "%s: column %s: %s has no Arrow type", o->path, c->name,
                   why);
}

/* Finds the type of a column of numbers or times. */
static stow_status take_type(const opened *o, column *c) {
  const char *name = c->values.info.dtype, *unit = strchr(name, '[');
  c->is_span = strstr(name, "m8[") != NULL || strncmp(name, "timedelta64[", 12) == 0;
  bool is_moment = strstr(name, "M8[") != NULL || strncmp(name, "datetime64[", 11) == 0;
  if (unit != NULL && (c->is_span || is_moment) && c->values.info.item_bytes == 8) {
    c->time = unit[1];
    bool known = (c->time == 's' && unit[2] == ']') || (c->time == 'D' && is_moment) ||
                 (strchr("mun", c->time) != NULL && unit[2] == 's');
    if (!known || c->values.info.dims != 1 || name[0] == '>') return refuse_column(o, c, name);
    return STOW_OK;
  }
  if (dtype_parse(&c->type, name) != STOW_OK || arrow_format(c->type) == NULL)
    return refuse_column(o, c, name);
  return c->values.info.dims > 0 ? STOW_OK : refuse_column(o, c, "an array of 0 dimensions");
}

static stow_status open_text(const opened *o, column *c, bool has_offsets, bool is_dictionary) {
  if (is_dictionary) STOW_TRY(open_part(&c->values, o, c->name, ".codes"));
  STOW_TRY(open_part(&c->bytes, o, c->name, is_dictionary ? ".words.bytes" : ".bytes"));
  if (has_offsets)
    STOW_TRY(open_part(&c->offsets, o, c->name, is_dictionary ? ".words.offsets" : ".offsets"));
  if (is_dictionary) STOW_TRY(dtype_parse(&c->type, c->values.info.dtype));
  bool good = strcmp(c->bytes.info.dtype, "uint8") == 0 &&
              c->bytes.info.dims == (has_offsets ? 1 : 2) &&
              (!has_offsets || (c->offsets.info.rows > 0 && c->offsets.info.dims == 1)) &&
              (!is_dictionary || dtype_kind(c->type) == CLASS_UNSIGNED);
  return good ? STOW_OK
              : stow_fail(STOW_ERR_FORMAT,
                          "%s: the arrays of the text column %s do not belong "
                          "together",
                          o->path, c->name);
}

/* Returns whether there is a member NAME + ending + .npy. */
static bool has(const zip *z, const char *name, size_t length, const char *ending) {
  char whole[ZIP_NAME_MAX + 64];
  snprintf(whole, sizeof whole, "%.*s%s.npy", (int)length, name, ending);
  return zip_find(z, whole) != NULL;
}

/* Removes `ending` from the length of a name; false if the name does not end with it. */
static bool cut(const char *name, size_t *length, const char *ending) {
  size_t tail = strlen(ending);
  if (*length <= tail || memcmp(name + *length - tail, ending, tail) != 0) return false;
  *length -= tail;
  return true;
}

/* Opens NAME.bytes, which no offsets belong to: text of fixed width, or a column of numbers that
 * has such a name. */
static stow_status open_bytes(opened *o, column *c, const char *name, size_t length) {
  char *whole = strndup(name, length);
  if (whole == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  part found = {0};
  stow_status status = open_part(&found, o, whole, "");
  bool text = status == STOW_OK && found.info.dims == 2 && strcmp(found.info.dtype, "uint8") == 0;
  if (text || status != STOW_OK) {
    c->bytes = found;
    free(whole);
    return status;
  }
  free(c->name);
  c->name = whole;
  c->values = found;
  return take_type(o, c);
}

/* Opens the column that a member begins; *used is false for a member that belongs to a column
 * begun by another: text begins with its codes, or else with its bytes. */
static stow_status open_member(opened *o, const zip *z, const char *name, bool *used) {
  size_t length = strlen(name);
  *used = false;
  if (!cut(name, &length, ".npy")) return STOW_OK;
  size_t base = length;
  bool codes = cut(name, &base, ".codes") && has(z, name, base, ".words.bytes");
  if (!codes) base = length;
  bool bytes = !codes && cut(name, &base, ".bytes");
  size_t words = base;
  if (bytes && cut(name, &words, ".words") && has(z, name, words, ".codes")) return STOW_OK;
  if (!codes && !bytes) {
    base = length;
    if (cut(name, &base, ".offsets") && has(z, name, base, ".bytes")) return STOW_OK;
    base = length;
  }
  column *c = &o->columns[o->count];
  *c = (column){.name = strndup(name, base)};
  if (c->name == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  o->count++;
  *used = true;
  if (codes || bytes) {
    bool offsets = has(z, name, base, codes ? ".words.offsets" : ".offsets");
    if (bytes && !offsets) return open_bytes(o, c, name, length);
    return open_text(o, c, offsets, codes);
  }
  STOW_TRY(open_part(&c->values, o, c->name, ""));
  return take_type(o, c);
}

static stow_status open_table(opened *o) {
  const zip *z = &o->archive;
  STOW_TRY(zip_open(&o->archive, &o->from, DIRECTORY_BYTES));
  stow_status status = STOW_OK;
  o->is_table = true;
  o->columns = calloc(z->count + 1, sizeof *o->columns);
  if (o->columns == NULL) status = stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  for (size_t i = 0; status == STOW_OK && i < z->count; i++) {
    bool used;
    status = open_member(o, z, z->entries[i].name, &used);
  }
  for (size_t i = 1; status == STOW_OK && i < o->count; i++)
    if (rows_of(&o->columns[i]) != rows_of(&o->columns[0]))
      status = stow_fail(STOW_ERR_INVALID,
                         "%s: %s has %" PRIu64 " rows and %s %" PRIu64
                         ", so it is not a table; open one array: %s:%s",
                         o->path, o->columns[0].name, rows_of(&o->columns[0]), o->columns[i].name,
                         rows_of(&o->columns[i]), o->path, o->columns[0].name);
  return status;
}

static stow_status open_array(opened *o, const char *name) {
  o->columns = calloc(1, sizeof *o->columns);
  if (o->columns == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  column *c = &o->columns[0];
  o->count = 1;
  c->name = strdup(name);
  if (c->name == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  STOW_TRY(open_part(&c->values, o, NULL, NULL));
  return take_type(o, c);
}

/* Opens the file. A zip archive is a table; anything else is one array. */
static stow_status open_file(opened *o) {
  char file[ARRAY_NAME_MAX], magic[4] = "";
  const char *member = NULL;
  if (array_split(o->path, file, sizeof file, &member)) return open_array(o, member);
  source *from = &o->from;
  STOW_TRY(source_open(from, o->path));
  stow_status status = from->bytes >= 4 ? source_read(from, 0, magic, 4) : STOW_OK;
  bool zipped = status == STOW_OK && memcmp(magic, "PK", 2) == 0;
  if (zipped) status = open_table(o);
  if (!o->is_table) source_close(from);
  return zipped || status != STOW_OK ? status : open_array(o, "values");
}

static void opened_free(opened *o) {
  for (size_t i = 0; i < o->count; i++) {
    column *c = &o->columns[i];
    stow_array_close(c->values.array);
    stow_array_close(c->offsets.array);
    stow_array_close(c->bytes.array);
    free(c->name);
  }
  if (o->is_table) {
    zip_close(&o->archive);
    source_close(&o->from);
  }
  free(o->columns);
  free(o->path);
  free(o);
}

/* ---- the schema ---- */

/* Makes the schema of an array of numbers. With more dimensions, a row is a fixed-size list of
 * fixed-size lists, and so on. */
static stow_status schema_numbers(struct ArrowSchema *s, const column *c, uint32_t dim) {
  char format[32];
  const char *name = dim == 1 ? c->name : "item";
  if (dim >= c->values.info.dims) return arrow_schema_make(s, arrow_format(c->type), name, 0, 0);
  snprintf(format, sizeof format, "+w:%" PRIu64, c->values.info.shape[dim]);
  STOW_TRY(arrow_schema_make(s, format, name, 0, 1));
  return schema_numbers(s->children[0], c, dim + 1);
}

static stow_status schema_column(struct ArrowSchema *s, const column *c) {
  char format[8];
  if (c->time == 'D') return arrow_schema_make(s, "tdD", c->name, ARROW_FLAG_NULLABLE, 0);
  if (c->time != 0) {
    snprintf(format, sizeof format, c->is_span ? "tD%c" : "ts%c:", c->time);
    return arrow_schema_make(s, format, c->name, ARROW_FLAG_NULLABLE, 0);
  }
  if (!is_text(c)) return schema_numbers(s, c, 1);
  if (c->values.array == NULL) return arrow_schema_make(s, "U", c->name, 0, 0);
  STOW_TRY(arrow_schema_make(s, arrow_format(c->type), c->name, 0, 0));
  STOW_TRY(arrow_schema_dictionary(s));
  return arrow_schema_make(s->dictionary, "U", "", 0, 0);
}

static int get_schema(struct ArrowArrayStream *s, struct ArrowSchema *out) {
  opened *o = s->private_data;
  stow_status status = arrow_schema_make(out, "+s", "", 0, o->count);
  for (size_t i = 0; status == STOW_OK && i < o->count; i++)
    status = schema_column(out->children[i], &o->columns[i]);
  if (status != STOW_OK) {
    snprintf(o->said, sizeof o->said, "%s", stow_status_message());
    arrow_schema_release(out);
  }
  return arrow_errno(status);
}

/* ---- batches ---- */

static stow_status read_part(part *p, uint64_t first, uint64_t rows, void *to) {
  return rows == 0 ? STOW_OK : stow_array_read(p->array, first, rows, 1, 0, 0, to);
}

/* Packs bytes of 0 and 1 into bits, in place. */
static void pack_bits(uint8_t *bytes, size_t count) {
  for (size_t i = 0; i < count; i += 8) {
    uint8_t bits = 0;
    for (size_t k = 0; k < 8 && i + k < count; k++) bits |= (uint8_t)((bytes[i + k] != 0) << k);
    bytes[i / 8] = bits;
  }
}

static stow_status read_numbers(struct ArrowArray *a, column *c, uint64_t first, uint64_t rows) {
  uint64_t items = rows;
  for (uint32_t dim = 1; dim < c->values.info.dims; dim++) {
    STOW_TRY(arrow_array_make(a, (int64_t)items, 1, 1));
    items *= c->values.info.shape[dim];
    a = a->children[0];
  }
  STOW_TRY(arrow_array_make(a, (int64_t)items, 2, 0));
  void *values = arrow_buffer(a, 1, items * c->values.info.item_bytes);
  if (values == NULL) return STOW_ERR_HOST_MEMORY;
  if (items > 0) STOW_TRY(read_part(&c->values, first, rows, values));
  if (c->type == DTYPE_BOOL) pack_bits(values, items);
  return STOW_OK;
}

/* Reads times. NaT, the least int64, becomes a null. */
static stow_status read_times(struct ArrowArray *a, column *c, uint64_t first, uint64_t rows) {
  STOW_TRY(arrow_array_make(a, (int64_t)rows, 2, 0));
  int64_t *values = arrow_buffer(a, 1, rows * sizeof *values);
  uint8_t *valid = values != NULL ? arrow_buffer(a, 0, rows / 8 + 1) : NULL;
  if (valid == NULL) return STOW_ERR_HOST_MEMORY;
  STOW_TRY(read_part(&c->values, first, rows, values));
  memset(valid, 0xff, rows / 8 + 1);
  for (uint64_t i = 0; i < rows; i++) {
    if (values[i] != INT64_MIN) continue;
    valid[i >> 3] &= (uint8_t) ~(1u << (i & 7));
    a->null_count++;
  }
  for (uint64_t i = 0; c->time == 'D' && i < rows; i++) {
    int32_t day = (int32_t)values[i];
    memcpy((char *)values + i * sizeof day, &day, sizeof day);
  }
  return STOW_OK;
}

/* Reads `count` + 1 offsets as int64. */
static stow_status read_offsets(column *c, uint64_t first, uint64_t count, int64_t *to) {
  bool narrow = c->offsets.info.item_bytes == 4;
  int32_t *small = narrow ? malloc((count + 1) * sizeof *small) : NULL;
  if (narrow && small == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  stow_status status = read_part(&c->offsets, first, count + 1, narrow ? (void *)small : to);
  if (narrow && status == STOW_OK) cast_values(to, DTYPE_I64, small, DTYPE_I32, count + 1);
  free(small);
  STOW_TRY(status);
  for (uint64_t i = 0; i <= count; i++)
    if (to[i] < (i > 0 ? to[i - 1] : 0) || (uint64_t)to[i] > c->bytes.info.rows)
      return stow_fail(STOW_ERR_FORMAT,
                       "column %s: offset %" PRId64 " of row %" PRIu64 " is outside of the text",
                       c->name, to[i], first + i);
  return STOW_OK;
}

/* Checks that a text is UTF-8, as Arrow requires; other bytes are an error and never passed on. */
static stow_status check_text(const column *c, const char *text, const int64_t *ends,
                              uint64_t first, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    size_t length = (size_t)(ends[i + 1] - ends[i]);
    if (utf8_prefix(text + ends[i], length) != length)
      return stow_fail(
          STOW_ERR_UNSUPPORTED,
          "column %s: the text of row %" PRIu64 " is not UTF-8, which Arrow needs; "
          "read the table in its encoding (--encoding cp1252), or leave the column out",
          c->name, first + i);
  }
  return STOW_OK;
}

static stow_status read_text(struct ArrowArray *a, column *c, uint64_t first, uint64_t count) {
  STOW_TRY(arrow_array_make(a, (int64_t)count, 3, 0));
  int64_t *ends = arrow_buffer(a, 1, (count + 1) * sizeof *ends);
  if (ends == NULL) return STOW_ERR_HOST_MEMORY;
  uint64_t width = c->offsets.array == NULL ? c->bytes.info.shape[1] : 0;
  for (uint64_t i = 0; i <= count; i++) ends[i] = (int64_t)(i * width);
  if (c->offsets.array != NULL) STOW_TRY(read_offsets(c, first, count, ends));
  int64_t start = ends[0];
  for (uint64_t i = 0; i <= count; i++) ends[i] -= start;
  char *text = arrow_buffer(a, 2, (size_t)ends[count]);
  if (text == NULL) return STOW_ERR_HOST_MEMORY;
  if (c->offsets.array != NULL)
    STOW_TRY(read_part(&c->bytes, (uint64_t)start, (uint64_t)ends[count], text));
  else if (width > 0)
    STOW_TRY(read_part(&c->bytes, first, count, text));
  return check_text(c, text, ends, first, count);
}

static stow_status check_codes(const column *c, const void *codes, uint64_t rows) {
  uint64_t words = texts_of(c);
  for (uint64_t i = 0; i < rows; i++) {
    uint64_t code = c->type == DTYPE_U8    ? ((const uint8_t *)codes)[i]
                    : c->type == DTYPE_U16 ? ((const uint16_t *)codes)[i]
                    : c->type == DTYPE_U32 ? ((const uint32_t *)codes)[i]
                                           : ((const uint64_t *)codes)[i];
    if (code >= words)
      return stow_fail(STOW_ERR_FORMAT, "column %s: code %" PRIu64 " of %" PRIu64 " words", c->name,
                       code, words);
  }
  return STOW_OK;
}

static stow_status read_column(struct ArrowArray *a, column *c, uint64_t first, uint64_t rows) {
  if (c->time != 0) return read_times(a, c, first, rows);
  if (!is_text(c)) return read_numbers(a, c, first, rows);
  if (c->values.array == NULL) return read_text(a, c, first, rows);
  STOW_TRY(read_numbers(a, c, first, rows));
  STOW_TRY(check_codes(c, a->buffers[1], rows));
  STOW_TRY(arrow_array_dictionary(a));
  return read_text(a->dictionary, c, 0, texts_of(c));
}

/* Returns the bytes that the next `rows` rows take: numbers and offsets. */
static uint64_t row_bytes(const opened *o) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < o->count; i++) {
    const column *c = &o->columns[i];
    const stow_array_info *v = &c->values.info;
    bytes += c->values.array != NULL    ? v->row_items * v->item_bytes
             : c->offsets.array != NULL ? sizeof(int64_t)
                                        : sizeof(int64_t) + c->bytes.info.row_items;
  }
  return bytes > 0 ? bytes : 1;
}

/* Returns the bytes of text from row `first` on. */
static stow_status text_bytes(column *c, uint64_t first, uint64_t rows, uint64_t *bytes) {
  int64_t ends[2] = {0};
  for (int i = 0; i < 2; i++) {
    int32_t small = 0;
    bool narrow = c->offsets.info.item_bytes == 4;
    STOW_TRY(read_part(&c->offsets, first + (i == 0 ? 0 : rows), 1,
                       narrow ? (void *)&small : (void *)&ends[i]));
    if (narrow) ends[i] = small;
  }
  *bytes = ends[1] > ends[0] ? (uint64_t)(ends[1] - ends[0]) : 0;
  return STOW_OK;
}

/* Returns how many rows the next batch has: half as many until the text of each column fits. */
static stow_status batch_rows(opened *o, uint64_t *rows) {
  uint64_t most = o->batch_bytes / row_bytes(o), left = o->rows - o->at;
  *rows = most > 0 ? most : 1;
  if (*rows > left) *rows = left;
  for (size_t i = 0; i < o->count; i++) {
    column *c = &o->columns[i];
    bool plain = c->values.array == NULL && c->offsets.array != NULL;
    for (uint64_t bytes = UINT64_MAX; plain && *rows > 1;) {
      STOW_TRY(text_bytes(c, o->at, *rows, &bytes));
      if (bytes <= o->batch_bytes) break;
      *rows /= 2;
    }
  }
  return STOW_OK;
}

static stow_status read_batch(opened *o, struct ArrowArray *out) {
  uint64_t rows = 0;
  STOW_TRY(batch_rows(o, &rows));
  STOW_TRY(arrow_array_make(out, (int64_t)rows, 1, o->count));
  for (size_t i = 0; i < o->count; i++)
    STOW_TRY(read_column(out->children[i], &o->columns[i], o->at, rows));
  o->at += rows;
  return STOW_OK;
}

static int get_next(struct ArrowArrayStream *s, struct ArrowArray *out) {
  opened *o = s->private_data;
  *out = (struct ArrowArray){0};
  if (o->at >= o->rows) return 0;
  stow_status status = read_batch(o, out);
  if (status != STOW_OK) {
    snprintf(o->said, sizeof o->said, "%s", stow_status_message());
    arrow_array_release(out);
  }
  return arrow_errno(status);
}

static const char *get_last_error(struct ArrowArrayStream *s) {
  return ((opened *)s->private_data)->said;
}

static void release(struct ArrowArrayStream *s) {
  opened_free(s->private_data);
  s->release = NULL;
}

stow_status stow_arrow_open(struct ArrowArrayStream *stream, const char *path,
                            uint64_t batch_bytes) {
  if (stream != NULL) *stream = (struct ArrowArrayStream){0};
  if (stream == NULL || path == NULL)
    return stow_fail(STOW_ERR_INVALID, "stow_arrow_open: NULL; give a stream and a path");
  opened *o = calloc(1, sizeof *o);
  if (o == NULL || (o->path = strdup(path)) == NULL) {
    free(o);
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  }
  o->batch_bytes = batch_bytes > 0 ? batch_bytes : BATCH_BYTES;
  stow_status status = open_file(o);
  if (status != STOW_OK) return opened_free(o), status;
  o->rows = o->count > 0 ? rows_of(&o->columns[0]) : 0;
  *stream = (struct ArrowArrayStream){.get_schema = get_schema,
                                      .get_next = get_next,
                                      .get_last_error = get_last_error,
                                      .release = release,
                                      .private_data = o};
  return STOW_OK;
}
