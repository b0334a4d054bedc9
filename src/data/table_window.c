/* Table windows: splits the stream at row ends, parses a window's rows, and merges it with the
 * earlier ones.
 *
 * A window is parsed with the column forms known at that time. If a column became text in an
 * earlier window that was not merged yet, the window is parsed again, so that its numbers are text
 * too. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "data/table_parts.h"

/* Rows this long are rare, so only one thread at a time holds such a window. */
#define LARGE_BYTES ((size_t)1 << 20)
enum { TOGETHER = 128 }; /* texts that are added at a time */

/* ---- splitting ---- */

static stow_status no_memory(const table_pass *p) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory for a window of the table",
                   p->from->in.name);
}

/* Returns the end of the last whole row in the window; NULL if there is none. */
static const char *last_row_end(const csv *c) {
  const char *at = (const char *)c->in.at, *end = (const char *)c->in.end;
  if (memchr(at, '"', (size_t)(end - at)) != NULL) return csv_last_row(c, at, end);
  const char *found = memrchr(at, '\n', (size_t)(end - at));
  return found != NULL ? found + 1 : NULL;
}

/* Bounds the values of a window: a thread's budget may be less than 256 KiB of text needs. */
static const char *fewer_rows(const table_pass *p, const csv *c, const char *stop, size_t *ends) {
  const char *at = (const char *)c->in.at;
  size_t rows_max = p->values_max / p->state->count - 1;
  *ends = csv_line_ends(at, (size_t)(stop - at));
  while (*ends > rows_max) {
    size_t half = (size_t)(stop - at) / 2;
    const char *cut = memchr(at, '"', (size_t)(stop - at)) == NULL
                          ? memrchr(at, '\n', half)
                          : NULL; /* with quotes: one row, which is always correct */
    if (cut == NULL) cut = csv_row_end(c, at, stop);
    if (cut == NULL || cut + 1 >= stop) break;
    stop = cut + 1;
    *ends = csv_line_ends(at, (size_t)(stop - at));
  }
  return stop;
}

/* Checks the length of rows, independently of where the window begins. */
static stow_status check_rows(const csv *c, const char *stop) {
  const char *at = (const char *)c->in.at;
  uint64_t line = c->lines + 1;
  while ((size_t)(stop - at) > c->row_max) {
    const char *end = csv_row_end(c, at, stop);
    size_t count = (size_t)((end != NULL ? end : stop) - at);
    if (count > c->row_max) return csv_long_row(c, line);
    line += csv_line_ends(at, count + 1);
    at += count + 1;
  }
  return STOW_OK;
}

/* Returns the end of the rows before `stop` that begin before the end of the pass. */
static const char *before_end(const table_pass *p, const char *stop) {
  const csv *c = p->from;
  const char *at = (const char *)c->in.at;
  uint64_t offset = input_offset(&c->in);
  if (offset >= p->stop) return at;
  if (p->stop - offset >= (uint64_t)(stop - at)) return stop;
  const char *border = at + (p->stop - offset), *end = border - 1;
  if (memchr(at, '"', (size_t)(stop - at)) == NULL) {
    end = memchr(end, '\n', (size_t)(stop - end));
    return end != NULL ? end + 1 : stop;
  }
  for (; at < border; at = end + 1)
    if ((end = csv_row_end(c, at, stop)) == NULL) return stop;
  return at;
}

static stow_status fill_window(table_pass *p, const char **stop) {
  csv *c = p->from;
  *stop = input_left(&c->in) > 0 ? last_row_end(c) : NULL;
  while (*stop == NULL && !c->in.at_eof) {
    size_t left = input_left(&c->in);
    if (left > c->row_max) return csv_long_row(c, c->lines + 1);
    STOW_TRY(input_fill(&c->in, left + 1));
    if (input_left(&c->in) > 0) *stop = last_row_end(c);
  }
  if (*stop == NULL) *stop = (const char *)c->in.end; /* the last row, without a line end */
  *stop = before_end(p, *stop);
  return check_rows(c, *stop);
}

/* Moves bytes [at, stop) of the stream to the window. Swaps their memory, unless much would remain
 * after `stop` and have to be copied. */
static stow_status hand_over(table_window *w, csv *c, const char *stop) {
  const uint8_t *at = c->in.at, *end = (const uint8_t *)stop;
  size_t count = (size_t)(end - at);
  if ((size_t)(c->in.end - end) < count) {
    STOW_TRY(input_give(&c->in, end, &w->bytes, &w->capacity));
  } else {
    if (count > w->capacity) {
      free(w->bytes);
      w->bytes = malloc(count + INPUT_SLACK);
      w->capacity = w->bytes != NULL ? count : 0;
      if (w->bytes == NULL) return no_memory(w->pass);
    }
    memcpy(w->bytes, at, count);
    memset(w->bytes + count, 0, INPUT_SLACK);
    c->in.at += count;
    at = w->bytes;
  }
  w->first = at;
  w->large = w->capacity > LARGE_BYTES;
  w->rows.in.window = w->bytes;
  w->rows.in.end = at + count;
  return STOW_OK;
}

static stow_status make_values(table_window *w, size_t rows_max) {
  size_t columns = w->pass->state->count, needed = columns * rows_max;
  if (needed > w->value_capacity) {
    free(w->values);
    w->values = malloc(needed * sizeof *w->values);
    w->value_capacity = w->values != NULL ? needed : 0;
    if (w->values == NULL) return no_memory(w->pass);
  }
  w->part.block.rows_max = rows_max;
  for (size_t i = 0; i < columns; i++) w->columns[i].values = w->values + i * rows_max;
  return STOW_OK;
}

static bool is_skipped(const table_pass *p, size_t i) {
  return p->to != NULL && p->to->skip != NULL && p->to->skip[i];
}

/* Returns whether texts of the column are kept as they are. With the lock held. */
static bool is_raw(const table_pass *p, size_t i) {
  if (p->to == NULL || !p->to->keeps_texts || p->state->stats[i].mixed) return false;
  return p->state->too_many[i] && !is_skipped(p, i);
}

/* Copies the current forms of the columns. The lock is held. */
static void know_forms(table_window *w) {
  const table_pass *p = w->pass;
  memcpy(w->forms, p->forms, p->state->count * sizeof *w->forms);
  for (size_t i = 0; i < p->state->count; i++) {
    w->raw[i] = is_raw(p, i);
    w->ignored[i] =
        is_skipped(p, i) || (!w->raw[i] && p->state->too_many[i]) || p->state->stats[i].mixed;
    w->no_times[i] = p->state->stats[i].not_times;
  }
}

stow_status table_window_next(table_window *w, bool *more) {
  table_pass *p = w->pass;
  csv *c = p->from;
  const char *stop;
  size_t ends = 0;
  *more = input_offset(&c->in) < p->stop;
  if (!*more) return STOW_OK;
  STOW_TRY(fill_window(p, &stop));
  *more = stop > (const char *)c->in.at;
  if (!*more) return STOW_OK;
  stop = fewer_rows(p, c, stop, &ends);
  w->lines_before = c->lines;
  w->raw_bytes = c->in.raw_bytes;
  c->lines += ends;
  STOW_TRY(hand_over(w, c, stop));
  /* Room for a last row without a line end, and an odd stride, so that columns do not share cache
   * sets. */
  STOW_TRY(make_values(w, (ends + 1) | 9));
  know_forms(w);
  w->stream_end = input_offset(&c->in);
  w->ticket = p->tickets++;
  return STOW_OK;
}

static void free_news(table_news *n) {
  buffer_free(&n->bytes);
  free(n->ends);
  *n = (table_news){.bytes = BUFFER_INIT};
}

void table_window_shed(table_window *w) {
  free(w->bytes);
  free(w->rows.unescaped);
  for (size_t i = 0; i < w->pass->state->count; i++) {
    buffer_free(&w->texts[i]);
    w->texts[i] = BUFFER_INIT;
    if (w->news != NULL) free_news(&w->news[i]);
  }
  w->bytes = NULL;
  w->rows.unescaped = NULL;
  w->rows.unescaped_capacity = 0;
  w->capacity = 0;
  w->large = false;
}

/* ---- parsing ---- */

/* With several threads, a text's code is its number in the pass's dictionary, if that had it
 * already, or NEW and its place in the window's news. Merging replaces the latter. */
#define NEW (UINT64_C(1) << 63)

static const char *news_get(const table_news *n, size_t place, size_t *length) {
  size_t start = place > 0 ? n->ends[place - 1] : 0;
  *length = n->ends[place] - start;
  return n->bytes.data + start;
}

static stow_status add_one_new(table_window *w, table_news *n, const char *text, uint32_t length) {
  if (n->count == n->capacity) {
    size_t more = n->capacity > 0 ? 2 * n->capacity : 256;
    uint32_t *ends = realloc(n->ends, more * sizeof *ends);
    if (ends == NULL) return no_memory(w->pass);
    n->ends = ends;
    n->capacity = more;
  }
  STOW_TRY(buffer_append(&n->bytes, text, length));
  n->ends[n->count++] = (uint32_t)n->bytes.length;
  return STOW_OK;
}

static stow_status add_new(table_window *w, size_t column, const char *const *texts,
                           const uint32_t *lengths, size_t count, uint64_t *codes) {
  table_news *n = &w->news[column];
  for (size_t i = 0; i < count; i++) {
    if (codes[i] != INTERN_NONE) continue;
    codes[i] = NEW | n->count;
    STOW_TRY(add_one_new(w, n, texts[i], lengths[i]));
  }
  return STOW_OK;
}

/* Most texts occur often, so the pass's dictionary has most of them. */
static stow_status number_by_pass(table_window *w, size_t column, const char *const *texts,
                                  const uint32_t *lengths, size_t count, uint64_t *codes) {
  table_pass *p = w->pass;
  pthread_rwlock_rdlock(&p->words_lock);
  size_t found = intern_find_many(&p->state->words[column], texts, lengths, count, codes);
  pthread_rwlock_unlock(&p->words_lock);
  if (found > 0) w->shared[column] = true;
  return found < count ? add_new(w, column, texts, lengths, count, codes) : STOW_OK;
}

/* Keeps texts as they are; a code is a text's position and length: see pack_texts. */
static stow_status keep_raw(buffer *to, const char *const *texts, const uint32_t *lengths,
                            size_t count, uint64_t *codes) {
  for (size_t i = 0; i < count; i++) {
    codes[i] = (uint64_t)to->length << 32 | lengths[i];
    STOW_TRY(buffer_append(to, texts[i], lengths[i]));
  }
  return STOW_OK;
}

static void check_encoding(column_stats *t, const char *text, size_t length) {
  t->not_utf8 = t->not_utf8 || utf8_prefix(text, length) != length;
}

/* Returns how many texts of the column were new so far: to the dictionary of a single thread, or in
 * this window. */
static size_t new_count(const table_window *w, size_t i) {
  return w->news != NULL ? w->news[i].count : w->pass->state->words[i].count;
}

static const char *new_text(const table_window *w, size_t i, size_t place, size_t *length) {
  if (w->news != NULL) return news_get(&w->news[i], place, length);
  return intern_get(&w->pass->state->words[i], (uint32_t)place, length);
}

static stow_status number_texts(void *context, size_t column, const char *const *texts,
                                const uint32_t *lengths, size_t count, uint64_t *codes) {
  table_window *w = context;
  table_pass *p = w->pass;
  column_stats *t = &w->stats[column];
  bool alone = w->news == NULL, raw = w->raw[column];
  bool none = w->ignored[column] || (alone && (p->state->too_many[column] || t->mixed));
  if (none) memset(codes, 0, count * sizeof *codes);
  if (is_skipped(p, column)) return STOW_OK;
  if (raw || none) {
    for (size_t i = 0; i < count && !t->not_times; i++) column_stats_text(t, texts[i], lengths[i]);
    for (size_t i = 0; raw && i < count; i++) check_encoding(t, texts[i], lengths[i]);
    return raw ? keep_raw(&w->texts[column], texts, lengths, count, codes) : STOW_OK;
  }
  size_t known = new_count(w, column);
  stow_status status = alone
                           ? intern_add_many(&p->state->words[column], texts, lengths, count, codes)
                           : number_by_pass(w, column, texts, lengths, count, codes);
  /* Other texts were seen before, in this window or an earlier one. */
  for (size_t k = known; k < new_count(w, column); k++) {
    size_t length;
    const char *text = new_text(w, column, k, &length);
    if (!t->not_times) column_stats_text(t, text, length);
    check_encoding(t, text, length);
  }
  return status;
}

static stow_status code_of(table_window *w, size_t column, const char *text, size_t length,
                           uint64_t *code) {
  uint32_t bytes = (uint32_t)length;
  return number_texts(w, column, &text, &bytes, 1, code);
}

/* Handles a column's first text: everything before it in the window was empty, or makes it
 * mixed. */
static stow_status become_text(table_window *w, size_t i, const csv_field *f, uint64_t line) {
  csv_column *c = &w->columns[i];
  column_stats *t = &w->stats[i];
  size_t row = w->part.block.rows;
  uint64_t code = 0;
  if (c->numbers) t->numbers += row;
  if (t->numbers + t->missing_words + c->missing_words > 0 || c->bools) t->mixed = true;
  if (w->news == NULL) { /* one thread: what came before is known */
    const column_stats *before = &w->pass->state->stats[i];
    if (before->numbers + before->bools + before->missing_words > 0) t->mixed = true;
    if (before->missing > 0) STOW_TRY(code_of(w, i, "", 0, &code));
  }
  t->first_text_line = line;
  t->padded = csv_keeps_zeros(f->text, f->length);
  t->beyond = csv_is_beyond(&w->rows, f);
  c->form = CSV_CODES;
  if (row > 0) {
    STOW_TRY(code_of(w, i, "", 0, &code));
    for (size_t k = 0; k < row; k++) c->values[k] = code;
  }
  return code_of(w, i, f->text, f->length, &c->values[row]);
}

/* Stores the value of a field that is not text. */
static void add_value(table_window *w, size_t i, size_t row, const csv_field *f) {
  csv_column *c = &w->columns[i];
  c->numbers =
      c->numbers || f->kind == CSV_SIGNED || f->kind == CSV_UNSIGNED || f->kind == CSV_FLOAT;
  switch (f->kind) {
  case CSV_SIGNED: csv_column_integer(c, row, f->value.i); break;
  case CSV_UNSIGNED:
    w->stats[i].wide_count++; /* only zero or nonzero matters */
    csv_column_wide(c, row, f->value.u);
    break;
  case CSV_FLOAT:
    c->fractions = true;
    csv_column_float(c, row, f->value.d);
    break;
  case CSV_BOOL:
    c->bools = true;
    csv_column_integer(c, row, f->value.i);
    break;
  case CSV_MISSING: csv_column_float(c, row, (double)NAN); break;
  case CSV_TEXT: break;
  }
}

static stow_status add_field(table_window *w, size_t i, const csv_field *f, uint64_t line) {
  csv_column *c = &w->columns[i];
  column_stats *t = &w->stats[i];
  size_t row = w->part.block.rows;
  c->text_bytes += f->length; /* also for numbers: the column may turn out to be text */
  if (f->length > c->longest) c->longest = f->length;
  if (f->length < c->shortest) c->shortest = f->length;
  /* Once a column is text, every value in it is, except empty ones. */
  if (c->form == CSV_CODES) {
    c->missing += f->length == 0;
    return code_of(w, i, f->text, f->length, &c->values[row]);
  }
  if (f->kind == CSV_TEXT) return become_text(w, i, f, line);
  add_value(w, i, row, f);
  c->missing += f->kind == CSV_MISSING;
  t->missing_words += f->kind == CSV_MISSING && f->length > 0;
  return STOW_OK;
}

/* For the fast loop: the same as add_field, but the loop counts lengths and missing values. */
static csv_word add_word(void *context, size_t i, size_t row, const char *text, size_t length) {
  table_window *w = context;
  csv_field f;
  csv_classify(&w->rows, &f, w->columns[i].padded, text, length);
  if (f.kind == CSV_TEXT) return CSV_WORD_TEXT;
  add_value(w, i, row, &f);
  return f.kind == CSV_MISSING ? CSV_WORD_MISSING : CSV_WORD_VALUE;
}

/* Refuses rows that lack nearly all fields: they cost time and memory for each column of the first
 * row, however small the file is. */
enum { LACKING_MAX = 1 << 24, LACKING_RATIO = 256 };

static stow_status check_lacking(const table_window *w, uint64_t rows, uint64_t lacking) {
  uint64_t columns = w->part.block.count;
  if (lacking <= LACKING_MAX || lacking / LACKING_RATIO <= rows * columns - lacking) return STOW_OK;
  return stow_fail(STOW_ERR_FORMAT,
                   "%s: the rows have far fewer fields than the %" PRIu64
                   " of the first one; check --delimiter and --skip",
                   w->pass->from->in.name, columns);
}

static stow_status add_row(void *context, csv *c) {
  table_window *w = context;
  w->absent += w->part.block.count - c->given;
  if (c->given < w->part.block.count) STOW_TRY(check_lacking(w, w->part.block.rows + 1, w->absent));
  for (size_t i = 0; i < w->part.block.count; i++)
    STOW_TRY(add_field(w, i, &c->fields[i], c->line));
  for (size_t i = c->given; i < w->part.block.count; i++) w->stats[i].absent++;
  return STOW_OK;
}

/* Sets up the window's csv: the rows of one table in the window's own memory. */
static void begin_rows(table_window *w) {
  csv *c = &w->rows;
  csv_view(c, w->pass->from);
  c->in.at = w->first;
  c->lines = w->lines_before;
  w->part.block.rows = 0;
  w->absent = 0;
}

static void begin_columns(table_window *w) {
  table_pass *p = w->pass;
  for (size_t i = 0; i < p->state->count; i++) {
    csv_column *c = &w->columns[i];
    *c = (csv_column){.values = c->values, .form = w->forms[i], .shortest = UINT64_MAX};
    w->shared[i] = false;
    c->padded = p->from->padded != NULL && p->from->padded[i];
    buffer_clear(&w->texts[i]);
    column_stats_begin(&w->stats[i]);
    w->stats[i].not_times = w->no_times[i];
    if (w->news != NULL) {
      buffer_clear(&w->news[i].bytes);
      w->news[i].count = 0;
    } else if (c->form == CSV_CODES) {
      w->stats[i].mixed = p->state->stats[i].mixed;
    }
  }
}

/* Leaves the lengths of the raw texts as the column's values, and concatenates the texts. A text
 * may occur twice: rows that a later column rejected are parsed again. */
static void pack_texts(table_window *w, size_t i) {
  uint64_t *values = w->columns[i].values;
  buffer *texts = &w->texts[i];
  size_t at = 0;
  for (size_t row = 0; row < w->part.block.rows; row++) {
    size_t place = (size_t)(values[row] >> 32), length = (size_t)(values[row] & UINT32_MAX);
    if (place != at) memmove(texts->data + at, texts->data + place, length);
    values[row] = length;
    at += length;
  }
  texts->length = at;
}

/* Returns the text of a row of a column whose texts are numbered. */
static const char *text_at(const table_window *w, size_t i, size_t row, size_t *length) {
  uint64_t code = w->columns[i].values[row];
  if ((code & NEW) != 0) return news_get(&w->news[i], (size_t)(code & ~NEW), length);
  return intern_get(&w->pass->state->words[i], (uint32_t)code, length);
}

/* Counts the words for missing values in a column that may be one of times. */
static void count_gaps(table_window *w, size_t i) {
  const char *at = w->texts[i].data;
  pthread_rwlock_rdlock(&w->pass->words_lock);
  for (size_t row = 0; row < w->part.block.rows; row++) {
    size_t length = (size_t)w->columns[i].values[row];
    const char *text = at;
    if (w->raw[i])
      at += length;
    else
      text = text_at(w, i, row, &length);
    w->stats[i].gap_count += length > 0 && column_stats_gap(text, length);
  }
  pthread_rwlock_unlock(&w->pass->words_lock);
}

/* Returns whether the column's texts are known: its values are their numbers, or their lengths. */
static bool knows_texts(const table_window *w, size_t i) {
  if (w->raw[i]) return true;
  bool alone = w->news == NULL;
  return !w->ignored[i] && !(alone && (w->pass->state->too_many[i] || w->stats[i].mixed));
}

static void end_columns(table_window *w) {
  for (size_t i = 0; i < w->pass->state->count; i++) {
    column_stats *t = &w->stats[i];
    column_stats_block(t, &w->columns[i], w->part.block.rows);
    if (w->raw[i]) pack_texts(w, i);
    bool text = w->columns[i].form == CSV_CODES && !t->not_times;
    if (text && knows_texts(w, i)) count_gaps(w, i);
  }
}

stow_status table_window_read(table_window *w) {
  begin_rows(w);
  begin_columns(w);
  STOW_TRY(csv_block_fill(&w->part.block, &w->rows));
  end_columns(w);
  return STOW_OK;
}

stow_status table_window_first(table_window *w) {
  know_forms(w);
  STOW_TRY(make_values(w, 1));
  begin_columns(w);
  w->part.block.rows = 0;
  STOW_TRY(add_row(w, w->pass->from));
  w->part.block.rows = 1;
  end_columns(w);
  w->stream_end = input_offset(&w->pass->from->in);
  w->lines_before = w->pass->from->lines;
  w->ticket = w->pass->tickets++;
  return STOW_OK;
}

/* ---- merging ---- */

/* Makes room for that many texts in the pass's dictionary. */
static stow_status reserve_words(table_pass *p, intern *to, size_t count, size_t bytes) {
  if (intern_has_room(to, count, bytes)) return STOW_OK;
  pthread_rwlock_wrlock(&p->words_lock);
  stow_status status = intern_reserve(to, count, bytes);
  pthread_rwlock_unlock(&p->words_lock);
  return status;
}

/* Adds the window's new texts to the pass's dictionary, while other windows look up theirs. */
static stow_status add_words(table_window *w, size_t i) {
  table_pass *p = w->pass;
  intern *to = &p->state->words[i];
  table_news *from = &w->news[i];
  const char *at = from->bytes.data;
  uint32_t nothing, start = 0;
  if (to->count == 0 && p->state->stats[i].missing > 0) {
    STOW_TRY(reserve_words(p, to, 1, 0));
    STOW_TRY(intern_add(to, &nothing, "", 0));
  }
  for (size_t k = 0; k < from->count;) {
    const char *texts[TOGETHER];
    uint32_t lengths[TOGETHER], some = 0, first = start;
    uint64_t codes[TOGETHER];
    for (; some < TOGETHER && k + some < from->count; some++) {
      texts[some] = at + start;
      lengths[some] = from->ends[k + some] - start;
      start = from->ends[k + some];
    }
    STOW_TRY(reserve_words(p, to, some, start - first));
    STOW_TRY(intern_add_many(to, texts, lengths, some, codes));
    for (uint32_t j = 0; j < some; j++) from->ends[k + j] = (uint32_t)codes[j];
    k += some;
  }
  return STOW_OK;
}

void table_window_renumber(table_window *w) {
  for (size_t i = 0; w->news != NULL && i < w->pass->state->count; i++) {
    const table_news *n = &w->news[i];
    uint64_t *values = w->columns[i].values;
    if (!w->numbered[i] || n->count == 0) continue;
    for (size_t row = 0; row < w->part.block.rows; row++)
      if (values[row] & NEW) values[row] = n->ends[values[row] & ~NEW];
  }
}

/* Writes out the texts of a window that was parsed before the column had too many. */
static stow_status unnumber_texts(table_window *w, size_t i) {
  csv_column *c = &w->columns[i];
  w->raw[i] = true;
  for (size_t row = 0; row < w->part.block.rows; row++) {
    size_t length;
    const char *text = news_get(&w->news[i], (size_t)(c->values[row] & ~NEW), &length);
    STOW_TRY(buffer_append(&w->texts[i], text, length));
    c->values[row] = length;
  }
  return STOW_OK;
}

static void free_words(table_pass *p, size_t i) {
  pthread_rwlock_wrlock(&p->words_lock);
  intern_free(&p->state->words[i]);
  pthread_rwlock_unlock(&p->words_lock);
}

void table_bound_words(table_pass *p) {
  table_state *s = p->state;
  if (table_words_bytes(s) <= p->words_max) return;
  size_t most = 0;
  for (size_t i = 1; i < s->count; i++)
    if (s->words[i].length > s->words[most].length) most = i;
  s->too_many[most] = true;
  free_words(p, most);
}

/* Returns whether it was parsed without knowing that a column is text (it took fields for numbers,
 * or for empty), or has codes of a dictionary that was freed since. */
static bool is_outdated(const table_window *w) {
  const table_pass *p = w->pass;
  for (size_t i = 0; i < p->state->count; i++) {
    bool text = w->columns[i].form == CSV_CODES && !w->raw[i] && !w->ignored[i];
    if (text && w->shared[i] && is_raw(p, i)) return true;
    if (text && p->state->too_many[i] && !w->stats[i].not_times) return true; /* see count_gaps */
    if (p->forms[i] != CSV_CODES || w->forms[i] == CSV_CODES) continue;
    if (w->columns[i].form != CSV_CODES || w->stats[i].mixed) return true;
  }
  return false;
}

/* Handles a text among numbers of earlier windows: its distinct texts are not all known. */
static void forget_mixed(table_pass *p, size_t i) {
  if (p->state->stats[i].mixed && p->state->words[i].count > 0) free_words(p, i);
}

stow_status table_window_merge(table_window *w) {
  table_pass *p = w->pass;
  table_state *s = p->state;
  if (is_outdated(w)) {
    know_forms(w);
    STOW_TRY(table_window_read(w));
  }
  for (size_t i = 0; i < s->count; i++) {
    column_stats *t = &s->stats[i];
    bool text = w->columns[i].form == CSV_CODES, was_text = p->forms[i] == CSV_CODES;
    if (text && !was_text && t->numbers + t->bools + t->missing_words > 0) t->mixed = true;
    t->mixed = t->mixed || w->stats[i].mixed;
    w->numbered[i] = text && w->news != NULL && !s->too_many[i] && !t->mixed;
    if (w->numbered[i]) STOW_TRY(add_words(w, i));
    if (text && w->news != NULL && !w->raw[i] && is_raw(p, i)) STOW_TRY(unnumber_texts(w, i));
    column_stats_join(t, &w->stats[i]);
    if (text) p->forms[i] = CSV_CODES;
    if (w->columns[i].form == CSV_FLOATS && !text) p->forms[i] = CSV_FLOATS;
    forget_mixed(p, i);
  }
  p->place = w->stream_end;
  p->lines = w->rows.lines > w->lines_before ? w->rows.lines : w->lines_before;
  w->part.first_row = s->rows;
  s->rows += w->part.block.rows;
  uint64_t lacking = 0;
  for (size_t i = 0; i < s->count; i++) lacking += s->stats[i].absent;
  return check_lacking(w, s->rows, lacking);
}

stow_status table_window_make(table_window *w, table_pass *p) {
  size_t columns = p->state->count;
  *w = (table_window){.pass = p};
  w->columns = calloc(columns, sizeof *w->columns);
  w->stats = calloc(columns, sizeof *w->stats);
  w->forms = calloc(columns, sizeof *w->forms);
  w->raw = calloc(columns, sizeof *w->raw);
  w->ignored = calloc(columns, sizeof *w->ignored);
  w->shared = calloc(columns, sizeof *w->shared);
  w->numbered = calloc(columns, sizeof *w->numbered);
  w->no_times = calloc(columns, sizeof *w->no_times);
  w->texts = calloc(columns, sizeof *w->texts);
  w->news = p->threads > 1 ? calloc(columns, sizeof *w->news) : NULL;
  if (w->columns == NULL || w->stats == NULL || w->forms == NULL ||
      (w->news == NULL && p->threads > 1) || w->raw == NULL || w->texts == NULL ||
      w->ignored == NULL || w->shared == NULL || w->no_times == NULL || w->numbered == NULL)
    return no_memory(p);
  for (size_t i = 0; i < columns; i++) w->texts[i] = BUFFER_INIT;
  for (size_t i = 0; w->news != NULL && i < columns; i++) w->news[i].bytes = BUFFER_INIT;
  w->part.raw = w->raw;
  w->part.texts = w->texts;
  w->part.block = (csv_block){.columns = w->columns,
                              .count = columns,
                              .texts = number_texts,
                              .word = add_word,
                              .row = add_row,
                              .context = w};
  return STOW_OK;
}

void table_window_free(table_window *w) {
  for (size_t i = 0; w->news != NULL && i < w->pass->state->count; i++) free_news(&w->news[i]);
  free(w->news);
  for (size_t i = 0; w->texts != NULL && i < w->pass->state->count; i++) buffer_free(&w->texts[i]);
  free(w->texts);
  free(w->raw);
  free(w->ignored);
  free(w->shared);
  free(w->numbered);
  free(w->no_times);
  free(w->bytes);
  free(w->rows.fields);
  free(w->rows.unescaped);
  free(w->columns);
  free(w->values);
  free(w->forms);
  free(w->stats);
}
