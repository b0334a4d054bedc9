/* Pattern: see pattern.h. Expressions are compiled by the C library, whose time may be exponential
 * in the length of an expression that repeats what may be empty, as "(x*)*": it gets no repeated
 * groups. */
#include "data/weights/pattern.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/list.h"

/* They keep an expression below 20 us, and all modules below some seconds. */
#define PATTERN_MAX     256
#define REPETITIONS_MAX 8
#define EXPRESSIONS_MAX 100

/* Returns whether a key has no special characters but dots and escaped dots. */
static bool is_name(const char *key) {
  for (; *key != '\0'; key++) {
    if (key[0] == '\\' && key[1] == '.')
      key++;
    else if (strchr("\\^$*+?{}[]()|", *key) != NULL)
      return false;
  }
  return true;
}

/* Compares the end of a name as the expression would: a dot is any character. */
static bool name_fits(const char *key, size_t key_length, const char *name, size_t length) {
  const char *from = key + key_length, *at = name + length;
  while (from > key) {
    from--;
    if (at-- == name) return false;
    bool any = *from == '.' && (from == key || from[-1] != '\\');
    if (!any && *from != *at) return false;
    if (*from == '.' && !any) from--;
  }
  return at == name || at[-1] == '.';
}

/* Returns the length of the repetition at `at`: "*", "+", "?" or "{2,3}" with one digit each; 0 if
 * there is none. */
static size_t repetition(const char *at) {
  if (*at == '*' || *at == '+' || *at == '?') return 1;
  if (*at != '{') return 0;
  size_t first = strspn(at + 1, "0123456789"), length = 1 + first;
  if (first != 1) return 0;
  if (at[length] == ',') {
    size_t second = strspn(at + length + 1, "0123456789");
    if (second > 1) return 0;
    length += 1 + second;
  }
  return at[length] == '}' ? length + 1 : 0;
}

/* Returns the length of the class at `at`: "[a-z]"; 0 if it has no end, or a backslash. */
static size_t class_length(const char *at) {
  const char *from = at + 1 + (at[1] == '^');
  const char *end = strchr(from + (*from == ']'), ']');
  if (end == NULL || memchr(at, '\\', (size_t)(end - at)) != NULL ||
      memchr(at + 1, '[', (size_t)(end - at - 1)) != NULL)
    return 0;
  return (size_t)(end - at) + 1;
}

/* Writes one item of an expression of Python as the C library reads it: a character, an escape, a
 * class or a parenthesis. Returns its length in `at`; 0 if it is not understood. */
static size_t write_item(buffer *to, const char *at) {
  if (strncmp(at, "(?:", 3) == 0) return buffer_char(to, '('), 3;
  if (at[0] == '(' && at[1] == '?') return 0;
  if (at[0] == '[') {
    size_t length = class_length(at);
    buffer_append(to, at, length);
    return length;
  }
  if (at[0] != '\\') return repetition(at) > 0 || *at == '{' ? 0 : (buffer_char(to, at[0]), 1);
  if (at[1] == 'd') return buffer_text(to, "[0-9]"), 2;
  if (at[1] == 'w') return buffer_text(to, "[A-Za-z0-9_]"), 2;
  if (at[1] == '\0' || !ispunct((unsigned char)at[1]) || strchr("<>`'", at[1]) != NULL) return 0;
  buffer_append(to, at, 2);
  return 2;
}

/* Writes the expression for whole names. Returns false if it has something that is not read here.
 */
static bool write_pattern(char to[PATTERN_MAX], const char *key) {
  buffer made = BUFFER_INIT;
  bool anchored = key[0] == '^', fine = true;
  int all = 0;
  buffer_text(&made, anchored ? "^(" : "^(.*\\.)?(");
  for (const char *at = key + anchored; *at != '\0' && fine;) {
    bool group = *at == ')', opens = *at == '(' || *at == '|' || *at == '^';
    size_t length = write_item(&made, at);
    fine = length > 0;
    at += length;
    size_t repeats = fine ? repetition(at) : 0;
    if (repeats == 0) continue;
    fine = !opens && (!group || *at == '?') && ++all <= REPETITIONS_MAX;
    buffer_append(&made, at, repeats);
    at += repeats;
    if (*at == '?') at++; /* lazy: matches the same names */
  }
  buffer_text(&made, ")$");
  fine = fine && made.status == STOW_OK && made.length < PATTERN_MAX;
  if (fine) memcpy(to, made.data, made.length), to[made.length] = '\0';
  buffer_free(&made);
  return fine;
}

static bool pattern_fits(const pattern *p, const char *name, size_t length) {
  if (p->compiled != NULL) return regexec(p->compiled, name, 0, NULL, 0) == 0;
  return name_fits(p->key, p->length, name, length);
}

/* Compiles the expression `key`. NULL if it is not read here. */
static regex_t *compile(const char *key) {
  char text[PATTERN_MAX];
  if (!write_pattern(text, key)) return NULL;
  regex_t *made = malloc(sizeof *made);
  if (made == NULL || regcomp(made, text, REG_EXTENDED | REG_NOSUB) == 0) return made;
  free(made);
  return NULL;
}

stow_status patterns_read(pattern_list *to, const json_tree *t, const json_node *root,
                          const char *path, const char *table) {
  const json_node *patterns = json_member(t, root, table);
  size_t expressions = 0;
  if (patterns == NULL || patterns->kind != JSON_OBJECT) return STOW_OK;
  for (const json_node *n = json_first(t, patterns); n != NULL; n = json_next(t, n)) {
    pattern p = {.key = json_key_of(t, n)};
    STOW_TRY(json_read_number(t, patterns, p.key, &p.value));
    if (n->kind == JSON_NULL) continue;
    p.length = strlen(p.key);
    STOW_TRY(LIST_ROOM(to->list, to->count, to->capacity, 16, "patterns"));
    if (!is_name(p.key)) {
      bool many = ++expressions > EXPRESSIONS_MAX;
      p.compiled = many ? NULL : compile(p.key);
      if (p.compiled == NULL)
        return stow_fail(STOW_ERR_UNSUPPORTED,
                         "%s: the expression \"%.80s\" in %s is not read here%s; use PEFT's "
                         "merge_and_unload",
                         path, p.key, table, many ? ", after 100 others" : "");
    }
    to->list[to->count++] = p;
  }
  return STOW_OK;
}

void patterns_free(pattern_list *p) {
  for (size_t i = 0; i < p->count; i++) {
    if (p->list[i].compiled != NULL) regfree(p->list[i].compiled);
    free(p->list[i].compiled);
  }
  free(p->list);
}

double patterns_value(const pattern_list *p, const char *name, double otherwise) {
  size_t length = strlen(name);
  for (size_t i = 0; i < p->count; i++)
    if (pattern_fits(&p->list[i], name, length)) return p->list[i].value;
  return otherwise;
}
