/* Table texts: see table_texts.h. */
#include "data/table_texts.h"

#include <stdlib.h>

typedef struct walk {
  const table_texts *of;
  const intern *words;
  uint64_t *values; /* values of one window */
  char *bytes;      /* its raw texts */
  size_t bytes_capacity;
  stow_status (*take)(void *context, const char *text, size_t length);
  void *context;
} walk;

static stow_status no_memory(const table_log *l) {
  return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory for a column of text", l->name);
}

static stow_status take_raw(walk *w, size_t run) {
  const table_log *l = w->of->log;
  const table_log_run *r = &l->runs[run];
  uint64_t bytes = r->text_bytes != NULL ? r->text_bytes[w->of->column] : 0;
  if (bytes > w->bytes_capacity) {
    free(w->bytes);
    w->bytes = malloc(bytes);
    w->bytes_capacity = w->bytes != NULL ? bytes : 0;
    if (w->bytes == NULL) return no_memory(l);
  }
  STOW_TRY(table_log_read_texts(l, run, w->of->column, w->bytes));
  const char *at = w->bytes;
  for (uint64_t row = 0; row < r->rows; row++) {
    size_t length = (size_t)w->values[row];
    if (length > bytes)
      return stow_fail(STOW_ERR_FORMAT,
                       "%s: the scratch file is corrupt: the texts are not what was written there",
                       l->name);
    STOW_TRY(w->take(w->context, at, length));
    at += length;
    bytes -= length;
  }
  return STOW_OK;
}

static stow_status take_numbered(walk *w, uint64_t rows) {
  for (uint64_t row = 0; row < rows; row++) {
    uint32_t code = (uint32_t)w->values[row];
    size_t length;
    if (w->of->codes != NULL) code = w->of->codes[code];
    const char *text = intern_get(w->words, code, &length);
    STOW_TRY(w->take(w->context, text, length));
  }
  return STOW_OK;
}

/* Handles a window of gaps before the column's first text: every text is empty. */
static stow_status take_nothing(walk *w, uint64_t rows) {
  for (uint64_t row = 0; row < rows; row++) STOW_TRY(w->take(w->context, "", 0));
  return STOW_OK;
}

static stow_status each_run(walk *w) {
  table_log *l = w->of->log;
  for (size_t run = 0; run < l->run_count; run++) {
    csv_form form = CSV_INTEGERS;
    uint64_t rows = l->runs[run].rows;
    STOW_TRY(table_log_read(l, run, w->of->column, w->values, &form));
    if (form == CSV_LENGTHS)
      STOW_TRY(take_raw(w, run));
    else if (form == CSV_CODES)
      STOW_TRY(take_numbered(w, rows));
    else
      STOW_TRY(take_nothing(w, rows));
  }
  return STOW_OK;
}

stow_status table_texts_each(const table_texts *t,
                             stow_status (*take)(void *context, const char *text, size_t length),
                             void *context) {
  intern own = {0};
  walk w = {.of = t, .words = t->words, .take = take, .context = context};
  stow_status status = STOW_OK;
  if (t->words == NULL) {
    status = table_log_words(t->log, t->column, &own);
    w.words = &own;
  }
  w.values = malloc((t->log->rows_most + 1) * sizeof *w.values);
  if (status == STOW_OK && w.values == NULL) status = no_memory(t->log);
  if (status == STOW_OK) status = each_run(&w);
  free(w.values);
  free(w.bytes);
  intern_free(&own);
  return status;
}
