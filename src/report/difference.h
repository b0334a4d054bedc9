/* Difference: compares the holders of two runs at their peaks, matched by label. */
#ifndef REPORT_DIFFERENCE_H
#define REPORT_DIFFERENCE_H

#include "report/report.h"

typedef struct difference_row {
  char label[256];
  uint64_t bytes[2];
  uint32_t counts[2];
} difference_row;

/* Returns rows ordered by the size of the difference. Free *rows with free(). */
stow_status difference_build(difference_row **rows, size_t *count, const report *a,
                             const report *b);

#endif
