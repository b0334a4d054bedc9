/* RMM's replay log: Thread,Time,Action,Pointer,Size,Stream.
 *
 * Rows are events in file order. Times are HH:MM:SS.fraction (which wraps at midnight) or seconds
 * with a fraction. */
#include <string.h>

#include "recordings/csv_trace.h"

#define SECOND_NS UINT64_C(1000000000)
#define DAY_NS    (86400 * SECOND_NS)

enum { THREAD, TIME, ACTION, POINTER, SIZE, STREAM, COLUMNS };
static const char *const headings[COLUMNS] = {"Thread",  "Time", "Action",
                                              "Pointer", "Size", "Stream"};

typedef struct reader {
  recording *r;
  input *in;
  csv_row row;
  int column[COLUMNS];
  map live;        /* pointer → 1 */
  uint64_t day_ns; /* added to times of day after midnight */
  uint64_t last_ns;
  uint64_t max_work_bytes;
} reader;

/* Converts the digits after a point to nanoseconds; false for anything else. */
static bool fraction_ns(const char *text, uint64_t *ns) {
  uint64_t unit = SECOND_NS;
  *ns = 0;
  for (; *text >= '0' && *text <= '9'; text++) {
    unit /= 10;
    *ns += unit * (uint64_t)(*text - '0');
  }
  return *text == '\0';
}

static bool parse_time(const char *text, uint64_t *ns, bool *of_day) {
  uint64_t parts[3] = {0}, fraction = 0;
  size_t count = 0;
  for (;; text++) {
    if (count == 3 || *text < '0' || *text > '9') return false;
    for (; *text >= '0' && *text <= '9'; text++) {
      if (parts[count] > UINT64_MAX / 100) return false;
      parts[count] = parts[count] * 10 + (uint64_t)(*text - '0');
    }
    count++;
    if (*text != ':' || count == 3) break;
  }
  if (*text != '\0' && ((*text != '.' && *text != ':') || !fraction_ns(text + 1, &fraction)))
    return false;
  *of_day = count == 3;
  if (count == 2 || (*of_day && (parts[0] > 23 || parts[1] > 59 || parts[2] > 60))) return false;
  uint64_t seconds = *of_day ? parts[0] * 3600 + parts[1] * 60 + parts[2] : parts[0];
  if (seconds > UINT64_MAX / SECOND_NS - 1) return false;
  *ns = seconds * SECOND_NS + fraction;
  return true;
}

static bool parse_kind(const char *text, event *e) {
  if (strcmp(text, "allocate") == 0)
    e->kind = EVENT_ALLOC;
  else if (strcmp(text, "free") == 0 || strcmp(text, "deallocate") == 0)
    e->kind = EVENT_FREE;
  else if (strcmp(text, "allocate failure") == 0)
    e->kind = EVENT_FAIL;
  else
    return false;
  return true;
}

/* Tracks live blocks. Frees of blocks that were not allocated here are normal (the log began late);
 * they are counted and kept. */
static stow_status track(reader *x, const event *e) {
  if (e->kind == EVENT_ALLOC) {
    if (map_get(&x->live, e->addr) != NULL) x->r->bad_values++;
    if (x->live.count > x->max_work_bytes / (4 * sizeof(map_slot)))
      return stow_fail(STOW_ERR_BUDGET, "%s: too many blocks are live at once (%zu)", x->in->name,
                       x->live.count);
    return map_put(&x->live, e->addr, 1);
  }
  if (e->kind == EVENT_FREE && !map_remove(&x->live, e->addr, NULL)) x->r->unknown_frees++;
  return STOW_OK;
}

static stow_status read_row(reader *x) {
  const csv_row *row = &x->row;
  for (int i = 0; i < COLUMNS; i++)
    if ((size_t)x->column[i] >= row->count)
      return stow_fail(STOW_ERR_FORMAT, "%s: line %llu has %zu fields and no %s", x->in->name,
                       (unsigned long long)row->line, row->count, headings[i]);
#define FIELD(i) row->fields[x->column[i]]
  event e = {0};
  origin of = {0};
  uint64_t thread = 0, time = 0;
  bool of_day = false;
  if (!parse_kind(FIELD(ACTION), &e)) {
    x->r->skipped_events++;
    return STOW_OK;
  }
  bool good = csv_number(FIELD(THREAD), &thread) && parse_time(FIELD(TIME), &time, &of_day) &&
              csv_number(FIELD(SIZE), &e.bytes) && csv_number(FIELD(STREAM), &of.stream);
  if (!csv_number(FIELD(POINTER), &e.addr)) {
    good = good && (e.kind == EVENT_FAIL || strcmp(FIELD(POINTER), "(nil)") == 0);
    e.addr = 0;
  }
  if (!good) {
    x->r->bad_values++;
    x->r->skipped_events++;
    return STOW_OK;
  }
#undef FIELD
  if (of_day) {
    if (time + x->day_ns + DAY_NS / 2 < x->last_ns) x->day_ns += DAY_NS; /* past midnight */
    time += x->day_ns;
  }
  x->last_ns = e.time_ns = time;
  of.thread = (uint32_t)thread;
  STOW_TRY(track(x, &e));
  return recording_add_event(x->r, &e, &of);
}

static stow_status read_all(reader *x) {
  bool more;
  STOW_TRY(csv_row_next(&x->row, x->in, &more));
  for (int i = 0; i < COLUMNS; i++) {
    x->column[i] = more ? csv_row_find(&x->row, headings[i]) : -1;
    if (x->column[i] < 0)
      return stow_fail(STOW_ERR_FORMAT,
                       "%s: line 1 has no column \"%s\"; an RMM log begins with "
                       "Thread,Time,Action,Pointer,Size,Stream",
                       x->in->name, headings[i]);
  }
  for (;;) {
    STOW_TRY(csv_row_next(&x->row, x->in, &more));
    if (!more) return STOW_OK;
    STOW_TRY(read_row(x));
  }
}

stow_status rmm_log_read(recording *r, input *in, uint64_t max_work_bytes) {
  reader x = {.r = r, .in = in, .max_work_bytes = max_work_bytes};
  r->source = SOURCE_RMM;
  stow_status status = read_all(&x);
  map_free(&x.live);
  return status;
}
