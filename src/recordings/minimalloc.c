/* minimalloc's CSV: one buffer per row, live from `lower` up to but not including `upper`.
 *
 * Produces two events per buffer in time order, frees before allocations at equal times. Without an
 * `offset` column every buffer gets its own address, so that no two can be confused. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "recordings/csv_trace.h"

typedef struct row_columns {
  int id, lower, upper, size, offset;
} row_columns;

/* Orders events by time; at equal times ends come before beginnings, then the file's order
 * (`stack_id` numbers the rows while they are sorted). */
static int compare_events(const void *a, const void *b) {
  const event *x = a, *y = b;
  if (x->time_ns != y->time_ns) return x->time_ns < y->time_ns ? -1 : 1;
  if (x->kind != y->kind) return x->kind == EVENT_FREE ? -1 : 1;
  return x->stack_id < y->stack_id ? -1 : x->stack_id > y->stack_id;
}

static stow_status find_columns(row_columns *c, const csv_row *row, const input *in, bool more) {
  *c = (row_columns){-1, -1, -1, -1, -1};
  if (more) {
    c->id = csv_row_find(row, "id");
    c->lower = csv_row_find(row, "lower");
    c->upper = csv_row_find(row, "upper");
    c->size = csv_row_find(row, "size");
    c->offset = csv_row_find(row, "offset");
  }
  if (c->lower >= 0 && c->upper >= 0 && c->size >= 0) return STOW_OK;
  return stow_fail(STOW_ERR_FORMAT,
                   "%s: line 1 has no column \"%s\"; a minimalloc file begins with "
                   "id,lower,upper,size",
                   in->name,
                   c->lower < 0   ? "lower"
                   : c->upper < 0 ? "upper"
                                  : "size");
}

static const char *field(const csv_row *row, int column) {
  return column >= 0 && (size_t)column < row->count ? row->fields[column] : "";
}

/* Reports a bad row. The rows are one problem, not a log, so one bad row invalidates the file. */
static stow_status wrong(const csv_row *row, const input *in, const char *what, const char *text) {
  return stow_fail(STOW_ERR_FORMAT, "%s: line %llu: %s \"%s\"", in->name,
                   (unsigned long long)row->line, what, text);
}

static stow_status read_row(recording *r, const input *in, const csv_row *row, const row_columns *c,
                            uint64_t *next_addr) {
  uint64_t lower, upper, size, addr = *next_addr;
  if (!csv_number(field(row, c->lower), &lower))
    return wrong(row, in, "lower is not a whole number:", field(row, c->lower));
  if (!csv_number(field(row, c->upper), &upper))
    return wrong(row, in, "upper is not a whole number:", field(row, c->upper));
  if (!csv_number(field(row, c->size), &size))
    return wrong(row, in, "size is not a whole number:", field(row, c->size));
  if (upper <= lower) return wrong(row, in, "ends before it begins: upper", field(row, c->upper));
  if (c->offset >= 0 && !csv_number(field(row, c->offset), &addr))
    return wrong(row, in, "offset is not a whole number:", field(row, c->offset));
  uint64_t step;
  if (!checked_round_up(&step, size + (size == 0), 512) ||
      !checked_add(next_addr, *next_addr, step))
    return wrong(row, in, "the sizes add up to more than 2^64 at", field(row, c->size));
  event e = {.time_ns = lower,
             .addr = addr,
             .bytes = size,
             .stack_id = (uint32_t)row->line,
             .kind = EVENT_ALLOC};
  origin of = {0};
  const char *id = field(row, c->id);
  STOW_TRY(recording_name(r, &of.tag_id, id, strlen(id)));
  STOW_TRY(recording_add_event(r, &e, &of));
  e.time_ns = upper;
  e.kind = EVENT_FREE;
  return recording_add_event(r, &e, &of);
}

stow_status minimalloc_read(recording *r, input *in, uint64_t max_work_bytes) {
  (void)max_work_bytes; /* needs memory for one row only, in addition to the recording */
  csv_row row = {.line = 0};
  row_columns columns;
  bool more;
  uint64_t next_addr = 512;
  r->source = SOURCE_MINIMALLOC;
  STOW_TRY(csv_row_next(&row, in, &more));
  STOW_TRY(find_columns(&columns, &row, in, more));
  for (;;) {
    STOW_TRY(csv_row_next(&row, in, &more));
    if (!more) break;
    STOW_TRY(read_row(r, in, &row, &columns, &next_addr));
  }
  if (r->event_count > 0) qsort(r->events, r->event_count, sizeof *r->events, compare_events);
  for (size_t i = 0; i < r->event_count; i++) r->events[i].stack_id = 0;
  return STOW_OK;
}
