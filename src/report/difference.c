/* Difference: matches two runs by label, because site numbers differ between runs. */
#include "report/difference.h"

#include <stdlib.h>
#include <string.h>

static uint64_t apart(const difference_row *r) {
  return r->bytes[0] > r->bytes[1] ? r->bytes[0] - r->bytes[1] : r->bytes[1] - r->bytes[0];
}

static int by_distance(const void *a, const void *b) {
  const difference_row *x = a, *y = b;
  uint64_t dx = apart(x), dy = apart(y);
  if (dx != dy) return dx < dy ? 1 : -1;
  return strcmp(x->label, y->label);
}

static stow_status add_run(difference_row *rows, intern *labels, const report *r, int which) {
  for (uint32_t i = 0; i < r->peak.holder_count; i++) {
    const holder *h = &r->peak.holders[i];
    char label[sizeof rows->label];
    const char *text = census_label(label, sizeof label, &r->time, &r->sites, r->group, h->key);
    uint32_t number, before = labels->count;
    STOW_TRY(intern_add(labels, &number, text, strlen(text)));
    difference_row *row = &rows[number];
    if (number == before) {
      *row = (difference_row){0};
      memcpy(row->label, label, sizeof label);
    }
    row->bytes[which] += h->bytes;
    row->counts[which] += h->count;
  }
  return STOW_OK;
}

stow_status difference_build(difference_row **rows, size_t *count, const report *a,
                             const report *b) {
  intern labels = {0};
  *count = 0;
  *rows = calloc((size_t)a->peak.holder_count + b->peak.holder_count + 1, sizeof **rows);
  if (*rows == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to compare two runs");
  stow_status status = add_run(*rows, &labels, a, 0);
  if (status == STOW_OK) status = add_run(*rows, &labels, b, 1);
  *count = labels.count;
  intern_free(&labels);
  qsort(*rows, *count, sizeof **rows, by_distance);
  return status;
}
