/* Csv time: see csv_time.h. */
#include "arrays/csv_time.h"

#include <stdio.h>

enum { DAY_SECONDS = 86400 };

/* Takes exactly `count` digits. */
static bool take_digits(const char **at, const char *end, int count, int *value) {
  *value = 0;
  if (end - *at < count) return false;
  for (int i = 0; i < count; i++, ++*at) {
    if (**at < '0' || **at > '9') return false;
    *value = *value * 10 + (**at - '0');
  }
  return true;
}

static bool take_sign(const char **at, const char *end, char sign) {
  if (*at >= end || **at != sign) return false;
  ++*at;
  return true;
}

static bool is_leap(int year) {
  return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

/* Returns the days since 1970-01-01 in the Gregorian calendar (Howard Hinnant, "chrono-compatible
 * low-level date algorithms"). */
static int64_t days_of(int year, int month, int day) {
  int64_t y = year - (month <= 2);
  int64_t era = (y >= 0 ? y : y - 399) / 400, of_era = y - era * 400;
  int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static bool take_date(const char **at, const char *end, int64_t *days) {
  static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  int year, month, day;
  if (!take_digits(at, end, 4, &year) || !take_sign(at, end, '-') ||
      !take_digits(at, end, 2, &month) || !take_sign(at, end, '-') ||
      !take_digits(at, end, 2, &day))
    return false;
  if (year < 1 || month < 1 || month > 12 || day < 1) return false;
  if (day > lengths[month - 1] + (month == 2 && is_leap(year))) return false;
  *days = days_of(year, month, day);
  return true;
}

static bool take_fraction(csv_time *t, const char **at, const char *end) {
  uint32_t value = 0, unit = 1000000000;
  for (; *at < end && **at >= '0' && **at <= '9'; ++*at) {
    if (t->digits == 9) return false;
    value = value * 10 + (uint32_t)(**at - '0');
    unit /= 10;
    t->digits++;
  }
  t->nanoseconds = value * unit;
  return t->digits > 0;
}

static bool take_zone(csv_time *t, const char **at, const char *end) {
  int hours, minutes = 0;
  t->zoned = true;
  if (take_sign(at, end, 'Z')) return true;
  int64_t sign = **at == '-' ? -1 : 1;
  ++*at;
  if (!take_digits(at, end, 2, &hours) || hours > 23) return false;
  if (*at < end) {
    take_sign(at, end, ':');
    if (!take_digits(at, end, 2, &minutes) || minutes > 59) return false;
  }
  t->seconds -= sign * (hours * 3600 + minutes * 60);
  return true;
}

bool csv_time_read(csv_time *t, const char *text, size_t length) {
  const char *at = text, *end = text + length;
  int64_t days;
  int hour, minute, second = 0;
  *t = (csv_time){0};
  if (length < 10 || !take_date(&at, end, &days)) return false;
  t->seconds = days * DAY_SECONDS;
  if (at == end) return true;
  t->clock = true;
  if (!take_sign(&at, end, 'T') && !take_sign(&at, end, ' ')) return false;
  if (!take_digits(&at, end, 2, &hour) || !take_sign(&at, end, ':') ||
      !take_digits(&at, end, 2, &minute) || hour > 23 || minute > 59)
    return false;
  if (take_sign(&at, end, ':')) {
    if (!take_digits(&at, end, 2, &second) || second > 59) return false;
    if (take_sign(&at, end, '.') && !take_fraction(t, &at, end)) return false;
  }
  t->seconds += hour * 3600 + minute * 60 + second;
  if (at < end && (*at == 'Z' || *at == '+' || *at == '-') && !take_zone(t, &at, end)) return false;
  return at == end;
}

csv_unit csv_unit_for(bool clock, unsigned digits) {
  if (!clock) return CSV_DAYS;
  return digits == 0   ? CSV_SECONDS
         : digits <= 3 ? CSV_MILLIS
         : digits <= 6 ? CSV_MICROS
                       : CSV_NANOS;
}

/* INT64_MAX nanoseconds: these seconds, and that many nanoseconds. */
#define NANOS_SECONDS INT64_C(9223372036)
#define NANOS_REST    854775807

bool csv_time_fits_nanos(const csv_time *t) {
  if (t->seconds == NANOS_SECONDS) return t->nanoseconds <= NANOS_REST;
  if (t->seconds == -NANOS_SECONDS - 1) return t->nanoseconds >= 1000000000 - NANOS_REST;
  return t->seconds > -NANOS_SECONDS - 1 && t->seconds < NANOS_SECONDS;
}

int64_t csv_time_in(const csv_time *t, csv_unit unit) {
  switch (unit) {
  case CSV_DAYS: return t->seconds / DAY_SECONDS - (t->seconds % DAY_SECONDS < 0);
  case CSV_SECONDS: return t->seconds;
  case CSV_MILLIS: return t->seconds * 1000 + t->nanoseconds / 1000000;
  case CSV_MICROS: return t->seconds * 1000000 + t->nanoseconds / 1000;
  case CSV_NANOS: break;
  }
  /* The product of the earliest second would overflow before the nanoseconds are added. */
  return t->seconds < 0 ? (t->seconds + 1) * 1000000000 + ((int64_t)t->nanoseconds - 1000000000)
                        : t->seconds * 1000000000 + t->nanoseconds;
}

const char *csv_unit_name(csv_unit unit) {
  static const char *const names[] = {"D", "s", "ms", "us", "ns"};
  return names[unit];
}

const char *csv_date_text(char text[40], int64_t seconds) {
  int64_t days = seconds / DAY_SECONDS - (seconds % DAY_SECONDS < 0);
  int year = (int)(1970 + days / 366) - (days < 0); /* not above the year; a few below */
  while (days_of(year + 1, 1, 1) <= days) year++;
  while (days_of(year, 1, 1) > days) year--;
  int month = 12;
  while (days_of(year, month, 1) > days) month--;
  snprintf(text, 40, "%04d-%02d-%02d", year, month, (int)(days - days_of(year, month, 1)) + 1);
  return text;
}
