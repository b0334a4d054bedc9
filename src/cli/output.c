/* Output helpers: see output.h. Also has the error functions of verb.h. */
#include "cli/output.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/verb.h"

bool output_color(void) {
  static int known = -1;
  if (known < 0) {
    /* https://no-color.org: a variable that is set and not empty disables colours. */
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    known = isatty(STDOUT_FILENO) == 1 && (no == NULL || no[0] == '\0') && term != NULL &&
            strcmp(term, "dumb") != 0;
  }
  return known == 1;
}

const char *output_name(const char *text) {
  static char ring[4][PATH_MAX];
  static unsigned turn;
  return text_show(ring[turn++ % 4], PATH_MAX, text);
}

const char *output_bold(const char *text) {
  static char ring[4][PATH_MAX + 16];
  static unsigned turn;
  if (!output_color()) return output_name(text);
  char *to = ring[turn++ % 4];
  snprintf(to, sizeof ring[0], "\033[1m%s\033[0m", output_name(text));
  return to;
}

/* ---- everything a verb prints goes through here ---- */

/* Returns the length of the style at `text` if it is one of ours, otherwise 0. */
static size_t style_length(const char *text) {
  static const char *const styles[] = {"\033[0m",  "\033[1m",  "\033[2m",
                                       "\033[31m", "\033[32m", "\033[33m"};
  for (size_t i = 0; output_color() && i < sizeof styles / sizeof styles[0]; i++)
    if (strncmp(text, styles[i], strlen(styles[i])) == 0) return strlen(styles[i]);
  return 0;
}

/* ---- lines that fit the terminal ---- */

size_t output_width(void) {
  static size_t known = SIZE_MAX;
  struct winsize size;
  if (known == SIZE_MAX) {
    known = 0;
    if (isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 &&
        size.ws_col >= 40)
      known = size.ws_col;
  }
  return known;
}

/* Steps over one character, or over one of our styles, which has no width. */
static size_t step(const char *at, const char *end, size_t *columns) {
  size_t length = 1;
  if (*at == '\033') {
    while (at + length < end && at[length - 1] != 'm') length++;
    return length;
  }
  while (at + length < end && ((unsigned char)at[length] & 0xc0) == 0x80) length++;
  *columns += 1;
  return length;
}

/* Returns the width of a list marker at `at`, "- " or "12. "; 0 if there is none. */
static size_t point_width(const char *at, const char *end) {
  size_t digits = 0;
  if (end - at > 2 && at[0] == '-' && at[1] == ' ') return 2;
  while (at + digits < end && at[digits] >= '0' && at[digits] <= '9') digits++;
  bool point =
      digits > 0 && end - at > (ptrdiff_t)digits + 2 && at[digits] == '.' && at[digits + 1] == ' ';
  return point ? digits + 2 : 0;
}

/* Returns the column for continuation lines: where the last cell of the line begins (after two or
 * more spaces), or the text of a list item. */
static size_t hanging(const char *line, const char *end, size_t width) {
  size_t column = 0, spaces = 0, found = 0;
  bool text = false;
  for (const char *at = line; at < end && column < width * 6 / 10;) {
    bool space = *at == ' ', style = *at == '\033';
    if (!space && !style && (spaces >= 2 || !text)) found = column + point_width(at, end);
    if (!style) spaces = space ? spaces + 1 : 0;
    text = text || (!space && !style);
    at += step(at, end, &column);
  }
  return found <= width / 2 ? found : 2;
}

/* Returns whether the line is a command to copy, which stays on one line: the terminal wraps it
 * without adding anything. */
static bool is_command(const char *line, const char *end) {
  static const char *const words[] = {"export ", "stowage ", "python ", "python3 ", "pip "};
  while (line < end && *line == ' ') line++;
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    if ((size_t)(end - line) > strlen(words[i]) && strncmp(line, words[i], strlen(words[i])) == 0 &&
        line[strlen(words[i])] != ' ')
      return true;
  return false;
}

static void put_line(const char *line, const char *end) {
  size_t width = output_width(), columns = 0;
  for (const char *at = line; at < end;) at += step(at, end, &columns);
  if (columns <= width || is_command(line, end)) {
    fwrite(line, 1, (size_t)(end - line), stdout);
    return;
  }
  size_t hang = hanging(line, end, width), used = 0;
  const char *at = line, *from = line, *space = NULL;
  while (at < end) {
    size_t before = used;
    const char *next = at + step(at, end, &used);
    if (*at == ' ' && before > hang) space = at;
    if (used > width) {
      const char *cut = space != NULL ? space : at;
      fwrite(from, 1, (size_t)(cut - from), stdout);
      fprintf(stdout, "\n%*s", (int)hang, "");
      from = space != NULL ? space + 1 : at;
      at = from;
      used = hang;
      space = NULL;
      continue;
    }
    at = next;
  }
  fwrite(from, 1, (size_t)(end - from), stdout);
}

static buffer unfinished = {.max = SIZE_MAX / 2}; /* a line that may continue */

void output_flush(void) {
  if (unfinished.length > 0) put_line(unfinished.data, unfinished.data + unfinished.length);
  buffer_free(&unfinished);
  unfinished = BUFFER_INIT;
}

/* Writes complete lines. Returns false if they could not be written. */
static bool put(FILE *to, const char *text, size_t length) {
  if (to != stdout || output_width() == 0) return fwrite(text, 1, length, to) == length;
  const char *at = text, *end = text + length;
  for (const char *line; (line = memchr(at, '\n', (size_t)(end - at))) != NULL; at = line + 1) {
    if (unfinished.length > 0) {
      buffer_append(&unfinished, at, (size_t)(line - at));
      output_flush();
    } else {
      put_line(at, line);
    }
    fputc('\n', stdout);
  }
  if (at < end && buffer_append(&unfinished, at, (size_t)(end - at)) != STOW_OK) {
    output_flush();
    fwrite(at, 1, (size_t)(end - at), stdout);
  }
  return !ferror(stdout);
}

/* Cleans the text between our own styles. `text` ends in '\0'. Returns the new length. */
static size_t clean(char *text, size_t length) {
  size_t to = 0, from = 0;
  for (size_t at = 0; at <= length; at++) {
    size_t style = at < length && text[at] == '\033' ? style_length(text + at) : 0;
    if (style == 0 && at < length) continue;
    size_t kept = text_clean(text + from, at - from, true);
    memmove(text + to, text + from, kept);
    to += kept;
    memmove(text + to, text + at, style);
    to += style;
    from = at + style;
    if (style > 0) at += style - 1;
  }
  return to;
}

static void print(FILE *to, const char *format, va_list args) {
  char few[1024], *text = few;
  va_list again;
  va_copy(again, args);
  int length = vsnprintf(few, sizeof few, format, args);
  if (length >= (int)sizeof few) {
    text = malloc((size_t)length + 1);
    if (text != NULL)
      vsnprintf(text, (size_t)length + 1, format, again);
    else
      text = few, length = (int)sizeof few - 1; /* truncated output is better than none */
  }
  va_end(again);
  if (length > 0) put(to, text, clean(text, (size_t)length));
  if (text != few) free(text);
}

void output_printf(const char *format, ...) {
  va_list args;
  va_start(args, format);
  print(stdout, format, args);
  va_end(args);
}

void output_error(const char *format, ...) {
  va_list args;
  va_start(args, format);
  print(stderr, format, args);
  va_end(args);
}

void output_verror(const char *format, va_list args) {
  print(stderr, format, args);
}

void output_erase(void) {
  fputs("\r\033[K", stderr);
}

void output_home(void) {
  output_flush();
  fputs("\033[H", stdout);
}

stow_status output_frame(buffer *b) {
  stow_status status = b->status;
  if (status == STOW_OK && b->length > 0) {
    b->length = clean(b->data, b->length);
    const char *at = b->data, *end = b->data + b->length;
    while (at < end) {
      const char *line = memchr(at, '\n', (size_t)(end - at));
      fwrite(at, 1, (size_t)((line != NULL ? line : end) - at), stdout);
      fputs(line != NULL ? "\033[K\r\n" : "\033[K\033[J", stdout);
      at = line != NULL ? line + 1 : end;
    }
    if (fflush(stdout) != 0)
      status = stow_fail(STOW_ERR_IO, "cannot write the output: %s", strerror(errno));
  }
  buffer_free(b);
  return status;
}

void output_exact(const char *text) {
  output_flush();
  fputs(text, stdout);
}

stow_status output_buffer(buffer *b) {
  stow_status status = b->status;
  if (status == STOW_OK && b->length > 0) {
    if (b->data[b->length - 1] != '\n') status = buffer_char(b, '\n');
    b->length = clean(b->data, b->length);
    /* JSON is for programs, and one of its strings must not be cut. */
    bool whole = b->data[0] == '{' || b->data[0] == '[';
    if (whole ? fwrite(b->data, 1, b->length, stdout) != b->length
              : !put(stdout, b->data, b->length))
      status = stow_fail(STOW_ERR_IO, "cannot write the output: %s", strerror(errno));
  }
  buffer_free(b);
  return status;
}

static const char *verb_name(const verb_call *call) {
  return call->verb != NULL ? call->verb->name : "";
}

int verb_usage(const verb_call *call, const char *format, ...) {
  char line[STATUS_MESSAGE_MAX];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  text_line(line);
  output_error("stowage %s: %s\n", verb_name(call), line);
  return EXIT_USAGE;
}

int verb_fail(const verb_call *call, stow_status status) {
  const char *words = stow_status_message();
  output_error("stowage %s: %s\n", verb_name(call),
               words[0] != '\0' ? words : stow_status_name(status));
  return verb_exit_code(status);
}

int verb_exit_code(stow_status status) {
  switch (status) {
  case STOW_OK: return EXIT_DONE;
  case STOW_ERR_INVALID:
  case STOW_ERR_OVERFLOW:
  case STOW_ERR_NOT_FOUND:
  case STOW_ERR_FORMAT: return EXIT_USAGE;
  default: return EXIT_FAILED;
  }
}
