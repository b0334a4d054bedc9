/* Table team: see table_team.h. */
#include "data/table_team.h"

#include <stdlib.h>
#include <string.h>

#include "data/checkpoint.h"
#include "data/team.h"
#include "files/unpack.h"

enum { LOOK_BYTES = 64 << 10, LOOK_ROWS = 64 };

static stow_status no_memory(const char *name) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", name);
}

/* Returns whether lines end with CR alone; true if the file cannot be read. */
static bool has_cr(source *from, const csv_options *o) {
  size_t count = from->bytes < LOOK_BYTES ? (size_t)from->bytes : LOOK_BYTES;
  uint8_t *bytes = malloc(count + 1);
  bool has = bytes == NULL || source_read(from, 0, bytes, count) != STOW_OK;
  if (!has) has = csv_text_has_cr(&(input){.at = bytes, .end = bytes + count}, o);
  free(bytes);
  return has;
}

bool table_can_share(source *from, const csv_options *o) {
  uint8_t start[UNPACK_MAGIC] = {0};
  if (o->file_count > 0 || o->encoding != CSV_UTF8 || o->skip > 0 || o->comment != '\0')
    return false;
  if (from->fd < 0 || from->bytes <= sizeof start ||
      source_read(from, 0, start, sizeof start) != STOW_OK)
    return false;
  bool packed = (start[0] == 0x1f && start[1] == 0x8b) || memcmp(start, "PK\x03\x04", 4) == 0 ||
                unpack_knows(start, sizeof start) != NULL;
  bool utf16 = memcmp(start, "\xff\xfe", 2) == 0 || memcmp(start, "\xfe\xff", 2) == 0;
  return !packed && !utf16 && !has_cr(from, o);
}

/* ---- guessing where a row begins ---- */

static size_t fields_of(const csv *c, const char *at, const char *end) {
  size_t fields = 1;
  bool quoted = false, begins = true;
  for (; at < end; at++) {
    if (quoted)
      quoted = *at != '"';
    else if (*at == '"' && (begins || at[-1] == '"')) /* at the start of a field, or doubled */
      quoted = true;
    fields += !quoted && *at == c->delimiter;
    begins = *at == c->delimiter;
  }
  return fields;
}

/* Returns how many consecutive rows look like the table's. */
static size_t rows_alike(const csv *c, const char *at, const char *end) {
  size_t rows = 0;
  for (const char *stop; at != NULL && rows < LOOK_ROWS; at = stop + 1) {
    stop = csv_row_end(c, at, end);
    if (stop == NULL) break;
    if (fields_of(c, at, stop) != c->columns) break;
    rows++;
  }
  return rows;
}

/* Returns the next row if these bytes are inside quotes; NULL if it cannot be found. */
static const char *row_behind_quote(const csv *c, const char *at, const char *end) {
  for (; at < end && (*at != '"' || (at + 1 < end && at[1] == '"')); at++)
    if (*at == '"') at++;
  if (at + 1 >= end) return NULL;
  const char *stop = csv_row_end(c, at + 1, end);
  return stop != NULL ? stop + 1 : NULL;
}

/* Guesses the first row at or after byte `from`: the one after the next line end, unless the bytes
 * after the end of a quote look more like a table. */
static stow_status guess_start(source *s, const csv *c, uint64_t from, uint64_t *start) {
  char *bytes = NULL;
  const char *best = NULL;
  size_t count = 0;
  stow_status status = STOW_OK;
  for (size_t want = LOOK_BYTES; status == STOW_OK && best == NULL; want *= 2) {
    uint64_t left = s->bytes - (from - 1);
    count = left < want ? (size_t)left : want;
    free(bytes);
    bytes = malloc(count + 1);
    if (bytes == NULL) return no_memory(s->name);
    status = source_read(s, from - 1, bytes, count);
    if (status != STOW_OK) break;
    const char *end = bytes + count, *plain = memchr(bytes, '\n', count);
    if (plain != NULL) plain++;
    const char *quoted = row_behind_quote(c, bytes, end);
    best = rows_alike(c, quoted, end) > rows_alike(c, plain, end) ? quoted : plain;
    if (count == left || count > c->row_max) break;
  }
  *start = best != NULL ? from - 1 + (uint64_t)(best - bytes) : s->bytes;
  free(bytes);
  return status;
}

/* ---- reading ---- */

typedef struct sharing {
  table_shared *own;
  file_facts *facts;
  source *from;
  table_header header;
  const budget *budget;
  team *team;
  const table_reader *to;
  table_state *state;
  size_t columns;
  bool *text; /* per column: text from the start */
  table_range range;
  bool noted; /* the range and the texts come from an interrupted run */
} sharing;

/* What a rank reports about its rows. */
typedef struct said {
  uint64_t first, reached, rows;
  int64_t status;
} said;

/* Discards the facts of an earlier read. */
static void forget(sharing *s) {
  const file_facts before = *s->facts;
  inspect_free(s->facts);
  *s->facts = (file_facts){.format = before.format, .file_bytes = before.file_bytes};
  table_state_free(s->state);
  s->to->again(s->to->taker.context);
}

/* Notes the range. The values are written again, so their old checkpoint is removed from the disk
 * first. */
static stow_status note_range(const sharing *s) {
  checkpoint *c = s->budget->checkpoint;
  checkpoint_clear(c, STEP_TABLE);
  checkpoint_clear(c, STEP_OWN);
  STOW_TRY(checkpoint_note(c, STEP_RANGE, s->range.first, s->text, s->columns * sizeof *s->text));
  return checkpoint_worth(c) ? checkpoint_save(c) : STOW_OK;
}

static stow_status read_range(sharing *s) {
  csv c;
  table_taker taker = s->to->taker;
  taker.range = &s->range;
  taker.text = s->text;
  forget(s);
  if (!s->noted) STOW_TRY(note_range(s));
  s->noted = false;
  STOW_TRY(csv_open(&c, s->from->name, table_row_max(s->budget), s->to->taker.options));
  stow_status status = table_read(s->facts, &c, s->header, s->budget, &taker, s->state);
  csv_close(&c);
  return status;
}

static uint64_t share_of(uint64_t bytes, unsigned parts, unsigned size) {
  return bytes / size * parts + bytes % size * parts / size;
}

/* Restores an interrupted run's range, whose start may already be proved. */
static bool take_range(sharing *s) {
  uint64_t first;
  s->noted = checkpoint_find(s->budget->checkpoint, STEP_RANGE, &first, s->text,
                             s->columns * sizeof *s->text);
  if (s->noted) s->range.first = first;
  return s->noted;
}

/* Takes this rank's part of the bytes after the first row, which every rank reads. */
static stow_status cut_range(sharing *s, const bool *text) {
  csv c;
  bool more;
  unsigned rank = s->team->rank, size = s->team->size;
  STOW_TRY(csv_open(&c, s->from->name, table_row_max(s->budget), s->to->taker.options));
  stow_status status = csv_first(&c, s->header, &more);
  s->columns = c.columns;
  s->text = status == STOW_OK ? calloc(c.columns + 1, sizeof *s->text) : NULL;
  if (status == STOW_OK && s->text == NULL) status = no_memory(s->from->name);
  if (status == STOW_OK) {
    uint64_t body = input_offset(&c.in), left = s->from->bytes - body;
    if (text != NULL) memcpy(s->text, text, c.columns * sizeof *text);
    s->range.stop = rank + 1 < size ? body + share_of(left, rank + 1, size) : UINT64_MAX;
    if (!take_range(s) && rank > 0)
      status = guess_start(s->from, &c, body + share_of(left, rank, size), &s->range.first);
  }
  csv_close(&c);
  return status;
}

/* Returns the first rank that did not begin where the previous one ended; `size` if all did. A
 * failure counts only if its rank began correctly. */
static unsigned first_wrong(const said *all, unsigned size, unsigned *failed) {
  *failed = size;
  for (unsigned i = 0; i < size; i++) {
    if (i > 0 && all[i].first != all[i - 1].reached) return i;
    if (all[i].status != STOW_OK) return *failed = i, size;
  }
  return size;
}

static stow_status read_proved(sharing *s) {
  team *t = s->team;
  said *all = calloc(t->size, sizeof *all);
  if (!team_all(t, all != NULL) || all == NULL) return free(all), no_memory(s->from->name);
  stow_status status = read_range(s);
  for (unsigned wrong = 0, failed = t->size; wrong < t->size;) {
    said mine = {s->range.first, s->range.reached, s->state->rows, status};
    stow_status gathered = team_gather(t, &mine, all, sizeof mine);
    if (gathered != STOW_OK) return free(all), gathered;
    wrong = first_wrong(all, t->size, &failed);
    if (wrong == t->rank) {
      s->range.first = all[wrong - 1].reached;
      status = read_range(s);
    }
    if (wrong == t->size && failed < t->size && failed != t->rank)
      status = stow_fail((stow_status)all[failed].status, "rank %u of %u failed", failed, t->size);
  }
  for (unsigned i = 0; i < t->rank; i++) s->own->rows_before += all[i].rows;
  free(all);
  return status;
}

/* Reads a column as text again, because it was text before this rank's rows. */
static stow_status read_as_text(sharing *s) {
  team *t = s->team;
  size_t columns = s->state->count;
  bool *all = calloc((t->size + 1) * columns, sizeof *all), *mine = all, again = false;
  if (!team_all(t, all != NULL) || all == NULL) return free(all), no_memory(s->from->name);
  for (size_t i = 0; i < columns; i++) mine[i] = s->state->stats[i].texts > 0;
  stow_status status = team_gather(t, mine, all + columns, columns * sizeof *all);
  for (size_t i = 0; i < columns && status == STOW_OK; i++) {
    const column_stats *own = &s->state->stats[i];
    if (s->text[i] || own->numbers + own->bools + own->missing_words == 0) continue;
    for (unsigned rank = 0; rank < t->rank && !s->text[i]; rank++)
      again = (s->text[i] = all[(rank + 1) * columns + i]) || again;
  }
  free(all);
  if (status == STOW_OK && again) status = read_range(s);
  return status;
}

/* ---- joining ---- */

static stow_status join_stats(sharing *s) {
  team *t = s->team;
  column_stats *all = calloc(t->size + 1, sizeof *all);
  if (!team_all(t, all != NULL) || all == NULL) return free(all), no_memory(s->from->name);
  stow_status status = STOW_OK;
  for (size_t i = 0; i < s->state->count && status == STOW_OK; i++) {
    status = team_gather(t, &s->state->stats[i], all, sizeof *all);
    column_stats_begin(&s->state->stats[i]);
    for (unsigned rank = 0; rank < t->size; rank++)
      column_stats_join(&s->state->stats[i], &all[rank]);
  }
  free(all);
  return status;
}

/* Adds one rank's texts, each terminated with '\0'; they contain none. */
static stow_status add_texts(intern *to, const char *bytes, uint64_t length, uint32_t *codes) {
  for (uint64_t at = 0, k = 0; at < length; k++) {
    uint32_t code;
    size_t count = strlen(bytes + at);
    STOW_TRY(intern_add(to, &code, bytes + at, count));
    if (codes != NULL) codes[k] = code;
    at += count + 1;
  }
  return STOW_OK;
}

/* Adds the texts of rank `from`, which is this one if `own` has them, to the common ones. */
static stow_status join_texts(sharing *s, unsigned from, const intern *own, intern *to,
                              uint32_t *codes) {
  uint64_t length = own != NULL ? own->length : 0;
  STOW_TRY(team_share(s->team, &length, sizeof length, from));
  char *bytes = malloc(length + 1);
  if (!team_all(s->team, bytes != NULL) || bytes == NULL)
    return free(bytes), no_memory(s->from->name);
  if (own != NULL && length > 0) memcpy(bytes, own->bytes, length);
  stow_status status = team_share(s->team, bytes, length, from);
  if (status == STOW_OK) status = add_texts(to, bytes, length, own != NULL ? codes : NULL);
  free(bytes);
  return status;
}

/* Joins the numbers of a column's texts. Common numbers are assigned in rank order, which is file
 * order. */
static stow_status join_column(sharing *s, size_t i, bool nothing) {
  table_state *state = s->state;
  intern own = state->words[i], all = {0};
  uint32_t number;
  stow_status status = STOW_OK;
  /* Only gaps: they are number 0 if the column is text. */
  if (own.count == 0 && nothing) status = intern_add(&own, &number, "", 0);
  uint32_t *codes = calloc(own.count + 1, sizeof *codes);
  bool fine = status == STOW_OK && codes != NULL;
  status = team_all(s->team, fine) ? STOW_OK : no_memory(s->from->name);
  state->words[i] = all;
  for (unsigned rank = 0; rank < s->team->size && status == STOW_OK; rank++) {
    status = join_texts(s, rank, rank == s->team->rank ? &own : NULL, &state->words[i], codes);
    /* The result is the same in every rank, unless one is out of memory: then the next step reports
     * it. */
    if (!team_all(s->team, status == STOW_OK) && status == STOW_OK)
      status = no_memory(s->from->name);
    table_state joined = {.count = i + 1, .words = state->words};
    if (status == STOW_OK && table_words_bytes(&joined) > table_words_max(s->budget))
      status =
          stow_fail(STOW_ERR_BUDGET, "%s: more distinct text than the budget holds", s->from->name);
  }
  s->own->codes[i] = codes;
  intern_free(&own);
  return status;
}

/* Returns whether all texts of the column are known. After numbers before the first text they are
 * not. */
static bool has_words(const column_stats *t) {
  return !t->mixed && (t->texts > 0 || t->as_text);
}

/* Joins the words of all columns. One process, which reads the texts in order, reports which column
 * has too many. */
static stow_status join_words(sharing *s, const bool *nothing) {
  table_state *state = s->state;
  bool too_many = false;
  for (size_t i = 0; i < state->count; i++) too_many = too_many || state->too_many[i];
  if (!team_all(s->team, !too_many))
    return stow_fail(STOW_ERR_BUDGET, "%s: more distinct text than the budget holds",
                     s->from->name);
  for (size_t i = 0; i < state->count; i++)
    if (!has_words(&state->stats[i])) intern_free(&state->words[i]);
  for (size_t i = 0; i < state->count; i++)
    if (has_words(&state->stats[i])) STOW_TRY(join_column(s, i, nothing[i]));
  return STOW_OK;
}

/* Joins everything. `rows` (per rank) and `nothing` (this rank's columns with gaps only) are
 * scratch space. */
static stow_status join_all(sharing *s, uint64_t *rows, bool *nothing) {
  table_state *state = s->state;
  for (size_t i = 0; i < state->count; i++) nothing[i] = state->stats[i].missing > 0;
  STOW_TRY(team_gather(s->team, &state->rows, rows, sizeof *rows));
  state->rows = 0;
  for (unsigned i = 0; i < s->team->size; i++) state->rows += rows[i];
  STOW_TRY(join_stats(s));
  STOW_TRY(join_words(s, nothing));
  table_conclude(s->facts, state);
  return STOW_OK;
}

static stow_status join(sharing *s) {
  size_t columns = s->state->count;
  uint64_t *rows = calloc(s->team->size + 1, sizeof *rows);
  bool *nothing = calloc(columns + 1, sizeof *nothing);
  uint32_t **codes = calloc(columns + 1, sizeof *codes);
  bool fine = rows != NULL && nothing != NULL && codes != NULL;
  *s->own = (table_shared){.rows = s->state->rows,
                           .rows_before = s->own->rows_before,
                           .codes = codes,
                           .count = codes != NULL ? columns : 0};
  stow_status status =
      team_all(s->team, fine) && fine ? join_all(s, rows, nothing) : no_memory(s->from->name);
  free(nothing);
  free(rows);
  return status;
}

static stow_status all_or_none(sharing *s, stow_status status) {
  if (team_all(s->team, status == STOW_OK) || status != STOW_OK) return status;
  return stow_fail(STOW_ERR_IO, "%s: another rank could not read it", s->from->name);
}

stow_status table_read_shared(table_shared *own, file_facts *f, source *from, table_header header,
                              const budget *b, const table_reader *to, const bool *text,
                              table_state *state) {
  *own = (table_shared){0};
  sharing s = {.own = own,
               .facts = f,
               .from = from,
               .header = header,
               .budget = b,
               .team = b->team,
               .to = to,
               .state = state};
  stow_status status = all_or_none(&s, cut_range(&s, text));
  if (status == STOW_OK) status = read_proved(&s);
  if (status == STOW_OK) status = all_or_none(&s, read_as_text(&s));
  free(s.text);
  if (status == STOW_OK) status = join(&s);
  return status;
}

void table_shared_free(table_shared *s) {
  for (size_t i = 0; i < s->count; i++) free(s->codes[i]);
  free(s->codes);
  *s = (table_shared){0};
}
