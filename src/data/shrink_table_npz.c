/* Shrink of tables to an npz: a member for each column, in its own type; text as codes, and a
 * member NAME.values with the text of each code.
 *
 * While the table is read its values go to a scratch, window after window (table_log.c); when
 * the types are known each column's runs are read back, cast and written as a member. Each of
 * several ranks does so with its own rows, into its own part of every member, and notes the columns
 * that it is done with. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "data/shrink_table.h"
#include "data/table_log.h"
#include "data/table_team.h"
#include "data/team.h"
#include "numbers/cast.h"

typedef struct npz_out {
  job *job;
  table_log log;     /* what was read */
  intern names;      /* of the columns' members, and of their texts' */
  uint32_t *name_of; /* which is a column's */
  table_state state;
  table_shared own; /* this rank's rows, where there are several */
} npz_out;

static stow_status no_memory(const npz_out *o) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", o->job->in);
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

typedef struct casting {
  const npz_out *out;
  size_t column;
  dtype to;
  sink *sink; /* NULL: none */
  loss *loss; /* NULL: none */
  uint64_t *made;
} casting;

static stow_status cast_run(void *context, uint64_t *values, size_t rows, csv_form form) {
  casting *c = context;
  bool text = c->out->job->result->facts.columns[c->column].text;
  /* Of a column of text: gaps before its first one, which is number 0 then. */
  if (text && form != CSV_CODES) memset(values, 0, rows * sizeof *values);
  if (text) number_texts(c->out, c->column, values, rows);
  dtype via = text || form == CSV_CODES ? DTYPE_I64 : via_of(form);
  STOW_TRY(cast_values(c->made, c->to, values, via, rows));
  if (c->loss != NULL) loss_add(c->loss, values, via, c->made, c->to, rows);
  return c->sink != NULL ? sink_write(c->sink, c->made, rows * dtype_bytes(c->to)) : STOW_OK;
}

/* All values of column `i` cast to `to`: into `s`, but for those that stand there already, or
 * compared for `l`, until it is exceeded. */
static stow_status each_run(npz_out *o, size_t i, dtype to, sink *s, loss *l) {
  casting c = {.out = o, .column = i, .to = to, .sink = s, .loss = l};
  uint64_t *values = malloc((2 * o->log.rows_most + 1) * sizeof *values);
  if (values == NULL) return no_memory(o);
  c.made = values + o->log.rows_most;
  stow_status status = STOW_OK;
  for (size_t run = 0; run < o->log.run_count && status == STOW_OK; run++) {
    uint64_t bytes = o->log.runs[run].rows * dtype_bytes(to);
    if (s != NULL && sink_behind(s) >= bytes) {
      sink_pass(s, bytes);
      continue;
    }
    csv_form form = CSV_INTEGERS;
    status = table_log_read(&o->log, run, i, values, &form);
    if (status == STOW_OK) status = cast_run(&c, values, o->log.runs[run].rows, form);
    if (l != NULL && l->exceeded) break;
  }
  free(values);
  return status;
}

static stow_status measure(void *context, size_t column, dtype to, loss *l) {
  npz_out *o = context;
  return loss_join(l, o->job->budget, each_run(o, column, to, NULL, l));
}

/* A member's name from a column's: what a zip reader would refuse is replaced, and what is not
 * UTF-8 is taken for Latin-1, which it then mostly is. */
enum { NAME_MOST = 200 };

static void clean_name(char to[NAME_MOST + 1], const char *from) {
  const unsigned char *at = (const unsigned char *)from;
  size_t left = strlen(from), used = 0;
  while (left > 0) {
    uint32_t point;
    size_t taken = utf8_take(at, left, &point), made = taken > 0 ? taken : 2;
    if (used + made > NAME_MOST) break;
    if (taken > 0) {
      memcpy(to + used, at, taken);
    } else {
      to[used] = (char)(0xc0 | *at >> 6);
      to[used + 1] = (char)(0x80 | (*at & 0x3f));
      taken = 1;
    }
    at += taken;
    left -= taken;
    used += made;
  }
  to[used] = '\0';
  for (char *p = to; *p != '\0'; p++)
    if (*p == '/' || *p == '\\' || (*p == '.' && p[1] == '.')) *p = '_';
}

/* Names that stand twice: x, x.1, x.2, as pandas has them; so too what a column of text would be
 * beside another's. */
static stow_status name_column(npz_out *o, size_t i) {
  const column_facts *c = &o->job->result->facts.columns[i];
  char base[NAME_MOST + 1], name[NAME_MOST + 16], values[NAME_MOST + 32];
  uint32_t number;
  clean_name(base, c->name);
  for (int again = 0; again < 1000; again++) {
    int length = again == 0 ? snprintf(name, sizeof name, "%s", base)
                            : snprintf(name, sizeof name, "%s.%d", base, again);
    int longer = snprintf(values, sizeof values, "%s.values", name);
    if (intern_find(&o->names, &number, name, (size_t)length)) continue;
    if (c->text && intern_find(&o->names, &number, values, (size_t)longer)) continue;
    if (c->text) STOW_TRY(intern_add(&o->names, &number, values, (size_t)longer));
    return intern_add(&o->names, &o->name_of[i], name, (size_t)length);
  }
  return stow_fail(STOW_ERR_INVALID, "%s: more than 1000 columns are named %s; name them apart",
                   o->job->in, base);
}

static stow_status name_columns(npz_out *o) {
  o->name_of = calloc(o->state.count + 1, sizeof *o->name_of);
  if (o->name_of == NULL) return no_memory(o);
  for (size_t i = 0; i < o->state.count; i++) STOW_TRY(name_column(o, i));
  return STOW_OK;
}

static const char *name_of(const npz_out *o, size_t i) {
  return intern_get(&o->names, o->name_of[i], NULL);
}

static stow_status begin_member(npz_out *o, archive *z, size_t i, sink *s) {
  dtype to = o->job->result->items[i].to;
  uint64_t rows = o->job->result->facts.rows;
  char member[NAME_MOST + 32];
  snprintf(member, sizeof member, "%s.npy", name_of(o, i));
  return shrink_member(z, s, member, npy_descr(to), false, &rows, 1, dtype_bytes(to), false);
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

/* Words are short: they are written many at a time. */
typedef struct gathered {
  sink *to;
  size_t used;
  char bytes[16 << 10];
} gathered;

static stow_status put_gathered(gathered *g) {
  size_t count = g->used;
  g->used = 0;
  return count > 0 ? sink_write(g->to, g->bytes, count) : STOW_OK;
}

static stow_status gather(gathered *g, const void *bytes, size_t count) {
  if (count > sizeof g->bytes - g->used) STOW_TRY(put_gathered(g));
  if (count > sizeof g->bytes) return sink_write(g->to, bytes, count);
  memcpy(g->bytes + g->used, bytes, count);
  g->used += count;
  return STOW_OK;
}

static stow_status write_word(gathered *s, const char *text, size_t length, size_t letters,
                              bool wide) {
  static const char zeros[256];
  uint32_t points[256];
  size_t width = wide ? letters * 4 : letters, used = 0;
  if (!wide) STOW_TRY(gather(s, text, length));
  if (!wide) used = length;
  const unsigned char *at = (const unsigned char *)text;
  while (wide && length > 0) {
    size_t count = 0;
    for (; length > 0 && count < 256; count++) {
      size_t step = utf8_take(at, length, &points[count]);
      at += step;
      length -= step;
    }
    STOW_TRY(gather(s, points, count * 4));
    used += count * 4;
  }
  for (size_t part; used < width; used += part) {
    part = width - used < sizeof zeros ? width - used : sizeof zeros;
    STOW_TRY(gather(s, zeros, part));
  }
  return STOW_OK;
}

/* NAME.values: the text of each code, as NumPy's own text; bytes where it is not UTF-8. */
static stow_status write_words(const char *name, const intern *words, archive *z, uint64_t *bytes) {
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
  gathered g = {.to = &s};
  for (uint32_t i = 0; i < words->count; i++) {
    size_t length;
    const char *text = intern_get(words, i, &length);
    STOW_TRY(write_word(&g, text, length, letters, wide));
  }
  return put_gathered(&g);
}

static stow_status write_column(npz_out *o, archive *z, size_t i) {
  sink s;
  STOW_TRY(begin_member(o, z, i, &s));
  STOW_TRY(each_run(o, i, o->job->result->items[i].to, &s, NULL));
  return budget_tell(o->job->budget, i + 1, o->state.count);
}

static stow_status write_texts(npz_out *o, archive *z, size_t i) {
  shrink_result *r = o->job->result;
  shrink_item *item = &r->items[i];
  uint64_t words = 0;
  STOW_TRY(write_words(name_of(o, i), &o->state.words[i], z, &words));
  r->bytes_after -= item->bytes_after;
  item->bytes_after = r->facts.rows * dtype_bytes(item->to) + words;
  r->bytes_after += item->bytes_after;
  return STOW_OK;
}

/* ---- by several ranks ---- */

/* Every rank counts along which members there are, and puts its rows where they belong. */
static stow_status put_columns(npz_out *o, archive *z, uint32_t *sums) {
  checkpoint *c = o->job->budget->checkpoint;
  size_t bytes;
  uint64_t columns;
  const void *noted = checkpoint_get(c, STEP_OWN, &columns, &bytes);
  size_t done = bytes / sizeof *sums <= o->state.count ? bytes / sizeof *sums : 0;
  if (done > 0) memcpy(sums, noted, done * sizeof *sums);
  for (size_t i = 0; i < o->state.count; i++) {
    sink s;
    dtype to = o->job->result->items[i].to;
    STOW_TRY(begin_member(o, z, i, &s));
    if (i < done) continue;
    s.part = true;
    s.offset = z->zip.members[s.member].filled + o->own.rows_before * dtype_bytes(to);
    STOW_TRY(each_run(o, i, to, &s, NULL));
    sums[i] = s.crc;
    STOW_TRY(checkpoint_append(c, STEP_OWN, &s.crc, sizeof s.crc));
    STOW_TRY(budget_tell(o->job->budget, i + 1, o->state.count));
  }
  return STOW_OK;
}

/* The first rank learns what the others put. */
static stow_status take_sums(npz_out *o, archive *z, const uint32_t *sums) {
  team *t = o->job->budget->team;
  uint32_t *all = calloc(t->size * (o->state.count + 1), sizeof *all);
  uint64_t *rows = calloc(t->size, sizeof *rows);
  bool fine = all != NULL && rows != NULL;
  stow_status status = shrink_agree(o->job, fine ? STOW_OK : no_memory(o));
  if (status != STOW_OK || !fine) {
    free(rows);
    free(all);
    return status;
  }
  status = team_gather(t, &o->own.rows, rows, sizeof *rows);
  if (status == STOW_OK) status = team_gather(t, sums, all, o->state.count * sizeof *all);
  for (size_t i = 0; i < o->state.count; i++)
    for (unsigned rank = 0; rank < t->size && status == STOW_OK; rank++)
      status = zip_out_took(&z->zip, i, rows[rank] * dtype_bytes(o->job->result->items[i].to),
                            all[rank * o->state.count + i]);
  free(rows);
  free(all);
  return status;
}

static stow_status share_columns(npz_out *o, archive *z) {
  uint32_t *sums = calloc(o->state.count + 1, sizeof *sums);
  z->zip.mute = !team_leads(o->job->budget->team);
  stow_status status = sums != NULL ? put_columns(o, z, sums) : no_memory(o);
  status = shrink_agree(o->job, status);
  if (status == STOW_OK) status = take_sums(o, z, sums);
  free(sums);
  return status;
}

/* ---- the archive ---- */

static stow_status write_columns(npz_out *o, archive *z) {
  if (!team_alone(o->job->budget->team)) return share_columns(o, z);
  for (size_t i = 0; i < o->state.count; i++) STOW_TRY(write_column(o, z, i));
  return STOW_OK;
}

static stow_status write_npz(npz_out *o, writer *w) {
  archive z;
  bool alone = team_alone(o->job->budget->team);
  archive_begin(&z, w, alone ? o->job->budget->checkpoint : NULL);
  stow_status status = write_columns(o, &z);
  if (!team_leads(o->job->budget->team)) {
    zip_out_free(&z.zip);
    return status;
  }
  for (size_t i = 0; i < o->state.count && status == STOW_OK; i++)
    if (o->job->result->facts.columns[i].text) status = write_texts(o, &z, i);
  return archive_end(&z, status);
}

/* ---- a table ---- */

static void read_again(void *context) {
  npz_out *o = context;
  table_log_forget(&o->log);
}

static stow_status order_part(void *context, table_part *part) {
  npz_out *o = context;
  return table_log_order(&o->log, part, &o->state);
}

static stow_status take_part(void *context, table_part *part) {
  npz_out *o = context;
  return table_log_take(&o->log, part);
}

static stow_status restore(void *context, table_state *state) {
  npz_out *o = context;
  return table_log_restore(&o->log, state);
}

static stow_status read_once(npz_out *o, const bool *text) {
  job *j = o->job;
  csv c;
  table_header header = j->options->in.header;
  bool kept = j->budget->checkpoint != NULL;
  table_taker taker = {.order = order_part,
                       .take = take_part,
                       .context = o,
                       .text = text,
                       .state = kept ? &o->log.end : NULL,
                       .state_bytes = sizeof o->log.end,
                       .restore = restore,
                       .needs_codes = !j->options->dry_run};
  table_reader reader = {.taker = taker, .again = read_again};
  if (!team_alone(j->budget->team))
    return table_read_shared(&o->own, &j->result->facts, j->from, header, j->budget, &reader, text,
                             &o->state);
  STOW_TRY(csv_open(&c, j->in, table_row_max(j->budget)));
  stow_status status = table_read(&j->result->facts, &c, header, j->budget, &taker, &o->state);
  csv_close(&c);
  return status;
}

/* Columns that no one type holds as they were read: `text` says which. */
static bool find_texts(const npz_out *o, bool *text) {
  const file_facts *f = &o->job->result->facts;
  bool any = false;
  for (size_t i = 0; i < f->column_count; i++)
    if (f->columns[i].text && !f->columns[i].distinct_known && !o->state.too_many[i])
      any = text[i] = true;
  return any;
}

/* The scratch is written anew: what was noted of it must be gone from the disk before. */
static stow_status begin_again(npz_out *o, const bool *text) {
  file_facts *f = &o->job->result->facts;
  checkpoint *c = o->job->budget->checkpoint;
  size_t columns = f->column_count;
  *f = (file_facts){.file_bytes = f->file_bytes, .format = f->format};
  table_log_forget(&o->log);
  table_state_free(&o->state);
  table_shared_free(&o->own);
  checkpoint_clear(c, STEP_TABLE);
  checkpoint_clear(c, STEP_RANGE);
  STOW_TRY(checkpoint_note(c, STEP_TEXTS, columns, text, columns * sizeof *text));
  return checkpoint_worth(c) ? checkpoint_save(c) : STOW_OK;
}

/* A column with numbers before its first text keeps them as they were written: it is read again, as
 * text from the start. */
static stow_status read_table(npz_out *o) {
  job *j = o->job;
  checkpoint *c = j->budget->checkpoint;
  uint64_t columns;
  size_t bytes;
  /* A run that was stopped may have known it; all its ranks, for they read together. */
  const bool *known = checkpoint_get(c, STEP_TEXTS, &columns, &bytes);
  if (!team_all(j->budget->team, known != NULL) && known != NULL) {
    known = NULL;
    checkpoint_clear(c, STEP_TEXTS);
    checkpoint_clear(c, STEP_RANGE);
  }
  bool *text = malloc(bytes + 1);
  if (text == NULL) return no_memory(o);
  if (known != NULL) memcpy(text, known, bytes);
  stow_status status = read_once(o, known != NULL ? text : NULL);
  free(text);
  if (status != STOW_OK || known != NULL || j->options->dry_run) return status;
  text = calloc(o->state.count + 1, sizeof *text);
  if (text == NULL) return no_memory(o);
  if (find_texts(o, text)) {
    file_facts before = j->result->facts;
    status = begin_again(o, text);
    inspect_free(&before);
    if (status == STOW_OK) status = read_once(o, text);
  }
  free(text);
  return status;
}

static stow_status shrink_columns(npz_out *o) {
  job *j = o->job;
  writer w;
  STOW_TRY(shrink_agree(j, read_table(o)));
  table_plan plan = {.measure = measure, .context = o};
  STOW_TRY(shrink_agree(j, shrink_table_plan(j, &plan)));
  if (j->options->dry_run) return STOW_OK;
  STOW_TRY(shrink_agree(j, name_columns(o)));
  STOW_TRY(shrink_open(j, &w, j->result->bytes_after));
  return shrink_finish(j, &w, write_npz(o, &w));
}

stow_status shrink_table_npz(job *j) {
  npz_out o = {.job = j};
  table_log_begin(&o.log, j->in);
  stow_status status = shrink_agree(j, shrink_table_scratch(j, &o.log.file));
  if (status == STOW_OK) status = shrink_columns(&o);
  table_log_end(&o.log);
  table_state_free(&o.state);
  table_shared_free(&o.own);
  intern_free(&o.names);
  free(o.name_of);
  return status;
}
