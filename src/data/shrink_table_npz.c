/* Shrink of tables to an npz: one member per column of numbers, in its own type; text as in
 * text_layout.h.
 *
 * While the table is read, its values go to a scratch file, window by window (table_log.c). When
 * the types are known, each column's runs are read back, cast and written as a member. Each of
 * several ranks does so with its own rows, into its own part of every member, and records the
 * columns that it has finished. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "data/shrink_table.h"
#include "data/table_log.h"
#include "data/table_team.h"
#include "data/table_texts.h"
#include "data/team.h"
#include "data/text_layout.h"
#include "data/workers.h"
#include "files/zip.h"
#include "numbers/cast.h"

typedef struct npz_out {
  job *job;
  table_log log;     /* what was read */
  intern names;      /* names of the columns and of their members */
  uint32_t *name_of; /* name of each column */
  struct piece *pieces;
  size_t piece_count;
  table_state state;
  table_shared own; /* this rank's rows, if there are several */
} npz_out;

static stow_status no_memory(const npz_out *o) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", o->job->in);
}

/* ---- writing ---- */

static dtype via_of(csv_form form) {
  return form == CSV_FLOATS ? DTYPE_F64 : form == CSV_WIDES ? DTYPE_U64 : DTYPE_I64;
}

/* Maps this rank's text numbers to the common ones. */
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
  /* In a text column: gaps before its first text, which are number 0. */
  if (text && form != CSV_CODES) memset(values, 0, rows * sizeof *values);
  if (text) number_texts(c->out, c->column, values, rows);
  dtype via = text || form == CSV_CODES ? DTYPE_I64 : via_of(form);
  STOW_TRY(cast_values(c->made, c->to, values, via, rows));
  if (c->loss != NULL) loss_add(c->loss, values, via, c->made, c->to, rows);
  return c->sink != NULL ? sink_write(c->sink, c->made, rows * dtype_bytes(c->to)) : STOW_OK;
}

/* Casts all values of column `i` to `to`: into `s`, except those already there, or compared for
 * `l`, until it is exceeded. */
static stow_status each_run(npz_out *o, size_t i, dtype to, sink *s, loss *l) {
  casting c = {.out = o, .column = i, .to = to, .sink = s, .loss = l};
  table_log log = o->log; /* each thread has its own position in it */
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
    status = table_log_read(&log, run, i, values, &form);
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

/* Makes a member's name from a column's: replaces what a zip reader would reject and control
 * characters (a line feed would end a path), and treats what is not UTF-8 as Latin-1, which it
 * usually is. */
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
    if ((*p == '/' && p == to) || *p == '\\' || zip_name_leads_out(to, p) ||
        (unsigned char)*p < ' ')
      *p = '_';
}

/* Returns the possible suffixes of a column's members; NULL after the last. A text column reserves
 * all of them, whatever its layout, so that the names alone show the layout. */
static const char *const *endings_of(const column_facts *c) {
  static const char *const numbers[] = {NULL};
  static const char *const text[] = {".codes",         ".offsets",     ".bytes",
                                     ".words.offsets", ".words.bytes", NULL};
  return c->text && !c->time ? text : numbers;
}

/* Sets *taken if another column has NAME, or NAME with one of the suffixes; otherwise reserves
 * them. */
static stow_status try_name(npz_out *o, const char *name, const char *const *endings, bool *taken) {
  char member[NAME_MOST + 64];
  uint32_t number;
  *taken = intern_find(&o->names, &number, name, strlen(name));
  for (const char *const *e = endings; *e != NULL && !*taken; e++) {
    int length = snprintf(member, sizeof member, "%s%s", name, *e);
    *taken = intern_find(&o->names, &number, member, (size_t)length);
  }
  for (const char *const *e = endings; *e != NULL && !*taken; e++) {
    int length = snprintf(member, sizeof member, "%s%s", name, *e);
    STOW_TRY(intern_add(&o->names, &number, member, (size_t)length));
  }
  return STOW_OK;
}

/* Gives a column that name, or name.AGAIN, if it is free. */
static stow_status take_name(npz_out *o, size_t i, const char *base, int again) {
  char name[NAME_MOST + 16];
  bool taken = false;
  if (again == 0)
    snprintf(name, sizeof name, "%s", base);
  else
    snprintf(name, sizeof name, "%s.%d", base, again);
  STOW_TRY(try_name(o, name, endings_of(&o->job->result->facts.columns[i]), &taken));
  if (taken) return STOW_OK;
  o->job->result->items[i].member = strdup(name);
  if (o->job->result->items[i].member == NULL) return no_memory(o);
  return intern_add(&o->names, &o->name_of[i], name, strlen(name));
}

/* Names a column. Duplicate names become x, x.1, x.2, as in pandas; so do names that collide with
 * another column's member. */
static stow_status name_column(npz_out *o, size_t i, int first, int last) {
  char base[NAME_MOST + 1];
  clean_name(base, o->job->result->facts.columns[i].name);
  for (int again = first; again <= last && o->job->result->items[i].member == NULL; again++)
    STOW_TRY(take_name(o, i, base, again));
  if (first == 0 || o->job->result->items[i].member != NULL) return STOW_OK;
  return stow_fail(STOW_ERR_INVALID, "%s: more than 1000 columns are named %s; rename them",
                   o->job->in, base);
}

/* Names that are in the file come first: in "a,a,a.1" the second column is a.2. */
static stow_status name_columns(npz_out *o) {
  o->name_of = calloc(o->state.count + 1, sizeof *o->name_of);
  if (o->name_of == NULL) return no_memory(o);
  for (size_t i = 0; i < o->state.count; i++)
    if (!shrink_skips(o->job, i)) STOW_TRY(name_column(o, i, 0, 0));
  for (size_t i = 0; i < o->state.count; i++)
    if (!shrink_skips(o->job, i)) STOW_TRY(name_column(o, i, 1, 999));
  return STOW_OK;
}

static const char *name_of(const npz_out *o, size_t i) {
  return intern_get(&o->names, o->name_of[i], NULL);
}

/* ---- members ---- */

/* One member of the output, filled by all ranks. */
typedef enum piece_kind { PIECE_NUMBERS, PIECE_TIMES, PIECE_OFFSETS, PIECE_BYTES } piece_kind;

typedef struct piece {
  size_t column;
  piece_kind kind;
  uint64_t bytes, bytes_before; /* bytes of this rank; bytes of the earlier ranks */
} piece;

static stow_status make_pieces(npz_out *o) {
  const file_facts *f = &o->job->result->facts;
  o->pieces = calloc(2 * f->column_count + 1, sizeof *o->pieces);
  if (o->pieces == NULL) return no_memory(o);
  for (size_t i = 0; i < f->column_count; i++) {
    const column_facts *c = &f->columns[i];
    if (shrink_skips(o->job, i)) continue;
    if (c->time) {
      o->pieces[o->piece_count++] = (piece){.column = i, .kind = PIECE_TIMES};
      continue;
    }
    bool plain = c->text && !c->layout.dictionary;
    if (!plain) o->pieces[o->piece_count++] = (piece){.column = i, .kind = PIECE_NUMBERS};
    if (plain && !c->layout.texts.fixed)
      o->pieces[o->piece_count++] = (piece){.column = i, .kind = PIECE_OFFSETS};
    if (plain) o->pieces[o->piece_count++] = (piece){.column = i, .kind = PIECE_BYTES};
  }
  return STOW_OK;
}

/* Begins NAME.offsets or NAME.bytes. */
static stow_status begin_texts(archive *z, sink *s, const char *name, const text_extent *texts,
                               piece_kind kind) {
  char member[NAME_MOST + 64];
  bool offsets = kind == PIECE_OFFSETS;
  dtype type = offsets ? text_offset_type(texts) : DTYPE_U8;
  uint64_t shape[2] = {offsets ? texts->count + 1 : texts->bytes, 0};
  if (texts->fixed) shape[0] = texts->count, shape[1] = texts->width;
  snprintf(member, sizeof member, "%s.%s.npy", name, offsets ? "offsets" : "bytes");
  return shrink_member(z, s, member, npy_descr(type), false, shape, texts->fixed ? 2 : 1,
                       dtype_bytes(type), false);
}

static stow_status begin_piece(npz_out *o, archive *z, const piece *p, sink *s) {
  const column_facts *c = &o->job->result->facts.columns[p->column];
  uint64_t rows = o->job->result->facts.rows;
  char member[NAME_MOST + 64];
  if (p->kind == PIECE_TIMES) {
    char descr[16];
    snprintf(descr, sizeof descr, "<M8[%s]", csv_unit_name(c->unit));
    snprintf(member, sizeof member, "%s.npy", name_of(o, p->column));
    return shrink_member(z, s, member, descr, false, &rows, 1, sizeof(int64_t), false);
  }
  if (p->kind != PIECE_NUMBERS)
    return begin_texts(z, s, name_of(o, p->column), &c->layout.texts, p->kind);
  dtype to = o->job->result->items[p->column].to;
  snprintf(member, sizeof member, "%s%s.npy", name_of(o, p->column), c->text ? ".codes" : "");
  return shrink_member(z, s, member, npy_descr(to), false, &rows, 1, dtype_bytes(to), false);
}

/* Words are short, so many are written together. */
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

/* Times that were parsed, by the address of their text: dates recur. Only for numbered texts, which
 * stay where they are. */
enum { KNOWN_TIMES = 4096 };
typedef struct known_time {
  const char *text;
  int64_t value;
} known_time;

static known_time *known_slot(known_time *known, const char *text) {
  uint64_t mixed = (uint64_t)(uintptr_t)text * UINT64_C(0x9e3779b97f4a7c15);
  return &known[mixed >> 52]; /* the top 12 bits: KNOWN_TIMES */
}

/* What a text adds to a member: its time, its end offset, or its bytes. */
typedef struct text_sink {
  gathered to;
  piece_kind kind;
  dtype type;        /* of the offsets */
  uint64_t at;       /* end of the previous text */
  csv_unit unit;     /* of the times */
  known_time *known; /* NULL: the texts are not numbered */
} text_sink;

static stow_status put_time(text_sink *t, const char *text, size_t length) {
  csv_time time;
  int64_t value = CSV_NOT_A_TIME;
  known_time *known = t->known != NULL ? known_slot(t->known, text) : NULL;
  if (known != NULL && known->text == text) return gather(&t->to, &known->value, sizeof value);
  if (length > 0 && csv_time_read(&time, text, length)) value = csv_time_in(&time, t->unit);
  if (known != NULL) *known = (known_time){text, value};
  return gather(&t->to, &value, sizeof value);
}

static stow_status put_offset(text_sink *t) {
  int32_t narrow = (int32_t)t->at;
  int64_t wide = (int64_t)t->at;
  return t->type == DTYPE_I32 ? gather(&t->to, &narrow, sizeof narrow)
                              : gather(&t->to, &wide, sizeof wide);
}

static stow_status put_text(void *context, const char *text, size_t length) {
  text_sink *t = context;
  if (t->kind == PIECE_TIMES) return put_time(t, text, length);
  t->at += length;
  if (t->kind == PIECE_OFFSETS) return put_offset(t);
  return gather(&t->to, text, length);
}

static stow_status count_text(void *context, const char *text, size_t length) {
  uint64_t *bytes = context;
  (void)text;
  *bytes += length;
  return STOW_OK;
}

/* `log` is a copy of o->log: each thread has its own position in it. */
static table_texts texts_of(const npz_out *o, size_t i, table_log *log) {
  bool numbered = !o->state.too_many[i];
  return (table_texts){.log = log,
                       .column = i,
                       .words = numbered ? &o->state.words[i] : NULL,
                       .codes = o->own.codes != NULL ? o->own.codes[i] : NULL};
}

/* Writes this rank's part of a member. */
static stow_status fill_piece(npz_out *o, const piece *p, sink *s) {
  const file_facts *f = &o->job->result->facts;
  if (p->kind == PIECE_NUMBERS)
    return each_run(o, p->column, o->job->result->items[p->column].to, s, NULL);
  text_sink t = {.to = {.to = s},
                 .kind = p->kind,
                 .unit = f->columns[p->column].unit,
                 .type = text_offset_type(&f->columns[p->column].layout.texts)};
  table_log log = o->log;
  table_texts texts = texts_of(o, p->column, &log);
  if (p->kind == PIECE_OFFSETS) {
    t.at = p->bytes_before; /* position in the texts: see measure_pieces */
    if (team_leads(o->job->budget->team)) STOW_TRY(put_offset(&t));
  }
  if (p->kind == PIECE_TIMES && texts.words != NULL) t.known = calloc(KNOWN_TIMES, sizeof *t.known);
  stow_status status = table_texts_each(&texts, put_text, &t);
  free(t.known);
  return status == STOW_OK ? put_gathered(&t.to) : status;
}

/* Writes NAME.words: the text of each code. */
static stow_status write_words(npz_out *o, archive *z, size_t i, piece_kind kind) {
  const column_facts *c = &o->job->result->facts.columns[i];
  const intern *words = &o->state.words[i];
  char name[NAME_MOST + 64];
  sink s;
  snprintf(name, sizeof name, "%s.words", name_of(o, i));
  STOW_TRY(begin_texts(z, &s, name, &c->layout.texts, kind));
  text_sink t = {.to = {.to = &s}, .kind = kind, .type = text_offset_type(&c->layout.texts)};
  if (kind == PIECE_OFFSETS) STOW_TRY(put_offset(&t));
  for (uint32_t k = 0; k < words->count; k++) {
    size_t length;
    const char *text = intern_get(words, k, &length);
    STOW_TRY(put_text(&t, text, length));
  }
  return put_gathered(&t.to);
}

static stow_status write_texts(npz_out *o, archive *z, size_t i) {
  if (!o->job->result->facts.columns[i].layout.texts.fixed)
    STOW_TRY(write_words(o, z, i, PIECE_OFFSETS));
  return write_words(o, z, i, PIECE_BYTES);
}

static stow_status write_piece(npz_out *o, archive *z, size_t number) {
  sink s;
  STOW_TRY(begin_piece(o, z, &o->pieces[number], &s));
  STOW_TRY(fill_piece(o, &o->pieces[number], &s));
  return budget_report(o->job->budget, number + 1, o->piece_count);
}

/* ---- several threads ---- */

/* Each thread takes the next member and fills it. */
typedef struct filling {
  npz_out *out;
  archive *archive;
  sink *sinks; /* one per piece */
  pthread_mutex_t lock;
  size_t done;     /* guarded by lock: pieces filled */
  bool *taken;     /* guarded by lock, one per piece */
  bool *filled;    /* guarded by lock, one per piece */
  size_t in_texts; /* guarded by lock: threads that fill texts or wait to */
  /* Guarded by lock: pieces of that kind before these are taken. */
  size_t texts_from, numbers_from;
  size_t flushed;     /* guarded by lock: pieces that were flushed */
  stow_status failed; /* guarded by lock */
  /* Held while a member of texts is filled: its distinct texts may take a quarter of the budget, so
   * only one such member at a time. */
  pthread_mutex_t texts;
} filling;

static stow_status fill_one(filling *f, size_t number) {
  const piece *p = &f->out->pieces[number];
  bool texts = p->kind != PIECE_NUMBERS;
  if (texts) pthread_mutex_lock(&f->texts);
  stow_status status = fill_piece(f->out, p, &f->sinks[number]);
  if (texts) pthread_mutex_unlock(&f->texts);
  return status;
}

/* Counts a member that is complete. Flushes those that have only complete ones before them. */
static stow_status note_filled(filling *f, size_t number) {
  const sink *s = &f->sinks[number];
  zip_out *z = &f->archive->zip;
  f->filled[number] = true;
  if (s->part)
    STOW_TRY(zip_out_took(z, s->member, s->offset - z->members[s->member].filled, s->crc));
  while (f->flushed < f->out->piece_count && f->filled[f->flushed]) {
    const zip_out_member *m = &f->archive->zip.members[f->sinks[f->flushed++].member];
    writer_flush_to(f->archive->zip.to, m->offset + m->bytes);
  }
  return archive_note(f->archive);
}

/* Returns the first piece at or behind *from of this kind that was not taken; piece_count if there
 * is none. */
static size_t next_of(const filling *f, size_t *from, bool numbers) {
  size_t count = f->out->piece_count;
  while (*from < count &&
         (f->taken[*from] || (f->out->pieces[*from].kind == PIECE_NUMBERS) != numbers))
    ++*from;
  return *from;
}

/* Returns the next piece to fill; piece_count if there is none. Texts and times take longest, so
 * they come first, but one at a time. */
static size_t next_piece(filling *f) {
  size_t count = f->out->piece_count;
  size_t texts = next_of(f, &f->texts_from, false), numbers = next_of(f, &f->numbers_from, true);
  size_t found = texts < count && (f->in_texts == 0 || numbers == count) ? texts : numbers;
  if (found == count) return count;
  f->taken[found] = true;
  f->in_texts += found == texts;
  return found;
}

static stow_status fill_some(void *context, unsigned thread) {
  filling *f = context;
  stow_status status = STOW_OK;
  (void)thread;
  for (;;) {
    pthread_mutex_lock(&f->lock);
    size_t number = f->failed == STOW_OK ? next_piece(f) : f->out->piece_count;
    bool stop = number == f->out->piece_count;
    pthread_mutex_unlock(&f->lock);
    if (stop) return status;
    status = fill_one(f, number);
    pthread_mutex_lock(&f->lock);
    f->in_texts -= f->out->pieces[number].kind != PIECE_NUMBERS;
    if (status == STOW_OK) status = note_filled(f, number);
    if (status == STOW_OK) {
      status = budget_report(f->out->job->budget, ++f->done, f->out->piece_count);
    }
    if (status != STOW_OK) f->failed = status;
    pthread_mutex_unlock(&f->lock);
  }
}

/* Begins a member. One that an interrupted run had begun to fill is filled here, from there on. */
static stow_status begin_filling(filling *f, size_t number) {
  npz_out *o = f->out;
  sink *s = &f->sinks[number];
  STOW_TRY(begin_piece(o, f->archive, &o->pieces[number], s));
  const zip_out_member *m = &f->archive->zip.members[s->member];
  if (m->behind > 0) {
    STOW_TRY(fill_piece(o, &o->pieces[number], s));
    f->done++;
    f->taken[number] = true;
    return note_filled(f, number);
  }
  s->part = true;
  s->offset = m->filled;
  return STOW_OK;
}

static stow_status fill_pieces(filling *f) {
  npz_out *o = f->out;
  for (size_t i = 0; i < o->piece_count; i++) STOW_TRY(begin_filling(f, i));
  unsigned threads = o->job->budget->threads;
  if (threads > o->piece_count) threads = (unsigned)o->piece_count;
  return workers_run(threads, fill_some, f);
}

static stow_status fill_columns(npz_out *o, archive *z) {
  filling f = {.out = o, .archive = z, .sinks = calloc(o->piece_count, sizeof *f.sinks)};
  f.filled = calloc(2 * o->piece_count, sizeof *f.filled);
  if (f.sinks == NULL || f.filled == NULL) return free(f.sinks), free(f.filled), no_memory(o);
  f.taken = f.filled + o->piece_count;
  pthread_mutex_init(&f.lock, NULL);
  pthread_mutex_init(&f.texts, NULL);
  stow_status status = fill_pieces(&f);
  pthread_mutex_destroy(&f.texts);
  pthread_mutex_destroy(&f.lock);
  free(f.filled);
  free(f.sinks);
  return status;
}

/* ---- several ranks ---- */

/* Computes each rank's share of each member. For offsets, what counts is how many bytes of text
 * precede this rank's. */
static stow_status own_bytes(npz_out *o, uint64_t *own) {
  const shrink_result *r = o->job->result;
  for (size_t i = 0; i < o->piece_count; i++) {
    const piece *p = &o->pieces[i];
    table_texts texts = texts_of(o, p->column, &o->log);
    own[i] = 0;
    if (p->kind == PIECE_NUMBERS)
      own[i] = o->own.rows * dtype_bytes(r->items[p->column].to);
    else if (p->kind == PIECE_TIMES)
      own[i] = o->own.rows * sizeof(int64_t);
    else
      STOW_TRY(table_texts_each(&texts, count_text, &own[i]));
  }
  return STOW_OK;
}

static stow_status measure_pieces(npz_out *o, uint64_t *own, uint64_t *all) {
  team *t = o->job->budget->team;
  size_t count = o->piece_count;
  STOW_TRY(shrink_agree(o->job, own_bytes(o, own)));
  STOW_TRY(team_gather(t, own, all, count * sizeof *all));
  for (size_t i = 0; i < count; i++) {
    o->pieces[i].bytes = own[i];
    for (unsigned rank = 0; rank < t->rank; rank++)
      o->pieces[i].bytes_before += all[rank * count + i];
  }
  return STOW_OK;
}

/* Returns where this rank's part of a member begins, after the header. */
static uint64_t part_offset(const npz_out *o, const piece *p) {
  if (p->kind != PIECE_OFFSETS) return p->bytes_before;
  const column_facts *c = &o->job->result->facts.columns[p->column];
  uint64_t first = o->own.rows_before + (o->job->budget->team->rank > 0);
  return first * dtype_bytes(text_offset_type(&c->layout.texts));
}

/* Counts all members and writes this rank's rows at their position. */
static stow_status put_pieces(npz_out *o, archive *z, uint32_t *sums) {
  checkpoint *c = o->job->budget->checkpoint;
  size_t bytes;
  uint64_t columns;
  const void *noted = checkpoint_get(c, STEP_OWN, &columns, &bytes);
  size_t done = bytes / sizeof *sums <= o->piece_count ? bytes / sizeof *sums : 0;
  if (done > 0) memcpy(sums, noted, done * sizeof *sums);
  for (size_t i = 0; i < o->piece_count; i++) {
    sink s;
    const piece *p = &o->pieces[i];
    STOW_TRY(begin_piece(o, z, p, &s));
    if (i < done) continue;
    s.part = true;
    s.offset = z->zip.members[s.member].filled + part_offset(o, p);
    STOW_TRY(fill_piece(o, p, &s));
    sums[i] = s.crc;
    STOW_TRY(checkpoint_append(c, STEP_OWN, &s.crc, sizeof s.crc));
    STOW_TRY(budget_report(o->job->budget, i + 1, o->piece_count));
  }
  return STOW_OK;
}

/* Returns the bytes of the member that a rank with so many rows wrote. */
static uint64_t part_bytes(const npz_out *o, const piece *p, unsigned rank, uint64_t rows,
                           uint64_t bytes) {
  if (p->kind != PIECE_OFFSETS) return bytes;
  const column_facts *c = &o->job->result->facts.columns[p->column];
  return (rows + (rank == 0)) * dtype_bytes(text_offset_type(&c->layout.texts));
}

/* Sends the first rank what the others wrote. */
static stow_status take_sums(npz_out *o, archive *z, const uint32_t *sums, const uint64_t *bytes) {
  team *t = o->job->budget->team;
  size_t count = o->piece_count;
  uint32_t *all = calloc(t->size * (count + 1), sizeof *all);
  uint64_t *rows = calloc(t->size, sizeof *rows);
  bool fine = all != NULL && rows != NULL;
  stow_status status = shrink_agree(o->job, fine ? STOW_OK : no_memory(o));
  if (status != STOW_OK || !fine) {
    free(rows);
    free(all);
    return status;
  }
  status = team_gather(t, &o->own.rows, rows, sizeof *rows);
  if (status == STOW_OK) status = team_gather(t, sums, all, count * sizeof *all);
  for (size_t i = 0; i < count; i++)
    for (unsigned rank = 0; rank < t->size && status == STOW_OK; rank++)
      status = zip_out_took(&z->zip, i,
                            part_bytes(o, &o->pieces[i], rank, rows[rank], bytes[rank * count + i]),
                            all[rank * count + i]);
  free(rows);
  free(all);
  return status;
}

static stow_status share_columns(npz_out *o, archive *z) {
  team *t = o->job->budget->team;
  uint32_t *sums = calloc(o->piece_count + 1, sizeof *sums);
  uint64_t *bytes = calloc((t->size + 1) * (o->piece_count + 1), sizeof *bytes);
  bool fine = sums != NULL && bytes != NULL;
  z->zip.mute = !team_leads(t);
  stow_status status = shrink_agree(o->job, fine ? STOW_OK : no_memory(o));
  uint64_t *all = bytes;
  if (status == STOW_OK && fine) {
    status = measure_pieces(o, bytes + t->size * o->piece_count, all);
    if (status == STOW_OK) status = put_pieces(o, z, sums);
    status = shrink_agree(o->job, status);
    if (status == STOW_OK) status = take_sums(o, z, sums, all);
  }
  free(bytes);
  free(sums);
  return status;
}

/* ---- the archive ---- */

static stow_status write_columns(npz_out *o, archive *z) {
  unsigned threads = o->job->budget->threads;
  if (!team_alone(o->job->budget->team)) return share_columns(o, z);
  if (threads > 1 && o->piece_count > 1) return fill_columns(o, z);
  for (size_t i = 0; i < o->piece_count; i++) STOW_TRY(write_piece(o, z, i));
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
  for (size_t i = 0; i < o->state.count && status == STOW_OK; i++) {
    const column_facts *c = &o->job->result->facts.columns[i];
    o->job->result->items[i].not_utf8 = c->text && !c->time && c->not_utf8;
    if (c->text && c->layout.dictionary && !shrink_skips(o->job, i)) status = write_texts(o, &z, i);
  }
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
  table_taker taker = {.options = &j->options->in.csv,
                       .order = order_part,
                       .take = take_part,
                       .context = o,
                       .text = text,
                       .state = kept ? &o->log.end : NULL,
                       .state_bytes = sizeof o->log.end,
                       .restore = restore,
                       .skip = j->skip,
                       .keeps_texts = o->log.file.fd >= 0};
  table_reader reader = {.taker = taker, .again = read_again};
  if (!team_alone(j->budget->team))
    return table_read_shared(&o->own, &j->result->facts, j->from, header, j->budget, &reader, text,
                             &o->state);
  STOW_TRY(csv_open(&c, j->in, table_row_max(j->budget), &j->options->in.csv));
  stow_status status = table_read(&j->result->facts, &c, header, j->budget, &taker, &o->state);
  csv_close(&c);
  return status;
}

/* Finds columns that no single type holds as they were read: sets them in `text`. */
static bool find_texts(const npz_out *o, bool *text) {
  const file_facts *f = &o->job->result->facts;
  bool any = false;
  for (size_t i = 0; i < f->column_count; i++)
    if (f->columns[i].text && f->columns[i].mixed_unknown && !shrink_skips(o->job, i))
      any = text[i] = true;
  return any;
}

/* Rewrites the scratch file; its checkpoint is removed from the disk first. */
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

/* Reads the table. A column with numbers before its first text keeps them as written: it is read
 * again, as text from the start. */
static stow_status read_table(npz_out *o) {
  job *j = o->job;
  checkpoint *c = j->budget->checkpoint;
  uint64_t columns;
  size_t bytes;
  /* An interrupted run may have known it; then all its ranks did, because they read together. */
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
  if (status == STOW_OK) status = shrink_table_check_rules(j);
  if (status != STOW_OK || known != NULL) return status;
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
  STOW_TRY(shrink_agree(j, shrink_table_check_size(j)));
  STOW_TRY(shrink_agree(j, name_columns(o)));
  STOW_TRY(shrink_agree(j, make_pieces(o)));
  STOW_TRY(shrink_open(j, &w, j->result->bytes_after));
  return shrink_finish(j, &w, write_npz(o, &w));
}

stow_status shrink_table_npz(job *j) {
  npz_out o = {.job = j};
  table_log_begin(&o.log, j->in);
  o.log.skip = j->skip;
  stow_status status = shrink_agree(j, shrink_table_scratch(j, &o.log.file));
  if (status == STOW_OK) status = shrink_columns(&o);
  table_log_end(&o.log);
  table_state_free(&o.state);
  table_shared_free(&o.own);
  intern_free(&o.names);
  free(o.name_of);
  free(o.pieces);
  return status;
}
