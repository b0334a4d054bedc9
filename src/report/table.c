/* Table: two passes, widths while cells come in, lines at the end. No line ends in spaces. */
#include "report/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <stowage/size.h>

#include "base/text.h"

#define GAP 2 /* spaces between columns */

/* Characters, not bytes: continuation bytes of UTF-8 take no room. */
static size_t text_width(const char *text) {
  size_t width = 0;
  for (; *text != '\0'; text++) width += ((unsigned char)*text & 0xc0) != 0x80;
  return width;
}

void table_cell(table *t, const char *text) {
  size_t length = strlen(text), column = t->count++ % t->columns;
  char *cell = buffer_extend(&t->cells, length + 1);
  if (cell == NULL) return; /* table_write reports it */
  memcpy(cell, text, length);
  size_t kept = text_clean(cell, length, false); /* names from files come here */
  cell[kept] = '\0';
  t->cells.length -= length - kept;
  size_t width = text_width(cell);
  if (width > t->width[column]) t->width[column] = width;
}

void table_printf(table *t, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  table_cell(t, text);
}

void table_size(table *t, uint64_t bytes) {
  char text[STOW_SIZE_TEXT_MAX];
  table_cell(t, stow_size_format(text, bytes));
}

static void write_row(const table *t, buffer *out, const char **cell, int indent) {
  size_t owed = (size_t)indent; /* spaces, written only before more text */
  for (size_t column = 0; column < t->columns; column++) {
    size_t slack = t->width[column] - text_width(*cell);
    bool right = (t->right >> column & 1) != 0;
    if (right) owed += slack;
    if (**cell != '\0') {
      for (; owed > 0; owed--) buffer_char(out, ' ');
      buffer_text(out, *cell);
    } else {
      owed += text_width(*cell);
    }
    owed += (right ? 0 : slack) + GAP;
    *cell += strlen(*cell) + 1;
  }
}

void table_write(table *t, buffer *out, int indent, bool bold_header) {
  while (t->count % t->columns != 0) table_cell(t, "");
  if (t->cells.status != STOW_OK && out->status == STOW_OK) out->status = t->cells.status;
  const char *cell = t->cells.data;
  if (out->status == STOW_OK) {
    for (size_t row = 0; row < t->count / t->columns; row++) {
      bool bold = bold_header && row == 0;
      if (bold) buffer_text(out, "\033[1m");
      write_row(t, out, &cell, indent);
      buffer_text(out, bold ? "\033[0m\n" : "\n");
    }
  }
  buffer_free(&t->cells);
  t->count = 0;
}
