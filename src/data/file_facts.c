/* File facts: frees them. It is apart from inspect_file.c because tables, which that file calls,
 * free theirs too. */
#include <stdlib.h>

#include "data/inspect.h"

void inspect_free(file_facts *f) {
  for (size_t i = 0; i < f->column_count; i++) free(f->columns[i].name);
  free(f->arrays);
  free(f->columns);
  *f = (file_facts){0};
}
