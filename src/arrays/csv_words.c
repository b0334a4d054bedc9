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
