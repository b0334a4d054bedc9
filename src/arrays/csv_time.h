/* Csv time: dates and times as ISO 8601 writes them.
 *
 *   2024-02-29            a date
 *   2024-02-29 23:59      a time, with T or a space; seconds, up to nine digits of fractions, and
 *   2024-02-29T23:59:59.125+01:00      a zone (Z, +01:00, +0100, +01) may follow
 *
 * Called by the table reader for every distinct text of a column that may be one of times. Anything
 * else is not a time: other orders of day and month, week dates, a 60th second, a day that does not
 * exist. */
#ifndef ARRAYS_CSV_TIME_H
#define ARRAYS_CSV_TIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct csv_time {
  int64_t seconds; /* since 1970-01-01, in UTC if it has a zone */
  uint32_t nanoseconds;
  uint8_t digits; /* of the fraction */
  bool clock;     /* it has a time of day */
  bool zoned;
} csv_time;

/* What a column of times is stored in: NumPy's datetime64[D], [s], [ms], [us] or [ns]. */
typedef enum csv_unit { CSV_DAYS, CSV_SECONDS, CSV_MILLIS, CSV_MICROS, CSV_NANOS } csv_unit;

/* NumPy's value for a missing time (NaT). */
#define CSV_NOT_A_TIME INT64_MIN

bool csv_time_read(csv_time *t, const char *text, size_t length);
/* Returns whether CSV_NANOS holds it: 1677-09-21T00:12:43.145224193 to
 * 2262-04-11T23:47:16.854775807. */
bool csv_time_fits_nanos(const csv_time *t);
/* Returns the time in that unit, which must hold it. */
int64_t csv_time_in(const csv_time *t, csv_unit unit);
/* Returns the unit for fractions of up to so many digits. */
csv_unit csv_unit_for(bool clock, unsigned digits);
/* Returns "D", "s", "ms", "us" or "ns". */
const char *csv_unit_name(csv_unit unit);
/* Writes the date of `seconds` as YYYY-MM-DD. Returns `text`. */
const char *csv_date_text(char text[40], int64_t seconds);

#endif
