/* Table: measures widths as cells come in, and writes the lines at the end. No line ends in spaces.
 */
#include "base/table.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <stowage/size.h>

#include "base/text.h"

#define GAP 2 /* spaces between columns */

/* Counts characters, not bytes: UTF-8 continuation bytes have no width. */
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
  size_t kept = text_clean(cell, length, false); /* cells may contain names from files */
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

void table_color(table *t, table_style style) {
  static const char plain = TABLE_PLAIN;
  while (t->styles.length + 1 < t->count)
    if (buffer_append(&t->styles, &plain, 1) != STOW_OK) return;
  char value = (char)style;
  if (t->styles.length + 1 == t->count) buffer_append(&t->styles, &value, 1);
}

/* ---- fitting the screen ---- */

#define WRAPPED_LEAST 20 /* a narrower column of text is hard to read */

static size_t screen_width;

void table_fit(size_t width) {
  screen_width = width;
}

/* What is shown of a table. */
typedef struct layout {
  size_t width[TABLE_COLUMNS_MAX];
  bool shown[TABLE_COLUMNS_MAX];
  size_t wrapped; /* the column that is wrapped; TABLE_COLUMNS_MAX: none */
} layout;

static size_t layout_width(const table *t, const layout *l, int indent) {
  size_t sum = (size_t)indent, columns = 0;
  for (size_t i = 0; i < t->columns; i++)
    if (l->shown[i]) sum += l->width[i] + (columns++ > 0 ? GAP : 0);
  return sum;
}

static bool ends_word(char c) {
  return c == ' ' || c == ',' || c == '/';
}

/* The longest word of a column, which is not cut if half the screen has room for it. */
static size_t longest_word(const table *t, size_t column) {
  const char *cell = t->cells.data;
  size_t longest = 0;
  for (size_t i = 0; i < t->count; i++, cell += strlen(cell) + 1) {
    size_t word = 0;
    for (const char *at = i % t->columns == column ? cell : ""; *at != '\0'; at++) {
      word += ((unsigned char)*at & 0xc0) != 0x80;
      if (word > longest) longest = word;
      if (ends_word(*at)) word = 0;
    }
  }
  return longest < screen_width / 2 ? longest : screen_width / 2;
}

static layout lay_out(const table *t, int indent) {
  layout l = {.wrapped = TABLE_COLUMNS_MAX};
  size_t widest = TABLE_COLUMNS_MAX;
  for (size_t i = 0; i < t->columns; i++) {
    l.width[i] = t->width[i];
    l.shown[i] = true;
    if ((t->right >> i & 1) == 0 && (widest == TABLE_COLUMNS_MAX || t->width[i] > t->width[widest]))
      widest = i;
  }
  size_t total = layout_width(t, &l, indent);
  if (screen_width == 0 || total <= screen_width) return l;
  if (widest < t->columns && l.width[widest] > WRAPPED_LEAST) {
    size_t over = total - screen_width, least = longest_word(t, widest);
    if (least < WRAPPED_LEAST) least = WRAPPED_LEAST;
    if (least > l.width[widest]) least = l.width[widest];
    l.wrapped = widest;
    l.width[widest] = l.width[widest] > over + least ? l.width[widest] - over : least;
  }
  for (size_t i = t->columns; i-- > 1 && layout_width(t, &l, indent) > screen_width;)
    if ((t->right >> i & 1) != 0) l.shown[i] = false;
  /* What the dropped columns leave goes to the text. */
  total = layout_width(t, &l, indent);
  if (l.wrapped < t->columns && total < screen_width) {
    l.width[l.wrapped] += screen_width - total;
    if (l.width[l.wrapped] > t->width[l.wrapped]) l.width[l.wrapped] = t->width[l.wrapped];
  }
  return l;
}

/* Returns the bytes of `text` that fit in `width` characters, up to the end of a word if there is
 * one in the second half. */
static size_t piece(const char *text, size_t width) {
  size_t bytes = 0, count = 0, word = 0;
  while (text[bytes] != '\0') {
    size_t next = bytes + 1;
    while (((unsigned char)text[next] & 0xc0) == 0x80) next++;
    if (count == width) break;
    count++;
    bytes = next;
    if (ends_word(text[bytes - 1])) word = bytes;
  }
  return text[bytes] == '\0' || word < bytes / 2 ? bytes : word;
}

/* ---- writing ---- */

static void put_spaces(buffer *out, size_t count) {
  for (; count > 0; count--) buffer_char(out, ' ');
}

static size_t characters(const char *text, size_t bytes) {
  size_t width = 0;
  for (size_t i = 0; i < bytes; i++) width += ((unsigned char)text[i] & 0xc0) != 0x80;
  return width;
}

static void put_cell(buffer *out, const char *text, size_t bytes, table_style style) {
  static const char *const styles[TABLE_STYLES] = {"", "\033[32m", "\033[31m"};
  buffer_text(out, styles[style]);
  buffer_append(out, text, bytes);
  if (style != TABLE_PLAIN) buffer_text(out, "\033[0m");
}

/* One row, on as many lines as its wrapped cell takes. */
static void write_row(const table *t, const layout *l, buffer *out, const char *const *cells,
                      const uint8_t *styles, int indent) {
  const char *rest = l->wrapped < t->columns ? cells[l->wrapped] : "";
  bool first = true;
  do {
    size_t pending = (size_t)indent; /* spaces, written only before more text */
    bool any = false;
    for (size_t i = 0; i < t->columns; i++) {
      if (!l->shown[i]) continue;
      const char *text = first ? cells[i] : "";
      size_t bytes = strlen(text);
      if (i == l->wrapped) {
        text = rest;
        bytes = piece(rest, l->width[i]);
        rest += bytes;
        while (bytes > 0 && text[bytes - 1] == ' ') bytes--;
      }
      size_t slack = l->width[i] - characters(text, bytes);
      bool right = (t->right >> i & 1) != 0;
      if (right) pending += slack;
      if (bytes > 0) {
        put_spaces(out, pending);
        pending = 0;
        any = true;
        put_cell(out, text, bytes, styles[i]);
      }
      pending += (right ? 0 : slack) + GAP;
    }
    buffer_char(out, '\n');
    first = false;
    if (!any) break;
  } while (*rest != '\0');
}

/* Names the columns that were left out. */
static void write_left_out(const table *t, const layout *l, buffer *out, int indent) {
  const char *cell = t->cells.data;
  bool any = false;
  for (size_t i = 0; i < t->columns; i++, cell += strlen(cell) + 1) {
    if (l->shown[i]) continue;
    if (!any) put_spaces(out, (size_t)indent);
    buffer_printf(out, any ? ", %s" : "(a wider screen also shows: %s", cell);
    any = true;
  }
  if (any) buffer_text(out, ")\n");
}

void table_write(table *t, buffer *out, int indent, bool color) {
  while (t->count % t->columns != 0) table_cell(t, "");
  if (t->cells.status != STOW_OK && out->status == STOW_OK) out->status = t->cells.status;
  const char *cell = t->cells.data;
  if (out->status == STOW_OK) {
    layout l = lay_out(t, indent);
    for (size_t row = 0; row < t->count / t->columns; row++) {
      const char *cells[TABLE_COLUMNS_MAX];
      uint8_t styles[TABLE_COLUMNS_MAX] = {0};
      for (size_t i = 0; i < t->columns; i++, cell += strlen(cell) + 1) {
        size_t at = row * t->columns + i;
        cells[i] = cell;
        if (color && at < t->styles.length) styles[i] = (uint8_t)t->styles.data[at];
      }
      if (color && row == 0) buffer_text(out, "\033[1m");
      write_row(t, &l, out, cells, styles, indent);
      if (color &&
          row == 0) { /* before the end of the line, as the rest of the screen is not bold */
        if (out->length > 0 && out->status == STOW_OK) out->length--;
        buffer_text(out, "\033[0m\n");
      }
    }
    if (t->count > 0) write_left_out(t, &l, out, indent);
  }
  buffer_free(&t->cells);
  buffer_free(&t->styles);
  t->count = 0;
}
