/* Table: the pass. Each thread takes the next window, reads it in parallel with the others, waits
 * for its turn to merge it, and passes the values on. */
#include "data/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/checkpoint.h"
#include "data/table_parts.h"
#include "data/workers.h"

#define VALUES_LEAST 4096 /* minimum per window */

/* ---- the columns ---- */

static bool is_named(const csv *c, const char *name) {
  size_t length = strlen(name);
  for (size_t i = 0; i < c->columns; i++)
    if (c->fields[i].length == length && memcmp(c->fields[i].text, name, length) == 0) return true;
  return false;
}

/* Names each column by its header field, or by its number. An unnamed first column is "index":
 * pandas writes its index that way. */
static stow_status name_columns(file_facts *f, const csv *c) {
  f->columns = calloc(c->columns, sizeof *f->columns);
  if (f->columns == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", c->in.name);
  for (; f->column_count < c->columns; f->column_count++) {
    char number[24];
    const csv_field *field = &c->fields[f->column_count];
    snprintf(number, sizeof number, "%zu", f->column_count);
    char *name = strdup(number);
    if (f->has_header && field->length > 0) {
      free(name);
      name = strndup(field->text, field->length);
    } else if (f->has_header && f->column_count == 0 && c->columns > 1 && !is_named(c, "index")) {
      free(name);
      name = strdup("index");
      f->unnamed_first = true;
    }
    if (name == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", c->in.name);
    f->columns[f->column_count].name = name;
  }
  return STOW_OK;
}

const csv_rule *table_rule(const csv_options *o, const char *name) {
  for (size_t i = 0; o != NULL && i < o->rule_count; i++)
    if (strcmp(o->rules[i].name, name) == 0) return &o->rules[i];
  return NULL;
}

/* Checks that every rule is for a column. */
static stow_status check_rules(const file_facts *f, const csv *c) {
  char names[256] = "";
  for (size_t i = 0; i < f->column_count && strlen(names) < 180; i++)
    snprintf(names + strlen(names), sizeof names - strlen(names), "%s%.60s", i > 0 ? ", " : "",
             f->columns[i].name);
  for (size_t i = 0; c->options != NULL && i < c->options->rule_count; i++) {
    bool found = false;
    for (size_t k = 0; k < f->column_count && !found; k++)
      found = strcmp(f->columns[k].name, c->options->rules[i].name) == 0;
    if (!found)
      return stow_fail(STOW_ERR_INVALID, "%s: %s: unknown column \"%.100s\"; the columns are: %s",
                       c->in.name, c->options->rules[i].tolerance > 0 ? "--tolerance" : "--type",
                       c->options->rules[i].name, names);
  }
  return STOW_OK;
}

/* Returns the bytes of a column's own records, with so many windows. */
static uint64_t column_bytes(uint64_t windows) {
  return sizeof(csv_field) + sizeof(column_facts) +
         (sizeof(column_stats) + sizeof(csv_column) + sizeof(intern)) * (windows + 1);
}

/* Starts a pass. A quarter of the budget is for values (of all threads), a quarter for distinct
 * texts; the columns' own records must fit in a third quarter. */
static stow_status begin_pass(table_pass *p) {
  const csv *c = p->from;
  table_state *s = p->state;
  uint64_t bytes = p->budget->bytes;
  s->count = c->columns;
  p->threads = p->budget->threads > 1 ? p->budget->threads : 1;
  while (p->threads > 1 &&
         (s->count * column_bytes(p->threads) > bytes / 4 || bytes / p->threads < 8u << 20))
    p->threads--;
  p->windows = p->threads > 1 && s->count * column_bytes(p->threads * TABLE_WINDOWS) <= bytes / 4
                   ? TABLE_WINDOWS
                   : 1;
  uint64_t each = column_bytes(p->threads * p->windows);
  uint64_t values = bytes / 4 / (p->threads * p->windows) / sizeof(uint64_t);
  if (p->windows > 1 && values < VALUES_LEAST + 16 * s->count)
    p->windows = 1, values *= TABLE_WINDOWS;
  p->values_max = values > VALUES_LEAST ? (size_t)values : VALUES_LEAST;
  if (s->count * each > bytes / 4 || p->values_max / s->count < 16)
    return stow_fail(STOW_ERR_BUDGET,
                     "%s: %zu columns need %" PRIu64 " KiB of memory; raise --memory", c->in.name,
                     s->count, 4 * s->count * (each + 256) >> 10);
  p->words_max = table_words_max(p->budget);
  s->stats = calloc(s->count, sizeof *s->stats);
  s->words = calloc(s->count, sizeof *s->words);
  s->too_many = calloc(s->count, sizeof *s->too_many);
  p->forms = calloc(s->count, sizeof *p->forms);
  p->padded = calloc(s->count, sizeof *p->padded);
  if (p->padded == NULL || s->stats == NULL || s->words == NULL || s->too_many == NULL ||
      p->forms == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory for %zu columns", c->in.name,
                     s->count);
  for (size_t i = 0; i < s->count; i++) {
    const csv_rule *rule = table_rule(c->options, p->facts->columns[i].name);
    column_stats_begin(&s->stats[i]);
    if (rule != NULL && rule->text) {
      p->forms[i] = CSV_CODES;
      s->stats[i].not_times = s->stats[i].as_text = true;
    }
    s->stats[i].as_times = rule != NULL && rule->times;
    p->padded[i] = rule != NULL && rule->numbers;
    if (p->to != NULL && p->to->text != NULL && p->to->text[i]) p->forms[i] = CSV_CODES;
    if (p->to != NULL && p->to->skip != NULL) s->too_many[i] = p->to->skip[i];
  }
  return STOW_OK;
}

/* ---- the threads ---- */

/* Takes the next window; *more is false if there is none, or another thread failed. Returns false
 * in *now if a large window is in use and the thread must not wait for it: `unmerged` windows of
 * its own may come before the large one. */
static stow_status take_window(table_pass *p, table_window *w, bool unmerged, bool *more,
                               bool *now) {
  stow_status status = STOW_OK;
  pthread_mutex_lock(&p->lock);
  while (p->large && !unmerged && p->failed == STOW_OK) pthread_cond_wait(&p->turned, &p->lock);
  *more = !p->ended && p->failed == STOW_OK;
  *now = *more && !p->large;
  if (*now) {
    status = table_window_next(w, more);
    p->ended = !*more;
    p->large = *more && w->large;
    *now = *more;
  }
  pthread_mutex_unlock(&p->lock);
  return status;
}

static void shed_window(table_pass *p, table_window *w) {
  if (!w->large) return;
  table_window_shed(w);
  pthread_mutex_lock(&p->lock);
  p->large = false;
  pthread_cond_broadcast(&p->turned);
  pthread_mutex_unlock(&p->lock);
}

/* Saves a checkpoint if one is due. The lock is held, so everything before this window is
 * complete. */
static stow_status save_if_due(table_pass *p) {
  if (p->to == NULL || p->to->state == NULL || p->place == 0) return STOW_OK;
  if (!checkpoint_due(p->budget->checkpoint)) return STOW_OK;
  while (p->taking > 0 && p->failed == STOW_OK) pthread_cond_wait(&p->turned, &p->lock);
  return p->failed == STOW_OK ? table_save(p) : STOW_OK;
}

static void took(table_pass *p) {
  pthread_mutex_lock(&p->lock);
  p->taking--;
  pthread_cond_broadcast(&p->turned);
  pthread_mutex_unlock(&p->lock);
}

typedef enum turn { TURN_NOT_YET, TURN_MINE, TURN_NEVER } turn;

/* Merges windows in ticket order; after a failure no later window is merged. Waits for its turn, if
 * it may. */
static stow_status join_window(table_pass *p, table_window *w, bool waits, turn *at) {
  stow_status status = w->status;
  pthread_mutex_lock(&p->lock);
  while (waits && p->turn != w->ticket && p->failed == STOW_OK)
    pthread_cond_wait(&p->turned, &p->lock);
  bool mine = p->failed == STOW_OK;
  *at = mine ? TURN_MINE : TURN_NEVER;
  if (mine && p->turn != w->ticket) {
    pthread_mutex_unlock(&p->lock);
    *at = TURN_NOT_YET;
    return STOW_OK;
  }
  if (mine && status == STOW_OK) status = save_if_due(p);
  if (mine && status == STOW_OK) status = table_window_merge(w);
  if (mine && status == STOW_OK && p->to != NULL && p->to->order != NULL)
    status = p->to->order(p->to->context, &w->part);
  if (mine && status == STOW_OK) table_bound_words(p);
  p->turn++;
  if (mine && status == STOW_OK) {
    p->facts->rows = p->state->rows;
    bool part = p->to != NULL && p->to->range != NULL && p->to->range->stop < UINT64_MAX;
    status =
        budget_report(p->budget, w->raw_bytes, part ? p->to->range->stop : p->facts->file_bytes);
  }
  if (mine && status != STOW_OK) p->failed = status;
  p->taking += mine && status == STOW_OK;
  pthread_cond_broadcast(&p->turned);
  pthread_mutex_unlock(&p->lock);
  /* If another thread failed before, this failure does not count: the other comes first in the
   * file. */
  return mine ? status : STOW_OK;
}

static stow_status hand_on(table_pass *p, table_window *w, bool waits, turn *at) {
  stow_status status = join_window(p, w, waits, at);
  if (status != STOW_OK || *at != TURN_MINE) return status;
  table_window_renumber(w);
  if (p->to != NULL && p->to->take != NULL) status = p->to->take(p->to->context, &w->part);
  took(p);
  return status;
}

/* In a table without a header, passes on the first row, which was examined for one, as a separate
 * part. */
static stow_status first_row(table_pass *p) {
  table_window w;
  turn at;
  stow_status status = table_window_make(&w, p);
  if (status == STOW_OK) status = table_window_first(&w);
  if (status == STOW_OK) status = hand_on(p, &w, true, &at);
  table_window_free(&w);
  return status;
}

/* Reads and merges windows until there are no more. One that was read and whose turn has not come
 * waits in `all`, unless reading it failed: the thread has one message. */
static stow_status work_through(table_pass *p, table_window *all) {
  stow_status status = STOW_OK;
  unsigned first = 0, count = 0; /* read, not merged */
  for (bool more = true, now = true; status == STOW_OK && (more || count > 0);) {
    if (count > 0) {
      table_window *w = &all[first];
      turn at;
      status = hand_on(p, w, !more || !now || count == p->windows || w->status != STOW_OK, &at);
      now = true;
      if (status != STOW_OK || at == TURN_NEVER) break;
      if (at == TURN_MINE) {
        shed_window(p, w);
        /* A window whose turn came at once is still in the processor's cache: it is the next. */
        if (--count > 0) first = (first + 1) % p->windows;
        continue;
      }
    }
    table_window *next = &all[(first + count) % p->windows];
    if (more) status = take_window(p, next, count > 0, &more, &now);
    if (status != STOW_OK || !now) continue;
    next->status = table_window_read(next);
    count++;
  }
  return status;
}

static stow_status member_work(void *context, unsigned number) {
  table_pass *p = context;
  table_window all[TABLE_WINDOWS] = {0};
  stow_status status = STOW_OK;
  (void)number;
  for (unsigned i = 0; i < p->windows && status == STOW_OK; i++)
    status = table_window_make(&all[i], p);
  if (status == STOW_OK) status = work_through(p, all);
  if (status != STOW_OK) {
    pthread_mutex_lock(&p->lock);
    if (p->failed == STOW_OK) p->failed = status;
    pthread_cond_broadcast(&p->turned);
    pthread_mutex_unlock(&p->lock);
  }
  for (unsigned i = 0; i < p->windows; i++) table_window_free(&all[i]);
  return status;
}

/* ---- the pass ---- */

/* What a member of an npz takes besides its values: a local header, an entry of the directory, each
 * with its name and zip64 sizes (files/zip_write.c), and the npy header. */
static uint64_t member_bytes(const char *name, const char *end) {
  return 2 * (strlen(name) + strlen(end) + strlen(".npy")) + (30 + 20) + (46 + 28) + 128;
}

static uint64_t headers_of(const column_facts *c) {
  if (!c->text || c->time) return member_bytes(c->name, "");
  const text_layout *l = &c->layout;
  uint64_t bytes = member_bytes(c->name, l->dictionary ? ".words.bytes" : ".bytes");
  if (!l->texts.fixed)
    bytes += member_bytes(c->name, l->dictionary ? ".words.offsets" : ".offsets");
  return bytes + (l->dictionary ? member_bytes(c->name, ".codes") : 0);
}

enum { ARCHIVE_END_BYTES = 56 + 20 + 22 }; /* zip64's end records, and the plain one */

void table_conclude(file_facts *f, const table_state *s) {
  for (size_t i = 0; i < s->count; i++) {
    bool known = !s->too_many[i];
    column_stats_conclude(&f->columns[i], &s->stats[i], s->rows, known ? &s->words[i] : NULL,
                          f->purpose);
    f->bytes += f->columns[i].bytes;
    f->bytes_after += f->columns[i].bytes_after;
    f->npz_bytes += f->columns[i].bytes_after + headers_of(&f->columns[i]);
  }
  f->npz_bytes += ARCHIVE_END_BYTES;
  f->rows = s->rows;
  f->short_rows = s->count > 0 ? s->stats[s->count - 1].absent : 0;
  const column_facts *first = f->columns;
  f->pandas_index = f->unnamed_first && f->rows > 0 && !first->text && first->missing == 0 &&
                    first->values.type == DTYPE_I64 && first->values.least_int == 0 &&
                    first->values.most_int == f->rows - 1;
}

/* Positions the stream: at the checkpoint, at the start of the range, or at the first row. */
static stow_status begin_rows(table_pass *p) {
  csv *c = p->from;
  const table_range *r = p->to != NULL ? p->to->range : NULL;
  bool restored = false;
  p->stop = r != NULL ? r->stop : UINT64_MAX;
  STOW_TRY(table_restore(p, &restored));
  if (restored) return STOW_OK;
  if (r != NULL && r->first > 0) return input_seek(&c->in, r->first);
  return p->facts->has_header ? STOW_OK : first_row(p);
}

stow_status table_look(file_facts *f, csv *c, table_header header) {
  bool more;
  STOW_TRY(csv_first(c, header, &more));
  if (!more && c->options->skip > 0)
    return stow_fail(STOW_ERR_FORMAT, "%s: nothing is left after --skip %" PRIu64, c->in.name,
                     (uint64_t)c->options->skip);
  if (!more) return stow_fail(STOW_ERR_FORMAT, "%s: the file is empty", c->in.name);
  f->table = true;
  f->format = c->delimiter == '\t' ? "tsv" : "csv";
  f->has_header = header == HEADER_YES;
  if (header == HEADER_AUTO) STOW_TRY(csv_find_header(c, &f->has_header));
  return name_columns(f, c);
}

stow_status table_read(file_facts *f, csv *c, table_header header, const budget *b,
                       const table_taker *to, table_state *state) {
  table_pass p = {.from = c, .facts = f, .budget = b, .to = to, .state = state};
  *state = (table_state){0};
  f->purpose = b->purpose;
  STOW_TRY(table_look(f, c, header));
  STOW_TRY(check_rules(f, c));
  stow_status begun = begin_pass(&p);
  if (begun != STOW_OK) {
    free(p.forms);
    free(p.padded);
  }
  STOW_TRY(begun);
  c->padded = p.padded;
  pthread_mutex_init(&p.lock, NULL);
  pthread_cond_init(&p.turned, NULL);
  pthread_rwlock_init(&p.words_lock, NULL);
  stow_status status = begin_rows(&p);
  if (status == STOW_OK) status = workers_run(p.threads, member_work, &p);
  if (status == STOW_OK && to != NULL && to->state != NULL && b->checkpoint != NULL && p.place > 0)
    status = table_save(&p); /* the next steps are recorded after it */
  pthread_rwlock_destroy(&p.words_lock);
  pthread_cond_destroy(&p.turned);
  pthread_mutex_destroy(&p.lock);
  c->padded = NULL;
  free(p.forms);
  free(p.padded);
  if (to != NULL && to->range != NULL)
    to->range->reached = input_offset(&c->in);
  else if (status == STOW_OK)
    table_conclude(f, state);
  f->stream_bytes = p.place > input_offset(&c->in) ? p.place : input_offset(&c->in);
  return status;
}

stow_status table_scan(file_facts *f, csv *c, table_header header, const budget *b) {
  table_state state;
  stow_status status = table_read(f, c, header, b, NULL, &state);
  table_state_free(&state);
  return status;
}

static stow_status inspect_as(file_facts *f, const char *path, const inspect_options *o,
                              const budget *b, const bool *text) {
  csv c;
  table_state state;
  table_taker taker = {.text = text};
  STOW_TRY(csv_open(&c, path, table_row_max(b), &o->csv));
  stow_status status = table_read(f, &c, o->header, b, &taker, &state);
  table_state_free(&state);
  csv_close(&c);
  return status;
}

/* Marks the columns whose distinct texts are unknown because numbers came first. */
static bool find_mixed(const file_facts *f, bool *text) {
  bool any = false;
  for (size_t i = 0; i < f->column_count; i++) {
    text[i] = f->columns[i].text && f->columns[i].mixed_unknown;
    any = any || text[i];
  }
  return any;
}

stow_status table_inspect(file_facts *f, const char *path, const inspect_options *o,
                          const budget *b) {
  file_facts first = *f;
  stow_status status = inspect_as(&first, path, o, b, NULL);
  if (status != STOW_OK) return inspect_free(&first), status;
  bool *text = calloc(first.column_count + 1, sizeof *text);
  status = text != NULL ? STOW_OK : stow_fail(STOW_ERR_HOST_MEMORY, "no host memory");
  if (status == STOW_OK && find_mixed(&first, text)) {
    status = inspect_as(f, path, o, b, text);
    for (size_t i = 0; i < first.column_count && status == STOW_OK; i++) {
      if (f->columns[i].time) continue;
      f->columns[i].mixed = first.columns[i].mixed;
      f->columns[i].padded = first.columns[i].padded;
      f->columns[i].beyond = first.columns[i].beyond;
      f->columns[i].rounds = first.columns[i].rounds;
      f->columns[i].first_text_line = first.columns[i].first_text_line;
    }
    inspect_free(&first);
  } else {
    *f = first;
  }
  free(text);
  return status;
}
