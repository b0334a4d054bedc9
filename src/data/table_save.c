/* Saves and restores what was read of a table, for the checkpoint: the columns' stats and forms,
 * the position of the stream, and the taker's own bytes. The taker keeps distinct texts. */
#include <stdlib.h>
#include <string.h>

#include "data/checkpoint.h"
#include "data/table_parts.h"

typedef struct saved {
  uint64_t count, rows, lines, ended;
} saved;

static size_t saved_bytes(const table_pass *p) {
  return sizeof(saved) + p->to->state_bytes +
         p->state->count * (sizeof(csv_form) + sizeof(column_stats));
}

/* Saves or restores everything. One function for both directions, so that they cannot differ. */
static void walk(table_pass *p, char *at, void (*move)(void *mine, char *kept, size_t bytes)) {
  saved s = {p->state->count, p->state->rows, p->lines, p->ended && p->turn == p->tickets};
  move(&s, at, sizeof s);
  at += sizeof s;
  p->state->rows = s.rows;
  p->lines = s.lines;
  p->ended = p->ended || s.ended;
  move(p->to->state, at, p->to->state_bytes);
  at += p->to->state_bytes;
  move(p->forms, at, p->state->count * sizeof *p->forms);
  at += p->state->count * sizeof *p->forms;
  move(p->state->stats, at, p->state->count * sizeof *p->state->stats);
}

static void keep(void *mine, char *kept, size_t bytes) {
  memcpy(kept, mine, bytes);
}

static void bring_back(void *mine, char *kept, size_t bytes) {
  memcpy(mine, kept, bytes);
}

stow_status table_save(table_pass *p) {
  for (size_t i = 0; i < p->state->count; i++)
    if (p->forms[i] == CSV_CODES && p->to->restore == NULL) return STOW_OK;
  char *bytes = calloc(1, saved_bytes(p));
  if (bytes == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", p->from->in.name);
  walk(p, bytes, keep);
  stow_status status =
      checkpoint_note(p->budget->checkpoint, STEP_TABLE, p->place, bytes, saved_bytes(p));
  free(bytes);
  return status;
}

stow_status table_restore(table_pass *p, bool *restored) {
  *restored = false;
  if (p->to == NULL || p->to->state == NULL || p->budget->checkpoint == NULL) return STOW_OK;
  char *bytes = calloc(1, saved_bytes(p));
  if (bytes == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", p->from->in.name);
  *restored = checkpoint_find(p->budget->checkpoint, STEP_TABLE, &p->place, bytes, saved_bytes(p));
  if (*restored) walk(p, bytes, bring_back);
  free(bytes);
  if (!*restored) return STOW_OK;
  p->from->lines = p->lines;
  p->facts->rows = p->state->rows;
  if (p->to->restore != NULL) STOW_TRY(p->to->restore(p->to->context, p->state));
  /* For a range, its end must be found again; otherwise the end need not be read again. */
  return p->ended && p->to->range == NULL ? STOW_OK : input_seek(&p->from->in, p->place);
}
