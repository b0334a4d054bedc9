/* The summary for a terminal: the peak, who held it, what failed, what grows. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/size.h>

#include "base/table.h"
#include "base/text.h"
#include "report/difference.h"
#include "report/report.h"

#define HOLDERS_SHOWN    10
#define FAILURES_SHOWN   5
#define ITERATIONS_SHOWN 8

typedef char size_text[STOW_SIZE_TEXT_MAX];

/* Returns a name from a trace, made safe for a terminal. */
static char *printable(char *text) {
  text[text_clean(text, strlen(text), false)] = '\0';
  return text;
}

static const char *signed_size(char text[STOW_SIZE_TEXT_MAX + 1], int64_t bytes) {
  size_text size;
  uint64_t magnitude = bytes < 0 ? 0 - (uint64_t)bytes : (uint64_t)bytes;
  snprintf(text, STOW_SIZE_TEXT_MAX + 1, "%s%s", bytes < 0 ? "-" : "+",
           stow_size_format(size, magnitude));
  return text;
}

/* 12,345,678 */
static const char *grouped(char text[32], uint64_t n) {
  char digits[24];
  int length = snprintf(digits, sizeof digits, "%" PRIu64, n), to = 0;
  for (int i = 0; i < length; i++) {
    if (i > 0 && (length - i) % 3 == 0) text[to++] = ',';
    text[to++] = digits[i];
  }
  text[to] = '\0';
  return text;
}

static const char *seconds(char text[32], uint64_t ns) {
  if (ns < 1000000)
    snprintf(text, 32, "%.0f us", (double)ns / 1e3);
  else if (ns < 1000000000)
    snprintf(text, 32, "%.1f ms", (double)ns / 1e6);
  else
    snprintf(text, 32, "%.2f s", (double)ns / 1e9);
  return text;
}

static double share(uint64_t part, uint64_t whole) {
  return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

static void title(const report *r, buffer *out, bool bold) {
  const timeline *t = &r->time;
  char events[32], span[32], file[512], device_name[128];
  size_text size;
  snprintf(file, sizeof file, "%s", r->file);
  buffer_printf(out, "%s%s%s\n", bold ? "\033[1m" : "", printable(file), bold ? "\033[0m" : "");
  buffer_printf(out, "  %s event%s over %s, device %u", grouped(events, t->tick_count),
                text_s(t->tick_count), seconds(span, timeline_time_ns(t, t->tick_count)),
                t->device);
  snprintf(device_name, sizeof device_name, "%s",
           recording_text(t->source, t->source->device_name_id));
  if (device_name[0] != '\0') buffer_printf(out, " (%s)", printable(device_name));
  if (t->source->device_bytes != 0)
    buffer_printf(out, ", %s", stow_size_format(size, t->source->device_bytes));
  buffer_text(out, "\n\n");
}

static void moment(buffer *out, const timeline *t, uint32_t tick) {
  char number[32], when[32];
  buffer_printf(out, "event %s, %s", grouped(number, tick),
                seconds(when, timeline_time_ns(t, tick)));
}

static void peak_lines(const report *r, buffer *out) {
  size_text live, reserved, holes, largest;
  char number[32];
  buffer_printf(out, "  peak live      %10s  in %s allocation%s, at ",
                stow_size_format(live, r->peak.live_bytes), grouped(number, r->peak.live_count),
                text_s(r->peak.live_count));
  moment(out, &r->time, r->peak.tick);
  buffer_char(out, '\n');
  if (!r->time.reserved_known) {
    buffer_text(out, "  reserved        not recorded: this trace has no segments\n");
    return;
  }
  buffer_printf(out, "  peak reserved  %10s  at ",
                stow_size_format(reserved, r->peak_reserved_bytes));
  moment(out, &r->time, r->peak_reserved_tick);
  buffer_printf(out,
                "\n  at the peak    %10s  reserved, of which %s (%.1f%%) is free in %u hole%s, the "
                "largest %s\n",
                stow_size_format(reserved, r->peak.reserved_bytes),
                stow_size_format(holes, r->peak.hole_bytes),
                share(r->peak.hole_bytes, r->peak.reserved_bytes), r->peak.hole_count,
                text_s(r->peak.hole_count), stow_size_format(largest, r->peak.largest_hole_bytes));
}

static void failure_lines(const report *r, buffer *out) {
  if (r->failure_count == 0) {
    buffer_text(out, "  failures             none\n");
    return;
  }
  char number[32];
  buffer_printf(out, "  failures       %10s\n", grouped(number, r->failure_count));
  for (uint32_t i = 0; i < r->failures_kept && i < FAILURES_SHOWN; i++) {
    const failure *f = &r->failures[i];
    size_text asked, live, holes, largest, left;
    buffer_printf(out, "    %10s  asked at ", stow_size_format(asked, f->asked_bytes));
    moment(out, &r->time, f->tick);
    buffer_printf(out, ": %s live", stow_size_format(live, f->live_bytes));
    if (r->time.reserved_known)
      buffer_printf(out, ", %s free in holes (largest %s)", stow_size_format(holes, f->hole_bytes),
                    stow_size_format(largest, f->largest_hole_bytes));
    if (f->device_free_bytes != 0)
      buffer_printf(out, ", %s free on the device", stow_size_format(left, f->device_free_bytes));
    buffer_char(out, '\n');
  }
  if (r->failure_count > FAILURES_SHOWN)
    buffer_printf(out, "    and %s more\n", grouped(number, r->failure_count - FAILURES_SHOWN));
}

static void holder_lines(const report *r, buffer *out, bool bold) {
  static const char *const headers[] = {"call site", "tag", "size of the allocation"};
  if (r->peak.holder_count == 0) {
    buffer_text(out, "\n  Nothing was live: the trace holds no allocation.\n");
    return;
  }
  buffer_text(out, "\n");
  table t = TABLE_INIT(4, 1u << 0 | 1u << 1 | 1u << 2);
  table_cell(&t, "at the peak");
  table_cell(&t, "share");
  table_cell(&t, "count");
  table_cell(&t, headers[r->group]);
  for (uint32_t i = 0; i < r->peak.holder_count && i < HOLDERS_SHOWN; i++) {
    const holder *h = &r->peak.holders[i];
    char label[256];
    table_size(&t, h->bytes);
    table_printf(&t, "%.1f%%", share(h->bytes, r->peak.live_bytes));
    table_printf(&t, "%u", h->count);
    census_label(label, sizeof label, &r->time, &r->sites, r->group, h->key);
    table_cell(&t, printable(label));
  }
  table_write(&t, out, 2, bold);
  if (r->peak.holder_count > HOLDERS_SHOWN)
    buffer_printf(out, "  and %u more\n", r->peak.holder_count - HOLDERS_SHOWN);
}

/* Shows all if there are few; else the first and the last few complete iterations. */
static void iteration_lines(const report *r, buffer *out, bool bold) {
  const iterations *all = &r->iterations;
  if (all->how == ITERATION_NONE) {
    buffer_text(
        out, "\n  No iterations: the trace has no marks that repeat and no allocation that comes "
             "back regularly.\n");
    return;
  }
  char name[160], number[32];
  size_text size;
  snprintf(name, sizeof name, "%s", recording_text(r->time.source, all->name_id));
  uint32_t whole = all->count - all->first_is_setup - all->last_is_partial;
  if (all->how == ITERATION_MARKS)
    buffer_printf(out, "\n  %s iteration%s, by the mark \"%s\"", grouped(number, whole),
                  text_s(whole), printable(name));
  else
    buffer_printf(out, "\n  %s iteration%s, guessed from an allocation of %s that comes back",
                  grouped(number, whole), text_s(whole), stow_size_format(size, all->guess_bytes));
  int64_t growth = all->growth_bytes;
  char change[STOW_SIZE_TEXT_MAX + 1];
  if (growth != 0)
    buffer_printf(out, "; what stays live grows by %s each (median)", signed_size(change, growth));
  buffer_char(out, '\n');
  table t = TABLE_INIT(5, 31);
  static const char *const header[] = {"iteration", "events", "allocations", "peak live",
                                       "live at its end"};
  for (size_t i = 0; i < 5; i++) table_cell(&t, header[i]);
  uint32_t first = all->first_is_setup, half = ITERATIONS_SHOWN / 2;
  for (uint32_t i = first; i < first + whole; i++) {
    uint32_t n = i - first;
    if (whole > ITERATIONS_SHOWN && n == half) {
      for (size_t c = 0; c < 5; c++) table_cell(&t, "...");
      i = first + whole - half;
      n = i - first;
    }
    const iteration *it = &all->list[i];
    table_printf(&t, "%u", n + 1);
    table_printf(&t, "%u", it->end - it->start);
    table_printf(&t, "%u", it->allocs);
    table_size(&t, it->peak_bytes);
    table_size(&t, it->end_bytes);
  }
  table_write(&t, out, 2, bold);
}

static void policy_lines(const report *r, buffer *out, bool bold) {
  if (r->policy_count == 0) return;
  bool limits = r->policies[0].min_limit_bytes != 0;
  buffer_text(out, "\n  The same requests through other allocators, without a limit\n");
  table t = TABLE_INIT(limits ? 6 : 5, 0x3e);
  static const char *const header[] = {"policy",     "peak reserved", "largest hole",
                                       "page calls", "their time",    "smallest limit"};
  for (size_t i = 0; i < t.columns; i++) table_cell(&t, header[i]);
  for (uint32_t i = 0; i < r->policy_count; i++) {
    const replay_result *p = &r->policies[i];
    table_cell(&t, p->policy->name);
    table_size(&t, p->stats.peak_reserved_bytes);
    table_size(&t, p->stats.largest_hole_bytes);
    table_printf(&t, "%" PRIu64, p->stats.page_calls);
    table_printf(&t, "%.1f ms", (double)p->stats.page_time_ns / 1e6);
    if (limits) table_size(&t, p->min_limit_bytes);
  }
  table_write(&t, out, 2, bold);
  for (uint32_t i = 0; i < r->policy_count; i++) {
    const replay_result *p = &r->policies[i];
    char size[STOW_SIZE_TEXT_MAX];
    if (!p->finishes)
      buffer_printf(out, "  %s fails at event %" PRIu64 ", asking %s%s\n", p->policy->name,
                    p->failed_at_event, stow_size_format(size, p->failed_bytes),
                    p->failed_bytes > POLICY_REQUEST_MAX ? ", more than any device has" : "");
  }
  if (r->policy_missing != NULL)
    buffer_printf(out, "  %s was not replayed: address space is limited; raise ulimit -v\n",
                  r->policy_missing->name);
}

/* Reports what was skipped, with its count. */
static void note_lines(const report *r, buffer *out) {
  const timeline *t = &r->time;
  char n[32];
  if (t->before_count > 0)
    buffer_printf(out,
                  "\n  Note: %s allocation%s live before the recording began; when is not known.\n",
                  grouped(n, t->before_count), text_s(t->before_count));
  if (t->unknown_frees + t->source->unknown_frees > 0)
    buffer_printf(out, "\n  Note: skipped %s free%s of unknown addresses.\n",
                  grouped(n, t->unknown_frees + t->source->unknown_frees),
                  text_s(t->unknown_frees + t->source->unknown_frees));
  if (t->doubled_allocs > 0)
    buffer_printf(out,
                  "\n  Note: %s address%s allocated while still live; the first allocation "
                  "was ended there.\n",
                  grouped(n, t->doubled_allocs), t->doubled_allocs == 1 ? " was" : "es were");
  uint64_t bad = t->bad_sizes + t->bad_extents + t->source->bad_values + t->source->skipped_events;
  if (bad > 0)
    buffer_printf(out, "\n  Note: skipped %s event%s with impossible values.\n", grouped(n, bad),
                  text_s(bad));
}

static stow_status difference_lines(const report *a, const report *b, buffer *out, bool bold) {
  difference_row *rows = NULL;
  size_t count;
  stow_status status = difference_build(&rows, &count, a, b);
  if (status == STOW_OK) {
    table t = TABLE_INIT(4, 7);
    static const char *const header[] = {"first", "second", "change", "at the peak"};
    for (size_t i = 0; i < 4; i++) table_cell(&t, header[i]);
    char change[STOW_SIZE_TEXT_MAX + 1];
    const struct {
      const char *label;
      uint64_t a, b;
    } totals[] = {{"peak live", a->peak.live_bytes, b->peak.live_bytes},
                  {"peak reserved", a->peak_reserved_bytes, b->peak_reserved_bytes}};
    for (size_t i = 0; i < 2; i++) {
      table_size(&t, totals[i].a);
      table_size(&t, totals[i].b);
      table_cell(&t, signed_size(change, (int64_t)(totals[i].b - totals[i].a)));
      table_cell(&t, totals[i].label);
    }
    for (size_t i = 0; i < count && i < HOLDERS_SHOWN; i++) {
      if (rows[i].bytes[0] == rows[i].bytes[1]) break;
      table_size(&t, rows[i].bytes[0]);
      table_size(&t, rows[i].bytes[1]);
      table_cell(&t, signed_size(change, (int64_t)(rows[i].bytes[1] - rows[i].bytes[0])));
      table_cell(&t, printable(rows[i].label));
    }
    buffer_printf(out, "%sDifference%s\n", bold ? "\033[1m" : "", bold ? "\033[0m" : "");
    table_write(&t, out, 2, bold);
  }
  free(rows);
  return status;
}

/* Compares the peaks of several runs or ranks with their mean. */
static void balance_lines(const report *all, size_t count, buffer *out, bool bold) {
  double mean = 0;
  for (size_t i = 0; i < count; i++) mean += (double)all[i].peak.live_bytes / (double)count;
  table t = TABLE_INIT(5, 15);
  static const char *const header[] = {"peak live", "against the mean", "peak reserved", "failures",
                                       "run"};
  for (size_t i = 0; i < 5; i++) table_cell(&t, header[i]);
  for (size_t i = 0; i < count; i++) {
    const report *r = &all[i];
    char name[512];
    table_size(&t, r->peak.live_bytes);
    table_printf(&t, "%+.1f%%", mean > 0 ? 100 * ((double)r->peak.live_bytes - mean) / mean : 0);
    if (r->time.reserved_known)
      table_size(&t, r->peak_reserved_bytes);
    else
      table_cell(&t, "-");
    table_printf(&t, "%" PRIu64, r->failure_count);
    snprintf(name, sizeof name, "%s, device %u", r->file, r->time.device);
    table_cell(&t, printable(name));
  }
  buffer_printf(out, "%sBalance%s\n", bold ? "\033[1m" : "", bold ? "\033[0m" : "");
  table_write(&t, out, 2, bold);
}

/* Returns whether the run has samples of host memory and no allocation on a device. */
static bool host_only(const report *r) {
  return r->host != NULL && r->host->count > 0 && r->alloc_count == 0 && r->failure_count == 0 &&
         r->peak.live_bytes == 0 && !r->time.reserved_known;
}

/* Reports how the run ended, its host memory, and how to record more. */
static void host_lines(const report *r, buffer *out, bool bold) {
  const host_curve *h = r->host;
  char file[512], span[32], number[32];
  size_text peak, limit;
  snprintf(file, sizeof file, "%s", r->file);
  buffer_printf(out, "%s%s%s\n", bold ? "\033[1m" : "", printable(file), bold ? "\033[0m" : "");
  if (r->headline != NULL && r->headline->length > 0) {
    char *text = strdup(r->headline->data);
    buffer_printf(out, "  %s.\n", text != NULL ? printable(text) : "");
    free(text);
  }
  buffer_printf(out, "\n  host memory    %10s  at the peak", stow_size_format(peak, h->peak_bytes));
  if (h->limit_bytes > 0) buffer_printf(out, ", of %s", stow_size_format(limit, h->limit_bytes));
  if (h->count > 1)
    buffer_printf(out, "; %s samples over %s", grouped(number, h->count),
                  seconds(span, h->points[h->count - 1].wall_ns - h->points[0].wall_ns));
  buffer_text(out, "\n  device memory        none  was allocated\n\n"
                   "  For host memory by line: stowage run --profile -- COMMAND\n");
}

stow_status report_text(const report *all, size_t count, buffer *out, bool bold) {
  for (size_t i = 0; i < count; i++) {
    const report *r = &all[i];
    if (host_only(r)) {
      host_lines(r, out, bold);
      if (i + 1 < count) buffer_char(out, '\n');
      continue;
    }
    title(r, out, bold);
    peak_lines(r, out);
    failure_lines(r, out);
    holder_lines(r, out, bold);
    iteration_lines(r, out, bold);
    policy_lines(r, out, bold);
    note_lines(r, out);
    if (i + 1 < count) buffer_char(out, '\n');
  }
  if (count == 2) {
    buffer_char(out, '\n');
    STOW_TRY(difference_lines(&all[0], &all[1], out, bold));
  }
  if (count > 2) {
    buffer_char(out, '\n');
    balance_lines(all, count, out, bold);
  }
  return out->status;
}
