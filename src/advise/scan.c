/* Scan: the first word is found with memmem, the rest is compared word by word. */
#include "advise/scan.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Compares `words` with the text at `at`. Returns the place after them, NULL if they differ. */
static const char *match(scan_text t, const char *at, const char *words) {
  for (; *words != '\0'; words++) {
    if (*words == ' ') {
      if (at >= t.end || !is_space(*at)) return NULL;
      while (at < t.end && is_space(*at)) at++;
    } else {
      if (at >= t.end || *at != *words) return NULL;
      at++;
    }
  }
  return at;
}

const char *scan_find_at(scan_text t, const char *words, const char **start) {
  size_t lead = strspn(words, " ");
  const char *first = words + lead;
  size_t length = strcspn(first, " ");
  for (const char *at = t.at; at < t.end && (size_t)(t.end - at) >= length; at++) {
    at = memmem(at, (size_t)(t.end - at), first, length);
    if (at == NULL) return NULL;
    if (lead > 0 && (at == t.at || !is_space(at[-1]))) continue;
    const char *after = match(t, at, first);
    if (after == NULL) continue;
    if (start != NULL) *start = at;
    return after;
  }
  return NULL;
}

const char *scan_find(scan_text t, const char *words) {
  return scan_find_at(t, words, NULL);
}

const char *scan_find_word(scan_text t, const char *words, const char **start) {
  const char *begin = t.at;
  for (scan_text rest = t; rest.at < rest.end; rest.at = begin + 1) {
    const char *after = scan_find_at(rest, words, &begin);
    if (after == NULL) return NULL;
    bool before = begin > t.at && isalnum((unsigned char)begin[-1]);
    bool behind = after < t.end && isalnum((unsigned char)*after);
    if (before || behind) continue;
    if (start != NULL) *start = begin;
    return after;
  }
  return NULL;
}

bool scan_starts(scan_text t, const char *words) {
  return match(t, t.at, words) != NULL;
}

scan_text scan_line(scan_text t, const char *at) {
  scan_text line = {at, at};
  while (line.at > t.at && line.at[-1] != '\n') line.at--;
  while (line.end < t.end && *line.end != '\n') line.end++;
  return line;
}

bool scan_next_line(scan_text *t, scan_text *line) {
  if (t->at >= t->end) return false;
  const char *newline = memchr(t->at, '\n', (size_t)(t->end - t->at));
  *line = (scan_text){t->at, newline != NULL ? newline : t->end};
  t->at = newline != NULL ? newline + 1 : t->end;
  return true;
}

/* ---- numbers ---- */

/* Returns the factor of the unit at *at and advances *at past it; 1 if there is none. */
static double unit_factor(scan_text t, const char **at, bool binary) {
  static const struct {
    const char *name;
    double factor, binary;
  } units[] = {{"KiB", 0x1p10, 0x1p10},
               {"MiB", 0x1p20, 0x1p20},
               {"GiB", 0x1p30, 0x1p30},
               {"TiB", 0x1p40, 0x1p40},
               {"PiB", 0x1p50, 0x1p50},
               {"EiB", 0x1p60, 0x1p60},
               {"KB", 1e3, 0x1p10},
               {"MB", 1e6, 0x1p20},
               {"GB", 1e9, 0x1p30},
               {"TB", 1e12, 0x1p40},
               {"Ki", 0x1p10, 0x1p10},
               {"Mi", 0x1p20, 0x1p20},
               {"Gi", 0x1p30, 0x1p30},
               {"K", 0x1p10, 0x1p10},
               {"M", 0x1p20, 0x1p20},
               {"G", 0x1p30, 0x1p30},
               {"kB", 0x1p10, 0x1p10},
               {"kb", 0x1p10, 0x1p10},
               {"Kb", 0x1p10, 0x1p10},
               {"Mb", 0x1p20, 0x1p20},
               {"Gb", 0x1p30, 0x1p30},
               {"kilobytes", 0x1p10, 0x1p10},
               {"megabytes", 0x1p20, 0x1p20},
               {"gigabytes", 0x1p30, 0x1p30},
               {"KBytes", 0x1p10, 0x1p10},
               {"MBytes", 0x1p20, 0x1p20},
               {"GBytes", 0x1p30, 0x1p30},
               {"Ko", 0x1p10, 0x1p10},
               {"Mo", 0x1p20, 0x1p20},
               {"Go", 0x1p30, 0x1p30},
               {"\xd0\x9a\xd0\xb1", 0x1p10, 0x1p10}, /* Кб, Мб, Гб */
               {"\xd0\x9c\xd0\xb1", 0x1p20, 0x1p20},
               {"\xd0\x93\xd0\xb1", 0x1p30, 0x1p30},
               {"T", 0x1p40, 0x1p40},
               {"Ti", 0x1p40, 0x1p40},
               {"bytes", 1, 1},
               {"Bytes", 1, 1},
               {"byte", 1, 1},
               {"B", 1, 1},
               {"b", 1, 1}};
  const char *p = *at;
  while (p < t.end && is_space(*p)) p++;
  if (p == *at && p < t.end && *p == '-') p++; /* "a 4096-byte block" */
  for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
    size_t length = strlen(units[i].name);
    if ((size_t)(t.end - p) < length || memcmp(p, units[i].name, length) != 0) continue;
    if (p + length < t.end && isalpha((unsigned char)p[length])) continue;
    *at = p + length;
    return binary ? units[i].binary : units[i].factor;
  }
  return 1;
}

/* Returns the number of digits after the character at `at`. */
static int digits_after(scan_text t, const char *at) {
  int count = 0;
  while (at + 1 + count < t.end && isdigit((unsigned char)at[1 + count])) count++;
  return count;
}

/* A comma before three digits separates thousands ("25,600 bytes"), any other begins a fraction
 * ("1900,00 MiB"). */
static uint64_t size_to(scan_text t, const char *at, bool binary, bool *unit, const char **end) {
  if (at == NULL) return SCAN_UNKNOWN;
  while (at < t.end && is_space(*at)) at++;
  if (at >= t.end || !isdigit((unsigned char)*at)) return SCAN_UNKNOWN;
  double value = 0, scale = 1;
  bool fraction = false, grouped = false;
  for (; at < t.end; at++) {
    if (isdigit((unsigned char)*at)) {
      value = value * 10 + (*at - '0');
      if (fraction) scale *= 10;
      continue;
    }
    if ((*at != '.' && *at != ',') || fraction) break;
    int digits = digits_after(t, at);
    if (digits == 0) break;
    if (*at == '.' || (digits != 3 && !grouped))
      fraction = true;
    else
      grouped = true;
  }
  if (at + 1 < t.end && *at == '.' && at[1] == ' ') at++; /* NumPy writes "745. GiB" */
  const char *digits_end = at;
  double bytes = value / scale * unit_factor(t, &at, binary);
  if (unit != NULL) *unit = at > digits_end;
  if (end != NULL) *end = at;
  return bytes < 0x1p62 ? (uint64_t)(bytes + 0.5) : bytes <= 0x1p64 ? SCAN_HUGE : SCAN_UNKNOWN;
}

/* A fraction without a unit is no number of bytes: "2.00" of "2.00?GiB". */
static uint64_t size_at(scan_text t, const char *at, bool binary) {
  bool unit = false;
  const char *end = at;
  uint64_t bytes = size_to(t, at, binary, &unit, &end);
  if (bytes == SCAN_UNKNOWN || unit) return bytes;
  while (at < end && is_space(*at)) at++;
  const char *dot = memchr(at, '.', (size_t)(end - at));
  return dot != NULL && dot + 1 < end && isdigit((unsigned char)dot[1]) ? SCAN_UNKNOWN : bytes;
}

uint64_t scan_size_to(scan_text t, const char *at, bool *unit, const char **end) {
  return size_to(t, at, true, unit, end);
}

uint64_t scan_size(scan_text t, const char *at) {
  return size_at(t, at, false);
}

uint64_t scan_size_binary(scan_text t, const char *at) {
  return size_at(t, at, true);
}

uint64_t scan_size_after(scan_text t, const char *words) {
  return size_at(t, scan_find(t, words), false);
}

uint64_t scan_size_binary_after(scan_text t, const char *words) {
  return size_at(t, scan_find(t, words), true);
}

static uint64_t size_before(scan_text t, const char *words, bool binary) {
  const char *at = NULL;
  if (scan_find_at(t, words, &at) == NULL) return SCAN_UNKNOWN;
  while (at > t.at && is_space(at[-1])) at--;
  while (at > t.at && isalpha((unsigned char)at[-1])) at--;
  while (at > t.at && is_space(at[-1])) at--;
  while (at > t.at && (isdigit((unsigned char)at[-1]) || at[-1] == '.' || at[-1] == ',')) at--;
  while (at < t.end && *at == ',') at++; /* the end of the words before */
  return size_at(t, at, binary);
}

uint64_t scan_size_before(scan_text t, const char *words) {
  return size_before(t, words, false);
}

uint64_t scan_size_binary_before(scan_text t, const char *words) {
  return size_before(t, words, true);
}

uint64_t scan_number(scan_text t, const char *at) {
  while (at != NULL && at < t.end && is_space(*at)) at++;
  if (at == NULL || at >= t.end || !isdigit((unsigned char)*at)) return SCAN_UNKNOWN;
  uint64_t value = 0;
  for (; at < t.end && isdigit((unsigned char)*at); at++) {
    if (value > (SCAN_UNKNOWN - 9) / 10) return SCAN_UNKNOWN;
    value = value * 10 + (uint64_t)(*at - '0');
  }
  return value;
}

uint64_t scan_number_after(scan_text t, const char *words) {
  return scan_number(t, scan_find(t, words));
}

void scan_copy(char *out, size_t out_bytes, scan_text t, const char *at, const char *ends) {
  size_t length = 0;
  while (at + length < t.end && length + 1 < out_bytes && (unsigned char)at[length] >= ' ' &&
         strchr(ends, at[length]) == NULL)
    length++;
  memcpy(out, at, length);
  out[length] = '\0';
}

static bool starts_case(scan_text t, const char *word) {
  size_t length = strlen(word);
  return (size_t)(t.end - t.at) >= length && tolower((unsigned char)*t.at) == word[0] &&
         strncasecmp(t.at, word, length) == 0;
}

static bool has_case(scan_text t, const char *word) {
  for (; t.at < t.end; t.at++)
    if (starts_case(t, word)) return true;
  return false;
}

bool scan_has_any_case(scan_text t, const char *const *words, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (has_case(t, words[i])) return true;
  return false;
}

const char *scan_last_case(scan_text t, const char *const *words, size_t count) {
  for (const char *at = t.end; at-- > t.at;)
    for (size_t i = 0; i < count; i++)
      if (starts_case(scan_from(t, at), words[i])) return at;
  return NULL;
}
