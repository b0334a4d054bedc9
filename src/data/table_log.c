/* Table log: see table_log.h. A record: its numbers, a byte for each column's form, the new texts
 * (column, length, letters), zeros up to eight bytes, and the values. */
#include "data/table_log.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"

typedef struct record {
  uint64_t rows, texts; /* texts: bytes of forms and texts, with the zeros behind them */
} record;

typedef struct text_head {
  uint32_t column, length;
} text_head;

void table_log_begin(table_log *l, const char *name) {
  *l = (table_log){.file = {.fd = -1}, .name = name};
}

void table_log_forget(table_log *l) {
  scratch file = l->file;
  const char *name = l->name;
  for (size_t i = 0; i < l->count; i++) free(l->columns[i].changes);
  free(l->columns);
  free(l->runs);
  *l = (table_log){.file = file, .name = name};
}

void table_log_end(table_log *l) {
  table_log_forget(l);
  scratch_close(&l->file);
}

static stow_status no_memory(const table_log *l) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", l->name);
}

/* ---- in ---- */

static stow_status make_columns(table_log *l, size_t count) {
  if (l->columns != NULL) return STOW_OK;
  l->columns = calloc(count + 1, sizeof *l->columns);
  if (l->columns == NULL) return no_memory(l);
  l->count = count;
  return STOW_OK;
}

static stow_status note_form(table_log *l, size_t i, csv_form form) {
  table_log_column *c = &l->columns[i];
  if (c->count > 0 && c->changes[c->count - 1].form == form) return STOW_OK;
  if (c->count == c->capacity) {
    table_log_change *more = realloc(c->changes, (c->capacity * 2 + 2) * sizeof *more);
    if (more == NULL) return no_memory(l);
    c->changes = more;
    c->capacity = c->capacity * 2 + 2;
  }
  c->changes[c->count++] = (table_log_change){l->run_count, form};
  return STOW_OK;
}

static stow_status add_run(table_log *l, table_log_run run) {
  if (l->run_count == l->run_capacity) {
    table_log_run *more = realloc(l->runs, (l->run_capacity * 2 + 64) * sizeof *more);
    if (more == NULL) return no_memory(l);
    l->runs = more;
    l->run_capacity = l->run_capacity * 2 + 64;
  }
  l->runs[l->run_count++] = run;
  if (run.rows > l->rows_most) l->rows_most = run.rows;
  return STOW_OK;
}

/* The texts of a column that the log does not have yet. Those of a column that turned out mixed are
 * forgotten: there are none then. */
static void put_texts(table_log *l, buffer *b, size_t i, const intern *texts) {
  uint32_t *had = &l->columns[i].texts;
  for (; *had < texts->count; ++*had) {
    size_t length;
    const char *text = intern_get(texts, *had, &length);
    text_head head = {(uint32_t)i, (uint32_t)length};
    buffer_append(b, (const char *)&head, sizeof head);
    buffer_append(b, text, length);
  }
}

static stow_status write_head(table_log *l, const table_part *part, const table_state *state) {
  buffer b = BUFFER_INIT;
  record r = {.rows = part->block.rows};
  buffer_append(&b, (const char *)&r, sizeof r);
  for (size_t i = 0; i < l->count; i++) buffer_char(&b, (char)part->block.columns[i].form);
  for (size_t i = 0; i < l->count; i++) put_texts(l, &b, i, &state->words[i]);
  while (b.length % 8 != 0 && b.status == STOW_OK) buffer_char(&b, '\0');
  r.texts = b.length - sizeof r;
  if (b.status == STOW_OK) memcpy(b.data, &r, sizeof r);
  stow_status status =
      b.status != STOW_OK ? b.status : scratch_write(&l->file, l->end, b.data, b.length);
  l->end += b.length;
  buffer_free(&b);
  return status;
}

stow_status table_log_order(table_log *l, table_part *part, const table_state *state) {
  STOW_TRY(make_columns(l, part->block.count));
  for (size_t i = 0; i < l->count; i++) STOW_TRY(note_form(l, i, part->block.columns[i].form));
  if (l->file.fd >= 0) STOW_TRY(write_head(l, part, state));
  part->place = l->end;
  l->end += part->block.rows * l->count * 8;
  return add_run(l, (table_log_run){part->place, part->block.rows});
}

stow_status table_log_take(const table_log *l, const table_part *part) {
  uint64_t rows = part->block.rows;
  for (size_t i = 0; i < part->block.count && l->file.fd >= 0; i++)
    STOW_TRY(scratch_write(&l->file, part->place + i * rows * 8, part->block.columns[i].values,
                           rows * 8));
  return STOW_OK;
}

/* ---- out ---- */

stow_status table_log_read(table_log *l, size_t run, size_t column, uint64_t *values,
                           csv_form *form) {
  const table_log_column *c = &l->columns[column];
  const table_log_run *r = &l->runs[run];
  if (column != l->at_column || run < l->at_run) l->at_change = 0;
  l->at_column = column;
  l->at_run = run;
  while (l->at_change + 1 < c->count && c->changes[l->at_change + 1].run <= run) l->at_change++;
  *form = c->changes[l->at_change].form;
  return scratch_read(&l->file, r->place + column * r->rows * 8, values, r->rows * 8);
}

/* ---- back again ---- */

static stow_status broken(const table_log *l, uint64_t at) {
  return stow_fail(STOW_ERR_FORMAT,
                   "%s: byte %llu is not what was written there; begin without --resume",
                   l->file.name, (unsigned long long)at);
}

/* Fewer zeros stand behind them than a head has bytes. */
static stow_status take_texts(table_log *l, const char *bytes, uint64_t count, table_state *state) {
  for (uint64_t at = 0; at + sizeof(text_head) <= count;) {
    text_head head;
    uint32_t number;
    memcpy(&head, bytes + at, sizeof head);
    at += sizeof head;
    if (head.column >= l->count || head.length > count - at) return broken(l, l->end);
    STOW_TRY(intern_add(&state->words[head.column], &number, bytes + at, head.length));
    l->columns[head.column].texts = number + 1;
    at += head.length;
  }
  return STOW_OK;
}

static stow_status take_record(table_log *l, uint64_t *at, uint64_t end, table_state *state) {
  record r;
  STOW_TRY(scratch_read(&l->file, *at, &r, sizeof r));
  *at += sizeof r;
  if (r.texts < l->count || r.texts > end - *at) return broken(l, *at);
  char *bytes = malloc(r.texts + 1);
  if (bytes == NULL) return no_memory(l);
  stow_status status = scratch_read(&l->file, *at, bytes, r.texts);
  for (size_t i = 0; i < l->count && status == STOW_OK; i++)
    status = note_form(l, i, (csv_form)bytes[i]);
  if (status == STOW_OK) status = take_texts(l, bytes + l->count, r.texts - l->count, state);
  free(bytes);
  STOW_TRY(status);
  *at += r.texts;
  STOW_TRY(add_run(l, (table_log_run){*at, r.rows}));
  *at += r.rows * l->count * 8;
  return STOW_OK;
}

stow_status table_log_restore(table_log *l, table_state *state) {
  uint64_t at = 0;
  STOW_TRY(make_columns(l, state->count));
  while (at < l->end) STOW_TRY(take_record(l, &at, l->end, state));
  if (at != l->end) return broken(l, at);
  for (size_t i = 0; i < state->count; i++)
    if (state->tallies[i].mixed) intern_free(&state->words[i]);
  return STOW_OK;
}
