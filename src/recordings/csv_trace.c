/* CSV traces: splits rows into fields. */
#include "recordings/csv_trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Splits row->text in place. */
static bool split(csv_row *row) {
  char *from = row->text, *to = row->text;
  row->count = 0;
  for (;;) {
    if (row->count == CSV_TRACE_FIELDS) return false;
    while (*from == ' ' || *from == '\t') from++;
    row->fields[row->count++] = to;
    if (*from == '"') {
      for (from++; *from != '\0'; from++) {
        if (*from == '"' && *++from != '"') break;
        *to++ = *from;
      }
    }
    while (*from != ',' && *from != '\0') *to++ = *from++;
    while (to > row->fields[row->count - 1] && (to[-1] == ' ' || to[-1] == '\t')) to--;
    bool last = *from == '\0';
    *to++ = '\0'; /* never past `from`: a separator or the end was there */
    if (last) return true;
    from++;
  }
}

stow_status csv_row_next(csv_row *row, input *in, bool *more) {
  const char *line;
  size_t count;
  do {
    STOW_TRY(input_line(in, &line, &count, sizeof row->text - 1));
    row->line++;
    if (line != NULL && row->line == 1 && count >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0)
      line += 3, count -= 3; /* byte order mark */
  } while (line != NULL && count == 0);
  *more = line != NULL;
  if (!*more) return STOW_OK;
  if (memchr(line, '\0', count) != NULL)
    return stow_fail(STOW_ERR_FORMAT, "%s: line %llu contains a zero byte: not a CSV file",
                     in->name, (unsigned long long)row->line);
  memcpy(row->text, line, count);
  row->text[count] = '\0';
  if (split(row)) return STOW_OK;
  return stow_fail(STOW_ERR_FORMAT, "%s: line %llu has more than %d fields", in->name,
                   (unsigned long long)row->line, CSV_TRACE_FIELDS);
}

int csv_row_find(const csv_row *row, const char *heading) {
  for (size_t i = 0; i < row->count; i++)
    if (strcasecmp(row->fields[i], heading) == 0) return (int)i;
  return -1;
}

bool csv_number(const char *text, uint64_t *value) {
  if (text[0] < '0' || text[0] > '9') return false; /* strtoull would take a sign */
  char *end;
  bool hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
  errno = 0;
  *value = strtoull(text, &end, hex ? 16 : 10);
  return errno == 0 && *end == '\0';
}
