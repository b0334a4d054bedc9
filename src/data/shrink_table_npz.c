/* Shrink of tables to an npz: a member for each column, in its own type; text as codes, and a
 * member NAME.values with the text of each code.
 *
 * While the table is read its values go to a scratch, window after window, column after column in
 * each; when the types are known each column's runs are read back, cast and written as a member.
 * Each of several ranks does so with its own rows, into its own part of every member. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "data/shrink_table.h"
#include "data/table_team.h"
#include "data/team.h"
#include "numbers/cast.h"

typedef struct npz_run {
  uint64_t place, rows; /* of one window's values in the scratch */
} npz_run;

/* From which window on a column's values are of which form. */
typedef struct npz_change {
  uint64_t run;
  csv_form form;
} npz_change;

typedef struct npz_column {
  npz_change *changes;
  size_t count, capacity;
  char name[ZIP_NAME_MAX];
} npz_column;

typedef struct npz_out {
  job *job;
  scratch values;
  uint64_t end;
  npz_run *runs;
  size_t run_count, run_capacity;
  size_t rows_most; /* of a window */
  npz_column *columns;
  size_t count;
  table_state state;
  table_shared own; /* this rank's rows, where there are several */
} npz_out;

static stow_status no_memory(const npz_out *o) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", o->job->in);
}

/* ---- in ---- */

static stow_status note_form(npz_out *o, size_t i, csv_form form) {
  npz_column *c = &o->columns[i];
  if (c->count > 0 && c->changes[c->count - 1].form == form) return STOW_OK;
  if (c->count == c->capacity) {
    npz_change *more = realloc(c->changes, (c->capacity * 2 + 2) * sizeof *more);
    if (more == NULL) return no_memory(o);
    c->changes = more;
    c->capacity = c->capacity * 2 + 2;
  }
  c->changes[c->count++] = (npz_change){o->run_count, form};
  return STOW_OK;
}

static stow_status make_columns(npz_out *o, size_t count) {
  if (o->columns != NULL) return STOW_OK;
  o->columns = calloc(count, sizeof *o->columns);
  if (o->columns == NULL) return no_memory(o);
  o->count = count;
  return STOW_OK;
}

static stow_status order_part(void *context, table_part *part) {
  npz_out *o = context;
  STOW_TRY(make_columns(o, part->block.count));
  for (size_t i = 0; i < o->count; i++) STOW_TRY(note_form(o, i, part->block.columns[i].form));
  if (o->run_count == o->run_capacity) {
    npz_run *more = realloc(o->runs, (o->run_capacity * 2 + 64) * sizeof *more);
    if (more == NULL) return no_memory(o);
    o->runs = more;
    o->run_capacity = o->run_capacity * 2 + 64;
  }
  o->runs[o->run_count++] = (npz_run){o->end, part->block.rows};
  if (part->block.rows > o->rows_most) o->rows_most = part->block.rows;
  part->place = o->end;
  o->end += part->block.rows * o->count * 8;
  return STOW_OK;
}

static stow_status take_part(void *context, table_part *part) {
  npz_out *o = context;
  uint64_t rows = part->block.rows;
  for (size_t i = 0; i < part->block.count && o->values.fd >= 0; i++)
    STOW_TRY(scratch_write(&o->values, part->place + i * rows * 8, part->block.columns[i].values,
                           rows * 8));
  return STOW_OK;
}

/* ---- out ---- */

static dtype via_of(csv_form form) {
  return form == CSV_FLOATS ? DTYPE_F64 : form == CSV_WIDES ? DTYPE_U64 : DTYPE_I64;
}

/* This rank's numbers of its texts become those of all. */
static void number_texts(const npz_out *o, size_t i, uint64_t *values, uint64_t rows) {
  const uint32_t *codes = o->own.codes != NULL ? o->own.codes[i] : NULL;
  for (uint64_t row = 0; row < rows && codes != NULL; row++) values[row] = codes[values[row]];
}

/* All values of column `i` cast to `to`: into `s`, or compared for `l`. */
static stow_status each_run(npz_out *o, size_t i, dtype to, sink *s, loss *l) {
  const npz_column *c = &o->columns[i];
  bool text = o->job->result->facts.columns[i].text;
  uint64_t *values = malloc((2 * o->rows_most + 1) * sizeof *values);
  if (values == NULL) return no_memory(o);
  uint64_t *made = values + o->rows_most;
  stow_status status = STOW_OK;
  for (size_t run = 0, change = 0; run < o->run_count && status == STOW_OK; run++) {
    const npz_run *r = &o->runs[run];
    while (change + 1 < c->count && c->changes[change + 1].run <= run) change++;
    csv_form form = c->changes[change].form;
    /* Of a column of text: gaps before its first one, which is number 0 then. */
    if (text && form != CSV_CODES)
      memset(values, 0, r->rows * 8);
    else
      status = scratch_read(&o->values, r->place + i * r->rows * 8, values, r->rows * 8);
    if (text) form = CSV_CODES;
    if (text && status == STOW_OK) number_texts(o, i, values, r->rows);
    if (status == STOW_OK) status = cast_values(made, to, values, via_of(form), r->rows);
    if (status == STOW_OK && l != NULL) loss_add(l, values, via_of(form), made, to, r->rows);
    if (status == STOW_OK && s != NULL) status = sink_write(s, made, r->rows * dtype_bytes(to));
    if (l != NULL && l->exceeded) break;
  }
  free(values);
  return status;
}

static stow_status measure(void *context, size_t column, dtype to, loss *l) {
  npz_out *o = context;
  return loss_join(l, o->job->budget, each_run(o, column, to, NULL, l));
}

/* A member's name from a column's: what a zip reader would refuse is replaced. */
#define NAME_MOST ((size_t)200)

static void clean_name(char *to, size_t size, const char *from) {
  size_t length = strlen(from), whole = utf8_prefix(from, length < NAME_MOST ? length : NAME_MOST);
  /* Text that is not UTF-8 is cut anywhere. */
  bool cut = length > NAME_MOST && NAME_MOST - whole < 4;
  snprintf(to, size, "%.*s", (int)(cut ? whole : NAME_MOST), from);
  for (char *at = to; *at != '\0'; at++)
    if (*at == '/' || *at == '\\' || (*at == '.' && at[1] == '.')) *at = '_';
}

/* Names that stand twice: x, x.1, x.2, as pandas has them. */
static stow_status begin_member(npz_out *o, zip_out *z, size_t i, sink *s) {
  npz_column *c = &o->columns[i];
  const file_facts *f = &o->job->result->facts;
  dtype to = o->job->result->items[i].to;
  char member[ZIP_NAME_MAX + 32];
  uint64_t rows = f->rows;
  stow_status status = STOW_ERR_INVALID;
  for (int again = 0; again < 1000 && status == STOW_ERR_INVALID; again++) {
    clean_name(c->name, sizeof c->name, f->columns[i].name);
    if (again > 0) snprintf(c->name + strlen(c->name), 8, ".%d", again);
    snprintf(member, sizeof member, "%s.npy", c->name);
    status = shrink_member(z, s, member, npy_descr(to), false, &rows, 1, dtype_bytes(to), false);
  }
  return status;
}

/* The most letters of a word; SIZE_MAX if one is not UTF-8. */
static size_t most_letters(const intern *words) {
  size_t most = 1;
  for (uint32_t i = 0; i < words->count; i++) {
    size_t length, letters = 0;
    const unsigned char *at = (const unsigned char *)intern_get(words, i, &length);
    for (size_t step; length > 0; at += step, length -= step, letters++) {
      uint32_t point;
      step = utf8_take(at, length, &point);
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
      size_t step = utf8_take(at, length, &points[count]);
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
static stow_status write_words(const char *name, const intern *words, zip_out *z, uint64_t *bytes) {
  char member[ZIP_NAME_MAX + 32], descr[32];
  size_t letters = most_letters(words);
  bool wide = letters != SIZE_MAX;
  for (uint32_t i = 0; i < words->count && !wide; i++) {
    size_t length;
    intern_get(words, i, &length);
    if (i == 0 || length > letters) letters = length > 0 ? length : 1;
  }
  sink s;
  uint64_t count = words->count;
  snprintf(member, sizeof member, "%s.values.npy", name);
  snprintf(descr, sizeof descr, "%s%zu", wide ? "<U" : "|S", letters);
  *bytes = count * letters * (wide ? 4 : 1);
  STOW_TRY(shrink_member(z, &s, member, descr, false, &count, 1, letters * (wide ? 4 : 1), false));
  for (uint32_t i = 0; i < words->count; i++) {
    size_t length;
    const char *text = intern_get(words, i, &length);
    STOW_TRY(write_word(&s, text, length, letters, wide));
  }
  return STOW_OK;
}

static stow_status write_column(npz_out *o, zip_out *z, size_t i) {
  sink s;
  STOW_TRY(begin_member(o, z, i, &s));
  STOW_TRY(each_run(o, i, o->job->result->items[i].to, &s, NULL));
  return budget_tell(o->job->budget, i + 1, o->count);
}

static stow_status write_texts(npz_out *o, zip_out *z, size_t i) {
  shrink_result *r = o->job->result;
  shrink_item *item = &r->items[i];
  uint64_t words = 0;
  STOW_TRY(write_words(o->columns[i].name, &o->state.words[i], z, &words));
  r->bytes_after -= item->bytes_after;
  item->bytes_after = r->facts.rows * dtype_bytes(item->to) + words;
  r->bytes_after += item->bytes_after;
  return STOW_OK;
}

/* ---- by several ranks ---- */

/* Every rank counts along which members there are, and puts its rows where they belong. */
static stow_status put_columns(npz_out *o, zip_out *z, uint32_t *sums) {
  for (size_t i = 0; i < o->count; i++) {
    sink s;
    dtype to = o->job->result->items[i].to;
    STOW_TRY(begin_member(o, z, i, &s));
    s.part = true;
    s.offset = z->members[s.member].filled + o->own.rows_before * dtype_bytes(to);
    STOW_TRY(each_run(o, i, to, &s, NULL));
    sums[i] = s.crc;
    STOW_TRY(budget_tell(o->job->budget, i + 1, o->count));
  }
  return STOW_OK;
}

/* The first rank learns what the others put. */
static stow_status take_sums(npz_out *o, zip_out *z, const uint32_t *sums) {
  team *t = o->job->budget->team;
  uint32_t *all = calloc(t->size * (o->count + 1), sizeof *all);
  uint64_t *rows = calloc(t->size, sizeof *rows);
  stow_status status = shrink_agree(o->job, all != NULL && rows != NULL ? STOW_OK : no_memory(o));
  if (status == STOW_OK) status = team_gather(t, &o->own.rows, rows, sizeof *rows);
  if (status == STOW_OK) status = team_gather(t, sums, all, o->count * sizeof *all);
  for (size_t i = 0; i < o->count; i++)
    for (unsigned rank = 0; rank < t->size && status == STOW_OK; rank++)
      status = zip_out_took(z, i, rows[rank] * dtype_bytes(o->job->result->items[i].to),
                            all[rank * o->count + i]);
  free(rows);
  free(all);
  return status;
}

static stow_status share_columns(npz_out *o, zip_out *z) {
  uint32_t *sums = calloc(o->count + 1, sizeof *sums);
  z->mute = !team_leads(o->job->budget->team);
  stow_status status = sums != NULL ? put_columns(o, z, sums) : no_memory(o);
  status = shrink_agree(o->job, status);
  if (status == STOW_OK) status = take_sums(o, z, sums);
  free(sums);
  return status;
}

/* ---- the archive ---- */

static stow_status write_columns(npz_out *o, zip_out *z) {
  if (!team_alone(o->job->budget->team)) return share_columns(o, z);
  for (size_t i = 0; i < o->count; i++) STOW_TRY(write_column(o, z, i));
  return STOW_OK;
}

static stow_status write_npz(npz_out *o, writer *w) {
  zip_out z;
  zip_out_begin(&z, w);
  stow_status status = write_columns(o, &z);
  if (!team_leads(o->job->budget->team)) {
    zip_out_free(&z);
    return status;
  }
  for (size_t i = 0; i < o->count && status == STOW_OK; i++)
    if (o->job->result->facts.columns[i].text) status = write_texts(o, &z, i);
  if (status == STOW_OK) status = zip_out_finish(&z);
  zip_out_free(&z);
  return status;
}

/* ---- a table ---- */

static void forget(void *context) {
  npz_out *o = context;
  for (size_t i = 0; i < o->count && o->columns != NULL; i++) free(o->columns[i].changes);
  free(o->columns);
  free(o->runs);
  o->columns = NULL;
  o->runs = NULL;
  o->run_count = o->run_capacity = o->count = 0;
  o->end = 0;
  o->rows_most = 0;
}

static stow_status read_once(npz_out *o, const bool *text) {
  job *j = o->job;
  csv c;
  table_header header = j->options->in.header;
  table_taker taker = {.order = order_part,
                       .take = take_part,
                       .context = o,
                       .text = text,
                       .needs_codes = !j->options->dry_run};
  table_reader reader = {.taker = taker, .again = forget};
  if (!team_alone(j->budget->team))
    return table_read_shared(&o->own, &j->result->facts, j->from, header, j->budget, &reader, text,
                             &o->state);
  STOW_TRY(csv_open(&c, j->in, table_row_max(j->budget)));
  stow_status status = table_read(&j->result->facts, &c, header, j->budget, &taker, &o->state);
  csv_close(&c);
  return status;
}

/* A column with numbers before its first text keeps them as they were written: it is read again, as
 * text from the start. */
static stow_status read_table(npz_out *o) {
  STOW_TRY(read_once(o, NULL));
  file_facts *f = &o->job->result->facts;
  bool again = false, *text = calloc(f->column_count + 1, sizeof *text);
  if (text == NULL) return no_memory(o);
  for (size_t i = 0; i < f->column_count; i++)
    if (f->columns[i].text && !f->columns[i].distinct_known && !o->state.too_many[i])
      again = text[i] = true;
  stow_status status = STOW_OK;
  if (again && !o->job->options->dry_run) {
    uint64_t bytes = f->file_bytes;
    const char *format = f->format;
    inspect_free(f);
    *f = (file_facts){.file_bytes = bytes, .format = format};
    forget(o);
    table_state_free(&o->state);
    table_shared_free(&o->own);
    status = read_once(o, text);
  }
  free(text);
  /* A table of names alone, or a rank without rows: the members are the same. */
  if (status == STOW_OK) status = make_columns(o, f->column_count);
  return status;
}

static stow_status shrink_columns(npz_out *o) {
  job *j = o->job;
  writer w;
  STOW_TRY(shrink_agree(j, read_table(o)));
  table_plan plan = {.measure = measure, .context = o};
  STOW_TRY(shrink_agree(j, shrink_table_plan(j, &plan)));
  if (j->options->dry_run) return STOW_OK;
  STOW_TRY(shrink_open(j, &w, j->result->bytes_after));
  return shrink_finish(j, &w, write_npz(o, &w));
}

stow_status shrink_table_npz(job *j) {
  npz_out o = {.job = j, .values = {.fd = -1}};
  stow_status status = STOW_OK;
  if (!j->options->dry_run || j->options->tolerance > 0) status = scratch_open(&o.values, j->out);
  status = shrink_agree(j, status);
  if (status == STOW_OK) status = shrink_columns(&o);
  forget(&o);
  table_state_free(&o.state);
  table_shared_free(&o.own);
  scratch_close(&o.values);
  return status;
}
