/* Shards: several files whose rows follow one another, read as one table or one array.
 *
 * A caller names them by one path: a pattern ("part-*.csv", "part-*.npz:x", in the order of their
 * names), or several paths or patterns with line feeds between them. A path that names a file, and
 * a URL, is never a pattern. Called by everything that opens data files. */
#ifndef DATA_SHARDS_H
#define DATA_SHARDS_H

#include "data/array.h"

typedef struct shards {
  char **paths;
  size_t count; /* at least 1 once found */
} shards;

/* Finds the files that a path names. STOW_ERR_NOT_FOUND: a pattern that no file matches. The caller
 * frees them, also after a failure. */
stow_status shards_find(shards *s, const char *path);
void shards_free(shards *s);
/* Returns whether the path may name several files, by its text and what is on disk. */
bool shards_are(const char *path);
/* Writes "a.csv and 2 more files". Returns `text`. */
const char *shards_name(const shards *s, char *text, size_t size);
/* The same for a path as the caller gave it; patterns are written as they are. */
const char *shards_title(const char *path, char *text, size_t size);

/* Opens arrays of the same type and row shape as one: `from` reads like an npy file that holds
 * their rows. At most four of them are open at a time. */
stow_status shards_open_arrays(source *from, const shards *s, const array_spec *spec);

#endif
