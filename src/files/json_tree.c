/* JSON tree: see json_tree.h. */
#include "files/json_tree.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/list.h"
#include "base/utf8.h"

typedef struct cursor {
  json_tree *t;
  size_t at;
} cursor;

static stow_status refuse(const cursor *c, const char *why) {
  return stow_fail(STOW_ERR_FORMAT, "%s: at byte %zu of the JSON: %s", c->t->name, c->at, why);
}

static char peek(const cursor *c) {
  return c->at < c->t->length ? c->t->text[c->at] : '\0';
}

static void skip_space(cursor *c) {
  while (c->at < c->t->length && memchr(" \t\r\n", c->t->text[c->at], 4) != NULL) c->at++;
}

static bool take(cursor *c, char wanted) {
  skip_space(c);
  if (c->at >= c->t->length || c->t->text[c->at] != wanted) return false;
  c->at++;
  return true;
}

static bool hex4(const cursor *c, size_t at, uint32_t *value) {
  *value = 0;
  if (c->t->length - at < 4) return false;
  for (size_t i = 0; i < 4; i++) {
    char d = c->t->text[at + i];
    uint32_t digit = d >= '0' && d <= '9'   ? (uint32_t)(d - '0')
                     : d >= 'a' && d <= 'f' ? (uint32_t)(d - 'a' + 10)
                     : d >= 'A' && d <= 'F' ? (uint32_t)(d - 'A' + 10)
                                            : 16;
    if (digit == 16) return false;
    *value = *value << 4 | digit;
  }
  return true;
}

static void put_utf8(json_tree *t, uint32_t code) {
  char *to = t->strings + t->strings_used, *start = to;
  if (code < 0x80) {
    *to++ = (char)code;
  } else {
    if (code < 0x800) {
      *to++ = (char)(0xc0 | code >> 6);
    } else {
      if (code < 0x10000) {
        *to++ = (char)(0xe0 | code >> 12);
      } else {
        *to++ = (char)(0xf0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 0x3f));
      }
      *to++ = (char)(0x80 | (code >> 6 & 0x3f));
    }
    *to++ = (char)(0x80 | (code & 0x3f));
  }
  t->strings_used += (size_t)(to - start);
}

static stow_status take_escape(cursor *c) {
  static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
  char letter = peek(c);
  const char *known = letter != '\0' ? strchr(from, letter) : NULL;
  if (known != NULL) {
    c->at++;
    c->t->strings[c->t->strings_used++] = into[known - from];
    return STOW_OK;
  }
  uint32_t code, low;
  if (letter != 'u' || !hex4(c, c->at + 1, &code)) return refuse(c, "unknown escape");
  c->at += 5;
  if (code == 0) return refuse(c, "a NUL in a string");
  if (code >= 0xdc00 && code < 0xe000) return refuse(c, "half of a surrogate pair");
  if (code >= 0xd800 && code < 0xdc00) {
    if (c->t->length - c->at < 6 || c->t->text[c->at] != '\\' || c->t->text[c->at + 1] != 'u' ||
        !hex4(c, c->at + 2, &low) || low < 0xdc00 || low >= 0xe000)
      return refuse(c, "half of a surrogate pair");
    c->at += 6;
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  }
  put_utf8(c->t, code);
  return STOW_OK;
}

/* A decoded string is never longer than its text, quotation marks included, so `strings` always
 * has room for it and its '\0'. */
static stow_status take_string(cursor *c, uint32_t *string) {
  json_tree *t = c->t;
  if (!take(c, '"')) return refuse(c, "expected a string");
  *string = (uint32_t)t->strings_used;
  for (;;) {
    if (c->at >= t->length) return refuse(c, "a string that does not end");
    unsigned char letter = (unsigned char)t->text[c->at];
    if (letter == '"') break;
    if (letter < 0x20) return refuse(c, "a control character in a string");
    if (letter == '\\') {
      c->at++;
      STOW_TRY(take_escape(c));
      continue;
    }
    uint32_t point;
    size_t bytes = utf8_take((const unsigned char *)t->text + c->at, t->length - c->at, &point);
    if (bytes == 0) return refuse(c, "bytes that are not UTF-8");
    memcpy(t->strings + t->strings_used, t->text + c->at, bytes);
    t->strings_used += bytes;
    c->at += bytes;
  }
  c->at++;
  t->strings[t->strings_used++] = '\0';
  return STOW_OK;
}

static bool digits(cursor *c) {
  size_t start = c->at;
  while (peek(c) >= '0' && peek(c) <= '9') c->at++;
  return c->at > start;
}

static stow_status take_number(cursor *c) {
  if (peek(c) == '-') c->at++;
  bool zero = peek(c) == '0';
  size_t start = c->at;
  if (!digits(c) || (zero && c->at - start > 1)) return refuse(c, "not a number");
  if (peek(c) == '.') {
    c->at++;
    if (!digits(c)) return refuse(c, "not a number");
  }
  if (peek(c) == 'e' || peek(c) == 'E') {
    c->at++;
    if (peek(c) == '+' || peek(c) == '-') c->at++;
    if (!digits(c)) return refuse(c, "not a number");
  }
  return STOW_OK;
}

static stow_status take_word(cursor *c, const char *word) {
  size_t length = strlen(word);
  if (c->t->length - c->at < length || memcmp(c->t->text + c->at, word, length) != 0)
    return refuse(c, "expected a value");
  c->at += length;
  return STOW_OK;
}

static stow_status add_node(cursor *c, uint32_t *number) {
  json_tree *t = c->t;
  if (t->count >= t->nodes_max)
    return stow_fail(STOW_ERR_BUDGET, "%s: more than %zu JSON values; raise --memory", t->name,
                     t->nodes_max);
  STOW_TRY(LIST_ROOM(t->nodes, t->count, t->capacity, 64, "JSON values"));
  *number = (uint32_t)t->count++;
  t->nodes[*number] = (json_node){0};
  return STOW_OK;
}

/* Compares the keys of one object through a table of hashes. */
static stow_status check_keys(cursor *c, uint32_t object) {
  json_tree *t = c->t;
  map seen = {0};
  stow_status status = STOW_OK;
  for (uint32_t i = t->nodes[object].child; i != 0 && status == STOW_OK; i = t->nodes[i].next) {
    const char *key = t->strings + t->nodes[i].key;
    uint64_t hash = hash_bytes(key, strlen(key), 0);
    const uint64_t *other = map_get(&seen, hash);
    if (other != NULL && strcmp(t->strings + t->nodes[*other].key, key) == 0)
      status = stow_fail(STOW_ERR_FORMAT, "%s: the key \"%.100s\" appears twice", t->name, key);
    else if (other == NULL)
      status = map_put(&seen, hash, i);
  }
  map_free(&seen);
  return status;
}

static stow_status take_value(cursor *c, uint32_t number, int depth);

static stow_status take_container(cursor *c, uint32_t number, int depth, bool object) {
  uint32_t last = 0;
  if (depth >= JSON_TREE_DEPTH) return refuse(c, "nested too deeply");
  c->at++;
  if (take(c, object ? '}' : ']')) return STOW_OK;
  do {
    uint32_t key = 0, member;
    skip_space(c);
    size_t key_begin = c->at;
    if (object) {
      STOW_TRY(take_string(c, &key));
      if (!take(c, ':')) return refuse(c, "expected ':'");
    }
    STOW_TRY(add_node(c, &member));
    c->t->nodes[member].key = key;
    c->t->nodes[member].key_begin = (uint32_t)key_begin;
    STOW_TRY(take_value(c, member, depth + 1));
    if (last == 0)
      c->t->nodes[number].child = member;
    else
      c->t->nodes[last].next = member;
    last = member;
    c->t->nodes[number].count++;
  } while (take(c, ','));
  if (!take(c, object ? '}' : ']')) return refuse(c, "expected ',' or the end of the list");
  return object ? check_keys(c, number) : STOW_OK;
}

static stow_status take_value(cursor *c, uint32_t number, int depth) {
  skip_space(c);
  c->t->nodes[number].begin = (uint32_t)c->at;
  char letter = peek(c);
  json_kind kind = letter == '{'   ? JSON_OBJECT
                   : letter == '[' ? JSON_ARRAY
                   : letter == '"' ? JSON_STRING
                   : letter == 't' ? JSON_TRUE
                   : letter == 'f' ? JSON_FALSE
                   : letter == 'n' ? JSON_NULL
                                   : JSON_NUMBER;
  c->t->nodes[number].kind = kind;
  uint32_t string = 0;
  switch (kind) {
  case JSON_OBJECT:
  case JSON_ARRAY: STOW_TRY(take_container(c, number, depth, kind == JSON_OBJECT)); break;
  case JSON_STRING: STOW_TRY(take_string(c, &string)); break;
  case JSON_TRUE: STOW_TRY(take_word(c, "true")); break;
  case JSON_FALSE: STOW_TRY(take_word(c, "false")); break;
  case JSON_NULL: STOW_TRY(take_word(c, "null")); break;
  case JSON_NUMBER: STOW_TRY(take_number(c)); break;
  }
  c->t->nodes[number].string = string;
  c->t->nodes[number].end = (uint32_t)c->at;
  return STOW_OK;
}

stow_status json_tree_read(json_tree *t, const char *text, size_t length, const char *name,
                           uint64_t max_bytes) {
  *t = (json_tree){.text = text, .length = length, .name = name};
  if (length >= UINT32_MAX / 2 || length >= max_bytes)
    return stow_fail(STOW_ERR_BUDGET, "%s: %zu bytes of JSON do not fit in the memory budget", name,
                     length);
  /* The list doubles, so that half of it may be empty. */
  t->nodes_max = (size_t)((max_bytes - length) / sizeof(json_node) / 3) + 1;
  t->strings = malloc(length + 1);
  if (t->strings == NULL) return stow_fail(STOW_ERR_HOST_MEMORY, "%s: no host memory", name);
  cursor c = {.t = t};
  uint32_t root;
  stow_status status = add_node(&c, &root);
  if (status == STOW_OK) status = take_value(&c, root, 0);
  skip_space(&c);
  if (status == STOW_OK && c.at != length) status = refuse(&c, "text after the value");
  if (status != STOW_OK) json_tree_free(t);
  return status;
}

void json_tree_free(json_tree *t) {
  free(t->strings);
  free(t->nodes);
  *t = (json_tree){0};
}

const json_node *json_root(const json_tree *t) {
  return t->count > 0 ? &t->nodes[0] : NULL;
}

const json_node *json_first(const json_tree *t, const json_node *container) {
  return container != NULL && container->child != 0 ? &t->nodes[container->child] : NULL;
}

const json_node *json_next(const json_tree *t, const json_node *node) {
  return node != NULL && node->next != 0 ? &t->nodes[node->next] : NULL;
}

const json_node *json_member(const json_tree *t, const json_node *object, const char *key) {
  if (object == NULL || object->kind != JSON_OBJECT) return NULL;
  for (const json_node *m = json_first(t, object); m != NULL; m = json_next(t, m))
    if (strcmp(json_key_of(t, m), key) == 0) return m;
  return NULL;
}

const char *json_string(const json_tree *t, const json_node *node) {
  return node != NULL && node->kind == JSON_STRING ? t->strings + node->string : NULL;
}

const char *json_key_of(const json_tree *t, const json_node *member) {
  return t->strings + member->key;
}

bool json_value(const json_tree *t, const json_node *node, double *value) {
  char number[64];
  if (node == NULL || node->kind != JSON_NUMBER || node->end - node->begin >= sizeof number)
    return false;
  memcpy(number, t->text + node->begin, node->end - node->begin);
  number[node->end - node->begin] = '\0';
  *value = strtod(number, NULL);
  return true;
}

#define SHOWN_MAX 40 /* bytes of a value in a message */

static stow_status fail_kind(const json_tree *t, const json_node *n, const char *key,
                             const char *wanted) {
  uint32_t length = n->end - n->begin;
  return stow_fail(STOW_ERR_FORMAT, "%s: \"%s\" is %.*s%s; it must be %s", t->name, key,
                   (int)(length < SHOWN_MAX ? length : SHOWN_MAX), t->text + n->begin,
                   length > SHOWN_MAX       ? "…"
                   : n->kind == JSON_STRING ? ", a text"
                                            : "",
                   wanted);
}

stow_status json_read_boolean(const json_tree *t, const json_node *object, const char *key,
                              bool *value) {
  const json_node *n = json_member(t, object, key);
  if (n == NULL || n->kind == JSON_NULL) return STOW_OK;
  if (n->kind != JSON_TRUE && n->kind != JSON_FALSE) return fail_kind(t, n, key, "true or false");
  *value = n->kind == JSON_TRUE;
  return STOW_OK;
}

stow_status json_read_number(const json_tree *t, const json_node *object, const char *key,
                             double *value) {
  const json_node *n = json_member(t, object, key);
  if (n == NULL || n->kind == JSON_NULL || json_value(t, n, value)) return STOW_OK;
  return fail_kind(t, n, key, "a number, without quotes");
}
