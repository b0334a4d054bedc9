/* Shrink of tables to one npy: every value in one type that holds all columns.
 *
 * While the table is read, its values go row by row, eight bytes each, to where the output's will
 * be: int64 while all columns are integers, float64 from the first part with a fraction or a gap
 * on. Often that is the output. If not, the values are cast in place from front to back: writing
 * never overtakes reading, because no type is wider.
 *
 * With several ranks, none knows its position before all have read. Each keeps its values in its
 * own scratch file and casts them from there to their position, which can be resumed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/checkpoint.h"
#include "data/shrink_table.h"
#include "data/table_team.h"
#include "data/team.h"
#include "numbers/cast.h"

enum { CHUNK_VALUES = 32 << 10, TILE_ROWS = 128 };

typedef struct npy_out {
  job *job;
  scratch values;         /* as read */
  scratch made;           /* as written: the same place, or after the earlier ranks' rows */
  uint64_t columns, rows; /* columns: those written; rows: of this rank */
  size_t *kept;           /* their numbers in the table */
  struct {
    uint64_t floats; /* rows from float_from on are floats */
    uint64_t float_from;
  } form;
} npy_out;

/* ---- reading ---- */

static stow_status order_part(void *context, table_part *part) {
  npy_out *o = context;
  for (size_t i = 0; i < part->block.count; i++) {
    if (shrink_skips(o->job, i)) continue;
    if (part->block.columns[i].form == CSV_CODES) return shrink_table_refuse_text(o->job, i);
    if (part->block.columns[i].form == CSV_FLOATS && !o->form.floats) {
      o->form.floats = true;
      o->form.float_from = part->first_row;
    }
  }
  part->place = o->form.floats;
  return STOW_OK;
}

static void to_doubles(csv_column *c, size_t rows) {
  double near[1024];
  if (c->form == CSV_FLOATS) return;
  for (size_t at = 0; at < rows; at += 1024) {
    size_t count = rows - at < 1024 ? rows - at : 1024;
    cast_values(near, DTYPE_F64, c->values + at, c->form == CSV_WIDES ? DTYPE_U64 : DTYPE_I64,
                count);
    memcpy(c->values + at, near, count * sizeof near[0]);
  }
}

/* Transposes columns to rows, few enough to stay in the L1 cache. */
static void turn(const npy_out *o, uint64_t *rows, const csv_block *b, size_t first, size_t count) {
  for (size_t i = 0; i < o->columns; i++) {
    const uint64_t *from = b->columns[o->kept[i]].values + first;
    uint64_t *to = rows + i;
    for (size_t k = 0; k < count; k++, to += o->columns) *to = from[k];
  }
}

static stow_status take_part(void *context, table_part *part) {
  npy_out *o = context;
  csv_block *b = &part->block;
  if (o->values.fd < 0 || b->rows == 0 || o->columns == 0) return STOW_OK;
  for (size_t i = 0; i < o->columns && part->place; i++)
    to_doubles(&b->columns[o->kept[i]], b->rows);
  size_t step = o->columns < CHUNK_VALUES ? CHUNK_VALUES / o->columns : 1;
  if (step > b->rows) step = b->rows;
  uint64_t *rows = malloc(step * o->columns * sizeof *rows);
  if (rows == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", o->job->in);
  stow_status status = STOW_OK;
  for (size_t first = 0; first < b->rows && status == STOW_OK; first += step) {
    size_t count = b->rows - first < step ? b->rows - first : step;
    for (size_t at = 0; at < count; at += TILE_ROWS)
      turn(o, rows + at * o->columns, b, first + at,
           count - at < TILE_ROWS ? count - at : TILE_ROWS);
    status = scratch_write(&o->values, (part->first_row + first) * o->columns * 8, rows,
                           count * o->columns * 8);
  }
  free(rows);
  return status;
}

/* ---- writing ---- */

/* Converts the integers before the first fraction, column by column. */
static void widen(const npy_out *o, uint64_t *values, size_t count, uint64_t first) {
  const column_facts *columns = o->job->result->facts.columns;
  for (size_t i = 0; i < count; i++) {
    /* With fractions, a column above INT64_MAX has no negative values, and the others stay below
     * it. */
    bool wide = table_column_type(&columns[o->kept[(first + i) % o->columns]]) == DTYPE_U64 ||
                (int64_t)values[i] >= 0;
    double near = wide ? (double)values[i] : (double)(int64_t)values[i];
    memcpy(&values[i], &near, sizeof near);
  }
}

/* Reads values from `first` on, all as `*via`; *count is how many. */
static stow_status read_chunk(const npy_out *o, uint64_t first, uint64_t *values, size_t *count,
                              dtype *via) {
  const file_facts *f = &o->job->result->facts;
  uint64_t total = o->rows * o->columns,
           border = o->form.floats ? o->form.float_from * o->columns : total;
  uint64_t left = (first < border ? border : total) - first;
  *count = left < CHUNK_VALUES ? (size_t)left : CHUNK_VALUES;
  STOW_TRY(scratch_read(&o->values, first * 8, values, *count * 8));
  *via = DTYPE_F64;
  if (first >= border) return STOW_OK;
  if (o->form.floats) {
    widen(o, values, *count, first);
    return STOW_OK;
  }
  *via = DTYPE_I64;
  for (size_t i = 0; i < o->columns; i++)
    if (table_column_type(&f->columns[o->kept[i]]) == DTYPE_U64) *via = DTYPE_U64;
  return STOW_OK;
}

/* Casts all values from `first` on; writes them if `write`. */
static stow_status each_chunk(const npy_out *o, dtype to, uint64_t first, bool write, size_t column,
                              loss *l) {
  const job *j = o->job;
  uint64_t total = o->rows * o->columns;
  uint64_t *values = malloc(2 * CHUNK_VALUES * sizeof *values);
  if (values == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", j->in);
  stow_status status = STOW_OK;
  while (first < total && status == STOW_OK) {
    size_t count = 0;
    dtype via = DTYPE_F64;
    status = read_chunk(o, first, values, &count, &via);
    if (status != STOW_OK) break;
    size_t used = count;
    if (column != SIZE_MAX) { /* only that column's values, collected */
      used = 0;
      for (size_t i = 0; i < count; i++)
        if (o->kept[(first + i) % o->columns] == column) values[used++] = values[i];
    }
    status = cast_values(values + CHUNK_VALUES, to, values, via, used);
    if (status == STOW_OK && l != NULL) loss_add(l, values, via, values + CHUNK_VALUES, to, used);
    if (status == STOW_OK && write)
      status = scratch_write(&o->made, first * dtype_bytes(to), values + CHUNK_VALUES,
                             count * dtype_bytes(to));
    first += count;
    if (l != NULL && l->exceeded) break;
    if (status == STOW_OK && write && !team_alone(j->budget->team))
      status = checkpoint_note(j->budget->checkpoint, STEP_OWN, first, NULL, 0);
    if (status == STOW_OK) status = budget_report(j->budget, first, total);
  }
  free(values);
  return status;
}

static stow_status measure(void *context, size_t column, dtype to, loss *l) {
  const npy_out *o = context;
  return loss_join(l, o->job->budget, each_chunk(o, to, 0, false, column, l));
}

/* Writes the header and sets the file's length. */
static stow_status end_file(const npy_out *o, writer *w) {
  const file_facts *f = &o->job->result->facts;
  dtype to = o->job->result->items[o->kept[0]].to;
  uint64_t shape[2] = {f->rows, o->columns};
  sink s = {.file = w};
  STOW_TRY(shrink_header(&s, npy_descr(to), false, shape, 2));
  return writer_end(w, s.offset + f->rows * o->columns * dtype_bytes(to));
}

static stow_status finish(npy_out *o, writer *w) {
  job *j = o->job;
  dtype to = j->result->items[o->kept[0]].to;
  bool as_it_is = to == DTYPE_F64 ? o->form.floats && o->form.float_from == 0
                                  : !o->form.floats && (to == DTYPE_I64 || to == DTYPE_U64);
  /* From here on the values no longer match the checkpoint. */
  if (!as_it_is) STOW_TRY(checkpoint_drop(j->budget->checkpoint));
  if (!as_it_is) STOW_TRY(each_chunk(o, to, 0, true, SIZE_MAX, NULL));
  return end_file(o, w);
}

static stow_status plan_types(npy_out *o) {
  table_plan plan = {.to_npy = true, .measure = measure, .context = o};
  STOW_TRY(shrink_table_plan(o->job, &plan));
  return o->job->options->dry_run ? STOW_OK : shrink_table_check_size(o->job);
}

static stow_status read_and_plan(npy_out *o) {
  job *j = o->job;
  csv c;
  table_state state = {0};
  table_taker taker = {.options = &j->options->in.csv,
                       .order = order_part,
                       .take = take_part,
                       .context = o,
                       .state = &o->form,
                       .state_bytes = sizeof o->form,
                       .skip = j->skip};
  STOW_TRY(csv_open(&c, j->in, table_row_max(j->budget), &j->options->in.csv));
  stow_status status =
      table_read(&j->result->facts, &c, j->options->in.header, j->budget, &taker, &state);
  csv_close(&c);
  table_state_free(&state);
  STOW_TRY(status);
  o->rows = j->result->facts.rows;
  return plan_types(o);
}

static stow_status count_columns(npy_out *o) {
  csv c;
  bool more;
  STOW_TRY(csv_open(&c, o->job->in, table_row_max(o->job->budget), &o->job->options->in.csv));
  stow_status status = csv_first(&c, o->job->options->in.header, &more);
  o->kept = calloc(c.columns + 1, sizeof *o->kept);
  if (status == STOW_OK && o->kept == NULL)
    status = stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", o->job->in);
  for (size_t i = 0; i < c.columns && status == STOW_OK; i++)
    if (!shrink_skips(o->job, i)) o->kept[o->columns++] = i;
  csv_close(&c);
  return status;
}

/* Returns the offset of the values in the file: the header's length does not depend on the rows. */
static stow_status begin(npy_out *o, writer *w) {
  uint64_t shape[2] = {1, 1};
  job *j = o->job;
  STOW_TRY(count_columns(o));
  shape[1] = o->columns;
  uint64_t header;
  STOW_TRY(shrink_header_bytes(&header, "<f8", false, shape, 2));
  if (!j->options->dry_run) {
    STOW_TRY(shrink_open(j, w, 0));
    o->values = (scratch){.fd = w->fd, .name = j->out};
  } else {
    STOW_TRY(shrink_table_scratch(j, &o->values));
  }
  o->values.base = header;
  o->made = o->values;
  return STOW_OK;
}

/* ---- several ranks ---- */

static void read_again(void *context) {
  npy_out *o = context;
  memset(&o->form, 0, sizeof o->form);
}

static stow_status write_own(npy_out *o, uint64_t rows_before) {
  job *j = o->job;
  dtype to = j->result->items[o->kept[0]].to;
  uint64_t shape[2] = {j->result->facts.rows, o->columns}, row = o->columns * dtype_bytes(to);
  uint64_t header;
  writer w;
  STOW_TRY(shrink_header_bytes(&header, npy_descr(to), false, shape, 2));
  STOW_TRY(shrink_open(j, &w, j->result->bytes_after));
  o->made = (scratch){.fd = w.fd, .name = j->out};
  o->made.base = header + rows_before * row;
  uint64_t done = 0;
  checkpoint_find(j->budget->checkpoint, STEP_OWN, &done, NULL, 0);
  stow_status status = each_chunk(o, to, done, true, SIZE_MAX, NULL);
  if (status == STOW_OK && team_leads(j->budget->team)) status = end_file(o, &w);
  return shrink_finish(j, &w, status);
}

static stow_status share_rows(npy_out *o) {
  job *j = o->job;
  bool kept = j->budget->checkpoint != NULL;
  table_state state = {0};
  table_shared own = {0};
  table_reader reader = {.taker = {.options = &j->options->in.csv,
                                   .order = order_part,
                                   .take = take_part,
                                   .context = o,
                                   .state = kept ? &o->form : NULL,
                                   .state_bytes = sizeof o->form,
                                   .skip = j->skip},
                         .again = read_again};
  stow_status status = count_columns(o);
  if (status == STOW_OK) status = shrink_table_scratch(j, &o->values);
  status = shrink_agree(j, status);
  if (status == STOW_OK)
    status = table_read_shared(&own, &j->result->facts, j->from, j->options->in.header, j->budget,
                               &reader, NULL, &state);
  uint64_t rows_before = own.rows_before;
  o->rows = own.rows;
  table_state_free(&state);
  table_shared_free(&own);
  STOW_TRY(status);
  STOW_TRY(shrink_agree(j, plan_types(o)));
  return j->options->dry_run ? STOW_OK : write_own(o, rows_before);
}

stow_status shrink_table_npy(job *j) {
  npy_out o = {.job = j, .values = {.fd = -1}};
  writer w = {.fd = -1};
  if (!team_alone(j->budget->team)) {
    stow_status shared = share_rows(&o);
    scratch_close(&o.values);
    free(o.kept);
    return shared;
  }
  stow_status status = begin(&o, &w);
  if (status != STOW_OK) return free(o.kept), status;
  status = read_and_plan(&o);
  if (j->options->dry_run) {
    scratch_close(&o.values);
  } else {
    if (status == STOW_OK) status = finish(&o, &w);
    status = shrink_finish(j, &w, status);
  }
  free(o.kept);
  return status;
}
