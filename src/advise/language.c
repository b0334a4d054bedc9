/* Language: R translates its messages, and each translation has the word for a vector and one size:
 *
 *   Error: cannot allocate vector of size 15.6 Gb
 *   Fehler in dist(x) :
 *     kann Vektor der Größe 15.6 GB nicht allozieren
 *
 * The word before the colon shows that R reports an error; it may be on the line before. */
#include "advise/language.h"

#include <string.h>

#define WITHIN 60 /* characters between the word and the size, in either order */

/* Words for an error, as R begins a message with them. */
static const char *const errors[] = {"Error",  "Fehler", "Erreur", "Errore", "Erro", "Fejl",
                                     "Feil",   "Błąd",   "Ошибка", "Hata",   "错误", "錯誤",
                                     "エラー", "에러",   "오류",   "خطا"};
static const char *const vectors[] = {"vector", "Vektor",   "vektor", "vecteur", "vettore",
                                      "vetor",  "vektör",   "wektor", "вектор",  "矢量",
                                      "向量",   "ベクトル", "벡터"};

static bool begins_with_error(scan_text line) {
  while (line.at < line.end && *line.at == ' ') line.at++;
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
    /* "Error in f(x) :", "Error: ", "错误: "; not "Errors of …" or "ErrorHandler" */
    const char *at = line.at + strlen(errors[i]);
    if (scan_starts(line, errors[i]) && (at == line.end || !scan_is_word(*at))) return true;
  }
  return false;
}

/* Returns the size with a unit that is nearest to `at` in the part; SCAN_UNKNOWN if there is none.
 */
static uint64_t size_near(scan_text part) {
  for (const char *p = part.at; p < part.end; p++) {
    bool unit = false;
    const char *end = p;
    if (*p < '0' || *p > '9' || (p > part.at && (scan_is_word(p[-1]) || p[-1] == '.'))) continue;
    uint64_t bytes = scan_size_to(part, p, &unit, &end);
    if (bytes != SCAN_UNKNOWN && unit) return bytes;
  }
  return SCAN_UNKNOWN;
}

static uint64_t vector_size(scan_text line, const char **start) {
  for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
    const char *at = NULL, *after = scan_find_at(line, vectors[i], &at);
    if (after == NULL) continue;
    scan_text behind = {after, line.end - after < WITHIN ? line.end : after + WITHIN};
    scan_text before = {at - line.at < WITHIN ? line.at : at - WITHIN, at};
    uint64_t bytes = size_near(behind);
    if (bytes == SCAN_UNKNOWN) bytes = size_near(before);
    if (bytes == SCAN_UNKNOWN) continue;
    *start = at;
    return bytes;
  }
  return SCAN_UNKNOWN;
}

uint64_t language_r_vector(scan_text t, const char **start) {
  scan_text line;
  const char *at = NULL;
  bool error = false; /* the line before began with the word */
  while (scan_next_line(&t, &line)) {
    bool begins = begins_with_error(line);
    uint64_t bytes = begins || error ? vector_size(line, &at) : SCAN_UNKNOWN;
    if (bytes != SCAN_UNKNOWN) {
      if (start != NULL) *start = at;
      return bytes;
    }
    error = begins;
  }
  return SCAN_UNKNOWN;
}
