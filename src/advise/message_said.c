/* Quotes: sentences of the text with numbers that no field of the message has.
 *
 * An exit code, a share, a buffer that was allocated before: the answer repeats the sentence, so
 * that no number near the failure is lost. Advice that follows in the text is not repeated. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "advise/message_parts.h"

#define LINES_AROUND 10
#define LINE_MOST    200 /* characters; longer ones are somebody's own words, or a dump */
#define ABSURD_LEAST (UINT64_C(1) << 50) /* no machine has as much: the number is an error */
#define WORD_MOST    20
#define LEAST        40 /* characters before the failure that make a sentence of their own */

static bool same(uint64_t a, uint64_t b) {
  return a != MESSAGE_UNKNOWN && (a < b ? b - a <= b / 80 + 1 : a - b <= a / 80 + 1);
}

/* Returns whether a field of the message has the size, which may be decimal. */
static bool is_read(const message *m, uint64_t bytes, uint64_t decimal) {
  const uint64_t all[] = {m->asked_bytes,     m->device_bytes, m->free_bytes,   m->process_bytes,
                          m->limit_bytes,     m->live_bytes,   m->cached_bytes, m->reserved_bytes,
                          m->outside_bytes,   m->shape_bytes,  m->whole_bytes,  m->largest_bytes,
                          m->wanted_tokens,   m->cache_tokens, m->host_bytes,   m->given_bytes,
                          m->temporary_bytes, m->out_bytes,    m->before_bytes};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (same(all[i], bytes) || same(all[i], decimal)) return true;
  return false;
}

/* Returns whether a unit of time is at `at`: " ms", " s". */
static bool is_time(scan_text line, const char *at) {
  static const char *const units[] = {" ms", " s", " seconds", " min"};
  for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
    const char *end = at + strlen(units[i]);
    if (line.end - at < end - at || memcmp(at, units[i], strlen(units[i])) != 0) continue;
    if (end == line.end || !scan_is_word(*end)) return true;
  }
  return false;
}

/* Returns the place after the last number of the line that the message does not have, or NULL.
 * `sizes`: only numbers with a unit count. */
static const char *last_unread(const message *m, scan_text line, bool sizes) {
  const char *last = NULL;
  for (const char *at = line.at; at < line.end; at++) {
    if (!isdigit((unsigned char)*at)) continue;
    bool part = at > line.at && (scan_is_word(at[-1]) || at[-1] == '.' || at[-1] == '/' ||
                                 (at[-1] == '-' && at - 1 > line.at && scan_is_word(at[-2])));
    bool unit = false;
    const char *end = at + 1;
    uint64_t bytes = scan_size_to(line, at, &unit, &end);
    /* One digit counts things: "GPU 0", "Error Code 2". */
    bool digit = end == at + 1 && !(at > line.at && at[-1] == '-');
    bool word = !unit && end < line.end && scan_is_word(*end); /* "8007000E", "0x7f" */
    word = word || (!unit && end - at > 1 && at[0] == '0' && at[1] == '0') || is_time(line, end);
    if (!part && !word && !digit && (unit || !sizes) && !is_read(m, bytes, scan_size(line, at)))
      last = end;
    at = end - 1;
    while (at + 1 < line.end && scan_is_word(at[1])) at++;
  }
  return last;
}

/* Returns the end of the sentence that contains `at`. */
static const char *sentence_end(scan_text line, const char *at) {
  for (; at < line.end; at++)
    if ((*at == '.' || *at == ';') && (at + 1 == line.end || at[1] == ' ')) return at;
  return line.end;
}

/* Copies the text; several spaces become one. */
static void copy_spaced(char *out, size_t out_bytes, scan_text t) {
  size_t length = 0;
  for (const char *p = t.at; p < t.end && length + 1 < out_bytes; p++) {
    bool blank = (unsigned char)*p <= ' ';
    if (blank && (length == 0 || out[length - 1] == ' ')) continue;
    out[length++] = blank ? ' ' : *p;
  }
  out[length] = '\0';
}

/* Returns the start of the sentence that contains `at`. */
static const char *sentence_start(scan_text line, const char *at) {
  for (; at > line.at + 1; at--)
    if (at[-1] == ' ' && (at[-2] == '.' || at[-2] == ';')) return at;
  return line.at;
}

/* Keeps the sentences of the line up to the last number that the message does not have. Of a long
 * line only the sentence with that number; an ellipsis shows where a longer one is cut. */
static void keep(message *m, scan_text line, const char *from, const char *last) {
  if (m->said_count == MESSAGE_SAID_MAX) return;
  char *out = m->said[m->said_count];
  size_t most = sizeof m->said[0], used = 0;
  scan_text quote = {from, sentence_end(line, last)};
  if ((size_t)(quote.end - quote.at) >= most) {
    const char *start = sentence_start(line, last);
    if (start > quote.at) quote.at = start;
  }
  bool late = (size_t)(quote.end - quote.at) >= most; /* the end has the number */
  if (late && (size_t)(last - quote.at) < most / 2) { /* … or the start */
    quote.end = quote.at + most - 6;
    while (quote.end > last && ((unsigned char)*quote.end & 0xc0) == 0x80) quote.end--;
    const char *space = quote.end;
    while (space > last && quote.end - space < WORD_MOST && *space != ' ') space--;
    if (*space == ' ' && space > last) quote.end = space;
    copy_spaced(out, most - 4, quote);
    if (out[0] == '\0') return;
    strcat(out, " …");
    m->said_count++;
    return;
  }
  if (late) {
    quote.end = last;
    while (quote.end < line.end && quote.end - last < WORD_MOST && *quote.end != ' ') quote.end++;
    size_t room = most - 12;
    if ((size_t)(quote.end - quote.at) >= room) {
      quote.at = quote.end - room;
      while (quote.at > line.at && quote.at < last && quote.at[-1] != ' ') quote.at++;
      used = (size_t)snprintf(out, most, "… ");
    }
  }
  copy_spaced(out + used, most - used - (late ? 4 : 0), quote);
  if (out[used] == '\0') return;
  if (late) strcat(out, " …");
  m->said_count++;
}

/* Returns whether a line near the failure is about memory. */
static bool is_about_memory(scan_text line) {
  static const char *const words[] = {"emory",   "mem ", "mem=",        "buffer", "KV ",
                                      "weights", "VRAM", "RAM",         "llocat", "avail",
                                      "RSS",     "swap", "odel loading"};
  /* Not of the failure: other addresses, settings and averages, parts that fit. */
  static const char *const others[] = {"File \"",        "download",          "B/s",
                                       "it/s",           "Tried to allocate", "warp size",
                                       "constant alloc", "parameter alloc",   "Average Memory",
                                       "swap: usage",    "Delta Memory",      "KV self size",
                                       "KV buffer size", "shared memory: "};
  while (line.at < line.end && isspace((unsigned char)*line.at)) line.at++;
  if (scan_starts(line, "memory:") && line.end - line.at < WORD_MOST) return false; /* a setting */
  return line.end - line.at <= LINE_MOST &&
         scan_has_any(line, words, sizeof words / sizeof *words) &&
         !scan_has_any(line, others, sizeof others / sizeof *others);
}

void message_said(message *m, scan_text t, const char *where) {
  if (where == NULL || where < t.at || where >= t.end) return;
  if (m->asked_bytes != MESSAGE_UNKNOWN && m->asked_bytes >= ABSURD_LEAST) return;
  scan_text own = scan_line(t, where), line;
  const char *from = own.at, *last = last_unread(m, own, false);
  /* A long line is quoted from the sentence of the failure on. */
  for (const char *p = where; p > own.at + LEAST && from == own.at; p--)
    if (p[-1] == ' ' && p - own.at > 1 && (p[-2] == '.' || p[-2] == ';')) from = p;
  if (last != NULL && last > from) keep(m, own, from, last);
  line = own;
  for (int i = 0; i < LINES_AROUND && line.at > t.at; i++) {
    line = scan_line(t, line.at - 1);
    last = last_unread(m, line, true);
    if (last != NULL && is_about_memory(line)) keep(m, line, line.at, last);
  }
  line = own;
  for (int i = 0; i < LINES_AROUND && line.end + 1 < t.end; i++) {
    line = scan_line(t, line.end + 1);
    last = last_unread(m, line, true);
    if (last != NULL && is_about_memory(line)) keep(m, line, line.at, last);
  }
}
