/* Csv where: the file and line of an error, also where several files are read as one. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

#include "arrays/csv.h"

const char *csv_where(const csv *c, uint64_t line, char text[CSV_WHERE_MAX]) {
  const char *name = c->in.name;
  const csv_places *p = c->places;
  size_t count = p != NULL ? atomic_load_explicit(&p->count, memory_order_acquire) : 0;
  for (size_t i = count; i-- > 0;)
    if (p->list[i].lines_before < line) {
      name = p->list[i].name;
      line = line - p->list[i].lines_before + p->list[i].own_lines;
      break;
    }
  snprintf(text, CSV_WHERE_MAX, "%.1000s: line %" PRIu64, name, line);
  return text;
}
