/* Output helpers: see output.h; the error calls of verb.h stand here too. */
#include "cli/output.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/verb.h"

bool output_color(void) {
  static int known = -1;
  if (known < 0) {
    /* https://no-color.org: set and not empty switches colours off. */
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

stow_status output_buffer(buffer *b) {
  stow_status status = b->status;
  if (status == STOW_OK && b->length > 0) {
    if (b->data[b->length - 1] != '\n') buffer_char(b, '\n');
    if (fwrite(b->data, 1, b->length, stdout) != b->length)
      status = stow_fail(STOW_ERR_IO, "cannot write the output: %s", strerror(errno));
  }
  buffer_free(b);
  return status;
}

static const char *verb_name(const verb_call *call) {
  return call->verb != NULL ? call->verb->name : "";
}

int verb_usage(const verb_call *call, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fprintf(stderr, "stowage %s: ", verb_name(call));
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  return EXIT_USAGE;
}

int verb_fail(const verb_call *call, stow_status status) {
  const char *words = stow_status_message();
  fprintf(stderr, "stowage %s: %s\n", verb_name(call),
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
