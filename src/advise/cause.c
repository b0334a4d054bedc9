/* Cause: the texts of one cause. */
#include <stdarg.h>
#include <stdio.h>

#include <stowage/size.h>

#include "advise/causes.h"
#include "base/text.h"

const char *cause_size(uint64_t bytes) {
  static _Thread_local char texts[8][STOW_SIZE_TEXT_MAX];
  static _Thread_local unsigned at;
  return stow_size_format(texts[at++ % 8], bytes);
}

/* Appends one line, safe to print: it quotes names from recordings. */
static void append(buffer *b, const char *format, va_list arguments) {
  char line[512];
  vsnprintf(line, sizeof line, format, arguments);
  text_line(line);
  buffer_text(b, line);
}

void cause_say(cause *c, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  append(&c->evidence, format, arguments);
  va_end(arguments);
  buffer_char(&c->evidence, '\n');
}

void cause_head(cause *c, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  buffer_clear(&c->headline);
  append(&c->headline, format, arguments);
  va_end(arguments);
}

stow_status findings_status(const findings *f) {
  for (uint32_t i = 0; i < f->count; i++) {
    if (f->list[i].headline.status != STOW_OK) return f->list[i].headline.status;
    if (f->list[i].evidence.status != STOW_OK) return f->list[i].evidence.status;
  }
  return STOW_OK;
}
