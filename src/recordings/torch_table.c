/* Torch table: a growing table of the snapshot reader, charged to its working memory. */
#include <stdlib.h>
#include <string.h>

#include "recordings/torch_reader.h"

stow_status torch_table_add(torch_reader *t, torch_table *table, size_t size, void **element) {
  if (table->count == table->capacity) {
    size_t wanted = table->capacity == 0 ? 64 : table->capacity * 2;
    uint64_t more = (wanted - table->capacity) * size;
    if (t->machine.work_bytes + more > t->machine.max_work_bytes)
      return stow_fail(STOW_ERR_BUDGET,
                       "reading it needs more than the %llu MiB of working memory allowed",
                       (unsigned long long)(t->machine.max_work_bytes >> 20));
    void *bigger = realloc(table->data, wanted * size);
    if (bigger == NULL)
      return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory for a table of %zu entries", wanted);
    memset((char *)bigger + table->capacity * size, 0, (size_t)more);
    t->machine.work_bytes += more;
    table->data = bigger;
    table->capacity = wanted;
  }
  *element = (char *)table->data + table->count++ * size;
  return STOW_OK;
}
