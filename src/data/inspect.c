/* Frees the facts of a file (inspect.h). */
#include "data/inspect.h"

#include <stdlib.h>

void inspect_free(file_facts *f) {
  for (size_t i = 0; i < f->column_count; i++) {
    free(f->columns[i].name);
    free(f->columns[i].apart);
  }
  free(f->arrays);
  free(f->columns);
  *f = (file_facts){0};
}
