/* Column stats: see column_stats.h. */
#include "data/column_stats.h"

#include <string.h>
#include <strings.h>

#include "data/text_layout.h"
#include "numbers/cast.h"

enum { RUN = 1024 };

/* The bytes that CPython uses for a short ASCII string in addition to its characters, and a
 * reference to it: the cost of a text column in pandas. */
#define TEXT_OBJECT_BYTES (49 + 8)

void column_stats_begin(column_stats *t) {
  *t = (column_stats){.shortest = UINT64_MAX};
  scan_begin(&t->integers, DTYPE_I64);
  scan_begin(&t->wides, DTYPE_U64);
  scan_begin(&t->floats, DTYPE_F64);
}

static void join_times(column_stats *t, const column_stats *later) {
  if (later->times) {
    if (!t->times || later->earliest < t->earliest) t->earliest = later->earliest;
    if (!t->times || later->latest > t->latest) t->latest = later->latest;
  }
  t->not_times = t->not_times || later->not_times;
  t->times = t->times || later->times;
  t->past_nanos = t->past_nanos || later->past_nanos;
  t->clock = t->clock || later->clock;
  t->zoned = t->zoned || later->zoned;
  t->unzoned = t->unzoned || later->unzoned;
  t->gaps = t->gaps || later->gaps;
  t->gap_count += later->gap_count;
  if (later->digits > t->digits) t->digits = later->digits;
}

void column_stats_join(column_stats *t, const column_stats *later) {
  if (later->texts > 0 && t->texts == 0 && t->numbers + t->bools + t->missing_words > 0)
    t->mixed = true;
  scan_join(&t->integers, &later->integers);
  scan_join(&t->wides, &later->wides);
  scan_join(&t->floats, &later->floats);
  t->numbers += later->numbers;
  t->wide_count += later->wide_count;
  t->fractions += later->fractions;
  t->bools += later->bools;
  t->false_count += later->false_count;
  t->texts += later->texts;
  t->missing += later->missing;
  t->missing_words += later->missing_words;
  t->absent += later->absent;
  t->text_bytes += later->text_bytes;
  if (later->longest > t->longest) t->longest = later->longest;
  if (later->shortest < t->shortest) t->shortest = later->shortest;
  if (t->first_text_line == 0) {
    t->first_text_line = later->first_text_line;
    t->padded = later->padded;
    t->beyond = later->beyond;
  }
  t->as_text = t->as_text || later->as_text;
  t->as_times = t->as_times || later->as_times;
  t->not_utf8 = t->not_utf8 || later->not_utf8;
  t->negative_beside_wide = t->negative_beside_wide || later->negative_beside_wide;
  t->inexact = t->inexact || later->inexact;
  t->mixed = t->mixed || later->mixed;
  join_times(t, later);
}

bool column_stats_gap(const char *text, size_t length) {
  if (length > 8) return false;
  bool sign = length == 4 && (text[0] == '-' || text[0] == '+');
  bool nan = (length == 3 || sign) && strncasecmp(text + sign, "nan", 3) == 0;
  return nan || (length == 3 && memcmp(text, "NaT", 3) == 0) || csv_is_missing(text, length);
}

void column_stats_text(column_stats *t, const char *text, size_t length) {
  csv_time time;
  if (length == 0) return;
  if (csv_time_read(&time, text, length)) {
    if (!t->times || time.seconds < t->earliest) t->earliest = time.seconds;
    if (!t->times || time.seconds > t->latest) t->latest = time.seconds;
    t->times = true;
    t->past_nanos = t->past_nanos || !csv_time_fits_nanos(&time);
    t->clock = t->clock || time.clock;
    t->zoned = t->zoned || time.zoned;
    t->unzoned = t->unzoned || !time.zoned;
    if (time.digits > t->digits) t->digits = time.digits;
  } else if (column_stats_gap(text, length)) {
    t->gaps = true;
  } else {
    t->not_times = true;
  }
}

/* Integers are scanned both as integers and as doubles: the column may have fractions elsewhere. */
static void add_integers(column_stats *t, const csv_column *c, size_t rows) {
  bool wide = c->form == CSV_WIDES;
  dtype type = wide ? DTYPE_U64 : DTYPE_I64;
  scan part;
  scan_begin(&part, type);
  for (size_t at = 0; at < rows; at += RUN) {
    double near[RUN];
    size_t count = rows - at < RUN ? rows - at : RUN;
    scan_add(&part, c->values + at, count);
    cast_values(near, DTYPE_F64, c->values + at, type, count);
    scan_add(&t->floats, near, count);
    if (part.least > -0x1p53 && part.most < 0x1p53) continue; /* 2^53 + 1 is 2^53 here */
    for (size_t i = 0; i < count && !t->inexact; i++)
      t->inexact = wide ? near[i] >= 0x1p64 || (uint64_t)near[i] != c->values[at + i]
                        : near[i] >= 0x1p63 || (int64_t)near[i] != (int64_t)c->values[at + i];
  }
  scan_join(wide ? &t->wides : &t->integers, &part);
  if (c->bools) t->false_count += part.zeros; /* used only if nothing else is in the column */
}

void column_stats_block(column_stats *t, const csv_column *c, size_t rows) {
  t->missing += c->missing;
  t->missing_words += c->missing_words;
  t->bools += c->bools ? rows : 0;
  t->text_bytes += c->text_bytes;
  if (c->longest > t->longest) t->longest = c->longest;
  if (c->shortest < t->shortest) t->shortest = c->shortest;
  t->inexact = t->inexact || c->inexact;
  t->negative_beside_wide = t->negative_beside_wide || c->negative;
  switch (c->form) {
  case CSV_CODES: t->texts += rows - c->missing; return;
  case CSV_FLOATS:
    scan_add(&t->floats, c->values, rows);
    t->fractions += c->fractions ? rows : 0;
    break;
  default: add_integers(t, c, rows);
  }
  /* Only zero or nonzero matters; if all are booleans, `bools` is exact. */
  t->numbers += c->numbers ? rows : 0;
}

/* ---- the type of the column ---- */

static bool has_only_gaps(const column_stats *t) {
  return t->texts + t->numbers + t->bools == 0;
}

static bool is_text(const column_stats *t) {
  if (t->texts > 0) return true;
  if (has_only_gaps(t)) return t->as_text || t->as_times;
  if (t->bools > 0) return t->numbers > 0;
  bool negative = t->negative_beside_wide || (t->integers.count > 0 && t->integers.least < 0);
  if (t->wide_count > 0 && negative) return true;     /* no type holds both */
  return t->inexact && t->fractions + t->missing > 0; /* nor these */
}

static void conclude_integers(column_facts *to, const column_stats *t) {
  scan *s = &to->values;
  if (t->bools > 0) {
    scan_begin(s, DTYPE_BOOL);
    s->count = t->bools;
    s->zeros = t->false_count;
    s->least_int = t->false_count == 0;
    s->most_int = t->false_count < t->bools;
    s->least = (double)s->least_int;
    s->most = (double)s->most_int;
    return;
  }
  if (t->wide_count == 0) {
    *s = t->integers;
    return;
  }
  *s = t->wides;
  if (t->integers.count == 0) return;
  s->count += t->integers.count;
  s->zeros += t->integers.zeros;
  if (t->integers.least < s->least) s->least = t->integers.least;
  if ((uint64_t)t->integers.least_int < (uint64_t)s->least_int)
    s->least_int = t->integers.least_int;
}

/* Times with and without a zone have no common meaning, and some have no unit: they stay text. */
static bool conclude_times(column_facts *to, const column_stats *t, uint64_t rows) {
  static const char *const names[] = {"datetime64[D]", "datetime64[s]", "datetime64[ms]",
                                      "datetime64[us]", "datetime64[ns]"};
  csv_unit unit = csv_unit_for(t->clock, t->digits);
  if (t->not_times || !(t->times || t->as_times) || (t->zoned && t->unzoned)) return false;
  if (unit == CSV_NANOS && t->past_nanos) return false;
  to->time = true;
  to->unit = unit;
  to->zoned = t->zoned;
  to->earliest = t->earliest;
  to->latest = t->latest;
  to->type_name = names[unit];
  to->missing = t->missing + t->gap_count;
  to->mixed = to->padded = to->beyond = false;
  to->smallest = DTYPE_NONE;
  to->bytes = to->bytes_after = rows * sizeof(int64_t);
  to->layout = (text_layout){.bytes = to->bytes};
  return true;
}

static void conclude_text(column_facts *to, const column_stats *t, uint64_t rows,
                          const intern *words) {
  to->text = true;
  to->type_name = "text";
  to->missing -= t->missing_words; /* they are ordinary texts */
  to->mixed = t->numbers + t->bools > 0;
  to->padded = t->padded;
  to->beyond = t->beyond;
  to->not_utf8 = t->not_utf8;
  to->rounds = t->texts + t->bools == 0 && t->numbers > 0;
  to->first_text_line = t->first_text_line;
  to->text_bytes = t->text_bytes;
  to->longest = t->longest;
  to->distinct_known = words != NULL && !t->mixed && (t->texts > 0 || has_only_gaps(t));
  to->mixed_unknown = words != NULL && !to->distinct_known;
  to->bytes = rows * TEXT_OBJECT_BYTES + t->text_bytes;
  bool fixed = rows > 0 && t->shortest == t->longest && t->longest > 0;
  text_extent all = {rows, t->text_bytes, fixed, t->longest}, distinct = all;
  if (to->distinct_known) {
    uint32_t nothing;
    to->distinct = words->count - intern_find(words, &nothing, "", 0);
    distinct.count = words->count;
    distinct.bytes = words->length - words->count; /* without the terminators */
  }
  to->layout = text_layout_choose(&all, to->distinct_known ? &distinct : NULL);
  to->smallest = to->layout.codes;
  to->bytes_after = to->layout.bytes;
  if (!to->mixed_unknown) conclude_times(to, t, rows);
}

/* For arithmetic a column of floats stays one, also where all its values are whole: an integer type
 * would truncate quotients and wrap sums. */
static dtype type_for(const scan *s, scan_purpose purpose) {
  if (s->type != DTYPE_F64 || purpose != SCAN_FOR_ARITHMETIC || s->count == 0)
    return scan_type_for(s, purpose);
  return scan_fits(s, DTYPE_F32) ? DTYPE_F32 : DTYPE_F64;
}

void column_stats_conclude(column_facts *to, const column_stats *t, uint64_t rows,
                           const intern *words, scan_purpose purpose) {
  to->missing = t->missing;
  if (is_text(t)) {
    conclude_text(to, t, rows, words);
    return;
  }
  if (t->fractions + t->missing > 0 || t->numbers + t->bools == 0)
    to->values = t->floats;
  else
    conclude_integers(to, t);
  to->type_name = dtype_name(to->values.type);
  to->smallest = type_for(&to->values, purpose);
  to->bytes = rows * dtype_bytes(to->values.type);
  to->bytes_after = rows * dtype_bytes(to->smallest);
}
