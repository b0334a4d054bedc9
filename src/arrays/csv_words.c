/* Csv words: words for missing values, and texts that are values of other kinds: lines of libsvm,
 * complex numbers. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "arrays/csv.h"

bool csv_is_word(const char *text, size_t length, const char *word) {
  return strlen(word) == length && strncasecmp(text, word, length) == 0;
}

bool csv_is_missing(const char *text, size_t length) {
  /* pandas' list (pandas 3), of which nan is a number here; some of it in any case. */
  static const char *const any_case[] = {"NA", "N/A", "null", "#N/A", "<NA>"};
  static const char *const exactly[] = {"None",     "#NA",    "#N/A N/A", "-1.#IND",
                                        "-1.#QNAN", "1.#IND", "1.#QNAN"};
  for (size_t i = 0; i < sizeof any_case / sizeof *any_case; i++)
    if (csv_is_word(text, length, any_case[i])) return true;
  for (size_t i = 0; i < sizeof exactly / sizeof *exactly; i++)
    if (strlen(exactly[i]) == length && memcmp(exactly[i], text, length) == 0) return true;
  return false;
}

static bool is_all(const char *text, size_t length, const char *of) {
  for (size_t i = 0; i < length; i++)
    if (text[i] == '\0' || strchr(of, text[i]) == NULL) return false;
  return length > 0;
}

bool csv_is_pairs(const char *text, size_t length) {
  static const char number[] = "0123456789.+-eE", labels[] = "0123456789.+-eE,";
  size_t at = 0, pairs = 0;
  while (at < length && text[at] != ' ' && text[at] != '\t') at++;
  if (!is_all(text, at, labels)) return false;
  while (at < length) {
    size_t from = ++at;
    while (at < length && text[at] != ' ' && text[at] != '\t') at++;
    if (at == from) continue;
    if (text[from] == '#') break;
    const char *word = text + from, *colon = memchr(word, ':', at - from);
    if (colon == NULL) return false;
    size_t before = (size_t)(colon - word), behind = at - from - before - 1;
    bool index = is_all(word, before, "0123456789") || (before == 3 && memcmp(word, "qid", 3) == 0);
    if (!index || !is_all(colon + 1, behind, number)) return false;
    pairs++;
  }
  return pairs > 0;
}

/* Returns the end of a number in text that ends with '\0'; NULL if there is none. */
static const char *number_end(const char *at) {
  char *end;
  strtod(at, &end);
  return end > at && *at != ' ' ? end : NULL;
}

bool csv_is_complex(const char *text, size_t length) {
  char word[80];
  while (length > 0 && *text == ' ') text++, length--;
  while (length > 0 && text[length - 1] == ' ') length--;
  if (length < 4 || length >= sizeof word) return false;
  memcpy(word, text, length);
  word[length] = '\0';
  bool inside = word[0] == '(';
  const char *at = number_end(word + inside);
  if (at == NULL || (*at != '+' && *at != '-') || strpbrk(word, "xX") != NULL) return false;
  at = number_end(at[0] == '+' && at[1] == '-' ? at + 1 : at); /* NumPy before 1.14 writes "+-" */
  return at != NULL && strcmp(at, inside ? "j)" : "j") == 0;
}
