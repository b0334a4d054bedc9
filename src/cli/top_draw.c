/* Top draw: formats a sample as lines of text, from 80 columns on; wider screens show more columns
 * (top.h). */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <stowage/size.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/output.h"
#include "cli/top.h"

#define WIDTH_LEAST 40
#define WIDE        110 /* shows trend and device */
#define WIDER       150 /* shows pinned memory, and longer trends */
#define DETAIL_ROWS 8

const char *const top_sort_names[TOP_SORT_COUNT + 1] = {"held", "cached", "spilled", "host",
                                                        "rate", "pid",    NULL};

/* ---- one line ---- */

typedef struct line {
  buffer *out;
  const top_view *v;
  int used; /* columns used */
} line;

/* Adds text up to the width. Characters count as one column each. */
static void put(line *l, const char *text) {
  const char *at = text;
  while (*at != '\0' && l->used < l->v->width) {
    size_t length = 1;
    while (((unsigned char)at[length] & 0xc0) == 0x80) length++;
    buffer_append(l->out, at, length);
    at += length;
    l->used++;
  }
}

__attribute__((format(printf, 2, 3))) static void put_f(line *l, const char *format, ...) {
  char text[600];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  put(l, text);
}

/* Returns the characters of a text, which count as one column each. */
static int columns_of(const char *text) {
  int count = 0;
  for (; *text != '\0'; text++) count += ((unsigned char)*text & 0xc0) != 0x80;
  return count;
}

/* Adds as many whole words of the text as fit, and a mark if some are cut: half a number
 * misleads. */
static void put_words(line *l, const char *text) {
  int left = l->v->width - l->used;
  if (columns_of(text) <= left) {
    put(l, text);
    return;
  }
  char kept[600];
  snprintf(kept, sizeof kept, "%s", text);
  char *space;
  while (columns_of(kept) > left - 1 && (space = strrchr(kept, ' ')) != NULL) *space = '\0';
  if (columns_of(kept) > left - 1) return; /* not even one word */
  size_t length = strlen(kept);
  if (length > 0 && kept[length - 1] == ',') kept[length - 1] = '\0';
  put(l, kept);
  put(l, l->v->utf8 ? "…" : "~");
}

static void style(line *l, const char *sequence) {
  if (l->v->color) buffer_text(l->out, sequence);
}

static void fill_to(line *l, int column) {
  while (l->used < column && l->used < l->v->width) put(l, " ");
}

static line begin(buffer *out, const top_view *v) {
  return (line){.out = out, .v = v};
}

static void end(line *l) {
  buffer_char(l->out, '\n');
}

static const char *size(char text[STOW_SIZE_TEXT_MAX], uint64_t bytes) {
  return stow_size_format(text, bytes);
}

/* "-" for nothing: a column of "0 B" hides the numbers. */
static void put_size(line *l, int width, uint64_t bytes) {
  char text[STOW_SIZE_TEXT_MAX];
  put_f(l, "%*s", width, bytes > 0 ? size(text, bytes) : "-");
}

static const char *level_style(double share) {
  return share >= 0.9 ? "\033[31m" : share >= 0.75 ? "\033[33m" : "\033[32m";
}

static void put_bar(line *l, int width, double share) {
  int full = (int)(share * width + 0.5);
  style(l, level_style(share));
  for (int i = 0; i < width; i++)
    put(l, i < full ? (l->v->utf8 ? "█" : "#") : (l->v->utf8 ? "░" : "-"));
  style(l, "\033[0m");
}

/* Draws the last `width` values, scaled from 0 to the highest of them. */
static void put_spark(line *l, int width, const float *values, int count) {
  static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static const char *const plain[] = {"_", ".", ":", "-", "=", "+", "*", "#"};
  float most = 0;
  int from = count > width ? count - width : 0;
  for (int i = from; i < count; i++)
    if (values[i] > most) most = values[i];
  for (int i = from; i < count; i++) {
    int level = most > 0 ? (int)(values[i] / most * 7 + 0.5f) : 0;
    put(l, (l->v->utf8 ? blocks : plain)[level < 0 ? 0 : level > 7 ? 7 : level]);
  }
  for (int i = count - from; i < width; i++) put(l, " ");
}

/* ---- the top ---- */

static void title(buffer *out, const top_look *t, const top_view *v) {
  char clock[16];
  time_t now = (time_t)(t->wall_ns / 1000000000);
  struct tm local;
  localtime_r(&now, &local);
  strftime(clock, sizeof clock, "%H:%M:%S", &local);
  line l = begin(out, v);
  style(&l, "\033[1m");
  put(&l, "stowage top");
  style(&l, "\033[0m");
  put_f(&l, "  %s  %d run%s, %d process%s", t->machine, t->run_count,
        text_s((uint64_t)t->run_count), t->process_count, t->process_count == 1 ? "" : "es");
  if (t->left_out > 0) put_f(&l, " (%d more not shown)", t->left_out);
  fill_to(&l, v->width - (int)strlen(clock));
  put(&l, clock);
  end(&l);
}

/* Writes a line such as "host   12.1 GiB of  15.6 GiB  78%  ####----  trend  note" */
static void gauge(buffer *out, const top_view *v, const char *name, bool known, uint64_t used,
                  uint64_t total, const top_series *s, const char *note) {
  char a[STOW_SIZE_TEXT_MAX], b[STOW_SIZE_TEXT_MAX];
  line l = begin(out, v);
  int bar = v->width >= WIDE ? 30 : 14, spark = v->width >= WIDER ? 40 : v->width >= WIDE ? 24 : 10;
  double share = known && total > 0 ? (double)used / (double)total : 0;
  style(&l, "\033[1m");
  put_f(&l, "%-7s", name);
  style(&l, "\033[0m");
  if (known && total > 0) {
    put_f(&l, "%9s of %9s %4.0f%% ", size(a, used), size(b, total), 100 * share);
    put_bar(&l, bar, share);
  } else {
    put_f(&l, used > 0 ? "%9s held" : "use not known", size(a, used));
    fill_to(&l, 7 + 9 + 4 + 9 + 7 + bar);
  }
  put(&l, " ");
  if (s != NULL) put_spark(&l, spark, s->values, s->count);
  if (note[0] != '\0') {
    put(&l, " ");
    put_words(&l, note);
  }
  end(&l);
}

static void host_lines(buffer *out, const top_look *t, const top_history *h, const top_view *v) {
  const hostmem *m = &t->host;
  char note[160] = "";
  if (!t->host_known) return;
  gauge(out, v, "host", true, m->machine_total_bytes - m->machine_available_bytes,
        m->machine_total_bytes, h != NULL ? &h->host : NULL, m->limited ? "" : "no cgroup limit");
  if (!m->limited) return;
  snprintf(note, sizeof note, "cgroup v%d %.100s", m->cgroup_version, m->limited_by);
  gauge(out, v, "limit", true, m->limit_used_bytes, m->limit_bytes, NULL, note);
}

static void device_lines(buffer *out, const top_look *t, const top_history *h, const top_view *v) {
  if (t->device_count == 0) {
    line l = begin(out, v);
    style(&l, "\033[1m");
    put_f(&l, "%-7s", "GPU");
    style(&l, "\033[0m");
    put(&l, "none found: host memory only");
    if (t->no_device[0] != '\0' && v->width >= WIDE) put_f(&l, " (%s)", t->no_device);
    end(&l);
  }
  for (int i = 0; i < t->device_count; i++) {
    const top_device *d = &t->devices[i];
    char name[32], note[160], limit[STOW_SIZE_TEXT_MAX];
    if (d->index >= 0)
      snprintf(name, sizeof name, "GPU %d", d->index);
    else
      snprintf(name, sizeof name, "device");
    bool limited = !d->known && d->limit_bytes > 0; /* the limit is then the gauge's total */
    if (d->known && d->limit_bytes > 0)
      snprintf(note, sizeof note, "limit %s, %s", size(limit, d->limit_bytes), d->name);
    else
      snprintf(note, sizeof note, "%s", d->name);
    gauge(out, v, name, d->known || limited, d->known ? d->used_bytes : d->held_bytes,
          d->known ? d->total_bytes : d->limit_bytes, h != NULL ? &h->devices[i] : NULL, note);
    if (d->spilled_bytes > 0 || d->spill_limit_bytes > 0)
      gauge(out, v, " spill", d->spill_limit_bytes > 0, d->spilled_bytes, d->spill_limit_bytes,
            NULL, "in host memory");
  }
}

/* ---- processes ---- */

static int compare(const top_process *a, const top_process *b, top_sort by) {
#define ORDER(field) (a->field < b->field ? 1 : a->field > b->field ? -1 : 0)
  switch (by) {
  case TOP_SORT_HELD: return ORDER(held_bytes);
  case TOP_SORT_CACHED: return ORDER(cached_bytes);
  case TOP_SORT_SPILLED: return ORDER(spilled_bytes);
  case TOP_SORT_HOST: return ORDER(host_bytes);
  case TOP_SORT_RATE: return ORDER(rate_bytes_s);
  default: return a->pid > b->pid ? 1 : a->pid < b->pid ? -1 : 0;
  }
#undef ORDER
}

static top_view *order; /* used by the sort in progress */

static int by_view(const void *x, const void *y) {
  int by = compare(x, y, order->sort);
  if (order->reverse) by = -by;
  /* Equal processes are ordered by host memory, then by PID, so that rows do not jump. */
  if (by == 0) by = compare(x, y, TOP_SORT_HOST);
  return by != 0 ? by : compare(x, y, TOP_SORT_PID);
}

static bool matches(const top_process *p, const char *words) {
  char pid[16];
  snprintf(pid, sizeof pid, "%d", (int)p->pid);
  if (words[0] == '\0' || strstr(pid, words) != NULL) return true;
  size_t length = strlen(words);
  for (const char *at = p->command; *at != '\0'; at++)
    if (strncasecmp(at, words, length) == 0) return true;
  return strcasestr(p->name, words) != NULL;
}

top_process *top_arrange(top_look *t, top_view *v) {
  int kept = 0;
  for (int i = 0; i < t->process_count; i++)
    if (matches(&t->processes[i], v->filter)) t->processes[kept++] = t->processes[i];
  t->process_count = kept;
  order = v;
  qsort(t->processes, (size_t)kept, sizeof *t->processes, by_view);
  for (int i = 0; i < kept; i++)
    if (t->processes[i].pid == v->chosen) return &t->processes[i];
  /* Only the first process of a run; for others nothing more is known. */
  int first = 0;
  while (first < kept && t->processes[first].run < 0) first++;
  if (first == kept) first = 0;
  v->chosen = kept > 0 ? t->processes[first].pid : 0;
  return kept > 0 ? &t->processes[first] : NULL;
}

static void heading(line *l, const top_view *v, int width, const char *name, int sort) {
  bool on = sort >= 0 && v->sort == (top_sort)sort;
  const char *mark = v->utf8 ? (v->reverse ? "▲" : "▼") : (v->reverse ? "^" : "v");
  put_f(l, "%*s", on ? width - 1 : width, name);
  put_f(l, "%s ", on ? mark : "");
}

/* Without a device its columns are left out, and the command gets their space. */
static void heading_line(buffer *out, const top_view *v, bool devices) {
  line l = begin(out, v);
  style(&l, "\033[1m");
  put(&l, " ");
  heading(&l, v, 7, "PID", TOP_SORT_PID);
  if (devices) {
    if (v->width >= WIDE) heading(&l, v, 4, "GPU", -1);
    heading(&l, v, 9, "HELD", TOP_SORT_HELD);
    heading(&l, v, 9, "CACHED", TOP_SORT_CACHED);
    heading(&l, v, 9, "SPILLED", TOP_SORT_SPILLED);
    if (v->width >= WIDER) heading(&l, v, 9, "PINNED", -1);
  }
  heading(&l, v, 9, "HOST", TOP_SORT_HOST);
  heading(&l, v, 11, "RATE/s", TOP_SORT_RATE);
  if (v->width >= WIDE) put_f(&l, "%-*s ", v->width >= WIDER ? 30 : 16, "TREND");
  put(&l, "COMMAND");
  style(&l, "\033[0m");
  end(&l);
}

static void put_rate(line *l, const top_process *p) {
  char text[STOW_SIZE_TEXT_MAX], shown[STOW_SIZE_TEXT_MAX + 1];
  double rate = p->rate_bytes_s;
  if (!p->rate_known || fabs(rate) < 4096) {
    put_f(l, "%11s ", "-");
    return;
  }
  snprintf(shown, sizeof shown, "%s%s", rate > 0 ? "+" : "-", size(text, (uint64_t)fabs(rate)));
  style(l, rate > 0 ? "\033[33m" : "\033[2m");
  put_f(l, "%11s", shown);
  style(l, "\033[0m");
  put(l, " ");
}

static void device_cells(line *l, const top_look *t, const top_process *p, const top_view *v) {
  if (v->width >= WIDE) {
    char device[16] = "-";
    if (p->device >= 0 && t->devices[p->device].index >= 0)
      snprintf(device, sizeof device, "%d", t->devices[p->device].index);
    put_f(l, "%4s ", device);
  }
  if (p->held_known)
    put_size(l, 9, p->held_bytes);
  else
    put_f(l, "%9s", "?");
  put(l, " "), put_size(l, 9, p->cached_bytes);
  put(l, " "), put_size(l, 9, p->spilled_bytes);
  if (v->width >= WIDER) put(l, " "), put_size(l, 9, p->pinned_bytes);
  put(l, " ");
}

static void process_line(buffer *out, const top_look *t, const top_process *p, const top_view *v) {
  line l = begin(out, v);
  bool chosen = p->pid == v->chosen;
  put(&l, chosen ? ">" : " ");
  if (chosen) style(&l, "\033[1m");
  put_f(&l, "%7d ", (int)p->pid);
  if (t->device_count > 0) device_cells(&l, t, p, v);
  put_size(&l, 9, p->host_bytes);
  put(&l, " ");
  if (chosen) style(&l, "\033[0m");
  put_rate(&l, p);
  if (v->width >= WIDE) {
    put_spark(&l, v->width >= WIDER ? 30 : 16, p->history, p->history_count);
    put(&l, " ");
  }
  if (chosen) style(&l, "\033[1m");
  put(&l, p->command);
  if (chosen) style(&l, "\033[0m");
  end(&l);
}

/* Writes rows so that the selected process stays visible. */
static void process_lines(buffer *out, const top_look *t, const top_view *v, int rows) {
  int at = 0, from = 0;
  heading_line(out, v, t->device_count > 0);
  for (int i = 0; i < t->process_count; i++)
    if (t->processes[i].pid == v->chosen) at = i;
  if (rows > 0 && at >= rows) from = at - rows + 1;
  for (int i = from; i < t->process_count && (rows == 0 || i < from + rows); i++)
    process_line(out, t, &t->processes[i], v);
  if (t->process_count > 0) return;
  line l = begin(out, v);
  put(&l, v->filter[0] != '\0'
              ? "  no process matches the filter"
              : "  no process holds memory: start one with stowage run -- COMMAND");
  end(&l);
}

static void chosen_lines(buffer *out, const top_look *t, const top_chosen *c, const top_view *v,
                         int rows) {
  char total[STOW_SIZE_TEXT_MAX];
  const top_process *p = NULL;
  for (int i = 0; i < t->process_count; i++)
    if (t->processes[i].pid == c->pid) p = &t->processes[i];
  if (c == NULL || c->pid == 0 || p == NULL) return;
  line l = begin(out, v);
  style(&l, "\033[1m");
  put_f(&l, "%s %d by %s", p->name, (int)c->pid, c->by == TOP_BY_TAG ? "tag" : "line");
  style(&l, "\033[0m");
  if (c->count > 0)
    put_f(&l, ": %s of %s memory", size(total, c->live_bytes), c->host ? "host" : "device");
  end(&l);
  if (c->note[0] != '\0') {
    l = begin(out, v);
    put_f(&l, "  %s", c->note);
    end(&l);
  }
  for (int i = 0; i < c->count && (rows == 0 || i < rows); i++) {
    const top_holder *h = &c->list[i];
    double share = c->live_bytes > 0 ? (double)h->bytes / (double)c->live_bytes : 0;
    l = begin(out, v);
    put_f(&l, "  %9s %5.1f%% ", size(total, h->bytes), 100 * share);
    for (int k = 0; k < 10; k++) put(&l, k < (int)(share * 10 + 0.5) ? (v->utf8 ? "█" : "#") : " ");
    put_f(&l, " %6" PRIu32 "x ", h->count);
    put(&l, h->label);
    end(&l);
  }
}

/* ---- the whole ---- */

static const char *const HELP[] = {
    "HELD     device memory the process holds",
    "CACHED   part of HELD that it keeps for reuse and can release",
    "SPILLED  its device memory that is in host memory",
    "HOST     host memory it holds: anonymous and shared, resident",
    "RATE/s   change of all of these per second; TREND: over time (wide screens)",
    "",
    "up, down choose a process        s      sort by the next column",
    "/        filter by name or pid   S      reverse the order",
    "t        by tag or by line       a      all processes, or of runs and GPUs",
    "+ -      sample more, less often Esc    no filter",
    "? or h   this help               q      quit",
};

static void keys_line(buffer *out, const top_view *v) {
  line l = begin(out, v);
  if (v->typing) {
    put_f(&l, "filter: %s_   Enter keeps it, Esc clears it", v->filter);
  } else {
    style(&l, "\033[2m");
    put_f(&l, "q quit  ? help  arrows  s sort: %s  t by %s  every %g s  / filter%s%s",
          top_sort_names[v->sort], v->by == TOP_BY_TAG ? "tag" : "line", v->interval_s,
          v->filter[0] != '\0' ? ": " : "", v->filter);
    style(&l, "\033[0m");
  }
  end(&l);
}

static int count_lines(const buffer *b) {
  int lines = 0;
  for (size_t i = 0; i < b->length; i++) lines += b->data[i] == '\n';
  return lines;
}

void top_draw(buffer *out, const top_look *t, const top_history *h, const top_chosen *c,
              const top_view *view) {
  top_view v = *view;
  if (v.width < WIDTH_LEAST) v.width = WIDTH_LEAST;
  if (v.note != NULL) {
    line l = begin(out, &v);
    put(&l, v.note);
    end(&l);
  }
  title(out, t, &v);
  host_lines(out, t, h, &v);
  device_lines(out, t, h, &v);
  buffer_char(out, '\n');
  if (v.help) {
    for (size_t i = 0; i < sizeof HELP / sizeof HELP[0]; i++) {
      line l = begin(out, &v);
      put(&l, HELP[i]);
      end(&l);
    }
  } else if (v.height == 0) {
    process_lines(out, t, &v, 0);
    if (c->pid != 0) buffer_char(out, '\n');
    chosen_lines(out, t, c, &v, 0);
    return;
  } else {
    /* Heading, blank line, the heading of the selected process and the keys take four lines. */
    int room = v.height - count_lines(out) - 4;
    int detail = c->count > 0 ? c->count : 1;
    if (detail > DETAIL_ROWS && detail > room - t->process_count) detail = DETAIL_ROWS;
    if (detail > room / 2) detail = room / 2;
    int rows = room - detail;
    process_lines(out, t, &v, rows > 0 ? rows : 1);
    buffer_char(out, '\n');
    if (detail > 0) chosen_lines(out, t, c, &v, detail);
  }
  while (count_lines(out) < v.height - 1) buffer_char(out, '\n');
  keys_line(out, &v);
}

/* ---- JSON ---- */

static void json_host(json *j, const top_look *t) {
  const hostmem *m = &t->host;
  json_key(j, "host");
  json_begin_object(j);
  json_key(j, "name"), json_text(j, t->machine);
  json_number_or_null(j, "total_bytes", t->host_known, m->machine_total_bytes);
  json_number_or_null(j, "available_bytes", t->host_known, m->machine_available_bytes);
  json_number_or_null(j, "limit_bytes", t->host_known && m->limited, m->limit_bytes);
  json_number_or_null(j, "limit_used_bytes", t->host_known && m->limited, m->limit_used_bytes);
  json_key(j, "limited_by"), json_text(j, m->limited ? m->limited_by : NULL);
  json_end_object(j);
}

static void json_devices(json *j, const top_look *t) {
  json_key(j, "devices");
  json_begin_array(j);
  for (int i = 0; i < t->device_count; i++) {
    const top_device *d = &t->devices[i];
    json_begin_object(j);
    json_number_or_null(j, "index", d->index >= 0, (uint64_t)d->index);
    json_key(j, "name"), json_text(j, d->name);
    json_key(j, "uuid"), json_text(j, d->uuid[0] != '\0' ? d->uuid : NULL);
    json_number_or_null(j, "total_bytes", d->known, d->total_bytes);
    json_number_or_null(j, "used_bytes", d->known, d->used_bytes);
    json_number(j, "held_by_runs_bytes", d->held_bytes);
    json_number_or_null(j, "limit_bytes", d->limit_bytes > 0, d->limit_bytes);
    json_number(j, "spilled_bytes", d->spilled_bytes);
    json_number_or_null(j, "spill_limit_bytes", d->spill_limit_bytes > 0, d->spill_limit_bytes);
    json_end_object(j);
  }
  json_end_array(j);
  json_key(j, "no_gpu"), json_text(j, t->device_count == 0 ? t->no_device : NULL);
}

static void json_chosen(json *j, const top_chosen *c) {
  json_key(j, "chosen");
  json_begin_object(j);
  json_number_or_null(j, "pid", c->pid != 0, (uint64_t)c->pid);
  json_key(j, "by"), json_text(j, c->by == TOP_BY_TAG ? "tag" : "line");
  json_key(j, "memory"), json_text(j, c->host ? "host" : "device");
  json_number(j, "live_bytes", c->live_bytes);
  json_key(j, "holders");
  json_begin_array(j);
  for (int i = 0; i < c->count; i++) {
    json_begin_object(j);
    json_key(j, "label"), json_text(j, c->list[i].label);
    json_number(j, "bytes", c->list[i].bytes);
    json_number(j, "count", c->list[i].count);
    json_end_object(j);
  }
  json_end_array(j);
  json_key(j, "note"), json_text(j, c->note[0] != '\0' ? c->note : NULL);
  json_end_object(j);
}

void top_json(buffer *out, const top_look *t, const top_chosen *c) {
  json j = JSON_PRETTY(out);
  json_begin_object(&j);
  json_number(&j, "time_ns", t->wall_ns);
  json_host(&j, t);
  json_devices(&j, t);
  json_key(&j, "runs");
  json_begin_array(&j);
  for (int i = 0; i < t->run_count; i++) {
    json_begin_object(&j);
    json_key(&j, "folder"), json_text(&j, t->runs[i].folder);
    json_number(&j, "pid", (uint64_t)t->runs[i].pid);
    json_end_object(&j);
  }
  json_end_array(&j);
  json_key(&j, "processes");
  json_begin_array(&j);
  for (int i = 0; i < t->process_count; i++) {
    const top_process *p = &t->processes[i];
    json_begin_object(&j);
    json_number(&j, "pid", (uint64_t)p->pid);
    json_key(&j, "name"), json_text(&j, p->name);
    json_key(&j, "command"), json_text(&j, p->command);
    json_number_or_null(&j, "run", p->run >= 0, (uint64_t)p->run);
    json_number_or_null(&j, "device", p->device >= 0, (uint64_t)p->device);
    json_number_or_null(&j, "held_bytes", p->held_known, p->held_bytes);
    json_number(&j, "cached_bytes", p->cached_bytes);
    json_number(&j, "spilled_bytes", p->spilled_bytes);
    json_number(&j, "pinned_bytes", p->pinned_bytes);
    json_number(&j, "host_bytes", p->host_bytes);
    json_key(&j, "rate_bytes_s");
    if (p->rate_known)
      json_i64(&j, (int64_t)p->rate_bytes_s);
    else
      json_null(&j);
    json_end_object(&j);
  }
  json_end_array(&j);
  json_chosen(&j, c);
  json_end_object(&j);
}
