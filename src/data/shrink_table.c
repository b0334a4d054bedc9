/* Shrink of tables: the types are known from the first pass; the second writes.
 *
 * To npy: blocks of rows, every value in one type that holds all columns. To npz: one stored member
 * for each column, their places known because the rows are counted, filled side by side through a
 * small run each; a text column is codes, and a member NAME.values with the text of each code. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "data/shrink_parts.h"
#include "data/table.h"
#include "numbers/cast.h"

enum { RUN_LEAST = 16, RUN_MOST = 4096, BLOCK_VALUES = 32 << 10, TELL_ROWS = 1024 };

/* ---- the plan ---- */

static stow_status refuse_column(const job *j, const column_facts *c, const char *why) {
  return stow_fail(STOW_ERR_INVALID, "%s: column \"%.100s\" %s", j->in, c->name, why);
}

static bool all_fit(const file_facts *f, dtype type) {
  for (size_t i = 0; i < f->column_count; i++)
    if (!scan_fits(&f->columns[i].values, type)) return false;
  return true;
}

/* The smallest type that holds every column. Beside fractions 64-bit integers are left out: values
 * pass through doubles then. */
static stow_status common_type(const job *j, dtype *type) {
  static const dtype integers[] = {DTYPE_BOOL, DTYPE_U8,  DTYPE_I8,  DTYPE_U16, DTYPE_I16,
                                   DTYPE_U32,  DTYPE_I32, DTYPE_I64, DTYPE_U64, DTYPE_F64};
  static const dtype mixed[] = {DTYPE_U8,  DTYPE_I8,  DTYPE_F16, DTYPE_U16, DTYPE_I16,
                                DTYPE_F32, DTYPE_U32, DTYPE_I32, DTYPE_F64};
  const file_facts *f = &j->result->facts;
  bool fractions = false, bools = true;
  for (size_t i = 0; i < f->column_count; i++) {
    dtype t = table_column_type(&f->columns[i]);
    if (t == DTYPE_NONE)
      return refuse_column(
          j, &f->columns[i],
          "is text, which an npy of numbers cannot hold; end the output with .npz");
    fractions = fractions || t == DTYPE_F64;
    bools = bools && t == DTYPE_BOOL;
  }
  const dtype *list = fractions ? mixed : integers;
  size_t count = fractions ? sizeof mixed / sizeof mixed[0] : sizeof integers / sizeof integers[0];
  for (size_t i = 0; i < count; i++) {
    if (list[i] == DTYPE_BOOL && !bools) continue;
    if (all_fit(f, list[i])) return *type = list[i], STOW_OK;
  }
  return stow_fail(STOW_ERR_INVALID,
                   "%s: no one type holds all its columns exactly; end the output with .npz, where "
                   "each has its own",
                   j->in);
}

static stow_status plan_column(job *j, size_t i, dtype common) {
  const column_facts *c = &j->result->facts.columns[i];
  uint64_t rows = j->result->facts.rows;
  shrink_item *item = &j->result->items[i];
  *item = (shrink_item){.bytes = c->bytes, .to = c->smallest, .bytes_after = c->bytes_after};
  if (common != DTYPE_NONE) item->to = common;
  if (c->text && !c->distinct_known) item->to = DTYPE_U32;
  if (c->text) {
    /* The values are as wide as the longest, four bytes a letter; those not counted come on top. */
    uint64_t words = c->distinct_known ? c->distinct + (c->missing > 0) : 0;
    item->bytes_after = rows * dtype_bytes(item->to) + words * c->longest * 4;
    return STOW_OK;
  }
  if (j->options->type != DTYPE_NONE) {
    item->to = j->options->type;
    if (!scan_fits(&c->values, item->to)) {
      char why[128];
      snprintf(why, sizeof why, "has values that %s does not hold exactly; %s does",
               dtype_name(item->to), dtype_name(c->smallest));
      return refuse_column(j, c, why);
    }
  }
  item->bytes_after = rows * dtype_bytes(item->to);
  return STOW_OK;
}

stow_status shrink_table_plan(job *j, bool to_npy) {
  dtype common = DTYPE_NONE;
  if (j->options->tolerance > 0)
    return stow_fail(STOW_ERR_UNSUPPORTED,
                     "%s: a tolerance is for arrays: shrink the table to an npy first, then that "
                     "with --tolerance",
                     j->in);
  if (to_npy && j->options->type == DTYPE_NONE) STOW_TRY(common_type(j, &common));
  for (size_t i = 0; i < j->result->facts.column_count; i++) {
    const column_facts *c = &j->result->facts.columns[i];
    if (to_npy && c->text)
      return refuse_column(
          j, c, "is text, which an npy of numbers cannot hold; end the output with .npz");
    STOW_TRY(plan_column(j, i, common));
  }
  return STOW_OK;
}

/* ---- values ---- */

static double as_double(const csv_field *f) {
  switch (f->kind) {
  case CSV_SIGNED:
  case CSV_BOOL: return (double)f->value.i;
  case CSV_UNSIGNED: return (double)f->value.u;
  case CSV_FLOAT: return f->value.d;
  default: return (double)NAN;
  }
}

/* The 64 bits of a value on its way to a column of type `via` (float64, or an integer). */
static uint64_t as_bits(const csv_field *f, dtype via) {
  if (via != DTYPE_F64) return f->value.u; /* int64, uint64 and bool share the place */
  double d = as_double(f);
  uint64_t bits;
  memcpy(&bits, &d, sizeof bits);
  return bits;
}

static stow_status changed(const job *j) {
  return stow_fail(STOW_ERR_IO, "%s: changed while it was read; run this again", j->in);
}

/* ---- one npy ---- */

/* What every value passes through: doubles where there are fractions or missing values. */
static dtype common_via(const file_facts *f) {
  dtype via = DTYPE_I64;
  for (size_t i = 0; i < f->column_count; i++) {
    dtype t = table_column_type(&f->columns[i]);
    if (t == DTYPE_F64) return DTYPE_F64;
    if (t == DTYPE_U64) via = DTYPE_U64;
  }
  return via;
}

static stow_status write_blocks(job *j, csv *c, sink *s, uint64_t *block, void *cast,
                                size_t rows_max) {
  const file_facts *f = &j->result->facts;
  dtype via = common_via(f), to = j->result->items[0].to;
  uint64_t rows = 0;
  size_t filled = 0;
  bool more = true;
  for (;;) {
    STOW_TRY(csv_next(c, &more));
    if (more) {
      if (rows++ == f->rows) return changed(j);
      uint64_t *row = block + filled++ * f->column_count;
      for (size_t i = 0; i < f->column_count; i++) row[i] = as_bits(&c->fields[i], via);
    }
    if (filled == rows_max || (!more && filled > 0)) {
      size_t values = filled * f->column_count;
      STOW_TRY(cast_values(cast, to, block, via, values));
      STOW_TRY(sink_write(s, cast, values * dtype_bytes(to)));
      STOW_TRY(budget_tell(j->budget, c->in.raw_bytes, f->file_bytes));
      filled = 0;
    }
    if (!more) return rows == f->rows ? STOW_OK : changed(j);
  }
}

static stow_status write_npy(job *j, csv *c, writer *w) {
  const file_facts *f = &j->result->facts;
  uint64_t shape[2] = {f->rows, f->column_count};
  size_t rows_max = f->column_count < BLOCK_VALUES ? BLOCK_VALUES / f->column_count : 1;
  sink s = {.file = w};
  STOW_TRY(shrink_header(&s, npy_descr(j->result->items[0].to), false, shape, 2));
  size_t values = rows_max * f->column_count;
  uint64_t *block = malloc(values * 8);
  void *cast = malloc(values * 8);
  stow_status status = block != NULL && cast != NULL
                           ? write_blocks(j, c, &s, block, cast, rows_max)
                           : stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", j->in);
  free(block);
  free(cast);
  return status;
}

/* ---- an npz of columns ---- */

typedef struct column {
  sink to;
  uint64_t *run;
  size_t filled;
  dtype via, type;
  bool text;
  intern words;
  char name[ZIP_NAME_MAX];
} column;

typedef struct columns {
  column *list;
  uint64_t *runs;
  void *cast;
  size_t count, run_max;
} columns;

static stow_status flush(columns *all, column *c) {
  if (c->filled == 0) return STOW_OK;
  STOW_TRY(cast_values(all->cast, c->type, c->run, c->via, c->filled));
  size_t bytes = c->filled * dtype_bytes(c->type);
  c->filled = 0;
  return sink_write(&c->to, all->cast, bytes);
}

static stow_status add_value(job *j, columns *all, size_t i, const csv_field *f) {
  column *c = &all->list[i];
  if (c->text) {
    uint32_t code;
    if (intern_add(&c->words, &code, f->text, f->length) != STOW_OK)
      return stow_fail(STOW_ERR_BUDGET,
                       "%s: column \"%.100s\" has more distinct text than its share of the budget, "
                       "%" PRIu64 " KiB; give more with --memory",
                       j->in, j->result->facts.columns[i].name, c->words.max_bytes >> 10);
    if (code > dtype_most(c->type)) return changed(j);
    c->run[c->filled++] = code;
  } else {
    c->run[c->filled++] = as_bits(f, c->via);
  }
  return c->filled == all->run_max ? flush(all, c) : STOW_OK;
}

/* A member's name from a column's: what a zip reader would refuse is replaced. */
static void clean_name(char *to, size_t size, const char *from) {
  snprintf(to, size, "%.200s", from);
  for (char *at = to; *at != '\0'; at++)
    if (*at == '/' || *at == '\\' || (*at == '.' && at[1] == '.')) *at = '_';
}

static stow_status add_member(job *j, columns *all, zip_out *z, size_t i) {
  column *c = &all->list[i];
  const column_facts *facts = &j->result->facts.columns[i];
  c->run = all->runs + i * all->run_max;
  c->type = j->result->items[i].to;
  c->text = facts->text;
  c->via =
      facts->text || table_column_type(facts) == DTYPE_BOOL ? DTYPE_I64 : table_column_type(facts);
  /* Letters, twice while they move to a larger place, and the tables beside them. */
  c->words.max_bytes = j->budget->bytes / 2 / all->count / 4;
  clean_name(c->name, sizeof c->name, facts->name);
  char member[ZIP_NAME_MAX + 32];
  stow_status status = STOW_ERR_INVALID;
  for (int again = 0; again < 1000 && status == STOW_ERR_INVALID; again++) {
    if (again > 0) { /* names that stand twice: x, x.1, x.2, as pandas has them */
      clean_name(c->name, sizeof c->name, facts->name);
      snprintf(c->name + strlen(c->name), 8, ".%d", again);
    }
    snprintf(member, sizeof member, "%s.npy", c->name);
    uint64_t rows = j->result->facts.rows;
    status = shrink_member(z, &c->to, member, npy_descr(c->type), false, &rows, 1,
                           dtype_bytes(c->type), false);
  }
  return status;
}

static stow_status begin_columns(job *j, columns *all, zip_out *z) {
  all->count = j->result->facts.column_count;
  uint64_t each = j->budget->bytes / 8 / all->count / 8;
  all->run_max = each < RUN_LEAST ? RUN_LEAST : each > RUN_MOST ? RUN_MOST : (size_t)each;
  if (all->count * (all->run_max * 8 + sizeof(column)) > j->budget->bytes / 2)
    return stow_fail(STOW_ERR_BUDGET,
                     "%s: %zu columns need more memory than the budget; give more "
                     "with --memory",
                     j->in, all->count);
  all->list = calloc(all->count, sizeof *all->list);
  all->runs = malloc(all->count * all->run_max * 8);
  all->cast = malloc(all->run_max * 8);
  if (all->list == NULL || all->runs == NULL || all->cast == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory for %zu columns", j->in, all->count);
  for (size_t i = 0; i < all->count; i++) STOW_TRY(add_member(j, all, z, i));
  return STOW_OK;
}

/* One code point of valid UTF-8; invalid bytes are refused by the caller. */
static size_t take_point(const unsigned char *at, size_t left, uint32_t *point) {
  size_t count = at[0] < 0x80 ? 1 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
  if ((at[0] >= 0x80 && at[0] < 0xc2) || at[0] > 0xf4 || count > left) return 0;
  *point = count == 1 ? at[0] : at[0] & (0x7fu >> count);
  for (size_t i = 1; i < count; i++) {
    if ((at[i] & 0xc0) != 0x80) return 0;
    *point = *point << 6 | (at[i] & 0x3fu);
  }
  bool short_form = (count == 3 && *point < 0x800) || (count == 4 && *point < 0x10000);
  return short_form || *point > 0x10ffff || (*point >= 0xd800 && *point < 0xe000) ? 0 : count;
}

/* The most letters of a word; SIZE_MAX if one is not UTF-8. */
static size_t most_letters(const intern *words) {
  size_t most = 1;
  for (uint32_t i = 0; i < words->count; i++) {
    size_t length, letters = 0;
    const unsigned char *at = (const unsigned char *)intern_get(words, i, &length);
    for (size_t step; length > 0; at += step, length -= step, letters++) {
      uint32_t point;
      step = take_point(at, length, &point);
      if (step == 0) return SIZE_MAX;
    }
    if (letters > most) most = letters;
  }
  return most;
}

static stow_status write_word(sink *s, const char *text, size_t length, size_t letters, bool wide) {
  static const char zeros[256];
  uint32_t points[256];
  size_t width = wide ? letters * 4 : letters, used = 0;
  if (!wide) STOW_TRY(sink_write(s, text, length));
  if (!wide) used = length;
  const unsigned char *at = (const unsigned char *)text;
  while (wide && length > 0) {
    size_t count = 0;
    for (; length > 0 && count < 256; count++) {
      size_t step = take_point(at, length, &points[count]);
      at += step;
      length -= step;
    }
    STOW_TRY(sink_write(s, points, count * 4));
    used += count * 4;
  }
  for (size_t part; used < width; used += part) {
    part = width - used < sizeof zeros ? width - used : sizeof zeros;
    STOW_TRY(sink_write(s, zeros, part));
  }
  return STOW_OK;
}

/* NAME.values: the text of each code, as NumPy's own text; bytes where it is not UTF-8. */
static stow_status write_words(column *c, zip_out *z, uint64_t *bytes) {
  char member[ZIP_NAME_MAX + 32], descr[32];
  size_t letters = most_letters(&c->words);
  bool wide = letters != SIZE_MAX;
  for (uint32_t i = 0; i < c->words.count && !wide; i++) {
    size_t length;
    intern_get(&c->words, i, &length);
    if (i == 0 || length > letters) letters = length > 0 ? length : 1;
  }
  sink s;
  uint64_t count = c->words.count;
  snprintf(member, sizeof member, "%s.values.npy", c->name);
  snprintf(descr, sizeof descr, "%s%zu", wide ? "<U" : "|S", letters);
  *bytes = count * letters * (wide ? 4 : 1);
  STOW_TRY(shrink_member(z, &s, member, descr, false, &count, 1, letters * (wide ? 4 : 1), false));
  for (uint32_t i = 0; i < c->words.count; i++) {
    size_t length;
    const char *text = intern_get(&c->words, i, &length);
    STOW_TRY(write_word(&s, text, length, letters, wide));
  }
  return STOW_OK;
}

static stow_status write_columns(job *j, csv *c, columns *all, zip_out *z) {
  const file_facts *f = &j->result->facts;
  uint64_t rows = 0;
  STOW_TRY(begin_columns(j, all, z));
  for (bool more = true;;) {
    STOW_TRY(csv_next(c, &more));
    if (!more) break;
    if (rows++ == f->rows) return changed(j);
    for (size_t i = 0; i < all->count; i++) STOW_TRY(add_value(j, all, i, &c->fields[i]));
    if (rows % TELL_ROWS == 0) STOW_TRY(budget_tell(j->budget, c->in.raw_bytes, f->file_bytes));
  }
  if (rows != f->rows) return changed(j);
  for (size_t i = 0; i < all->count; i++) {
    STOW_TRY(flush(all, &all->list[i]));
    uint64_t words = 0;
    if (!all->list[i].text) continue;
    STOW_TRY(write_words(&all->list[i], z, &words));
    shrink_item *item = &j->result->items[i];
    j->result->bytes_after -= item->bytes_after;
    item->bytes_after = rows * dtype_bytes(item->to) + words;
    j->result->bytes_after += item->bytes_after;
  }
  return zip_out_finish(z);
}

static stow_status write_npz(job *j, csv *c, writer *w) {
  columns all = {0};
  zip_out z;
  zip_out_begin(&z, w);
  stow_status status = write_columns(j, c, &all, &z);
  for (size_t i = 0; i < all.count && all.list != NULL; i++) intern_free(&all.list[i].words);
  free(all.list);
  free(all.runs);
  free(all.cast);
  zip_out_free(&z);
  return status;
}

stow_status shrink_table_write(job *j, bool to_npy) {
  csv c;
  writer w;
  if (j->result->facts.column_count == 0) return changed(j);
  STOW_TRY(csv_open(&c, j->in, table_row_max(j->budget)));
  stow_status status = table_skip_header(&c, &j->result->facts);
  if (status == STOW_OK) status = writer_open(&w, j->out, j->from, j->result->bytes_after);
  if (status != STOW_OK) {
    csv_close(&c);
    return status;
  }
  status = c.columns != 0 && c.columns != j->result->facts.column_count ? changed(j)
           : to_npy                                                     ? write_npy(j, &c, &w)
                                                                        : write_npz(j, &c, &w);
  csv_close(&c);
  if (status == STOW_OK) status = source_check(j->from);
  if (status == STOW_OK) {
    j->result->file_bytes = w.bytes;
    return writer_commit(&w);
  }
  writer_abandon(&w);
  return status;
}
