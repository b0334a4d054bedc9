/* Beside: the files in the folder of a model. */
#ifndef DATA_WEIGHTS_BESIDE_H
#define DATA_WEIGHTS_BESIDE_H

#include <limits.h>

#include "arrays/model.h"
#include "files/json_tree.h"

/* Writes the path of a file beside the model. Returns false if the path is too long, or the model
 * is not in a folder: it has no file, or is at a URL. */
bool beside_path(char path[PATH_MAX], const model *m, const char *name);

/* The config.json beside a model. */
typedef struct beside_config {
  char *text;
  json_tree tree; /* its root is an object */
} beside_config;

/* Returns false if there is none, or it cannot be read: then it says nothing. */
bool beside_config_open(beside_config *c, const model *m);
void beside_config_close(beside_config *c);

#endif
