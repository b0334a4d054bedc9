/* Mentions: prose, comments and source code that name a failure and do not report one.
 *
 * A README warns of "out of memory" errors, a commit message says what it avoids, a program checks
 * for the words in an exception. Only failures without a number are examined (message.c). A single
 * error line stays one: it has none of these signs. */
#include <ctype.h>
#include <string.h>

#include "advise/message_parts.h"

#define SENTENCE_MOST 600 /* characters before the words that are examined, and after them */

#define HAS_ANY(t, words) scan_has_any_case(t, words, sizeof(words) / sizeof *(words))

/* ---- prose ---- */

static bool ends_sentence(const char *at, const char *end) {
  return (*at == '.' || *at == '!' || *at == '?' || *at == ';' || *at == ':') &&
         (at + 1 >= end || at[1] == ' ');
}

/* Returns the sentence of the line that contains `at`. */
static scan_text sentence_of(scan_text line, const char *at) {
  scan_text s = {at, at};
  while (s.at > line.at && at - s.at < SENTENCE_MOST && !ends_sentence(s.at - 1, line.end)) s.at--;
  while (s.end < line.end && s.end - at < SENTENCE_MOST && !ends_sentence(s.end, line.end)) s.end++;
  return s;
}

/* The warning comes before the shortage ("to avoid out of memory errors, …"), or says what one
 * means. Advice after it ("out of memory: to avoid this, …") is no warning. */
bool message_only_warns(scan_text line, const char *shortage) {
  static const char *const before[] = {
      "avoid",     "prevent",    "if you ",    "if it ",          "in case ",   "may ",
      "might ",    "could ",     "can run",    "can cause",       "can lead",   "without ",
      "when you ", "whether it", "no longer",  "reduce the risk", "you run ",   "you will ",
      "you'll ",   "will get ",  "would get ", "will run ",       "would run ", "will i ",
      "would i ",  "people ",    "how much ",  "how many "};
  static const char *const after[] = {
      "usually means", "often means",    "usually mean", "means that",   "errors usually",
      "errors often",  "occurs when",    "occur when",   "happens when", "happens if",
      "happen when",   "is raised when", "can occur",    "can happen"};
  scan_text s = sentence_of(line, shortage);
  return HAS_ANY(((scan_text){s.at, shortage}), before) ||
         HAS_ANY(((scan_text){shortage, s.end}), after);
}

/* Returns whether the sentence gives another reason than memory, or denies the failure. */
static bool denies(scan_text sentence) {
  static const char *const words[] = {
      "not because of memory", "not a memory",     "not memory", "not out of memory",
      "because of a timeout",  "due to a timeout", "not an oom", "no oom"};
  return HAS_ANY(sentence, words);
}

/* ---- commits ---- */

/* Returns whether the text begins as `git log`, `git show` or a mailed patch. */
static bool is_commit(scan_text t) {
  scan_text line = message_first_line(t);
  while (line.at < line.end && *line.at == ' ') line.at++;
  if (scan_starts(line, "diff --git ")) return true;
  const char *at = scan_starts(line, "commit ") ? line.at + strlen("commit ")
                   : scan_starts(line, "From ") ? line.at + strlen("From ")
                                                : NULL;
  if (at == NULL) return false;
  const char *digits = at;
  while (at < line.end && isxdigit((unsigned char)*at)) at++;
  return at - digits >= 6 && (at == line.end || *at == ' ');
}

/* ---- source code ---- */

/* Returns whether the text has a traceback: its lines of code belong to a failure. */
static bool is_traceback(scan_text t) {
  static const char *const signs[] = {"File \"", "Traceback (most", "--> ", "Cell In["};
  return scan_has_any(t, signs, sizeof signs / sizeof *signs);
}

/* Returns whether the words at `at` are in a line of a program: in a string, a comment or the head
 * of a handler. */
static bool is_code(scan_text line, const char *at) {
  static const char *const heads[] = {
      "except ",           "catch ", "catch(", "} catch", "raise ", "throw ", "with pytest.raises",
      "self.assertRaises", "rescue "};
  static const char *const calls[] = {
      "print",     "fprint",    "log.",    "logger.",    "logging.", "console.",
      "std::",     "warnings.", "return ", "if ",        "elif ",    "else if ",
      "} else if", "assert ",   "msg = ",  "message = ", "echo "};
  while (line.at < at && (*line.at == '+' || *line.at == '-' || *line.at == ' ')) line.at++;
  while (line.end > at && line.end[-1] == ' ') line.end--;
  if (line.at >= line.end) return false;
  if (scan_starts(line, "//") || scan_starts(line, "/*")) return true;
  char last = line.end[-1];
  bool closed = last == ':' || last == '{' || last == ';' || last == ')' || last == ',';
  for (size_t i = 0; closed && i < sizeof heads / sizeof *heads; i++)
    if (scan_starts(line, heads[i])) return true;
  scan_text before = {line.at, at > line.at ? at : line.end};
  bool quoted = memchr(before.at, '"', (size_t)(before.end - before.at)) != NULL ||
                memchr(before.at, '\'', (size_t)(before.end - before.at)) != NULL;
  for (size_t i = 0; quoted && i < sizeof calls / sizeof *calls; i++)
    if (scan_starts(line, calls[i])) return true;
  return quoted && (scan_has(line, " in str(") || scan_has(line, ".what()"));
}

/* ---- all together ---- */

/* Returns whether the words of this failure also occur in prose. A pool's or a server's own
 * sentence explains itself with "might" and "if". */
static bool is_bare(const message *m) {
  return m->kind == MESSAGE_CUDA || m->kind == MESSAGE_TORCH || m->kind == MESSAGE_XLA ||
         m->kind == MESSAGE_TENSORFLOW || m->host == HOST_PYTHON || m->host == HOST_KILLED ||
         m->host == HOST_CONTAINER || m->host == HOST_KERNEL || m->host == HOST_COMPILER;
}

scan_text message_mention(scan_text t, const char *where, const message *m) {
  scan_text line = scan_line(t, where), none = {where, where};
  if (!is_bare(m)) return none;
  if (is_commit(t) || (!is_traceback(t) && is_code(line, where))) return line;
  scan_text sentence = sentence_of(line, where);
  return denies(sentence) || message_only_warns(line, where) ? sentence : none;
}
