/* Pattern: the keys of rank_pattern and alpha_pattern in an adapter's config.
 *
 * They are regular expressions of Python for the end of a module's name. Most are plain names. */
#ifndef DATA_WEIGHTS_PATTERN_H
#define DATA_WEIGHTS_PATTERN_H

#include <regex.h>

#include "files/json_tree.h"

/* One entry of rank_pattern or alpha_pattern. */
typedef struct pattern {
  const char *key;
  size_t length;
  regex_t *compiled; /* NULL: the key is a plain name */
  double value;
} pattern;

typedef struct pattern_list {
  pattern *list;
  size_t count, capacity;
} pattern_list;

/* Reads the entries of the member `table` of `root`; `path` is for messages. The keys stay in the
 * tree, which must outlive the list. Refuses expressions that are not read here: without them a
 * wrong scale would be merged. Call patterns_free also after an error. */
stow_status patterns_read(pattern_list *to, const json_tree *t, const json_node *root,
                          const char *path, const char *table);
void patterns_free(pattern_list *p);
/* Returns the value of the first entry that fits the module's name, or `otherwise`. */
double patterns_value(const pattern_list *p, const char *name, double otherwise);

#endif
