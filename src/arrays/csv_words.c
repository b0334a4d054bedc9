/* Csv words: the words for missing values. */
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
