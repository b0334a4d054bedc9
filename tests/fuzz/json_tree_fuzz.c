/* Fuzzes the JSON reader: every node lies within the text and inside its parent. */
#include <stdlib.h>

#include "files/json_tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  json_tree t;
  if (json_tree_read(&t, (const char *)data, size, "fuzz", 1 << 20) != STOW_OK) return 0;
  for (size_t i = 0; i < t.count; i++) {
    const json_node *n = &t.nodes[i];
    if (n->begin >= n->end || n->end > size || n->child >= t.count || n->next >= t.count) abort();
    if (n->child != 0 && (t.nodes[n->child].begin < n->begin || t.nodes[n->child].end > n->end))
      abort();
    double value;
    if (json_value(&t, n, &value) && n->kind != JSON_NUMBER) abort();
  }
  json_tree_free(&t);
  return 0;
}
