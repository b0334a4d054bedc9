/* JSON tree: reads a JSON text into nodes. Used for the small files beside models: index.json,
 * config.json, adapter_config.json.
 *
 *   json_tree t;
 *   json_tree_read(&t, text, length, "config.json", 1 << 20);
 *   const json_node *rank = json_member(&t, json_root(&t), "r");
 *
 * Strict JSON: one value, UTF-8, no key twice in one object, at most JSON_TREE_DEPTH levels. The
 * text stays the caller's; nodes keep their position in it, so a caller can edit one value and
 * leave every other byte unchanged. */
#ifndef FILES_JSON_TREE_H
#define FILES_JSON_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define JSON_TREE_DEPTH 64

typedef enum json_kind {
  JSON_NULL,
  JSON_FALSE,
  JSON_TRUE,
  JSON_NUMBER,
  JSON_STRING,
  JSON_ARRAY,
  JSON_OBJECT
} json_kind;

typedef struct json_node {
  json_kind kind;
  uint32_t begin, end;  /* the value's bytes in the text */
  uint32_t key;         /* for a member: offset of its decoded name in `strings` */
  uint32_t key_begin;   /* for a member: where the name begins in the text */
  uint32_t string;      /* for a string: offset of its decoded text in `strings` */
  uint32_t child, next; /* node numbers; 0: none */
  uint32_t count;       /* for an array or object: the number of its values */
} json_node;

typedef struct json_tree {
  const char *text;
  size_t length;
  const char *name; /* for messages; the caller keeps it */
  char *strings;
  size_t strings_used;
  json_node *nodes;
  size_t count, capacity, nodes_max;
} json_tree;

/* Uses at most `max_bytes` of memory. STOW_ERR_FORMAT with the byte, STOW_ERR_BUDGET. */
stow_status json_tree_read(json_tree *t, const char *text, size_t length, const char *name,
                           uint64_t max_bytes);
void json_tree_free(json_tree *t);

const json_node *json_root(const json_tree *t);
/* Returns the member of an object with that key, or NULL. `object` may be NULL. */
const json_node *json_member(const json_tree *t, const json_node *object, const char *key);
/* Return the first member or item of a container and the one after it, or NULL. */
const json_node *json_first(const json_tree *t, const json_node *container);
const json_node *json_next(const json_tree *t, const json_node *node);
/* Return the decoded text of a string (NULL if it is not a string) and the key of a member. */
const char *json_string(const json_tree *t, const json_node *node);
const char *json_key_of(const json_tree *t, const json_node *member);
/* Returns false if the node is not a number. */
bool json_value(const json_tree *t, const json_node *node, double *value);
/* Read a member of that kind. Without the member, or where it is null, *value stays. Another kind
 * is STOW_ERR_FORMAT, with the value: `"use_rslora": 1` is no boolean. */
stow_status json_read_boolean(const json_tree *t, const json_node *object, const char *key,
                              bool *value);
stow_status json_read_number(const json_tree *t, const json_node *object, const char *key,
                             double *value);

#endif
