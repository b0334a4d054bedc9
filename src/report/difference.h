/* Difference: two runs' holders at their peaks, matched by label and set against each other. */
#ifndef REPORT_DIFFERENCE_H
#define REPORT_DIFFERENCE_H

#include "report/report.h"

typedef struct difference_row {
  char label[256];
  uint64_t bytes[2];
  uint32_t counts[2];
} difference_row;

/* Rows ordered by how far the two are apart. Free *rows with free(). */
stow_status difference_build(difference_row **rows, size_t *count, const report *a,
                             const report *b);

#endif
