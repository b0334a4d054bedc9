/* Csv colons: tables whose fields are separated by "::", as the rating tables of MovieLens are.
 *
 *     1::1193::5::978300760        An input in front of an input: csv reads CSV_COLONS between the
 *     1::661::3::978302109         fields. Bytes inside quotes stay, and so do line ends, so that
 *                                  line numbers are those of the file. */
#include <stdlib.h>
#include <string.h>

#include "arrays/csv.h"

enum { LOOK_BYTES = 16 << 10, PAIRS_LEAST = 2 };

/* ---- is it such a table? ---- */

typedef struct line_counts {
  size_t pairs, others[4]; /* "::"; other delimiters */
} line_counts;

static const char others[] = ",\t;|";

static line_counts count_line(const uint8_t *at, const uint8_t *end) {
  line_counts made = {0};
  bool quoted = false;
  for (; at < end; at++) {
    if (*at == '"') quoted = !quoted;
    if (quoted) continue;
    const char *other = *at != '\0' ? strchr(others, *at) : NULL;
    if (other != NULL) made.others[other - others]++;
    if (*at != ':' || at + 1 >= end || at[1] != ':') continue;
    made.pairs++;
    at++;
  }
  return made;
}

/* Every line has the same number of pairs: at least two, because an IPv6 address has one. No other
 * delimiter is as regular. */
bool csv_colons_is(const input *in) {
  size_t left = input_left(in), lines = 0;
  const uint8_t *at = in->at, *stop = at + (left < LOOK_BYTES ? left : LOOK_BYTES);
  line_counts first = {0};
  bool even[4] = {true, true, true, true};
  if (memchr(at, CSV_COLONS, (size_t)(stop - at)) != NULL) return false;
  while (at < stop) {
    const uint8_t *end = memchr(at, '\n', (size_t)(stop - at));
    if (end == NULL && (left > LOOK_BYTES || !in->at_eof)) break; /* the line may continue */
    if (end == NULL) end = stop;
    bool blank = end == at || (end == at + 1 && *at == '\r');
    line_counts here = count_line(at, end);
    at = end + 1;
    if (blank) continue;
    if (lines++ == 0) first = here;
    if (here.pairs != first.pairs) return false;
    for (int i = 0; i < 4; i++) even[i] = even[i] && here.others[i] == first.others[i];
  }
  for (int i = 0; i < 4; i++) {
    /* Fewer bars than pairs separate values of one field: "1::Heat (1995)::Action|Crime". */
    size_t least = others[i] == '|' ? first.pairs : 1;
    if (even[i] && first.others[i] >= least) return false;
  }
  return lines > 0 && first.pairs >= PAIRS_LEAST;
}

/* ---- one byte for each pair ---- */

typedef struct csv_colons {
  input in;
  bool field_begins;  /* a quote opens here */
  bool quoted, ended; /* inside quotes; just after the closing one */
} csv_colons;

/* Converts what the input is at: a pair or a byte. */
static uint8_t take(csv_colons *s) {
  const uint8_t *at = s->in.at;
  uint8_t byte = *at;
  bool pair = !s->quoted && byte == ':' && s->in.end - at > 1 && at[1] == ':';
  if (s->quoted) {
    s->quoted = byte != '"';
    s->ended = byte == '"';
    s->field_begins = false;
  } else {
    s->quoted = byte == '"' && (s->field_begins || s->ended);
    s->ended = false;
    s->field_begins = pair || byte == '\n' || byte == '\r';
  }
  s->in.at += pair ? 2 : 1;
  return pair ? CSV_COLONS : byte;
}

static stow_status read_colons(void *user, uint8_t *to, size_t room, size_t *got) {
  csv_colons *s = user;
  *got = 0;
  STOW_TRY(input_fill(&s->in, 2));
  /* A last byte waits for the next one, with which it may be a pair. */
  while (*got < room && input_left(&s->in) > (s->in.at_eof ? 0 : 1)) to[(*got)++] = take(s);
  return STOW_OK;
}

stow_status csv_colons_wrap(input *in) {
  csv_colons *s = calloc(1, sizeof *s);
  if (s != NULL) s->field_begins = true;
  return input_wrap(in, s, read_colons);
}
