/* Beside: see beside.h. */
#include "data/weights/beside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

#define CONFIG_MAX (UINT64_C(16) << 20)

bool beside_path(char path[PATH_MAX], const model *m, const char *name) {
  const char *first = m->file_count > 0 ? m->files[0].path : "", *slash = strrchr(first, '/');
  const char *folder = slash != NULL ? first : ".";
  int length = slash != NULL ? (int)(slash - first) : 1;
  return m->file_count > 0 && !text_is_url(first) &&
         snprintf(path, PATH_MAX, "%.*s/%s", length, folder, name) < PATH_MAX;
}

bool beside_config_open(beside_config *c, const model *m) {
  char path[PATH_MAX];
  size_t length;
  *c = (beside_config){0};
  if (!beside_path(path, m, "config.json") || access(path, F_OK) != 0 ||
      model_read_text(&c->text, &length, path, CONFIG_MAX) != STOW_OK)
    return false;
  bool read = json_tree_read(&c->tree, c->text, length, path, 4 * CONFIG_MAX) == STOW_OK;
  if (read && json_root(&c->tree)->kind == JSON_OBJECT) return true;
  if (read) json_tree_free(&c->tree);
  free(c->text);
  return false;
}

void beside_config_close(beside_config *c) {
  json_tree_free(&c->tree);
  free(c->text);
}
