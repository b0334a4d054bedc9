/* Scan: finds words and sizes in a pasted text.
 *
 * A space in the search words matches any white space in the text, including line ends, so wrapped
 * lines are found. Letter case must match. */
#ifndef ADVISE_SCAN_H
#define ADVISE_SCAN_H

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCAN_UNKNOWN UINT64_MAX
#define SCAN_HUGE    (UINT64_C(1) << 62) /* what a number below zero in disguise is read as */

/* A part of a text; nothing outside it is read. */
typedef struct scan_text {
  const char *at, *end;
} scan_text;

/* Returns the position just after the first `words`; NULL if they do not occur. */
const char *scan_find(scan_text t, const char *words);
/* Does the same; *start (may be NULL) receives where they begin. */
const char *scan_find_at(scan_text t, const char *words, const char **start);
/* Does the same for whole words: no letter or digit directly before or after. */
const char *scan_find_word(scan_text t, const char *words, const char **start);
static inline bool scan_has(scan_text t, const char *words) {
  return scan_find(t, words) != NULL;
}
/* Returns whether the text has one of `count` words, which are in lower case, in any case. */
bool scan_has_any_case(scan_text t, const char *const *words, size_t count);
/* Returns where the last of such words begins; NULL if there is none. */
const char *scan_last_case(scan_text t, const char *const *words, size_t count);
/* Returns whether the text has one of `count` words. */
static inline bool scan_has_any(scan_text t, const char *const *words, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (scan_has(t, words[i])) return true;
  return false;
}
/* Returns whether a character can be part of a name: a letter, a digit or '_'. */
static inline bool scan_is_word(char c) {
  return isalnum((unsigned char)c) || c == '_';
}
/* Returns whether the text begins with `words`. */
bool scan_starts(scan_text t, const char *words);
static inline scan_text scan_from(scan_text t, const char *at) {
  return (scan_text){at, t.end};
}
/* Returns the line that contains `at`. */
scan_text scan_line(scan_text t, const char *at);
/* Removes the next line from `t`. Returns false at the end. */
bool scan_next_line(scan_text *t, scan_text *line);

/* Parses a size as people write it ("260.00 MiB", "6.25GiB", "1,234 bytes", "20971520");
 * SCAN_UNKNOWN if there is none. Sizes above 4 EiB, a number below zero in disguise, count as
 * SCAN_HUGE. A bare whole number counts as bytes; kB is the kernel's 1024; MB and GB are decimal,
 * Mo and Go (octets, of French programs) are powers of 1024. */
uint64_t scan_size(scan_text t, const char *at);
/* Parses a size whose MB and GB are powers of 1024. */
uint64_t scan_size_binary(scan_text t, const char *at);
/* Does the same; *end receives the place after it, and *unit whether it has a unit. */
uint64_t scan_size_to(scan_text t, const char *at, bool *unit, const char **end);
uint64_t scan_size_after(scan_text t, const char *words);
uint64_t scan_size_binary_after(scan_text t, const char *words);
/* Parses the size just before `words`. */
uint64_t scan_size_before(scan_text t, const char *words);
uint64_t scan_size_binary_before(scan_text t, const char *words);
/* Parses a whole number at `at`; SCAN_UNKNOWN if there is none. */
uint64_t scan_number(scan_text t, const char *at);
uint64_t scan_number_after(scan_text t, const char *words);
/* Copies the text from `at` up to one of `ends` or a control character, at most as much as fits. */
void scan_copy(char *out, size_t out_bytes, scan_text t, const char *at, const char *ends);

#endif
