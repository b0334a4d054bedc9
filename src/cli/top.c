/* stowage top: shows which processes hold device and host memory, continuously. */
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "cli/output.h"
#include "cli/top.h"
#include "cli/verb.h"

#define INTERVAL_S 2.0
#define ONCE_NS    200000000 /* time between the two samples of --once: a rate needs two */
#define INTERVALS  6

static const double intervals_s[INTERVALS] = {0.5, 1, 2, 5, 10, 60};

typedef struct top {
  nvml *n;
  top_look look;
  top_history history;
  top_chosen chosen;
  top_view view;
} top;

static volatile sig_atomic_t stopped;

static void stop(int signal_number) {
  (void)signal_number;
  stopped = 1;
}

static void look(top *t) {
  top_read(&t->look, t->n, t->view.all);
  top_note(&t->history, &t->look);
  top_process *p = top_arrange(&t->look, &t->view);
  top_holders(&t->chosen, &t->look, p, t->view.by);
}

/* ---- once ---- */

static stow_status show_once(top *t, bool as_json) {
  const struct timespec pause = {.tv_nsec = ONCE_NS};
  buffer out = BUFFER_INIT;
  look(t);
  nanosleep(&pause, NULL);
  look(t);
  if (as_json)
    top_json(&out, &t->look, &t->chosen);
  else
    top_draw(&out, &t->look, &t->history, &t->chosen, &t->view);
  return output_buffer(&out);
}

/* ---- without ncurses ---- */

/* Draws frame after frame from the upper left corner. */
static stow_status show_plain(top *t, const char *why) {
  stow_status status = STOW_OK;
  t->view.note = why;
  while (!stopped && status == STOW_OK) {
    struct timespec pause = {
        .tv_sec = (time_t)t->view.interval_s,
        .tv_nsec = (long)((t->view.interval_s - (double)(time_t)t->view.interval_s) * 1e9)};
    struct winsize size;
    buffer out = BUFFER_INIT;
    look(t);
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
      t->view.width = size.ws_col;
      t->view.height = size.ws_row;
    }
    top_draw(&out, &t->look, &t->history, &t->chosen, &t->view);
    while (out.length > 0 && out.data[out.length - 1] == '\n') out.data[--out.length] = '\0';
    output_home();
    status = output_frame(&out);
    nanosleep(&pause, NULL);
  }
  output_printf("\n");
  return status;
}

/* ---- with ncurses ---- */

static void choose(top *t, int by) {
  int at = 0;
  for (int i = 0; i < t->look.process_count; i++)
    if (t->look.processes[i].pid == t->view.chosen) at = i;
  at += by;
  if (at < 0) at = 0;
  if (at >= t->look.process_count) at = t->look.process_count - 1;
  if (at >= 0) t->view.chosen = t->look.processes[at].pid;
}

static void change_interval(top_view *v, int by) {
  int at = 0;
  while (at < INTERVALS - 1 && intervals_s[at] < v->interval_s) at++;
  at += by;
  if (at >= 0 && at < INTERVALS) v->interval_s = intervals_s[at];
}

/* Handles a key while the filter is being typed. */
static void type(top_view *v, int key) {
  size_t length = strlen(v->filter);
  if (key == '\n' || key == '\r' || key == 27) v->typing = false;
  if (key == 27) v->filter[0] = '\0';
  if ((key == TOP_KEY_BACKSPACE || key == 127 || key == 8) && length > 0)
    v->filter[length - 1] = '\0';
  if (key >= ' ' && key < 127 && length + 1 < sizeof v->filter) {
    v->filter[length] = (char)key;
    v->filter[length + 1] = '\0';
  }
}

/* Handles a key. Returns false to quit. */
static bool press(top *t, int key) {
  top_view *v = &t->view;
  if (v->typing) {
    type(v, key);
    return true;
  }
  switch (key) {
  case 'q':
  case 'Q': return false;
  case '?':
  case 'h': v->help = !v->help; break;
  case 27: v->help = false, v->filter[0] = '\0'; break;
  case 's': v->sort = (v->sort + 1) % TOP_SORT_COUNT; break;
  case 'S': v->reverse = !v->reverse; break;
  case '/': v->typing = true, v->filter[0] = '\0'; break;
  case 't': v->by = v->by == TOP_BY_TAG ? TOP_BY_LINE : TOP_BY_TAG; break;
  case 'a': v->all = !v->all; break;
  case '+': change_interval(v, -1); break;
  case '-': change_interval(v, 1); break;
  case 'j':
  case TOP_KEY_DOWN: choose(t, 1); break;
  case 'k':
  case TOP_KEY_UP: choose(t, -1); break;
  case TOP_KEY_NEXT: choose(t, 10); break;
  case TOP_KEY_PREVIOUS: choose(t, -10); break;
  case TOP_KEY_HOME: choose(t, -TOP_PROCESSES_MAX); break;
  case TOP_KEY_END: choose(t, TOP_PROCESSES_MAX); break;
  default: break;
  }
  return true;
}

static stow_status show_screen(top *t) {
  stow_status status = STOW_OK;
  for (bool going = true; going && !stopped && status == STOW_OK;) {
    look(t);
    uint64_t next = t->look.time_ns + (uint64_t)(t->view.interval_s * 1e9);
    for (bool again = true; again && going && !stopped && status == STOW_OK;) {
      buffer out = BUFFER_INIT;
      top_screen_size(&t->view.width, &t->view.height);
      top_draw(&out, &t->look, &t->history, &t->chosen, &t->view);
      status = out.status;
      if (status == STOW_OK) top_screen_show(out.data, t->view.color);
      buffer_free(&out);
      uint64_t now = clock_ns();
      int key = top_screen_key(now < next ? (int)((next - now) / 1000000) + 1 : 0);
      again = key == TOP_KEY_RESIZE;
      if (key != TOP_KEY_NONE && key != TOP_KEY_RESIZE) going = press(t, key);
    }
  }
  return status;
}

static stow_status show_live(top *t) {
  static char why[200]; /* the view refers to it */
  struct sigaction action = {.sa_handler = stop};
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGHUP, &action, NULL);
  if (!top_screen_open(why)) return show_plain(t, why);
  stow_status status = show_screen(t);
  top_screen_close();
  return status;
}

/* ---- the verb ---- */

static int screen_width(void) {
  struct winsize size;
  const char *columns = getenv("COLUMNS");
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  int width = columns != NULL ? (int)strtol(columns, NULL, 10) : 0;
  return width >= 40 && width <= 1000 ? width : 80;
}

static stow_status read_options(top_view *v, const verb_call *call) {
  const char *sort = verb_value(call, "sort"), *filter = verb_value(call, "filter"),
             *interval = verb_value(call, "interval"), *by = verb_value(call, "by");
  uint64_t pid = 0;
  *v = (top_view){.width = screen_width(), .interval_s = INTERVAL_S, .color = output_color()};
  v->all = verb_flag(call, "all");
  for (int i = 0; sort != NULL && i < TOP_SORT_COUNT; i++)
    if (strcmp(sort, top_sort_names[i]) == 0) v->sort = (top_sort)i;
  if (by != NULL && strcmp(by, "tag") == 0) v->by = TOP_BY_TAG;
  if (filter != NULL) snprintf(v->filter, sizeof v->filter, "%s", output_name(filter));
  STOW_TRY(verb_number(call, "pid", 1, INT32_MAX, &pid));
  v->chosen = (pid_t)pid;
  if (interval != NULL) {
    char *end;
    v->interval_s = strtod(interval, &end);
    if (*end != '\0' || !(v->interval_s >= 0.1 && v->interval_s <= 3600))
      return stow_fail(STOW_ERR_INVALID, "--interval \"%.40s\": must be seconds from 0.1 to 3600",
                       interval);
  }
  v->utf8 = setlocale(LC_CTYPE, "") != NULL && strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
  return STOW_OK;
}

static int run(verb_call *call) {
  bool as_json = verb_flag(call, "json");
  bool once = as_json || verb_flag(call, "once") || isatty(STDOUT_FILENO) != 1;
  top *t = calloc(1, sizeof *t);
  if (t == NULL) return verb_fail(call, stow_fail(STOW_ERR_HOST_MEMORY, "no host memory"));
  stow_status status = read_options(&t->view, call);
  if (status == STOW_OK && nvml_open(&t->n) != STOW_OK) {
    t->n = NULL;
    snprintf(t->look.no_device, sizeof t->look.no_device, "%.199s", stow_status_message());
  }
  if (status == STOW_OK) status = once ? show_once(t, as_json) : show_live(t);
  if (t->n != NULL) nvml_close(t->n);
  free(t);
  return status == STOW_OK ? EXIT_DONE : verb_fail(call, status);
}

static const verb_option options[] = {
    {"once", NULL, "print one sample and exit; the default if the output is not a terminal"},
    VERB_OPTION_JSON,
    {"sort", "held|cached|spilled|host|rate|pid", "the column to sort by; default held"},
    {"filter", "TEXT", "show only processes whose command or PID contains TEXT"},
    {"pid", "PID", "the process to show in detail; default the first"},
    {"by", "line|tag", "show the selected process by line or by tag"},
    {"all", NULL, "show all your processes, not only those of runs and devices"},
    {"interval", "SECONDS", "interval between samples; default 2"},
    VERB_OPTIONS_END};

const verb verb_top = {
    .name = "top",
    .summary = "watch which processes hold device and host memory, live",
    .example = "stowage top\nstowage top --once --sort host\nstowage top --json",
    .options = options,
    .run = run,
};
