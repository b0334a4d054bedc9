/* Table log: see table_log.h. A record: its numbers, a byte for each column's form, the new texts
 * (column, length, bytes), zeros up to a multiple of eight bytes, and the values. */
#include "data/table_log.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"

typedef struct record {
  uint64_t rows, texts; /* texts: bytes of forms and texts, including the padding */
} record;

/* Header of a new text; with RAW in `column`, of all raw texts of the window, which follow its
 * values. */
typedef struct text_head {
  uint32_t column, length;
} text_head;
#define RAW (UINT32_C(1) << 31)

void table_log_begin(table_log *l, const char *name) {
  *l = (table_log){.file = {.fd = -1}, .name = name, .head = BUFFER_INIT};
}

void table_log_forget(table_log *l) {
  scratch file = l->file;
  const char *name = l->name;
  const bool *skip = l->skip;
  for (size_t i = 0; i < l->count; i++) free(l->columns[i].changes);
  for (size_t i = 0; i < l->run_count; i++) free(l->runs[i].text_bytes);
  free(l->columns);
  free(l->runs);
  buffer_free(&l->head);
  *l = (table_log){.file = file, .name = name, .skip = skip, .head = BUFFER_INIT};
}

void table_log_end(table_log *l) {
  table_log_forget(l);
  scratch_close(&l->file);
}

static stow_status no_memory(const table_log *l) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", l->name);
}

/* ---- writing ---- */

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

/* Writes the texts of a column that the log does not have yet. A column that turned out mixed has
 * none. */
static void put_texts(table_log *l, buffer *b, size_t i, const intern *texts) {
  uint32_t *had = &l->columns[i].texts;
  for (; *had < texts->count; ++*had) {
    size_t length;
    const char *text = intern_get(texts, *had, &length);
    text_head head = {(uint32_t)i, (uint32_t)length};
    char *to = buffer_extend(b, sizeof head + length);
    if (to == NULL) return; /* the buffer remembers */
    memcpy(to, &head, sizeof head);
    memcpy(to + sizeof head, text, length);
  }
}

static csv_form form_of(const table_part *part, size_t i) {
  return part->raw[i] ? CSV_LENGTHS : part->block.columns[i].form;
}

/* Records how many bytes of raw texts each column has in the last run. */
static stow_status note_texts(table_log *l, size_t i, uint64_t bytes) {
  table_log_run *run = &l->runs[l->run_count - 1];
  if (run->text_bytes == NULL) run->text_bytes = calloc(l->count, sizeof *run->text_bytes);
  if (run->text_bytes == NULL) return no_memory(l);
  run->text_bytes[i] = bytes;
  return STOW_OK;
}

static stow_status write_head(table_log *l, const table_part *part, const table_state *state) {
  buffer *b = &l->head;
  record r = {.rows = part->block.rows};
  buffer_clear(b);
  buffer_append(b, (const char *)&r, sizeof r);
  for (size_t i = 0; i < l->count; i++) buffer_char(b, (char)form_of(part, i));
  for (size_t i = 0; i < l->count; i++) put_texts(l, b, i, &state->words[i]);
  for (size_t i = 0; i < l->count; i++) {
    text_head head = {(uint32_t)i | RAW, (uint32_t)part->texts[i].length};
    if (part->raw[i]) buffer_append(b, (const char *)&head, sizeof head);
  }
  while (b->length % 8 != 0 && b->status == STOW_OK) buffer_char(b, '\0');
  if (b->status != STOW_OK) return b->status;
  r.texts = b->length - sizeof r;
  memcpy(b->data, &r, sizeof r);
  STOW_TRY(scratch_write(&l->file, l->end, b->data, b->length));
  l->end += b->length;
  return STOW_OK;
}

stow_status table_log_order(table_log *l, table_part *part, const table_state *state) {
  STOW_TRY(make_columns(l, part->block.count));
  for (size_t i = 0; i < l->count; i++) STOW_TRY(note_form(l, i, form_of(part, i)));
  if (l->file.fd >= 0) STOW_TRY(write_head(l, part, state));
  part->place = l->end;
  l->end += part->block.rows * l->count * 8;
  STOW_TRY(add_run(l, (table_log_run){.place = part->place, .rows = part->block.rows}));
  for (size_t i = 0; i < l->count; i++) {
    if (!part->raw[i]) continue;
    STOW_TRY(note_texts(l, i, part->texts[i].length));
    l->end += part->texts[i].length;
  }
  return STOW_OK;
}

/* Columns written in one call. Threads that write to one file wait for each other, so a window is
 * written at once where possible: then they meet once per window and not once per column. */
enum { WRITTEN_TOGETHER = 64 };

stow_status table_log_take(const table_log *l, const table_part *part) {
  uint64_t rows = part->block.rows, at = part->place;
  if (l->file.fd < 0) return STOW_OK;
  for (size_t i = 0; i < part->block.count;) {
    struct iovec all[WRITTEN_TOGETHER];
    size_t count = 0;
    for (size_t k = i; k < part->block.count && count < WRITTEN_TOGETHER; k++) {
      if (l->skip != NULL && l->skip[k]) break;
      all[count++] = (struct iovec){part->block.columns[k].values, rows * 8};
    }
    STOW_TRY(scratch_write_all(&l->file, at, all, count));
    size_t passed = count > 0 ? count : 1; /* a column that is not kept leaves a gap */
    i += passed;
    at += passed * rows * 8;
  }
  for (size_t i = 0; i < part->block.count; i++) {
    if (!part->raw[i]) continue;
    STOW_TRY(scratch_write(&l->file, at, part->texts[i].data, part->texts[i].length));
    at += part->texts[i].length;
  }
  return STOW_OK;
}

/* ---- reading ---- */

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

stow_status table_log_read_texts(const table_log *l, size_t run, size_t column, char *to) {
  const table_log_run *r = &l->runs[run];
  uint64_t at = r->place + r->rows * l->count * 8;
  if (r->text_bytes == NULL) return STOW_OK;
  for (size_t i = 0; i < column; i++) at += r->text_bytes[i];
  return scratch_read(&l->file, at, to, r->text_bytes[column]);
}

/* ---- restoring ---- */

static stow_status broken(const table_log *l, uint64_t at) {
  return stow_fail(STOW_ERR_FORMAT,
                   "%s: byte %llu is not what was written there; start without --resume",
                   l->file.name, (unsigned long long)at);
}

/* Receives the texts of the records' heads. */
typedef struct text_taker {
  intern *words; /* words of all columns, or only of `column` */
  size_t column; /* SIZE_MAX: all */
  bool runs;     /* also rebuild the runs */
} text_taker;

/* Reads the texts. The padding is shorter than a header. */
static stow_status take_texts(table_log *l, const char *bytes, uint64_t count,
                              const text_taker *to) {
  for (uint64_t at = 0; at + sizeof(text_head) <= count;) {
    text_head head;
    uint32_t number;
    memcpy(&head, bytes + at, sizeof head);
    at += sizeof head;
    uint32_t column = head.column & ~RAW;
    bool raw = head.column != column;
    if (column >= l->count || (!raw && head.length > count - at)) return broken(l, l->end);
    if (raw) {
      if (to->runs) STOW_TRY(note_texts(l, column, head.length));
      continue;
    }
    if (to->column == SIZE_MAX || to->column == column) {
      intern *words = to->column == SIZE_MAX ? &to->words[column] : to->words;
      STOW_TRY(intern_add(words, &number, bytes + at, head.length));
      if (to->runs) l->columns[column].texts = number + 1;
    }
    at += head.length;
  }
  return STOW_OK;
}

/* Reads the head of the record at *at: *forms, which the caller frees, and the texts after them. */
static stow_status read_head(table_log *l, uint64_t *at, uint64_t end, record *r, char **head) {
  STOW_TRY(scratch_read(&l->file, *at, r, sizeof *r));
  *at += sizeof *r;
  if (r->texts < l->count || r->texts > end - *at) return broken(l, *at);
  *head = malloc(r->texts + 1);
  if (*head == NULL) return no_memory(l);
  stow_status status = scratch_read(&l->file, *at, *head, r->texts);
  if (status != STOW_OK) free(*head);
  *at += r->texts;
  return status;
}

stow_status table_log_words(table_log *l, size_t column, intern *words) {
  uint64_t at = 0;
  text_taker to = {.words = words, .column = column};
  stow_status status = STOW_OK;
  for (size_t run = 0; run < l->run_count && status == STOW_OK; run++) {
    record r;
    char *head = NULL;
    STOW_TRY(read_head(l, &at, l->end, &r, &head));
    bool over = head[column] == (char)CSV_LENGTHS;
    if (!over) status = take_texts(l, head + l->count, r.texts - l->count, &to);
    free(head);
    if (over) break;
    at = l->runs[run].place + r.rows * l->count * 8;
    for (size_t i = 0; i < l->count && l->runs[run].text_bytes != NULL; i++)
      at += l->runs[run].text_bytes[i];
  }
  return status;
}

static stow_status take_record(table_log *l, uint64_t *at, uint64_t end, table_state *state) {
  record r;
  char *head = NULL;
  STOW_TRY(read_head(l, at, end, &r, &head));
  stow_status status = STOW_OK;
  for (size_t i = 0; i < l->count && status == STOW_OK; i++) {
    status = note_form(l, i, (csv_form)head[i]);
    if (head[i] != (char)CSV_LENGTHS || state->too_many[i]) continue;
    state->too_many[i] = true;
    intern_free(&state->words[i]);
  }
  if (status == STOW_OK) status = add_run(l, (table_log_run){.place = *at, .rows = r.rows});
  text_taker to = {.words = state->words, .column = SIZE_MAX, .runs = true};
  if (status == STOW_OK) status = take_texts(l, head + l->count, r.texts - l->count, &to);
  free(head);
  STOW_TRY(status);
  const uint64_t *texts = l->runs[l->run_count - 1].text_bytes;
  *at += r.rows * l->count * 8;
  for (size_t i = 0; i < l->count && texts != NULL; i++) *at += texts[i];
  return STOW_OK;
}

stow_status table_log_restore(table_log *l, table_state *state) {
  uint64_t at = 0;
  STOW_TRY(make_columns(l, state->count));
  while (at < l->end) STOW_TRY(take_record(l, &at, l->end, state));
  if (at != l->end) return broken(l, at);
  for (size_t i = 0; i < state->count; i++)
    if (state->stats[i].mixed) intern_free(&state->words[i]);
  return STOW_OK;
}
