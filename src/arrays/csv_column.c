/* Csv column: adds one value to a column and changes the column's form when the value requires
 * it. */
#include <string.h>

#include "arrays/csv_block.h"

/* Rounds an integer to a double; sets *inexact if the double is not equal. */
static double nearest(int64_t value, bool *inexact) {
  double near = (double)value;
  /* 2^63 does not convert back to int64. */
  if (near >= 0x1p63 || (int64_t)near != value) *inexact = true;
  return near;
}

static double nearest_wide(uint64_t value, bool *inexact) {
  double near = (double)value;
  if (near >= 0x1p64 || (uint64_t)near != value) *inexact = true;
  return near;
}

static void to_floats(csv_column *to, size_t rows) {
  for (size_t i = 0; i < rows; i++) {
    double near = to->form == CSV_WIDES ? nearest_wide(to->values[i], &to->inexact)
                                        : nearest((int64_t)to->values[i], &to->inexact);
    memcpy(&to->values[i], &near, sizeof near);
  }
  to->form = CSV_FLOATS;
}

void csv_column_float(csv_column *to, size_t row, double value) {
  if (to->form != CSV_FLOATS) to_floats(to, row);
  memcpy(&to->values[row], &value, sizeof value);
}

void csv_column_integer(csv_column *to, size_t row, int64_t value) {
  if (to->form == CSV_FLOATS) {
    csv_column_float(to, row, nearest(value, &to->inexact));
    return;
  }
  if (to->form == CSV_WIDES && value < 0) to->negative = true;
  to->values[row] = (uint64_t)value;
}

void csv_column_wide(csv_column *to, size_t row, uint64_t value) {
  if (to->form == CSV_FLOATS) {
    csv_column_float(to, row, nearest_wide(value, &to->inexact));
    return;
  }
  for (size_t i = 0; i < row && to->form == CSV_INTEGERS; i++)
    if ((int64_t)to->values[i] < 0) to->negative = true;
  to->form = CSV_WIDES;
  to->values[row] = value;
}
