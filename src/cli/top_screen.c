/* Top screen: ncurses, found at run time (top.h). The library is not needed to build or to start.
 * The names, types and numbers are those of ncurses 6, whose ABI has not changed since 2015. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/library.h"
#include "base/variables.h"
#include "cli/top.h"

#define ATTRIBUTE_DIM  (1 << 20)  /* A_DIM */
#define ATTRIBUTE_BOLD (1 << 21)  /* A_BOLD */
#define PAIR(n)        ((n) << 8) /* COLOR_PAIR */
#define COLOR_DEFAULT  (-1)

typedef struct curses {
  void *library;
  void *screen, *window;
  bool color;
  void *(*newterm)(const char *, FILE *, FILE *);
  int (*endwin)(void);
  void (*delscreen)(void *);
  int (*cbreak)(void);
  int (*noecho)(void);
  int (*keypad)(void *, bool);
  void (*wtimeout)(void *, int);
  int (*wgetch)(void *);
  int (*wmove)(void *, int, int);
  int (*waddnstr)(void *, const char *, int);
  int (*wattrset)(void *, int);
  int (*werase)(void *);
  int (*wrefresh)(void *);
  int (*getmaxx)(void *);
  int (*getmaxy)(void *);
  int (*curs_set)(int);
  bool (*has_colors)(void);
  int (*start_color)(void);
  int (*use_default_colors)(void);
  int (*init_pair)(short, short, short);
} curses;

static curses c;

/* Finds every function. Returns false, and names one that is missing in `reason`. */
static bool find_functions(char reason[LIBRARY_REASON_BYTES]) {
  const library_symbol all[] = {
      {"newterm", &c.newterm},       {"endwin", &c.endwin},
      {"delscreen", &c.delscreen},   {"cbreak", &c.cbreak},
      {"noecho", &c.noecho},         {"keypad", &c.keypad},
      {"wtimeout", &c.wtimeout},     {"wgetch", &c.wgetch},
      {"wmove", &c.wmove},           {"waddnstr", &c.waddnstr},
      {"wattrset", &c.wattrset},     {"werase", &c.werase},
      {"wrefresh", &c.wrefresh},     {"getmaxx", &c.getmaxx},
      {"getmaxy", &c.getmaxy},       {"curs_set", &c.curs_set},
      {"has_colors", &c.has_colors}, {"start_color", &c.start_color},
      {"init_pair", &c.init_pair},   {"use_default_colors", &c.use_default_colors}};
  return library_find_all(c.library, all, sizeof all / sizeof all[0], reason);
}

bool top_screen_open(char why[200]) {
  static const char *const names[] = {"libncursesw.so.6", "libncurses.so.6", NULL};
  char reason[LIBRARY_REASON_BYTES];
  c = (curses){.library = library_open(ENV_LIBNCURSES, names, false, reason)};
  if (c.library == NULL) {
    snprintf(why, 200, "ncurses is not installed (package libncursesw6): no keys, Ctrl-C ends");
    return false;
  }
  bool found = find_functions(reason);
  setenv("ESCDELAY", "25", 0); /* react to Escape at once; ncurses would wait a second */
  c.screen = found ? c.newterm(NULL, stdout, stdin) : NULL;
  void **window = NULL;
  if (c.screen != NULL) library_find(c.library, "stdscr", &window);
  if (window == NULL || *window == NULL) {
    if (found)
      snprintf(why, 200, "ncurses does not know this terminal: no keys, Ctrl-C ends");
    else
      snprintf(why, 200, "ncurses cannot be used (%.140s): no keys, Ctrl-C ends", reason);
    dlclose(c.library);
    c.library = NULL;
    return false;
  }
  c.window = *window;
  c.cbreak();
  c.noecho();
  c.keypad(c.window, true);
  c.curs_set(0);
  c.color = c.has_colors();
  if (c.color) {
    c.start_color();
    c.use_default_colors();
    for (short i = 1; i <= 3; i++) c.init_pair(i, i, COLOR_DEFAULT); /* red, green, yellow */
  }
  return true;
}

void top_screen_size(int *width, int *height) {
  *width = c.getmaxx(c.window);
  *height = c.getmaxy(c.window);
}

/* Reads one of our own style sequences, "\033[31m". Returns its length and the attribute. */
static size_t take_style(const char *text, int *attribute, bool color) {
  const char *end = strchr(text, 'm');
  if (end == NULL) return 1;
  int code = (int)strtol(text + 2, NULL, 10);
  if (code == 0) *attribute = 0;
  if (code == 1) *attribute |= ATTRIBUTE_BOLD;
  if (code == 2) *attribute |= ATTRIBUTE_DIM;
  if (code > 30 && code <= 33 && color) *attribute = (*attribute & ~PAIR(255)) | PAIR(code - 30);
  return (size_t)(end - text) + 1;
}

void top_screen_show(const char *lines, bool color) {
  int row = 0, attribute = 0, height = c.getmaxy(c.window);
  c.werase(c.window);
  c.wmove(c.window, 0, 0);
  for (const char *at = lines; *at != '\0' && row < height;) {
    size_t length = strcspn(at, "\033\n");
    c.wattrset(c.window, attribute);
    if (length > 0) c.waddnstr(c.window, at, length < INT_MAX ? (int)length : INT_MAX);
    at += length;
    if (*at == '\033') {
      at += take_style(at, &attribute, c.color && color);
    } else if (*at == '\n') {
      at++;
      row++;
      c.wmove(c.window, row, 0);
    }
  }
  c.wattrset(c.window, 0);
  c.wrefresh(c.window);
}

int top_screen_key(int ms) {
  c.wtimeout(c.window, ms);
  return c.wgetch(c.window);
}

void top_screen_close(void) {
  if (c.library == NULL) return;
  c.curs_set(1);
  c.endwin();
  c.delscreen(c.screen);
  c = (curses){0}; /* the library stays loaded: it may have installed handlers */
}
